#pragma once

#include "messages/ids.hpp"
#include "messages/message.hpp"

#include <msgpack.hpp>

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

/// Appends values to a frame. Every field is written, in the order of the list; an absent optional is nil.
class MsgpackWriter {
public:
  template <Message M> void write_frame(const M& message) {
    packer_.pack_map(1 + count_fields(message));
    write(std::string_view("type"));
    write(M::kType);
    write_fields(message);
  }

  std::string take() {
    frame_.bytes.resize(std::exchange(frame_.size, 0));
    return std::exchange(frame_.bytes, {});
  }
  /// What was written, until the next call of another function.
  std::string_view view() const { return {frame_.bytes.data(), frame_.size}; }
  /// Forgets what was written and keeps room for as much, up to `bytes`.
  void clear(size_t bytes) {
    frame_.size = 0;
    if (frame_.bytes.size() > bytes)
      frame_.bytes = {};
  }

private:
  /// The string is room, of which the first bytes are written: appending to it costs more than writing into
  /// it.
  struct Frame {
    std::string bytes = {};
    size_t size = 0;
    void write(const char* data, size_t count) {
      if (bytes.size() - size < count)
        bytes.resize(std::max(2 * bytes.size(), size + count + kFirstRoom));
      std::memcpy(bytes.data() + size, data, count);
      size += count;
    }
  };
  static constexpr size_t kFirstRoom = 224;

  void write(bool value) { value ? packer_.pack_true() : packer_.pack_false(); }
  void write(std::signed_integral auto value) { packer_.pack_int64(value); }
  void write(std::unsigned_integral auto value) { packer_.pack_uint64(value); }
  // Not by the packer: it turns 2.0 into an integer, and so loses the sign of -0.0.
  void write(float value) { write_bits('\xCA', std::bit_cast<uint32_t>(value)); }
  void write(double value) { write_bits('\xCB', std::bit_cast<uint64_t>(value)); }
  void write(std::string_view text) {
    packer_.pack_str(static_cast<uint32_t>(text.size()));
    packer_.pack_str_body(text.data(), static_cast<uint32_t>(text.size()));
  }
  void write(const Bytes& bytes) { write_bin(bytes.data.data(), bytes.data.size()); }
  void write(const StreamId& id) {
    write_bin(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
  }
  template <class T> void write(const std::optional<T>& value) {
    if (value)
      write(*value);
    else
      packer_.pack_nil();
  }
  template <class T> void write(const std::vector<T>& values) {
    packer_.pack_array(static_cast<uint32_t>(values.size()));
    for (const T& value : values)
      write(value);
  }
  template <class T> void write(const std::map<TokenId, T>& entries) {
    packer_.pack_map(static_cast<uint32_t>(entries.size()));
    for (const auto& [id, value] : entries) {
      write(id);
      write(value);
    }
  }
  void write(const Fields auto& message) {
    packer_.pack_map(count_fields(message));
    write_fields(message);
  }

  void write_fields(const Fields auto& message) {
    message.visit_fields([this](std::string_view name, const auto& value) {
      write(name);
      write(value);
    });
  }
  static uint32_t count_fields(const Fields auto& message) {
    uint32_t count = 0;
    message.visit_fields([&](std::string_view, const auto&) { ++count; });
    return count;
  }
  void write_bin(const char* data, size_t size) {
    packer_.pack_bin(static_cast<uint32_t>(size));
    packer_.pack_bin_body(data, static_cast<uint32_t>(size));
  }
  void write_bits(char header, std::unsigned_integral auto bits) {
    char bytes[1 + sizeof bits] = {header};
    for (size_t i = 0; i < sizeof bits; ++i)
      bytes[1 + i] = static_cast<char>(bits >> (8 * (sizeof bits - 1 - i)));
    frame_.write(bytes, sizeof bytes);
  }

  Frame frame_;
  msgpack::packer<Frame> packer_{frame_};
};

} // namespace millrace
