#include "messages/codec.hpp"

#include "messages/msgpack_reader.hpp"
#include "messages/msgpack_writer.hpp"

#include <stdexcept>

namespace millrace {
namespace {

/// The alternative of Choice whose kType the frame names.
template <class Choice, size_t I = 0>
std::variant<Choice, Failure> decode_one_of(std::string_view frame, std::string_view type,
                                            std::string_view expected) {
  if constexpr (I == std::variant_size_v<Choice>) {
    return Failure{Error::malformed, "type", "must be " + std::string(expected)};
  } else {
    using M = std::variant_alternative_t<I, Choice>;
    if (type != M::kType)
      return decode_one_of<Choice, I + 1>(frame, type, expected);
    auto decoded = decode<M>(frame);
    if (auto* failure = std::get_if<Failure>(&decoded))
      return std::move(*failure);
    return Choice(std::get<M>(std::move(decoded)));
  }
}

template <class Choice>
std::variant<Choice, Failure> decode_any(std::string_view frame, std::string_view expected) {
  Envelope envelope;
  const auto failure = read_msgpack(frame, slot_of(envelope));
  if (envelope.type)
    return decode_one_of<Choice>(frame, *envelope.type, expected);
  if (failure && failure->code == Error::malformed)
    return *failure;
  return Failure{Error::malformed, "type", failure ? "must be " + std::string(expected) : "is missing"};
}

} // namespace

template <Message M> std::string encode(const M& message) {
  MsgpackWriter writer;
  writer.write_frame(message);
  std::string frame = writer.take();
  if (frame.size() > kMaxFrameBytes)
    throw std::length_error("encode: " + std::string(M::kType) + " exceeds the frame limit");
  return frame;
}

std::string encode(const Event& event) {
  return std::visit([](const auto& message) { return encode(message); }, event);
}

template <Message M> std::variant<M, Failure> decode(std::string_view frame) {
  M message;
  if (auto failure = read_msgpack(frame, frame_slot_of(message)))
    return *std::move(failure);
  return message;
}

std::variant<ClientMessage, Failure> decode_client_message(std::string_view frame) {
  return decode_any<ClientMessage>(frame, "generate, cancel, replay, follow, read, look or stats");
}

std::variant<Event, Failure> decode_event(std::string_view frame) {
  return decode_any<Event>(frame, "started, progress, prompt_logprobs, token, finished, done or rejected");
}

Envelope read_envelope(std::string_view frame) {
  Envelope envelope;
  read_msgpack(frame, slot_of(envelope));
  return envelope;
}

#define MILLRACE_CODEC(M)                                                                                    \
  template std::string encode(const M&);                                                                     \
  template std::variant<M, Failure> decode(std::string_view);
MILLRACE_CODEC(Generate)
MILLRACE_CODEC(Cancel)
MILLRACE_CODEC(Replay)
MILLRACE_CODEC(Follow)
MILLRACE_CODEC(Read)
MILLRACE_CODEC(Look)
MILLRACE_CODEC(Stats)
MILLRACE_CODEC(Prompt)
MILLRACE_CODEC(Sequence)
MILLRACE_CODEC(SampledToken)
MILLRACE_CODEC(Welcome)
MILLRACE_CODEC(Started)
MILLRACE_CODEC(Progress)
MILLRACE_CODEC(PromptLogprobs)
MILLRACE_CODEC(Token)
MILLRACE_CODEC(Finished)
MILLRACE_CODEC(Done)
MILLRACE_CODEC(Rejected)
MILLRACE_CODEC(Heartbeat)
MILLRACE_CODEC(Ack)
MILLRACE_CODEC(Lagging)
MILLRACE_CODEC(Snapshot)
MILLRACE_CODEC(ServerStats)
#undef MILLRACE_CODEC

} // namespace millrace
