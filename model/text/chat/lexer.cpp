#include "model/text/chat/lexer.hpp"

#include "model/text/chat/characters.hpp"
#include "model/text/chat/provenance.hpp"

#include <cctype>
#include <optional>

namespace millrace::jinja {
namespace {

constexpr size_t kNowhere = std::string_view::npos;

bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}
// Bytes of other alphabets may stand in names.
bool begins_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// One kind of line break, and none at the end.
std::string normalized(std::string_view source) {
  std::string result;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n')
      continue;
    result += source[i] == '\r' ? '\n' : source[i];
  }
  if (result.ends_with('\n'))
    result.pop_back();
  return result;
}

class Lexer {
public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size())
      read_data_and_tag();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

private:
  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  std::string_view rest() const { return source_.substr(at_); }

  /// Moves on and counts lines.
  void advance(size_t size) {
    for (const char c : source_.substr(at_, size))
      line_ += c == '\n';
    at_ += size;
  }
  void skip_space() { advance(leading_space(rest())); }

  void read_data_and_tag() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == kNowhere ||
          (tag + 1 < source_.size() && std::string_view("{%#").find(source_[tag + 1]) != kNowhere))
        break;
    }
    if (tag == kNowhere) {
      add(TokenKind::data, std::string(rest()));
      return advance(rest().size());
    }
    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const std::string_view data = stripped(source_.substr(at_, tag - at_), kind, sign);
    if (!data.empty())
      add(TokenKind::data, std::string(data));
    advance(tag - at_ + 2 + (sign != '\0'));
    line_starting_ = false;
    if (kind == '#')
      read_comment();
    else if (const auto raw = kind == '%' ? raw_size() : std::nullopt)
      read_raw(*raw);
    else
      read_tag(kind == '{');
  }

  std::string_view stripped(std::string_view data, char kind, char sign) const {
    if (sign == '-')
      return data.substr(0, data.size() - trailing_space(data));
    if (sign == '+' || kind == '{')
      return data;
    const size_t break_at = data.rfind('\n');
    const size_t line_begin = break_at == kNowhere ? 0 : break_at + 1;
    const bool begins_line = line_begin > 0 || line_starting_;
    const std::string_view last_line = data.substr(line_begin);
    return begins_line && leading_space(last_line) == last_line.size() ? data.substr(0, line_begin) : data;
  }

  /// Behind the end of a tag: blanks if it says -, else the line break if it is no expression.
  void end_tag(char sign, bool trims_break) {
    const size_t begin = at_;
    if (sign == '-')
      skip_space();
    else if (sign != '+' && trims_break && peek() == '\n')
      advance(1);
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  void read_comment() {
    const int line = line_;
    const size_t end = source_.find("#}", at_);
    if (end == kNowhere)
      fail_at(line, "missing end of comment tag");
    const char before = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_tag(before, true);
  }

  /// Bytes from here to behind "raw %}", if that is what stands here.
  std::optional<size_t> raw_size() const {
    size_t i = at_;
    const auto skip = [&] { i += leading_space(source_.substr(i)); };
    skip();
    if (!source_.substr(i).starts_with("raw"))
      return std::nullopt;
    i += 3;
    skip();
    if (source_.substr(i).starts_with("-%}"))
      return i + 3 - at_;
    return source_.substr(i).starts_with("%}") ? std::optional(i + 2 - at_) : std::nullopt;
  }

  void read_raw(size_t tag_size) {
    const int line = line_;
    const bool strips = source_[at_ + tag_size - 3] == '-';
    advance(tag_size);
    if (strips)
      skip_space();
    for (size_t tag = source_.find("{%", at_); tag != kNowhere; tag = source_.find("{%", tag + 1)) {
      size_t i = tag + 2;
      const char sign = i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : '\0';
      i += leading_space(source_.substr(i));
      if (!source_.substr(i).starts_with("endraw"))
        continue;
      i += 6;
      i += leading_space(source_.substr(i));
      const char end_sign =
          i < source_.size() && (source_[i] == '-' || source_[i] == '+') ? source_[i++] : '\0';
      if (!source_.substr(i).starts_with("%}"))
        continue;
      const std::string_view data = stripped(source_.substr(at_, tag - at_), '%', sign);
      if (!data.empty())
        add(TokenKind::data, std::string(data));
      advance(i + 2 - at_);
      return end_tag(end_sign, true);
    }
    fail_at(line, "missing end of raw directive");
  }

  void read_tag(bool is_expression) {
    const std::string_view closing = is_expression ? "}}" : "%}";
    add(is_expression ? TokenKind::variable_begin : TokenKind::block_begin, "");
    open_brackets_.clear();
    for (;;) {
      skip_space();
      if (at_ == source_.size())
        fail_at(line_, "unexpected end of template");
      const char sign = peek() == '-' || (peek() == '+' && !is_expression) ? peek() : '\0';
      if (open_brackets_.empty() && source_.substr(at_ + (sign != '\0')).starts_with(closing)) {
        add(is_expression ? TokenKind::variable_end : TokenKind::block_end, "");
        advance(2 + (sign != '\0'));
        return end_tag(sign, !is_expression);
      }
      read_token();
    }
  }

  void read_token() {
    if (is_decimal(peek()))
      return read_number();
    if (begins_name(peek()))
      return read_name();
    if (peek() == '\'' || peek() == '"')
      return read_string();
    read_symbol();
  }

  void read_name() {
    size_t size = 1;
    while (begins_name(peek(size)) || is_decimal(peek(size)))
      ++size;
    add(TokenKind::name, std::string(rest().substr(0, size)));
    advance(size);
  }

  /// Digits from `size` on, with single underscores between them.
  size_t digits_end(size_t size) const {
    while (is_decimal(peek(size)) || (peek(size) == '_' && is_decimal(peek(size + 1))))
      ++size;
    return size;
  }

  void read_number() {
    size_t size = digits_end(0);
    bool is_integer = true;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot && peek(size) == '.' && is_decimal(peek(size + 1))) {
      size = digits_end(size + 1);
      is_integer = false;
    }
    const size_t exponent = size + 1 + (peek(size + 1) == '+' || peek(size + 1) == '-');
    if (!after_dot && (peek(size) | 0x20) == 'e' && is_decimal(peek(exponent))) {
      size = digits_end(exponent);
      is_integer = false;
    }
    const char base = peek() == '0' && size == 1 ? static_cast<char>(peek(1) | 0x20) : '\0';
    if ((base == 'x' || base == 'o' || base == 'b') && std::isxdigit(static_cast<unsigned char>(peek(2)))) {
      size = 2;
      while (std::isxdigit(static_cast<unsigned char>(peek(size))) || peek(size) == '_')
        ++size;
    }
    std::string digits(rest().substr(0, size));
    std::erase(digits, '_');
    add(is_integer ? TokenKind::integer : TokenKind::number, std::move(digits));
    advance(size);
  }

  void read_string() {
    const char quote = peek();
    size_t size = 1;
    while (at_ + size < source_.size() && peek(size) != quote)
      size += peek(size) == '\\' ? 2 : 1;
    if (at_ + size >= source_.size())
      fail_at(line_, "a string does not end");
    add(TokenKind::string, unescaped(rest().substr(1, size - 1)));
    advance(size + 1);
  }

  /// As Python's string literals.
  std::string unescaped(std::string_view text) const {
    constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        result += text[i];
        continue;
      }
      const char letter = text[++i]; // there is one, since the string's end was found
      if (const size_t known = kLetters.find(letter); known != kNowhere)
        result += kMeanings[known];
      else if (letter == 'x' || letter == 'u' || letter == 'U')
        append_hex(result, text, i, letter == 'x' ? 2 : letter == 'u' ? 4 : 8);
      else if (letter >= '0' && letter <= '7')
        append_octal(result, text, i);
      else if (letter == 'N')
        fail_at(line_, "\\N is not supported in strings");
      else if (letter != '\n')
        result += {'\\', letter};
    }
    return result;
  }

  void append_hex(std::string& result, std::string_view text, size_t& i, size_t digits) const {
    char32_t value = 0;
    for (size_t k = 0; k < digits; ++k) {
      const char c = i + 1 < text.size() ? text[i + 1] : '\0';
      if (!std::isxdigit(static_cast<unsigned char>(c)))
        fail_at(line_, "truncated \\ escape in a string");
      value = value * 16 + static_cast<char32_t>(is_decimal(c) ? c - '0' : (c | 0x20) - 'a' + 10);
      ++i;
    }
    append_character(result, value);
  }

  static void append_octal(std::string& result, std::string_view text, size_t& i) {
    char32_t value = static_cast<char32_t>(text[i] - '0');
    for (int k = 0; k < 2 && i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '7'; ++k)
      value = value * 8 + static_cast<char32_t>(text[++i] - '0');
    append_character(result, value);
  }

  void read_symbol() {
    for (const std::string_view symbol : {"//", "**", "==", "!=", ">=", "<="})
      if (rest().starts_with(symbol)) {
        add(TokenKind::symbol, std::string(symbol));
        return advance(2);
      }
    const char c = peek();
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == kNowhere)
      fail_at(line_, "unexpected character");
    if (c == '(' || c == '[' || c == '{')
      open_brackets_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets_.empty() || open_brackets_.back() != c)
        fail_at(line_, std::string("unexpected '") + c + "'");
      open_brackets_.pop_back();
    }
    add(TokenKind::symbol, std::string(1, c));
    advance(1);
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_brackets_; // what closes them
  std::vector<Token> tokens_;
};

} // namespace

std::vector<Token> tokenize(std::string_view source) {
  const std::string text = normalized(source);
  return Lexer(text).run();
}

void fail_at(int line, const std::string& problem) {
  throw TemplateError(error_text("line " + std::to_string(line) + ": " + problem));
}

} // namespace millrace::jinja
