#pragma once

// Answers libzmq's question who a connecting client is (ZAP, RFC 27), for all CURVE sockets of a context.
// Whoever it does not know is refused, and so is everybody once it is gone: the sockets insist on an answer
// (see gateway/zeromq/socket.cpp).

#include "gateway/zeromq/curve_allow_list.hpp"
#include "gateway/zeromq/wakeup.hpp"

#include <zmq.hpp>

#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace millrace {

/// Of the sockets that are asked about; questions of others are refused.
inline constexpr std::string_view kZapDomain = "millrace";

struct ZapReply {
  std::string request_id;
  std::string status; // "200", "400" or "500"
  std::string text;
  std::string user_id; // the client's public key in Z85, which becomes the "User-Id" of its messages
};

/// The answer to the frames of a request, whatever they are.
ZapReply answer_zap(std::span<const std::string> frames, CurveAllowList& allowed);

/// A thread that answers. Make it before sockets are bound, and end it after they are closed and before the
/// context is.
class ZapHandler {
public:
  /// Throws zmq::error_t if the context has a handler already.
  ZapHandler(zmq::context_t& context, CurveAllowList allowed);
  ~ZapHandler();
  ZapHandler(const ZapHandler&) = delete;
  ZapHandler& operator=(const ZapHandler&) = delete;

private:
  void run();
  void answer_one();

  CurveAllowList allowed_;
  zmq::socket_t socket_;
  Wakeup stop_;
  std::thread thread_; // last: it begins when all else is there
};

} // namespace millrace
