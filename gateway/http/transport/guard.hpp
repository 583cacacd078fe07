#pragma once

// Who may ask. Looks at the head of a request, before its body is read.

#include "gateway/http/transport/api_keys.hpp"
#include "gateway/http/transport/refusal.hpp"

#include <optional>
#include <variant>

namespace millrace::http {

/// With keys: "Authorization: Bearer KEY", but for open paths. Without: everybody who can connect, which is
/// this machine; but this machine's browser runs pages of strangers. So a server without keys answers no
/// request that a foreign page could have made:
///  - Host must name the loopback (a stranger's name that was pointed at 127.0.0.1 after the page was loaded
///  would make
///    the page's requests same-origin: DNS rebinding);
///  - Origin, which browsers send with all but plain GETs, must be the server itself;
///  - Sec-Fetch-Site must not tell of another site, unless the method is GET: those change nothing here, and
///  a page can't
///    read the answers, since there are no CORS headers.
/// With keys none of this is asked: a page doesn't know the key, and the browser adds none by itself.
class Guard {
public:
  Guard(std::optional<ApiKeys> keys, std::vector<std::string> open_paths);

  std::variant<Principal, Refusal> admit(const Request& request) const;

private:
  std::variant<Principal, Refusal> admit_by_key(const Request& request) const;

  std::optional<ApiKeys> keys_;
  std::vector<std::string> open_paths_;
};

/// "localhost", a name under it, 127.0.0.0/8 or [::1], each perhaps with a port.
bool names_loopback(std::string_view host);

} // namespace millrace::http
