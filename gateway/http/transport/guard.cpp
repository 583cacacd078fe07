#include "gateway/http/transport/guard.hpp"

#include <algorithm>
#include <arpa/inet.h>

namespace millrace::http {
namespace {

constexpr Refusal kNoKey{401, "invalid_api_key", "This server needs an API key: Authorization: Bearer KEY."};
constexpr Refusal kWrongKey{401, "invalid_api_key", "The API key is not known here."};
constexpr Refusal kForeignHost{
    403, "forbidden_host",
    "A server without API keys answers only under the name localhost or a loopback address."};
constexpr Refusal kForeignPage{403, "forbidden_origin",
                               "A server without API keys answers no requests of other sites' pages."};

const std::string* header(const Request& request, const char* name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? nullptr : &found->second;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

/// Without ":port". A bracketed IPv6 address keeps its brackets.
std::string_view without_port(std::string_view host) {
  const size_t from = host.starts_with('[') ? std::min(host.find(']'), host.size()) : 0;
  return host.substr(0, host.find(':', from));
}

/// "scheme://host:port" of Origin against "host:port" of Host. The scheme is not ours to compare: a proxy on
/// this machine may add TLS.
bool same_origin(std::string_view origin, std::string_view host) {
  const size_t scheme = origin.find("://");
  return scheme != origin.npos && equal_ignoring_case(origin.substr(scheme + 3), host);
}

std::optional<Refusal> refuse_foreign_page(const Request& request) {
  const auto* host = header(request, "host");
  if (host && !names_loopback(*host))
    return kForeignHost;
  if (const auto* origin = header(request, "origin"); origin && !same_origin(*origin, host ? *host : ""))
    return kForeignPage;
  if (const auto* site = header(request, "sec-fetch-site");
      site && *site != "same-origin" && *site != "none" && request.method != "GET")
    return kForeignPage;
  return std::nullopt;
}

} // namespace

bool names_loopback(std::string_view host) {
  const std::string name(without_port(host));
  if (equal_ignoring_case(name, "localhost") || equal_ignoring_case(name, "localhost.") || name == "[::1]")
    return true;
  constexpr std::string_view kUnder = ".localhost";
  if (name.size() > kUnder.size() &&
      equal_ignoring_case(std::string_view(name).substr(name.size() - kUnder.size()), kUnder))
    return true;
  in_addr address;
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

Guard::Guard(std::optional<ApiKeys> keys, std::vector<std::string> open_paths)
    : keys_(std::move(keys)), open_paths_(std::move(open_paths)) {}

std::variant<Principal, Refusal> Guard::admit(const Request& request) const {
  if (keys_)
    return admit_by_key(request);
  if (const auto refusal = refuse_foreign_page(request))
    return *refusal;
  return Principal{};
}

std::variant<Principal, Refusal> Guard::admit_by_key(const Request& request) const {
  if (const auto* given = header(request, "authorization")) {
    constexpr std::string_view kScheme = "bearer ";
    if (equal_ignoring_case(std::string_view(*given).substr(0, kScheme.size()), kScheme)) {
      const std::string_view rest = std::string_view(*given).substr(kScheme.size());
      if (const auto who = keys_->find(rest.substr(std::min(rest.find_first_not_of(' '), rest.size()))))
        return *who;
    }
  }
  if (std::find(open_paths_.begin(), open_paths_.end(), request.path) != open_paths_.end())
    return Principal{};
  return header(request, "authorization") ? kWrongKey : kNoKey;
}

} // namespace millrace::http
