#include "gateway/http/transport/response_head.hpp"

#include "gateway/http/transport/refusal.hpp"

#include <cstdio>
#include <ctime>

namespace millrace::http {
namespace {

/// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  ::gmtime_r(&now, &parts);
  char text[64];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT", kDays[parts.tm_wday], parts.tm_mday,
                kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min, parts.tm_sec);
  return text;
}

/// A value can't end its line, whatever the handler took it from.
void put_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value)
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  out.append("\r\n");
}

} // namespace

bool has_no_body(int status) {
  return status == 204 || status == 304;
}

std::string response_head(const Response& response, const Request& request, const Framing& framing,
                          bool keep_alive, std::optional<size_t> content_length) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + ' ';
  out.append(reason_phrase(response.status)).append("\r\n");
  put_header(out, "Date", http_date());
  if (!has_no_body(response.status)) {
    if (!response.content_type.empty())
      put_header(out, "Content-Type", response.content_type);
    if (content_length)
      put_header(out, "Content-Length", std::to_string(*content_length));
    else if (!framing.http_1_0)
      put_header(out, "Transfer-Encoding", "chunked");
  }
  if (!keep_alive)
    put_header(out, "Connection", "close");
  else if (framing.http_1_0)
    put_header(out, "Connection", "keep-alive");
  put_header(out, "X-Content-Type-Options", "nosniff");
  if (!request.id.empty())
    put_header(out, "X-Request-Id", request.id);
  for (const auto& [name, value] : response.headers)
    put_header(out, name, value);
  return out += "\r\n";
}

} // namespace millrace::http
