#include "model/text/chat/printing.hpp"

#include "model/text/chat/characters.hpp"

#include <utf8proc.h>

#include <charconv>
#include <cmath>
#include <cstdio>

namespace millrace::jinja {
namespace {

// Python's str.isprintable.
bool is_printable(char32_t c) {
  if (c == ' ')
    return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

void append_hex(std::string& text, const char* format, unsigned value) {
  char digits[16];
  std::snprintf(digits, sizeof digits, format, value);
  text += digits;
}

std::string quoted_character(std::string_view bytes, char quote) {
  if (utf8_character_size(bytes) == 0)
    return std::string(bytes);
  std::string result;
  const char32_t c = decode_character(bytes);
  if (c == static_cast<unsigned char>(quote) || c == '\\')
    result = {'\\', static_cast<char>(c)};
  else if (c == '\n')
    result = "\\n";
  else if (c == '\r')
    result = "\\r";
  else if (c == '\t')
    result = "\\t";
  else if (is_printable(c))
    result = bytes;
  else
    append_hex(result, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
  return result;
}

void print_quoted(Fuel& fuel, const Text& text, TextBuilder& out) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const char quote = has_single && text.bytes.find('"') == std::string::npos ? '"' : '\'';
  out.append({&quote, 1}, true);
  for_each_stretch(text, [&](std::string_view bytes, bool trusted) {
    std::string quoted;
    for (size_t i = 0; i < bytes.size();) {
      const size_t size = character_size(bytes.substr(i));
      quoted += quoted_character(bytes.substr(i, size), quote);
      i += size;
    }
    fuel.spend_scan(quoted.size());
    out.append(quoted, trusted);
  });
  out.append({&quote, 1}, true);
}

void print_items(Fuel& fuel, const Sequence& sequence, TextBuilder& out) {
  const bool is_tuple = sequence.kind == SequenceKind::tuple;
  out.append(is_tuple ? "(" : "[", true);
  for (bool first = true; const Value& item : sequence.items) {
    out.append(first ? "" : ", ", true);
    print_repr(fuel, item, out);
    first = false;
  }
  out.append(is_tuple && sequence.items.size() == 1 ? "," : "", true);
  out.append(is_tuple ? ")" : "]", true);
}

void print_dict(Fuel& fuel, const Dict& dict, TextBuilder& out) {
  out.append("{", true);
  for (bool first = true; const auto& [key, value] : dict.entries()) {
    out.append(first ? "" : ", ", true);
    print_repr(fuel, key, out);
    out.append(": ", true);
    print_repr(fuel, value, out);
    first = false;
  }
  out.append("}", true);
}

void print_sequence(Fuel& fuel, const Sequence& sequence, TextBuilder& out) {
  switch (sequence.kind) {
  case SequenceKind::list:
  case SequenceKind::tuple: return print_items(fuel, sequence, out);
  case SequenceKind::keys:
  case SequenceKind::values:
  case SequenceKind::items:
    out.append(type_name({std::make_shared<const Sequence>(Sequence{sequence.kind, {}, 1})}), true);
    out.append("(", true);
    print_items(fuel, sequence, out);
    return out.append(")", true);
  case SequenceKind::range:
  case SequenceKind::generator: break;
  }
  throw Failure("a value of this kind cannot be printed: use the filter list");
}

} // namespace

std::string float_repr(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto shortest = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view all(buffer, static_cast<size_t>(shortest.ptr - buffer));
  const size_t e = all.find('e');
  const int exponent = std::atoi(std::string(all.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16)
    return std::string(all);

  const bool negative = all[0] == '-';
  std::string digits;
  for (const char c : all.substr(negative, e - negative))
    if (c != '.')
      digits += c;
  std::string result = negative ? "-" : "";
  if (exponent < 0)
    return result + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() < whole)
    digits.append(whole - digits.size(), '0');
  result += digits.substr(0, whole) + ".";
  return result + (digits.size() > whole ? digits.substr(whole) : "0");
}

void print_repr(Fuel& fuel, const Value& value, TextBuilder& out) {
  fuel.spend();
  if (const Text* text = value.text())
    return print_quoted(fuel, *text, out);
  if (const Sequence* items = value.sequence())
    return print_sequence(fuel, *items, out);
  if (const Dict* entries = value.dict())
    return print_dict(fuel, *entries, out);
  if (value.is_undefined())
    return out.append("Undefined", true);
  out.append(*to_text(fuel, value));
}

TextPtr to_text(Fuel& fuel, const Value& value) {
  if (value.is<TextPtr>())
    return value.get<TextPtr>();
  if (value.is_undefined())
    return make_text("", true);
  if (value.is_none())
    return make_text("None", true);
  if (value.is<bool>())
    return make_text(value.get<bool>() ? "True" : "False", true);
  if (value.is<Integer>())
    return make_text(std::to_string(value.get<Integer>().value), !value.get<Integer>().from_input);
  if (value.is<Float>())
    return make_text(float_repr(value.get<Float>().value), !value.get<Float>().from_input);
  if (value.sequence() || value.dict()) {
    TextBuilder out;
    print_repr(fuel, value, out);
    fuel.spend_bytes(out.size());
    return out.finish();
  }
  throw Failure("a " + std::string(type_name(value)) + " cannot be printed");
}

} // namespace millrace::jinja
