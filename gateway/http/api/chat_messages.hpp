#pragma once

// The conversation of a chat request: messages, tools and what else its template may see.

#include "gateway/http/api/field_reader.hpp"
#include "messages/generation.hpp"

namespace millrace::http {

/// Fills messages, tools and template_arguments. Contents may be strings or lists of text parts, which are joined by
/// line feeds.
void read_conversation(FieldReader& fields, Generate& out);

} // namespace millrace::http
