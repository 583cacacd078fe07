#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace millrace {

/// A row of the vocabulary. Valid ids are 0 … width of the logits - 1.
using TokenId = int32_t;

/// Raw bytes: msgpack bin, JSON array of integers. Text that is known to be UTF-8 is a std::string.
struct Bytes {
  std::string data;
  auto operator<=>(const Bytes&) const = default;
};

/// Names one request and its stream: 16 random bytes chosen by the client (by the gateway for HTTP).
/// It is the topic on the XPUB socket. msgpack: bin of 16. JSON and text: 32 lower-case hex digits.
struct StreamId {
  std::array<uint8_t, 16> bytes{};

  auto operator<=>(const StreamId&) const = default;
};

/// A fresh id from the system's random source.
StreamId random_stream_id();
std::string to_hex(const StreamId&);
/// Accepts exactly 32 hex digits.
std::optional<StreamId> stream_id_from_hex(std::string_view);

} // namespace millrace

template <> struct std::hash<millrace::StreamId> {
  size_t operator()(const millrace::StreamId& id) const noexcept {
    size_t h;
    std::memcpy(&h, id.bytes.data(), sizeof h); // the bytes are random already
    return h;
  }
};
