#include "model/text/chat/provenance.hpp"

#include "model/text/utf8.hpp"

#include <algorithm>

namespace millrace::jinja {
namespace {

constexpr std::string_view kEllipsis = "…";
constexpr size_t kMaxErrorBytes = 512;

std::vector<Range>::const_iterator first_ending_after(const std::vector<Range>& ranges, size_t position) {
  return std::upper_bound(ranges.begin(), ranges.end(), position,
                          [](size_t at, const Range& range) { return at < range.end; });
}

} // namespace

bool Text::is_trusted(size_t begin, size_t end) const {
  if (begin >= end)
    return true;
  const auto range = first_ending_after(trusted, begin);
  return range != trusted.end() && range->begin <= begin && end <= range->end;
}

void TextBuilder::append(std::string_view bytes, bool trusted) {
  if (bytes.empty())
    return;
  const size_t begin = text_.bytes.size();
  text_.bytes += bytes;
  if (!trusted)
    return;
  if (!text_.trusted.empty() && text_.trusted.back().end == begin)
    text_.trusted.back().end = text_.bytes.size();
  else
    text_.trusted.push_back({begin, text_.bytes.size()});
}

void TextBuilder::append(const Text& text, size_t begin, size_t end) {
  const std::string_view bytes = text.bytes;
  for (auto range = first_ending_after(text.trusted, begin); begin < end;) {
    const bool inside = range != text.trusted.end() && range->begin <= begin;
    const size_t stretch_end =
        std::min(end, range == text.trusted.end() ? end : (inside ? range->end : range->begin));
    append(bytes.substr(begin, stretch_end - begin), inside);
    begin = stretch_end;
    if (inside)
      ++range;
  }
}

TextPtr make_text(std::string_view bytes, bool trusted) {
  TextBuilder builder;
  builder.append(bytes, trusted);
  return builder.finish();
}

TextPtr slice(const TextPtr& text, size_t begin, size_t end) {
  if (begin == 0 && end == text->bytes.size())
    return text;
  TextBuilder builder;
  builder.append(*text, begin, end);
  return builder.finish();
}

std::string redacted(const Text& text) {
  std::string result;
  for_each_stretch(text, [&](std::string_view bytes, bool trusted) {
    result += trusted ? bytes.substr(0, 2 * kMaxErrorBytes) : kEllipsis;
  });
  return result;
}

std::string error_text(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_character_size(text.substr(i));
    const std::string_view character = size == 0 ? "\ufffd" : text.substr(i, size);
    i += std::max<size_t>(size, 1);
    const size_t reserve = i < text.size() ? kEllipsis.size() : 0;
    if (result.size() + character.size() + reserve > kMaxErrorBytes)
      return result += kEllipsis;
    result += character;
  }
  return result;
}

} // namespace millrace::jinja
