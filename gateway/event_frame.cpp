#include "gateway/event_frame.hpp"

#include "messages/codec.hpp"
#include "messages/msgpack_writer.hpp"

#include <concepts>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace millrace {
namespace {

// The writer is kept by each thread, so that encoding allocates nothing but the frame.
constexpr size_t kRoomKept = 64u << 10;

/// Big-endian, as msgpack has it.
template <std::unsigned_integral T> unsigned char* put(unsigned char* out, unsigned char header, T value) {
  *out++ = header;
  for (int shift = 8 * sizeof value - 8; shift >= 0; shift -= 8)
    *out++ = static_cast<unsigned char>(value >> shift);
  return out;
}

/// In the shortest form, as msgpack libraries write it; no number here is less than -1.
unsigned char* put_integer(unsigned char* out, int64_t value) {
  if (value < 128) {
    *out++ = static_cast<unsigned char>(value);
    return out;
  }
  if (value < 1 << 8)
    return put<uint8_t>(out, 0xcc, static_cast<uint8_t>(value));
  if (value < 1 << 16)
    return put<uint16_t>(out, 0xcd, static_cast<uint16_t>(value));
  if (value < int64_t{1} << 32)
    return put<uint32_t>(out, 0xce, static_cast<uint32_t>(value));
  return put<uint64_t>(out, 0xcf, static_cast<uint64_t>(value));
}

} // namespace

template <Message M> zmq::message_t to_frame(const M& message) {
  thread_local MsgpackWriter writer;
  writer.clear(kRoomKept);
  writer.write_frame(message);
  const std::string_view bytes = writer.view();
  if (bytes.size() > kMaxFrameBytes)
    throw std::length_error("encode: " + std::string(M::kType) + " exceeds the frame limit");
  return zmq::message_t(bytes.data(), bytes.size());
}

#define MILLRACE_FRAME(M) template zmq::message_t to_frame(const M&);
MILLRACE_FRAME(Welcome)
MILLRACE_FRAME(Heartbeat)
MILLRACE_FRAME(Ack)
MILLRACE_FRAME(Lagging)
MILLRACE_FRAME(Snapshot)
MILLRACE_FRAME(ServerStats)
MILLRACE_FRAME(Rejected)
#undef MILLRACE_FRAME

LoggedEvent to_logged(const Event& event) {
  return std::visit(
      []<class E>(const E& e) {
        LoggedEvent logged{.sequence = {.request = e.request}, .body = to_frame(e)};
        if constexpr (std::is_same_v<E, Done> || std::is_same_v<E, Rejected>) {
          logged.last = true;
        } else {
          logged.sequence.choice = e.choice;
          logged.sequence.epoch = e.epoch;
          if constexpr (std::is_same_v<E, Token> || std::is_same_v<E, Finished>)
            logged.seq = e.seq;
        }
        return logged;
      },
      event);
}

EventHeader event_header(const SequenceId& sequence, int64_t seq) {
  EventHeader header;
  unsigned char* end = header.bytes.data();
  *end++ = 0x93; // an array of three
  end = put_integer(end, sequence.choice);
  end = put_integer(end, seq);
  end = put_integer(end, sequence.epoch);
  header.size = static_cast<size_t>(end - header.bytes.data());
  return header;
}

} // namespace millrace
