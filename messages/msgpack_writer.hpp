#pragma once

#include "messages/ids.hpp"
#include "messages/message.hpp"

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

/// Appends values to a frame, in the shortest form of each. Every field is written, in the order of the list;
/// an absent optional is nil. Each generated token passes here: a frame's largest size is added up first, so
/// that the bytes are written without a look at the room that is left.
class MsgpackWriter {
public:
  template <Message M> void write_frame(const M& message) {
    char* const begin = room(kMostHeader + most(kTypeField) + most(M::kType) + most(message));
    char* out = put_map(begin, 1 + count_fields(message));
    out = put(out, kTypeField);
    out = put(out, M::kType);
    out = put_fields(out, message);
    size_ += static_cast<size_t>(out - begin);
  }

  std::string take() {
    bytes_.resize(std::exchange(size_, 0));
    return std::exchange(bytes_, {});
  }
  /// What was written, until the next call of another function.
  std::string_view view() const { return {bytes_.data(), size_}; }
  /// Forgets what was written and keeps room for as much, up to `bytes`.
  void clear(size_t bytes) {
    size_ = 0;
    if (bytes_.size() > bytes)
      bytes_ = {};
  }

private:
  static constexpr std::string_view kTypeField = "type";
  static constexpr size_t kMostHeader = 5; // of a string, an array, a map

  char* room(size_t count) {
    if (bytes_.size() - size_ < count)
      bytes_.resize(std::max(2 * bytes_.size(), size_ + count));
    return bytes_.data() + size_;
  }

  // ---- the most bytes that a value takes ----

  static size_t most(bool) { return 1; }
  static size_t most(std::integral auto value) { return 1 + sizeof value; }
  static size_t most(std::floating_point auto value) { return 1 + sizeof value; }
  static size_t most(std::string_view text) { return kMostHeader + text.size(); }
  static size_t most(const Bytes& bytes) { return kMostHeader + bytes.data.size(); }
  static size_t most(const StreamId& id) { return kMostHeader + id.bytes.size(); }
  template <class T> static size_t most(const std::optional<T>& value) { return value ? most(*value) : 1; }
  template <class T> static size_t most(const std::vector<T>& values) {
    size_t bytes = kMostHeader;
    for (const T& value : values)
      bytes += most(value);
    return bytes;
  }
  template <class T> static size_t most(const std::map<TokenId, T>& entries) {
    size_t bytes = kMostHeader;
    for (const auto& [id, value] : entries)
      bytes += most(id) + most(value);
    return bytes;
  }
  static size_t most(const Fields auto& message) {
    size_t bytes = kMostHeader;
    message.visit_fields(
        [&](std::string_view name, const auto& value) { bytes += most(name) + most(value); });
    return bytes;
  }

  // ---- the bytes; each function returns where the next ones go ----

  static char* put(char* out, bool value) { return put_byte(out, value ? 0xc3 : 0xc2); }
  static char* put(char* out, std::signed_integral auto value) {
    if (value >= 0)
      return put(out, static_cast<uint64_t>(value));
    if (value >= -32)
      return put_byte(out, static_cast<uint8_t>(value));
    if (value >= INT8_MIN)
      return put_bits(out, 0xd0, static_cast<uint8_t>(value));
    if (value >= INT16_MIN)
      return put_bits(out, 0xd1, static_cast<uint16_t>(value));
    if (value >= INT32_MIN)
      return put_bits(out, 0xd2, static_cast<uint32_t>(value));
    return put_bits(out, 0xd3, static_cast<uint64_t>(value));
  }
  static char* put(char* out, std::unsigned_integral auto value) {
    if (value < 128)
      return put_byte(out, static_cast<uint8_t>(value));
    if (value <= UINT8_MAX)
      return put_bits(out, 0xcc, static_cast<uint8_t>(value));
    if (value <= UINT16_MAX)
      return put_bits(out, 0xcd, static_cast<uint16_t>(value));
    if (value <= UINT32_MAX)
      return put_bits(out, 0xce, static_cast<uint32_t>(value));
    return put_bits(out, 0xcf, static_cast<uint64_t>(value));
  }
  // Never as an integer, which would lose the sign of -0.0.
  static char* put(char* out, float value) { return put_bits(out, 0xca, std::bit_cast<uint32_t>(value)); }
  static char* put(char* out, double value) { return put_bits(out, 0xcb, std::bit_cast<uint64_t>(value)); }
  static char* put(char* out, std::string_view text) {
    const auto size = static_cast<uint32_t>(text.size());
    if (size < 32)
      out = put_byte(out, static_cast<uint8_t>(0xa0 | size));
    else if (size <= UINT8_MAX)
      out = put_bits(out, 0xd9, static_cast<uint8_t>(size));
    else
      out = put_count(out, 0xda, size);
    return put_raw(out, text);
  }
  static char* put(char* out, const Bytes& bytes) { return put_bin(out, bytes.data); }
  static char* put(char* out, const StreamId& id) {
    return put_bin(out, {reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()});
  }
  template <class T> static char* put(char* out, const std::optional<T>& value) {
    return value ? put(out, *value) : put_byte(out, 0xc0);
  }
  template <class T> static char* put(char* out, const std::vector<T>& values) {
    const auto count = static_cast<uint32_t>(values.size());
    out = count < 16 ? put_byte(out, static_cast<uint8_t>(0x90 | count)) : put_count(out, 0xdc, count);
    for (const T& value : values)
      out = put(out, value);
    return out;
  }
  template <class T> static char* put(char* out, const std::map<TokenId, T>& entries) {
    out = put_map(out, static_cast<uint32_t>(entries.size()));
    for (const auto& [id, value] : entries)
      out = put(put(out, id), value);
    return out;
  }
  static char* put(char* out, const Fields auto& message) {
    return put_fields(put_map(out, count_fields(message)), message);
  }

  /// Flat, so that names are constants and the place stays in a register.
  [[gnu::flatten]] static char* put_fields(char* out, const Fields auto& message) {
    message.visit_fields(
        [&out](std::string_view name, const auto& value) { out = put(put(out, name), value); });
    return out;
  }
  static uint32_t count_fields(const Fields auto& message) {
    uint32_t count = 0;
    message.visit_fields([&](std::string_view, const auto&) { ++count; });
    return count;
  }
  static char* put_map(char* out, uint32_t count) {
    return count < 16 ? put_byte(out, static_cast<uint8_t>(0x80 | count)) : put_count(out, 0xde, count);
  }
  static char* put_bin(char* out, std::string_view bytes) {
    const auto size = static_cast<uint32_t>(bytes.size());
    out = size <= UINT8_MAX ? put_bits(out, 0xc4, static_cast<uint8_t>(size)) : put_count(out, 0xc5, size);
    return put_raw(out, bytes);
  }
  /// In two bytes or four, whose header is the next one.
  static char* put_count(char* out, uint8_t header, uint32_t count) {
    return count <= UINT16_MAX ? put_bits(out, header, static_cast<uint16_t>(count))
                               : put_bits(out, static_cast<uint8_t>(header + 1), count);
  }
  static char* put_raw(char* out, std::string_view bytes) {
    std::memcpy(out, bytes.data(), bytes.size());
    return out + bytes.size();
  }
  static char* put_byte(char* out, uint8_t byte) {
    *out = static_cast<char>(byte);
    return out + 1;
  }
  /// Big-endian.
  static char* put_bits(char* out, uint8_t header, std::unsigned_integral auto bits) {
    *out++ = static_cast<char>(header);
    for (int shift = 8 * sizeof bits - 8; shift >= 0; shift -= 8)
      *out++ = static_cast<char>(bits >> shift);
    return out;
  }

  std::string bytes_; // room, of which the first size_ bytes are written
  size_t size_ = 0;
};

} // namespace millrace
