#pragma once

// Writes GGUF files field by field, right or wrong ones, into memory.

#include "kernels/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::testing {

/// Bytes in a heap block of exactly their size, so that AddressSanitizer sees every read beyond the end.
class ExactBytes {
public:
  explicit ExactBytes(std::string_view bytes) : size_(bytes.size()), data_(new std::byte[bytes.size()]) {
    if (size_ > 0) std::memcpy(data_.get(), bytes.data(), size_);
  }
  std::span<const std::byte> span() const { return {data_.get(), size_}; }

private:
  size_t size_;
  std::unique_ptr<std::byte[]> data_;
};

class GgufWriter {
public:
  // What the header claims; -1 claims what is true.
  int64_t claimed_keys = -1;
  int64_t claimed_tensors = -1;
  uint32_t version = 3;
  uint64_t alignment = 32;

  template <class T> static std::string number(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string text(std::string_view value) { return number<uint64_t>(value.size()) + std::string(value); }
  static std::string text_array(const std::vector<std::string>& values) {
    auto bytes = number<uint32_t>(8) + number<uint64_t>(values.size());
    for (auto& value : values) bytes += text(value);
    return bytes;
  }
  template <class T> static std::string array(uint32_t type, const std::vector<T>& values) {
    auto bytes = number(type) + number<uint64_t>(values.size());
    for (auto value : values) bytes += number<T>(value);
    return bytes;
  }

  /// A key with the number of its type and the bytes of its value.
  GgufWriter& key(std::string_view name, uint32_t type, const std::string& value) {
    keys_.push_back({std::string(name), text(name) + number(type) + value});
    return *this;
  }
  GgufWriter& u32(std::string_view name, uint32_t value) { return key(name, 4, number(value)); }
  GgufWriter& f32(std::string_view name, float value) { return key(name, 6, number(value)); }
  GgufWriter& boolean(std::string_view name, bool value) { return key(name, 7, number(uint8_t(value))); }
  GgufWriter& string(std::string_view name, std::string_view value) { return key(name, 8, text(value)); }
  GgufWriter& drop_key(std::string_view name) {
    std::erase_if(keys_, [&](auto& k) { return k.name == name; });
    return *this;
  }

  /// A tensor of zeros behind those before it. dims: fastest first.
  GgufWriter& tensor(std::string_view name, std::vector<uint64_t> dims, DType type = DType::f32) {
    size_t bytes = size_t(traits(type).bytes);
    for (size_t d = 0; d < dims.size(); ++d) bytes *= d == 0 ? dims[0] / uint64_t(traits(type).values) : dims[d];
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    raw_tensor(name, dims, uint32_t(type), data_.size());
    data_.resize(data_.size() + bytes);
    return *this;
  }
  /// Only an entry of the directory, whatever it claims.
  GgufWriter& raw_tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    auto info = text(name) + number(uint32_t(dims.size()));
    for (auto dim : dims) info += number(dim);
    tensors_.push_back({std::string(name), info + number(type) + number(offset)});
    return *this;
  }
  GgufWriter& drop_tensor(std::string_view name) {
    std::erase_if(tensors_, [&](auto& t) { return t.name == name; });
    return *this;
  }

  std::string header() const {
    auto bytes = "GGUF" + number(version) + number(claimed_tensors < 0 ? uint64_t(tensors_.size()) : uint64_t(claimed_tensors)) +
                 number(claimed_keys < 0 ? uint64_t(keys_.size()) : uint64_t(claimed_keys));
    for (auto& k : keys_) bytes += k.bytes;
    for (auto& t : tensors_) bytes += t.bytes;
    return bytes;
  }
  std::string file() const {
    auto bytes = header();
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    return bytes + data_;
  }

private:
  struct Entry {
    std::string name, bytes;
  };
  std::vector<Entry> keys_, tensors_;
  std::string data_;
};

} // namespace millrace::testing
