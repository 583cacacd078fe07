#include "gateway/http/transport/request_reader.hpp"

#include "gateway/http/transport/target.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

#include <algorithm>
#include <cassert>
#include <functional>

namespace millrace::http {
namespace {

namespace beast = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

constexpr Refusal kBadRequest{400, "bad_request", "This is not a well-formed HTTP request."};
constexpr Refusal kBadTarget{400, "bad_request",
                             "The request's target is not a path with a well-formed query."};
constexpr Refusal kBadLength{400, "bad_request", "The request's length is not told in exactly one way."};
constexpr Refusal kBadHost{400, "bad_request", "A request needs exactly one Host header."};
constexpr Refusal kBadCoding{501, "unsupported_encoding",
                             "No transfer encoding but chunked is understood, and no content encoding."};
constexpr Refusal kBadMethod{501, "unsupported_method", "There is no such method here."};
constexpr Refusal kBadVersion{505, "unsupported_version", "HTTP/1.1 and HTTP/1.0 are understood."};
constexpr Refusal kBadExpectation{417, "unsupported_expectation", "Only 100-continue can be expected."};
constexpr Refusal kHeadTooLarge{431, "header_too_large",
                                "The request's header is larger than this server allows."};
constexpr Refusal kBodyTooLarge{413, "request_too_large",
                                "The request's body is larger than this server allows."};

std::string lower(string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z')
      c += 'a' - 'A';
  return result;
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Whether a comma-separated list holds a word, of any case.
bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    auto item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    const auto first = item.find_first_not_of(" \t"), last = item.find_last_not_of(" \t");
    if (first != item.npos && lower(string_view(item.data() + first, last - first + 1)) == word)
      return true;
  }
  return false;
}

/// Empty for what no handler would know.
std::string method_name(beast::verb verb) {
  switch (verb) {
  case beast::verb::head:
  case beast::verb::get: return "GET";
  case beast::verb::post: return "POST";
  case beast::verb::put: return "PUT";
  case beast::verb::patch: return "PATCH";
  case beast::verb::delete_: return "DELETE";
  case beast::verb::options: return "OPTIONS";
  default: return {};
  }
}

/// Fills a Request. Beast knows the grammar; what is ambiguous, or only allowed to be kind to old clients, is
/// refused here.
class Parser final : public beast::basic_parser<true> {
public:
  explicit Parser(const ReaderLimits& limits) {
    header_limit(static_cast<uint32_t>(std::min<size_t>(limits.max_header_bytes, UINT32_MAX)));
    body_limit(uint64_t{limits.max_body_bytes});
  }

  Request request;
  Framing framing;
  std::optional<Refusal> refusal; // told in more detail than by Beast's error
  std::string_view input;         // what put() is given

private:
  void refuse_with(const Refusal& why, error_code& ec) {
    refusal = why;
    ec = beast::error::bad_value;
  }

  /// Beast joins a value that goes on in the next line (obsolete since 2014) and keeps the joined one
  /// elsewhere. A proxy might have read such a line as a header of its own.
  bool in_one_line(string_view name, string_view value) const {
    const char* const name_end = name.data() + name.size();
    const std::less_equal<const char*> not_after;
    return not_after(name_end, value.data()) && not_after(value.data(), input.data() + input.size()) &&
           std::find(name_end, value.data(), '\n') == value.data();
  }

  void on_request_impl(beast::verb verb, string_view, string_view target, int version,
                       error_code& ec) override {
    framing.head_only = verb == beast::verb::head;
    request.method = method_name(verb);
    if (request.method.empty())
      return refuse_with(kBadMethod, ec);
    framing.http_1_0 = version == 10;
    if (target == "*" && verb == beast::verb::options) { // the server as a whole
      request.path.assign(1, '*');                       // not = "*": g++ 12 warns wrongly
      return;
    }
    auto parsed = http::parse_target({target.data(), target.size()});
    if (!parsed)
      return refuse_with(kBadTarget, ec);
    request.path = std::move(parsed->path);
    request.query = std::move(parsed->query);
  }

  void on_field_impl(beast::field field, string_view name, string_view value, error_code& ec) override {
    if (in_body_)
      return; // a trailer must not pass for a header
    if (!in_one_line(name, value))
      return refuse_with(kBadRequest, ec);
    const auto [place, first] = request.headers.try_emplace(lower(name), value);
    if (first)
      return;
    if (field == beast::field::host)
      return refuse_with(kBadHost, ec);
    if (field == beast::field::content_length || field == beast::field::transfer_encoding)
      return refuse_with(kBadLength, ec);
    place->second.append(", ").append(value.data(), value.size());
  }

  /// The head as a whole. Beast has refused both lengths in one request already; it ignores codings that it
  /// does not know, though, so that a body would be read as the next request.
  void on_header_impl(error_code& ec) override {
    in_body_ = true;
    const auto header = [this](const char* name) -> const std::string* {
      const auto found = request.headers.find(name);
      return found == request.headers.end() ? nullptr : &found->second;
    };
    if (!framing.http_1_0 && !header("host"))
      return refuse_with(kBadHost, ec);
    if (const auto* length = header("content-length"); length && !all_digits(*length))
      return refuse_with(kBadLength, ec);
    if (const auto* coding = header("transfer-encoding")) {
      if (framing.http_1_0)
        return refuse_with(kBadLength, ec);
      if (lower(*coding) != "chunked")
        return refuse_with(kBadCoding, ec);
    }
    if (const auto* coding = header("content-encoding"); coding && lower(*coding) != "identity")
      return refuse_with(kBadCoding, ec);
    if (const auto* expectation = header("expect"); expectation && !framing.http_1_0) {
      if (lower(*expectation) != "100-continue")
        return refuse_with(kBadExpectation, ec);
      framing.expects_continue = true;
    }
    const auto* connection = header("connection");
    framing.keep_alive = framing.http_1_0 ? connection && lists(*connection, "keep-alive")
                                          : !connection || !lists(*connection, "close");
  }

  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view body, error_code&) override {
    request.body.append(body.data(), body.size()); // grows with what came, not with what was announced
    return body.size();
  }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view body, error_code& ec) override {
    return on_body_impl(body, ec);
  }
  void on_finish_impl(error_code&) override {}
  void on_response_impl(int, string_view, int, error_code&) override { assert(false); }

  bool in_body_ = false;
};

Refusal refusal_of(error_code error) {
  if (error == beast::error::header_limit)
    return kHeadTooLarge;
  if (error == beast::error::body_limit)
    return kBodyTooLarge;
  if (error == beast::error::bad_version)
    return kBadVersion;
  if (error == beast::error::bad_content_length || error == beast::error::bad_transfer_encoding)
    return kBadLength;
  return kBadRequest;
}

} // namespace

struct RequestReader::State {
  explicit State(const ReaderLimits& given) : limits(given) { parser.emplace(limits); }

  ReaderLimits limits;
  std::string buffer;
  size_t at = 0; // before it, the buffer has been taken
  size_t head_bytes = 0;
  bool told_head = false;
  std::optional<Parser> parser; // always there; a new one for each request
  std::optional<Refusal> refusal;

  size_t waiting() const { return buffer.size() - at; }

  /// Lines that some clients send after a body. False while there is nothing else, or what may become one.
  bool skip_empty_lines() {
    while (waiting() >= 2 && buffer.compare(at, 2, "\r\n") == 0)
      at += 2;
    return waiting() > 1 || (waiting() == 1 && buffer[at] != '\r');
  }

  Progress refuse_with(const Refusal& why) {
    refusal = why;
    return Progress::refused;
  }
};

RequestReader::RequestReader(const ReaderLimits& limits) : state_(std::make_unique<State>(limits)) {}
RequestReader::~RequestReader() = default;

void RequestReader::append(std::string_view bytes) {
  State& s = *state_;
  s.buffer.erase(0, s.at);
  s.at = 0;
  s.buffer.append(bytes);
}

RequestReader::Progress RequestReader::advance() {
  State& s = *state_;
  if (s.refusal)
    return Progress::refused;
  if (s.head_bytes == 0 && !s.skip_empty_lines())
    return Progress::need_more;
  for (;;) {
    Parser& parser = *s.parser;
    if (parser.is_header_done() && !s.told_head) {
      s.told_head = true;
      return Progress::head;
    }
    if (parser.is_done())
      return Progress::complete;

    error_code error;
    const bool in_head = !parser.is_header_done();
    parser.input = std::string_view(s.buffer).substr(s.at);
    const size_t taken =
        parser.put(boost::asio::const_buffer(parser.input.data(), parser.input.size()), error);
    s.at += taken;
    if (in_head) // Beast bounds each line of it only
      s.head_bytes += taken;
    if (parser.refusal)
      return s.refuse_with(*parser.refusal);
    // Beyond the head, only the line of a chunk or the trailers wait here for their end.
    const size_t open_bytes =
        (in_head ? s.head_bytes : 0) + (error == beast::error::need_more ? s.waiting() : 0);
    if (open_bytes > s.limits.max_header_bytes)
      return s.refuse_with(kHeadTooLarge);
    if (error == beast::error::need_more)
      return Progress::need_more;
    if (error)
      return s.refuse_with(refusal_of(error));
    if (s.waiting() == 0 && !parser.is_done() && s.told_head)
      return Progress::need_more;
  }
}

Request& RequestReader::request() {
  return state_->parser->request;
}
const Framing& RequestReader::framing() const {
  return state_->parser->framing;
}
const Refusal& RequestReader::refusal() const {
  return *state_->refusal;
}
size_t RequestReader::body_bytes() const {
  return state_->parser->request.body.size();
}
size_t RequestReader::buffered() const {
  return state_->waiting();
}

void RequestReader::next() {
  State& s = *state_;
  s.parser.emplace(s.limits);
  s.head_bytes = 0;
  s.told_head = false;
  if (s.waiting() == 0) {
    s.buffer = {};
    s.at = 0;
  }
}

} // namespace millrace::http
