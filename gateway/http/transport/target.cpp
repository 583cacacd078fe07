#include "gateway/http/transport/target.hpp"

#include <algorithm>

namespace millrace::http {
namespace {

constexpr size_t kMaxParameters = 64;

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return std::nullopt;
}

std::optional<std::string> decode(std::string_view text, bool plus_is_space) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_space) {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      if (i + 2 >= text.size())
        return std::nullopt;
      const auto high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (!high || !low)
        return std::nullopt;
      decoded += static_cast<char>(*high << 4 | *low);
      i += 2;
    }
  }
  return decoded;
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// "name=value&name=value" into the map; false if it is not well formed.
bool decode_query(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    const auto parameter = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(parameter.size() + 1, text.size()));
    if (parameter.empty())
      continue;
    const size_t equals = parameter.find('=');
    auto name = decode(parameter.substr(0, equals), true);
    auto value = equals == parameter.npos ? std::string() : decode(parameter.substr(equals + 1), true);
    if (!name || !value || query.size() == kMaxParameters ||
        !query.try_emplace(std::move(*name), std::move(*value)).second)
      return false;
  }
  return true;
}

} // namespace

std::optional<Target> parse_target(std::string_view text) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (text.starts_with(scheme)) {
      text.remove_prefix(std::min(text.find_first_of("/?", scheme.size()), text.size()));
      if (text.empty())
        text = "/";
      break;
    }
  if (!text.starts_with('/'))
    return std::nullopt;

  text = text.substr(0, text.find('#')); // no client should send a fragment
  const size_t question = text.find('?');
  auto path = decode(text.substr(0, question), false);
  if (!path || std::any_of(path->begin(), path->end(), is_control))
    return std::nullopt;
  Target target{std::move(*path), {}};
  if (question != text.npos && !decode_query(text.substr(question + 1), target.query))
    return std::nullopt;
  return target;
}

} // namespace millrace::http
