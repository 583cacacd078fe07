#include "model/gguf.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <unordered_map>

namespace millrace {

static_assert(std::endian::native == std::endian::little, "tensor data is used as it lies in the file");

namespace {

namespace limits = gguf_limits;

constexpr uint32_t kDefaultAlignment = 32;

/// GGUF's numbers for the types of metadata values.
enum ValueType : uint32_t {
  kUint8, kInt8, kUint16, kInt16, kUint32, kInt32, kFloat32, kBool, kString, kArray, kUint64, kInt64, kFloat64,
};

std::string quoted(std::string_view name) { return std::string("'") + printable(name) + "'"; }

/// The name of a GGML type that is not one of ours, for error texts.
std::string foreign_type_name(uint32_t id) {
  static constexpr std::pair<uint32_t, const char*> kNames[] = {
    {9, "Q8_1"},    {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"},
    {22, "IQ2_S"},  {23, "IQ4_XS"}, {24, "I8"},     {25, "I16"},    {26, "I32"},     {27, "I64"},   {28, "F64"},
    {29, "IQ1_M"},  {34, "TQ1_0"}, {35, "TQ2_0"},   {39, "MXFP4"},
  };
  for (auto [known, name] : kNames)
    if (known == id) return std::string(name) + " (" + std::to_string(id) + ")";
  return std::to_string(id);
}

/// The one way to take bytes from the file: nothing is read, and no count believed, beyond the end.
class Cursor {
public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  /// What is being read, for error texts.
  void enter(std::string where) { where_ = std::move(where); }

  size_t offset() const { return offset_; }

  [[noreturn]] void fail(const std::string& message) const {
    throw FormatError(where_ + ": " + message + " (at offset " + std::to_string(field_) + ")");
  }

  /// The next count * size bytes.
  const std::byte* take(uint64_t count, uint64_t size) {
    field_ = offset_;
    uint64_t left = bytes_.size() - offset_;
    if (count > left / size)
      fail("needs " + std::to_string(count) + " x " + std::to_string(size) + " bytes, but the file ends after " +
           std::to_string(left));
    auto* begin = bytes_.data() + offset_;
    offset_ += size_t(count * size);
    return begin;
  }

  template <class T> T number() {
    T value;
    std::memcpy(&value, take(1, sizeof(T)), sizeof(T));
    return value;
  }

  /// A number that must be at most `max`.
  template <class T> T count(const char* what, T max) {
    auto value = number<T>();
    if (value > max)
      fail(std::string(what) + " is " + std::to_string(value) + ", the limit is " + std::to_string(max));
    return value;
  }

  std::string_view text(const char* what, uint64_t max_length) {
    auto length = count<uint64_t>(what, max_length);
    return {reinterpret_cast<const char*>(take(length, 1)), size_t(length)};
  }

  bool boolean() {
    auto value = number<uint8_t>();
    if (value > 1) fail("a bool is " + std::to_string(value) + ", not 0 or 1");
    return value != 0;
  }

private:
  std::span<const std::byte> bytes_;
  size_t offset_ = 0;
  size_t field_ = 0; // where the last thing read begins
  std::string where_ = "GGUF header";
};

template <class Stored, class Kept> GgufArray read_numbers(Cursor& in, uint64_t n) {
  auto* bytes = in.take(n, sizeof(Stored));
  std::vector<Kept> values(n);
  for (size_t i = 0; i < n; ++i) {
    Stored stored;
    std::memcpy(&stored, bytes + i * sizeof(Stored), sizeof(Stored));
    values[i] = Kept(stored);
  }
  return {std::move(values)};
}

GgufArray read_bools(Cursor& in, uint64_t n) {
  std::vector<bool> values;
  for (uint64_t i = 0; i < n; ++i) values.push_back(in.boolean());
  return {std::move(values)};
}

GgufArray read_strings(Cursor& in, uint64_t n) {
  std::vector<std::string_view> values; // grows with what was read: n itself is not to be trusted
  for (uint64_t i = 0; i < n; ++i) values.push_back(in.text("string length", limits::kStringLength));
  return {std::move(values)};
}

GgufArray read_array(Cursor& in, uint32_t type, uint64_t n) {
  switch (type) {
  case kUint8: return read_numbers<uint8_t, uint64_t>(in, n);
  case kUint16: return read_numbers<uint16_t, uint64_t>(in, n);
  case kUint32: return read_numbers<uint32_t, uint64_t>(in, n);
  case kUint64: return read_numbers<uint64_t, uint64_t>(in, n);
  case kInt8: return read_numbers<int8_t, int64_t>(in, n);
  case kInt16: return read_numbers<int16_t, int64_t>(in, n);
  case kInt32: return read_numbers<int32_t, int64_t>(in, n);
  case kInt64: return read_numbers<int64_t, int64_t>(in, n);
  case kFloat32: return read_numbers<float, double>(in, n);
  case kFloat64: return read_numbers<double, double>(in, n);
  case kBool: return read_bools(in, n);
  case kString: return read_strings(in, n);
  case kArray: in.fail("arrays of arrays are not supported");
  default: in.fail("unknown type " + std::to_string(type) + " of array elements");
  }
}

GgufValue read_value(Cursor& in, uint64_t& elements_left) {
  auto type = in.number<uint32_t>();
  switch (type) {
  case kUint8: return uint64_t(in.number<uint8_t>());
  case kUint16: return uint64_t(in.number<uint16_t>());
  case kUint32: return uint64_t(in.number<uint32_t>());
  case kUint64: return in.number<uint64_t>();
  case kInt8: return int64_t(in.number<int8_t>());
  case kInt16: return int64_t(in.number<int16_t>());
  case kInt32: return int64_t(in.number<int32_t>());
  case kInt64: return in.number<int64_t>();
  case kFloat32: return double(in.number<float>());
  case kFloat64: return in.number<double>();
  case kBool: return in.boolean();
  case kString: return in.text("string length", limits::kStringLength);
  case kArray: {
    auto element_type = in.number<uint32_t>();
    auto n = in.count<uint64_t>("array length (with the arrays before)", elements_left);
    elements_left -= n;
    return std::make_shared<const GgufArray>(read_array(in, element_type, n));
  }
  default: in.fail("unknown type " + std::to_string(type));
  }
}

/// A file mapped into memory, read-only.
class Mapping {
public:
  explicit Mapping(const std::string& path) {
    // O_NONBLOCK: opening a named pipe must fail below, not wait for a writer.
    int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) throw std::system_error(errno, std::generic_category(), path);
    try {
      map(file, path);
    } catch (...) {
      ::close(file);
      throw;
    }
    ::close(file); // the mapping stays
  }
  ~Mapping() {
    if (size_ > 0) ::munmap(address_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

private:
  void map(int file, const std::string& path) {
    struct stat status;
    if (::fstat(file, &status) != 0) throw std::system_error(errno, std::generic_category(), path);
    if (S_ISDIR(status.st_mode)) throw std::system_error(EISDIR, std::generic_category(), path);
    if (!S_ISREG(status.st_mode)) throw FormatError("not a regular file");
    if (status.st_size == 0) return;
    address_ = ::mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (address_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
    size_ = size_t(status.st_size);
  }

  void* address_ = nullptr;
  size_t size_ = 0;
};

std::string type_name(const GgufValue& value) {
  static constexpr const char* kNames[] = {"an unsigned integer", "an integer", "a float", "a bool", "a string"};
  if (value.index() < std::size(kNames)) return kNames[value.index()];
  static constexpr const char* kElements[] = {"unsigned integers", "integers", "floats", "bools", "strings"};
  return std::string("an array of ") +
         kElements[std::get<std::shared_ptr<const GgufArray>>(value)->values.index()];
}

[[noreturn]] void wrong_type(std::string_view key, const char* expected, const GgufValue& found) {
  throw FormatError("metadata key " + quoted(key) + ": expected " + expected + ", found " + type_name(found));
}

/// The array under a key; wrong_type() if it is something else.
const GgufArray& as_array(std::string_view key, const GgufValue& value, const char* expected) {
  if (auto* array = std::get_if<std::shared_ptr<const GgufArray>>(&value)) return **array;
  wrong_type(key, expected, value);
}

void check_count(std::string_view key, size_t found, std::optional<size_t> expected) {
  if (expected && found != *expected)
    throw FormatError("metadata key " + quoted(key) + ": expected " + std::to_string(*expected) + " elements, found " +
                      std::to_string(found));
}

} // namespace

std::string printable(std::string_view untrusted) {
  constexpr size_t kMaxLength = 80;
  std::string text;
  for (unsigned char c : untrusted) {
    if (text.size() >= kMaxLength) return text + "...";
    if (c >= 0x20 && c < 0x7f && c != '\\') {
      text += char(c);
    } else {
      static constexpr char kHex[] = "0123456789abcdef";
      text += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    }
  }
  return text;
}

std::optional<uint64_t> tensor_bytes(DType type, std::span<const uint64_t> dims) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  auto block = traits(type);
  if (dims.empty() || dims[0] % uint64_t(block.values) != 0) return {};
  uint64_t elements = 1;
  for (uint64_t dim : dims)
    if (dim == 0 || __builtin_mul_overflow(elements, dim, &elements) || elements > kMax) return {};
  uint64_t bytes;
  if (__builtin_mul_overflow(elements / uint64_t(block.values), uint64_t(block.bytes), &bytes) || bytes > kMax) return {};
  return bytes;
}

Matrix GgufTensor::matrix() const {
  if (dims.size() > 2)
    throw FormatError("tensor " + quoted(name) + ": expected a matrix, found " + std::to_string(dims.size()) + " dims");
  return {type, dims.size() == 2 ? dims[1] : 1, dims[0], data};
}

struct GgufFile::State {
  std::optional<Mapping> mapping;
  std::span<const std::byte> bytes;
  uint32_t version = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata;
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, size_t> key_index, tensor_index; // into the two vectors

  void read();
  void read_metadata(Cursor& in, uint64_t n);
  void read_tensors(Cursor& in, uint64_t n);
  void place_tensors(const std::vector<uint64_t>& offsets, uint64_t data_begin);
  uint64_t alignment() const;
};

void GgufFile::State::read() {
  Cursor in(bytes);
  if (std::memcmp(in.take(4, 1), "GGUF", 4) != 0) throw FormatError("not a GGUF file: it does not begin with 'GGUF'");
  version = in.number<uint32_t>();
  if (__builtin_bswap32(version) <= 0xffff && version > 0xffff)
    in.fail("a big-endian GGUF file; only little-endian ones are supported");
  if (version != 2 && version != 3)
    in.fail("version " + std::to_string(version) + " is not supported (2 and 3 are)");
  auto n_tensors = in.count<uint64_t>("number of tensors", limits::kTensors);
  auto n_keys = in.count<uint64_t>("number of metadata keys", limits::kKeys);
  read_metadata(in, n_keys);
  read_tensors(in, n_tensors);
}

void GgufFile::State::read_metadata(Cursor& in, uint64_t n) {
  uint64_t elements_left = limits::kArrayElements;
  for (uint64_t i = 0; i < n; ++i) {
    in.enter("metadata key " + std::to_string(i));
    auto key = in.text("key length", limits::kKeyLength);
    if (key.empty()) in.fail("the key is empty");
    in.enter("metadata key " + quoted(key));
    if (!key_index.emplace(key, metadata.size()).second) in.fail("appears twice");
    metadata.emplace_back(key, read_value(in, elements_left));
  }
}

void GgufFile::State::read_tensors(Cursor& in, uint64_t n) {
  const uint64_t align = alignment();
  std::vector<uint64_t> offsets; // of each tensor, from the beginning of the data section
  for (uint64_t i = 0; i < n; ++i) {
    in.enter("tensor " + std::to_string(i));
    GgufTensor tensor;
    tensor.name = in.text("name length", limits::kTensorNameLength);
    if (tensor.name.empty()) in.fail("the name is empty");
    in.enter("tensor " + quoted(tensor.name));
    if (!tensor_index.emplace(tensor.name, tensors.size()).second) in.fail("appears twice");

    auto n_dims = in.count<uint32_t>("number of dims", limits::kTensorDims);
    if (n_dims == 0) in.fail("number of dims is 0");
    uint64_t dims[limits::kTensorDims] = {};
    for (uint32_t d = 0; d < n_dims; ++d) dims[d] = in.number<uint64_t>();

    auto type_id = in.number<uint32_t>();
    auto type = dtype_from_id(type_id);
    if (!type) in.fail("type " + foreign_type_name(type_id) + " is not supported");
    tensor.type = *type;

    auto bytes_needed = tensor_bytes(tensor.type, {dims, n_dims});
    if (!bytes_needed)
      in.fail(std::string("dims must be at least 1, the first a multiple of ") +
              std::to_string(traits(tensor.type).values) + " (" + traits(tensor.type).name +
              "), the product below 2^63");
    tensor.bytes = size_t(*bytes_needed);
    tensor.dims.assign(dims, dims + n_dims); // each is below 2^63, as the product is

    auto offset = in.number<uint64_t>();
    if (offset % align != 0)
      in.fail("data offset " + std::to_string(offset) + " is not a multiple of the alignment " + std::to_string(align));
    offsets.push_back(offset);
    tensors.push_back(std::move(tensor));
  }
  place_tensors(offsets, (in.offset() + align - 1) / align * align);
}

void GgufFile::State::place_tensors(const std::vector<uint64_t>& offsets, uint64_t data_begin) {
  const uint64_t data_size = bytes.size() - std::min<uint64_t>(data_begin, bytes.size());
  std::vector<size_t> order(tensors.size()); // by offset
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto& tensor = tensors[i];
    if (tensor.bytes > data_size || offsets[i] > data_size - tensor.bytes)
      throw FormatError("tensor " + quoted(tensor.name) + ": " + std::to_string(tensor.bytes) + " bytes at offset " +
                        std::to_string(offsets[i]) + " of the data section, which has only " +
                        std::to_string(data_size) + " bytes (from offset " + std::to_string(data_begin) + ")");
    tensor.data = bytes.data() + data_begin + offsets[i];
    order[i] = i;
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  for (size_t i = 1; i < order.size(); ++i) {
    auto &before = tensors[order[i - 1]], &after = tensors[order[i]];
    if (before.data + before.bytes > after.data)
      throw FormatError("tensor " + quoted(after.name) + ": overlaps tensor " + quoted(before.name) + " at offset " +
                        std::to_string(offsets[order[i]]) + " of the data section");
  }
}

uint64_t GgufFile::State::alignment() const {
  constexpr std::string_view kKey = "general.alignment";
  auto it = key_index.find(kKey);
  if (it == key_index.end()) return kDefaultAlignment;
  auto& value = metadata[it->second].second;
  auto* align = std::get_if<uint64_t>(&value);
  if (!align) wrong_type(kKey, "an unsigned integer", value);
  if (!std::has_single_bit(*align) || *align < limits::kMinAlignment || *align > limits::kMaxAlignment)
    throw FormatError("metadata key " + quoted(kKey) + " is " + std::to_string(*align) + ", must be a power of two from " +
                      std::to_string(limits::kMinAlignment) + " to " + std::to_string(limits::kMaxAlignment));
  return *align;
}

GgufFile::GgufFile(const std::string& path) : state_(std::make_unique<State>()) {
  state_->mapping.emplace(path);
  state_->bytes = state_->mapping->bytes();
  state_->read();
}

GgufFile::GgufFile(std::span<const std::byte> bytes) : state_(std::make_unique<State>()) {
  state_->bytes = bytes;
  state_->read();
}

GgufFile::~GgufFile() = default;

uint32_t GgufFile::version() const { return state_->version; }
std::span<const std::byte> GgufFile::bytes() const { return state_->bytes; }
const std::vector<GgufTensor>& GgufFile::tensors() const { return state_->tensors; }
const std::vector<std::pair<std::string_view, GgufValue>>& GgufFile::metadata() const { return state_->metadata; }

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  auto it = state_->tensor_index.find(name);
  return it == state_->tensor_index.end() ? nullptr : &state_->tensors[it->second];
}

const GgufValue* GgufFile::find(std::string_view key) const {
  auto it = state_->key_index.find(key);
  return it == state_->key_index.end() ? nullptr : &state_->metadata[it->second].second;
}

std::optional<int64_t> GgufFile::get_int(std::string_view key, int64_t min, int64_t max) const {
  auto* value = find(key);
  if (!value) return {};
  auto check = [&](auto found) {
    if (std::cmp_less(found, min) || std::cmp_greater(found, max))
      throw FormatError("metadata key " + quoted(key) + " is " + std::to_string(found) + ", must be from " +
                        std::to_string(min) + " to " + std::to_string(max));
    return int64_t(found);
  };
  if (auto* found = std::get_if<uint64_t>(value)) return check(*found);
  if (auto* found = std::get_if<int64_t>(value)) return check(*found);
  wrong_type(key, "an integer", *value);
}

std::optional<double> GgufFile::get_float(std::string_view key) const {
  auto* value = find(key);
  if (!value) return {};
  if (auto* found = std::get_if<double>(value)) return *found;
  wrong_type(key, "a float", *value);
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  auto* value = find(key);
  if (!value) return {};
  if (auto* found = std::get_if<bool>(value)) return *found;
  wrong_type(key, "a bool", *value);
}

std::optional<std::string_view> GgufFile::get_string(std::string_view key) const {
  auto* value = find(key);
  if (!value) return {};
  if (auto* found = std::get_if<std::string_view>(value)) return *found;
  wrong_type(key, "a string", *value);
}

std::optional<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key,
                                                                   std::optional<size_t> count) const {
  auto* value = find(key);
  if (!value) return {};
  auto& array = as_array(key, *value, "an array of strings");
  auto* found = std::get_if<std::vector<std::string_view>>(&array.values);
  if (!found) wrong_type(key, "an array of strings", *value);
  check_count(key, found->size(), count);
  return *found;
}

std::optional<std::vector<double>> GgufFile::get_floats(std::string_view key, std::optional<size_t> count) const {
  auto* value = find(key);
  if (!value) return {};
  auto& array = as_array(key, *value, "an array of floats");
  auto* found = std::get_if<std::vector<double>>(&array.values);
  if (!found) wrong_type(key, "an array of floats", *value);
  check_count(key, found->size(), count);
  return *found;
}

std::optional<std::vector<int64_t>> GgufFile::get_ints(std::string_view key, std::optional<size_t> count) const {
  auto* value = find(key);
  if (!value) return {};
  auto& array = as_array(key, *value, "an array of integers");
  if (auto* found = std::get_if<std::vector<int64_t>>(&array.values)) {
    check_count(key, found->size(), count);
    return *found;
  }
  auto* found = std::get_if<std::vector<uint64_t>>(&array.values);
  if (!found) wrong_type(key, "an array of integers", *value);
  check_count(key, found->size(), count);
  for (uint64_t element : *found)
    if (element > uint64_t(std::numeric_limits<int64_t>::max()))
      throw FormatError("metadata key " + quoted(key) + ": an element is " + std::to_string(element) +
                        ", the limit is " + std::to_string(std::numeric_limits<int64_t>::max()));
  return std::vector<int64_t>(found->begin(), found->end());
}

} // namespace millrace
