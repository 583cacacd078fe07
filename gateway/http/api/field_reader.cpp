#include "gateway/http/api/field_reader.hpp"

#include <cmath>
#include <limits>
#include <utility>

namespace millrace::http {
namespace {

template <class Integer> std::optional<Integer> to_integer(const Json& value) {
  // nlohmann has positive ones as unsigned; both kinds are read without a cast that could wrap.
  if (value.is_number_unsigned()) {
    if (const auto number = value.get<uint64_t>(); std::in_range<Integer>(number))
      return static_cast<Integer>(number);
  } else if (value.is_number_integer()) {
    if (const auto number = value.get<int64_t>(); std::in_range<Integer>(number))
      return static_cast<Integer>(number);
  }
  return std::nullopt;
}

constexpr std::string_view kInt32 = "an integer from -2147483648 to 2147483647";
constexpr std::string_view kInt64 = "an integer from -9223372036854775808 to 9223372036854775807";

std::string must_be(std::string_view wanted, const Json& found) {
  return "must be " + std::string(wanted) + ", not " +
         (found.is_number_integer() && wanted.starts_with("an integer") ? "one beyond it" : std::string(kind_of(found)));
}

} // namespace

FieldReader::FieldReader(const Json& object, std::string path) : path_(std::move(path)) {
  for (const auto& [name, value] : object.get_ref<const Json::object_t&>())
    if (!value.is_null())
      members_.emplace(name, &value);
}

const Json* FieldReader::find(std::string_view name) const {
  const auto found = members_.find(name);
  return found == members_.end() ? nullptr : found->second;
}

void FieldReader::read(std::string_view name, bool& out) {
  if (const Json* value = next(name)) {
    if (!value->is_boolean())
      return refuse(name, *value, "true or false");
    out = value->get<bool>();
  }
}

void FieldReader::read(std::string_view name, int32_t& out) {
  if (const Json* value = next(name)) {
    const auto number = to_integer<int32_t>(*value);
    if (!number)
      return refuse(name, *value, kInt32);
    out = *number;
  }
}

void FieldReader::read(std::string_view name, int64_t& out) {
  if (const Json* value = next(name)) {
    const auto number = to_integer<int64_t>(*value);
    if (!number)
      return refuse(name, *value, kInt64);
    out = *number;
  }
}

void FieldReader::read(std::string_view name, float& out) {
  if (const Json* value = next(name)) {
    if (!value->is_number())
      return refuse(name, *value, "a number");
    const double number = value->get<double>();
    if (std::abs(number) > double{std::numeric_limits<float>::max()})
      return fail(name, "must be a number that a 32-bit float can hold");
    out = static_cast<float>(number);
  }
}

void FieldReader::read(std::string_view name, std::string& out) {
  if (const Json* value = next(name)) {
    if (!value->is_string())
      return refuse(name, *value, "a string");
    out = value->get_ref<const std::string&>();
  }
}

void FieldReader::read(std::string_view name, uint64_t& out) {
  if (const Json* value = next(name)) {
    if (!value->is_number_unsigned())
      return value->is_number_integer() ? fail(name, "must not be negative")
                                        : refuse(name, *value, "an integer from 0 to 18446744073709551615");
    out = value->get<uint64_t>();
  }
}

void FieldReader::read(std::string_view name, std::vector<TokenId>& out) {
  if (const Json* value = next(name)) {
    if (!value->is_array())
      return refuse(name, *value, "an array of token ids");
    if (auto error = read_ids(path_of(name), *value, out))
      fail(std::move(*error));
  }
}

std::string FieldReader::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + '.' + std::string(name);
}

void FieldReader::fail(ApiError error) {
  if (!error_)
    error_ = std::move(error);
}

void FieldReader::fail(std::string_view name, std::string message) {
  fail(bad_field(path_of(name), std::move(message)));
}

void FieldReader::refuse(std::string_view name, const Json& found, std::string_view wanted) {
  fail(name, must_be(wanted, found));
}

std::optional<ApiError> read_ids(const std::string& path, const Json& array, std::vector<TokenId>& out) {
  out.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const auto id = to_integer<int32_t>(array[i]);
    if (!id)
      return bad_field(path + '[' + std::to_string(i) + ']', must_be(kInt32, array[i]));
    out.push_back(*id);
  }
  return std::nullopt;
}

} // namespace millrace::http
