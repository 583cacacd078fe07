#pragma once

#include "gateway/http/exchange.hpp"
#include "gateway/http/transport/request_reader.hpp"

#include <optional>
#include <string>

namespace millrace::http {

/// Whether an answer of this status can't have a body.
bool has_no_body(int status);

/// Status line and headers, to the empty line. Without a length the body comes in chunks, or lasts until the
/// connection's end for HTTP/1.0. Control characters of a header's value become spaces.
std::string response_head(const Response& response, const Request& request, const Framing& framing,
                          bool keep_alive, std::optional<size_t> content_length);

} // namespace millrace::http
