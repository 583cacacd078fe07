#pragma once

// One HTTP request and the answer to it, as handlers see them: no sockets, no Beast.

#include "gateway/principal.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace::http {

struct Request {
  std::string id;     // X-Request-Id: the client's if it is sane, else drawn here; echoed in the answer
  std::string method; // "GET"; a HEAD arrives as GET, its answer's body is dropped
  std::string path;   // percent-decoded, without the query
  std::map<std::string, std::string> query;   // percent-decoded
  std::map<std::string, std::string> headers; // names in lower case; repeated ones joined by ", "
  std::string body;
  Principal principal;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {}; // besides Content-Type and Content-Length
  std::shared_ptr<const void> kept = {}; // by an answer as a whole until its peer has taken it, or gone
};

/// Lives as long as its connection needs it; a handler may keep it for longer, and then its calls do nothing.
/// Everything but post() belongs to the loop's thread. Exactly one of respond() and begin() is called.
class Exchange {
public:
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  /// The body, for the caller to keep or free: an answer that lasts shall not hold what was read long ago. Once; request()
  /// has an empty one from then on.
  virtual std::string take_body() = 0;

  /// The whole answer.
  virtual void respond(Response response) = 0;

  /// Head of an answer that comes in pieces (chunked): what follows is written as it comes.
  virtual void begin(Response head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  /// Bytes that were written here and not yet taken by the peer's socket: a handler stops at a bound of its
  /// own and goes on when on_drained is called.
  virtual size_t queued() const = 0;
  virtual void on_drained(std::function<void()> call) = 0;

  /// The peer has gone, or took too long: called once, unless the answer had been written whole. Drops the
  /// other callbacks.
  virtual void on_close(std::function<void()> call) = 0;

  /// Any thread: runs the call on the loop's thread, soon; never inside post().
  virtual void post(std::function<void()> call) = 0;
  /// Runs the call on the loop's thread, unless the exchange ends before.
  virtual void after(std::chrono::milliseconds delay, std::function<void()> call) = 0;
};

using Handler = std::function<void(std::shared_ptr<Exchange>)>;

} // namespace millrace::http
