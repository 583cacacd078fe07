#include "model/text/detokenizer.hpp"

namespace millrace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD"; // U+FFFD

/// How the bytes at the front of a text can be read (The Unicode Standard, table 3-7).
struct Front {
  enum Kind { character, broken, incomplete } kind;
  size_t length; // of the character, or of the longest part that could have begun one (at least 1)
};

Front read_front(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80)
    return {Front::character, 1};
  if (lead < 0xC2 || lead > 0xF4)
    return {Front::broken, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range keeps out overlong forms, surrogates and what is above U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size())
      return {Front::incomplete, i};
    if (byte(i) < low || byte(i) > high)
      return {Front::broken, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Front::character, length};
}

} // namespace

std::string Detokenizer::push(std::string_view bytes) {
  pending_.append(bytes);
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Front front = read_front(rest);
    if (front.kind == Front::incomplete)
      break;
    text.append(front.kind == Front::character ? rest.substr(0, front.length) : kReplacement);
    rest.remove_prefix(front.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return text;
}

std::string Detokenizer::finish() {
  const bool incomplete = pending();
  pending_.clear();
  return incomplete ? std::string(kReplacement) : std::string();
}

} // namespace millrace
