#include "model/text/chat/format.hpp"

#include "model/text/chat/characters.hpp"
#include "model/text/chat/operators.hpp"
#include "model/text/chat/printing.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace millrace::jinja {
namespace {

constexpr size_t kMaxPrecision = 100;

struct Conversion {
  bool left = false, plus = false, blank = false, zero = false, alternative = false;
  size_t width = 0;
  std::optional<size_t> precision;
  char letter = 's';
};

/// Reads the format from left to right.
class PercentFormatter {
public:
  PercentFormatter(Fuel& fuel, const Text& format, const Value& values)
      : fuel_(fuel), format_(format), bytes_(format.bytes), values_(values) {
    if (values.sequence() && values.sequence()->kind == SequenceKind::tuple)
      tuple_ = values.sequence();
  }

  TextPtr run() {
    fuel_.spend_bytes(bytes_.size());
    while (at_ < bytes_.size()) {
      const size_t percent = std::min(bytes_.find('%', at_), bytes_.size());
      out_.append(format_, at_, percent);
      at_ = percent;
      if (at_ < bytes_.size())
        convert_one();
    }
    if (tuple_ ? next_ < tuple_->items.size() : next_ == 0 && !values_.dict())
      throw Failure("not all arguments converted during string formatting");
    return out_.finish();
  }

private:
  void convert_one() {
    const size_t begin = at_++;
    std::optional<Value> named;
    if (peek() == '(')
      named = read_name();
    const Conversion conversion = read_conversion();
    if (conversion.letter == '%')
      return out_.append("%", format_.is_trusted(begin, at_));
    print(conversion, named ? *named : next_value());
    fuel_.spend();
  }

  char peek() const { return at_ < bytes_.size() ? bytes_[at_] : '\0'; }

  Value read_name() {
    const size_t end = bytes_.find(')', at_);
    if (end == std::string_view::npos)
      throw Failure("incomplete format key");
    const Value key = text_value(bytes_.substr(at_ + 1, end - at_ - 1), format_.is_trusted(at_, end));
    at_ = end + 1;
    if (!values_.dict())
      throw Failure("format requires a mapping");
    const Value* found = values_.dict()->find(fuel_, key);
    if (!found)
      throw Failure("the format's key is not in the mapping");
    return *found;
  }

  Conversion read_conversion() {
    Conversion conversion;
    for (;; ++at_) {
      switch (peek()) {
      case '-': conversion.left = true; continue;
      case '+': conversion.plus = true; continue;
      case ' ': conversion.blank = true; continue;
      case '0': conversion.zero = true; continue;
      case '#': conversion.alternative = true; continue;
      default: break;
      }
      break;
    }
    conversion.width = read_number().value_or(0);
    if (peek() == '.') {
      ++at_;
      conversion.precision = read_number().value_or(0);
    }
    if (at_ == bytes_.size())
      throw Failure("incomplete format");
    conversion.letter = bytes_[at_++];
    return conversion;
  }

  std::optional<size_t> read_number() {
    size_t number = 0;
    const auto [end, error] = std::from_chars(bytes_.data() + at_, bytes_.data() + bytes_.size(), number);
    if (error == std::errc::invalid_argument)
      return std::nullopt;
    if (error != std::errc())
      throw Failure("too large a number in a format");
    at_ = static_cast<size_t>(end - bytes_.data());
    return number;
  }

  Value next_value() {
    const size_t index = next_++;
    if (tuple_ ? index >= tuple_->items.size() : index > 0)
      throw Failure("not enough arguments for format string");
    return tuple_ ? tuple_->items[index] : values_;
  }

  void print(const Conversion& conversion, const Value& value) {
    switch (conversion.letter) {
    case 's': return print_text(conversion, to_text(fuel_, value));
    case 'r': {
      TextBuilder repr;
      print_repr(fuel_, value, repr);
      return print_text(conversion, repr.finish());
    }
    case 'd':
    case 'i':
    case 'u': return print_number(conversion, std::to_string(whole(value)), value);
    case 'x':
    case 'X':
    case 'o': return print_number(conversion, in_base(conversion, whole(value)), value);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return print_number(conversion, fraction(conversion, value), value);
    default: throw Failure("unsupported format character");
    }
  }

  void print_text(const Conversion& conversion, TextPtr text) {
    fuel_.spend_scan(text->bytes.size());
    if (conversion.precision)
      text = slice(text, 0, offset_of(text->bytes, *conversion.precision));
    pad(conversion, *text);
  }

  static int64_t whole(const Value& value) {
    if (value.is<Float>() && std::abs(value.get<Float>().value) < 0x1p63)
      return static_cast<int64_t>(value.get<Float>().value);
    return to_index(value, "a format's value");
  }

  static std::string in_base(const Conversion& conversion, int64_t number) {
    const uint64_t magnitude = number < 0 ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    char digits[32];
    const int base = conversion.letter == 'o' ? 8 : 16;
    const auto end = std::to_chars(digits, digits + sizeof digits, magnitude, base).ptr;
    const std::string text(digits, end);
    const char prefix[] = {'0', conversion.letter, '\0'};
    return (number < 0 ? "-" : "") + std::string(conversion.alternative ? prefix : "") +
           (conversion.letter == 'X' ? to_upper(text) : text);
  }

  static std::string fraction(const Conversion& conversion, const Value& value) {
    const auto number = as_number(value);
    if (!number)
      throw Failure("a format's value must be a number, not '" + std::string(type_name(value)) + "'");
    const size_t precision = conversion.precision.value_or(6);
    if (precision > kMaxPrecision)
      throw Failure("too large a number in a format");
    const char format[] = {'%', '.', '*', conversion.letter, '\0'};
    char digits[512];
    std::snprintf(digits, sizeof digits, format, static_cast<int>(precision), *number);
    return digits;
  }

  void print_number(const Conversion& conversion, std::string digits, const Value& value) {
    if (digits[0] != '-' && (conversion.plus || conversion.blank))
      digits.insert(0, conversion.plus ? "+" : " ");
    if (conversion.zero && !conversion.left && digits.size() < conversion.width) {
      fuel_.spend_bytes(conversion.width);
      const bool has_sign = digits[0] == '-' || digits[0] == '+' || digits[0] == ' ';
      digits.insert(has_sign, conversion.width - digits.size(), '0');
    }
    pad(conversion, *make_text(digits, !is_from_input(value)));
  }

  void pad(const Conversion& conversion, const Text& text) {
    const size_t size = count_characters(text.bytes);
    const size_t blanks = conversion.width > size ? conversion.width - size : 0;
    fuel_.spend_bytes(blanks);
    const std::string padding(blanks, ' ');
    if (!conversion.left)
      out_.append(padding, true);
    out_.append(text);
    if (conversion.left)
      out_.append(padding, true);
    fuel_.spend_bytes(text.bytes.size() + blanks);
  }

  Fuel& fuel_;
  const Text& format_;
  std::string_view bytes_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  size_t at_ = 0, next_ = 0;
  TextBuilder out_;
};

Value field_value(std::string_view field, size_t& next, const Arguments& arguments) {
  size_t index = next;
  if (field.empty()) {
    ++next;
  } else if (std::from_chars(field.data(), field.data() + field.size(), index).ptr !=
             field.data() + field.size()) {
    for (const auto& [name, value] : arguments.named)
      if (name == field)
        return value;
    throw Failure("a replacement field of format() is not understood");
  }
  if (index >= arguments.positional.size())
    throw Failure("format() has too few arguments");
  return arguments.positional[index];
}

} // namespace

TextPtr percent_format(Fuel& fuel, const Text& format, const Value& values) {
  return PercentFormatter(fuel, format, values).run();
}

TextPtr brace_format(Fuel& fuel, const Text& format, const Arguments& arguments) {
  const std::string_view bytes = format.bytes;
  fuel.spend_bytes(bytes.size());
  TextBuilder out;
  size_t next = 0;
  for (size_t i = 0; i < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", i), bytes.size());
    out.append(format, i, brace);
    if (brace == bytes.size())
      break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.append(format, brace, brace + 1);
      i = brace + 2;
      continue;
    }
    const size_t end = bytes.find('}', brace);
    if (bytes[brace] == '}' || end == std::string_view::npos)
      throw Failure("single brace in format()");
    fuel.spend();
    const TextPtr text =
        to_text(fuel, field_value(bytes.substr(brace + 1, end - brace - 1), next, arguments));
    fuel.spend_bytes(text->bytes.size());
    out.append(*text);
    i = end + 1;
  }
  return out.finish();
}

} // namespace millrace::jinja
