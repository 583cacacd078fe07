#pragma once

#include "model/text/chat/syntax.hpp"

#include <string_view>

namespace millrace::jinja {

/// Throws TemplateError naming the line and what is not understood: also unknown filters and tests (but
/// where an if may keep them from being reached), and syntax that nests more than max_depth levels.
Body parse(std::string_view source, int max_depth);

} // namespace millrace::jinja
