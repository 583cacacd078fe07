#include "gateway/json.hpp"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>

namespace millrace {
namespace {

template <class T> void append_number(std::string& out, T value) {
  char digits[32]; // the longest double takes 24 characters
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

} // namespace

void append_json(std::string& out, bool value) {
  out += value ? "true" : "false";
}

void append_json(std::string& out, int64_t value) {
  append_number(out, value);
}

void append_json(std::string& out, uint64_t value) {
  append_number(out, value);
}

void append_json(std::string& out, float value) {
  if (std::isfinite(value))
    append_number(out, value);
  else
    out += "null";
}

void append_json(std::string& out, double value) {
  if (std::isfinite(value))
    append_number(out, value);
  else
    out += "null";
}

void append_json(std::string& out, std::string_view text) {
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_json(std::string& out, const Bytes& bytes) {
  out += '[';
  for (size_t i = 0; i < bytes.data.size(); ++i) {
    if (i > 0)
      out += ',';
    append_number(out, unsigned{static_cast<unsigned char>(bytes.data[i])});
  }
  out += ']';
}

void append_json(std::string& out, const StreamId& id) {
  append_json(out, std::string_view{to_hex(id)});
}

std::string to_json(const Event& event) {
  return std::visit([](const auto& held) { return to_json(held); }, event);
}

} // namespace millrace
