#include "gateway/json.hpp"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <iterator>

namespace millrace {
namespace {

template <std::integral T> void append_number(std::string& out, T value) {
  char digits[20]; // -2^63 and 2^64 - 1 take as many
  out.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

/// The shortest digits that read back as the same number; always with a point or an exponent, or a reader
/// would take -0 for the integer 0.
template <std::floating_point T> void append_number(std::string& out, T value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char digits[32]; // the longest double takes 24
  const std::string_view text(digits, std::to_chars(digits, std::end(digits), value).ptr);
  out += text;
  if (text.find_first_of(".e") == text.npos)
    out += ".0";
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
  append_number(out, value);
}

void append_json(std::string& out, double value) {
  append_number(out, value);
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
