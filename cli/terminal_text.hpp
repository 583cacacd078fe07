#pragma once

#include <string>
#include <string_view>

namespace millrace {

/// Text of a model as a terminal may get it: control characters other than newline and tab would move the cursor,
/// rename the window or worse, so they are shown as ^[ and the like, those of C1 as \x9b. `utf8` is well-formed.
std::string for_terminal(std::string_view utf8);

} // namespace millrace
