#pragma once

// As much of an HTTP client as the scenarios need: one request on one connection, the answer whole or as events.

#include "tools/load/sse_reader.hpp"

#include <utility> // Boost 1.74's awaitable.hpp forgot it

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <functional>
#include <string>

namespace millrace::load {

namespace asio = boost::asio;
using Endpoint = asio::ip::tcp::endpoint;
using Socket = asio::ip::tcp::socket;

/// "http://127.0.0.1:8080". Throws std::invalid_argument for anything that is not plain HTTP on a loopback address: this tool
/// is not to be pointed at others.
Endpoint parse_endpoint(const std::string& url);

struct Answer {
  int status = 0;
  std::string stream; // X-Millrace-Stream
  std::string body;   // of answers that are not events
};

struct Call {
  std::string method, target;
  std::string body = {};                               // JSON
  std::function<void(const Answer&)> on_head = {};     // before the first event
  std::function<bool(const SseEvent&)> on_event = {};  // until it returns false; absent: the answer is no stream
};

/// Sends a request and reads the whole answer, events as they come. Throws boost::system::system_error. (Name the call: g++ 12
/// destroys an aggregate twice that is built inside a co_await expression.)
asio::awaitable<Answer> fetch(Socket& socket, Call call);
asio::awaitable<Socket> connect(const Endpoint& endpoint);

} // namespace millrace::load
