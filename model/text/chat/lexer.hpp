#pragma once

// A template's text as tokens. Blanks around tags are dropped here, as with Jinja's trim_blocks and
// lstrip_blocks: the line break behind a block or comment, the blanks before one that begins its line, and
// all blanks where a tag says -.

#include <string>
#include <string_view>
#include <vector>

namespace millrace::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  integer,
  number,
  symbol,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text; // of strings: what they stand for
  int line = 1;

  bool is_symbol(std::string_view symbol) const { return kind == TokenKind::symbol && text == symbol; }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

/// Ends with a token of kind end. Throws TemplateError naming the line.
std::vector<Token> tokenize(std::string_view source);

/// A TemplateError of the template's own text: "line 3: …".
[[noreturn]] void fail_at(int line, const std::string& problem);

} // namespace millrace::jinja
