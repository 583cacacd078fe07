#pragma once

#include <string_view>

namespace millrace {

/// Whether text is well-formed UTF-8 (The Unicode Standard, table 3-7): no overlong forms, no surrogates,
/// nothing above U+10FFFF. NUL and noncharacters are well-formed.
bool is_valid_utf8(std::string_view text);

/// Whether well-formed UTF-8 holds a control character (general category Cc): U+0000 … U+001F, U+007F …
/// U+009F.
bool has_control_characters(std::string_view text);

} // namespace millrace
