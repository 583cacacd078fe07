#include "tools/load/http_client.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <array>
#include <charconv>
#include <limits>
#include <stdexcept>

namespace millrace::load {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::use_awaitable;

Endpoint parse_endpoint(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  const size_t colon = url.rfind(':');
  int port = 0;
  if (!url.starts_with(kScheme) || colon < kScheme.size() ||
      std::from_chars(url.data() + colon + 1, url.data() + url.size(), port).ptr != url.data() + url.size() || port < 1 ||
      port > 65535)
    throw std::invalid_argument("the endpoint must be http://ADDRESS:PORT");
  boost::system::error_code error;
  const auto address = asio::ip::make_address(url.substr(kScheme.size(), colon - kScheme.size()), error);
  if (error || !address.is_loopback())
    throw std::invalid_argument("the endpoint must be a loopback address");
  return {address, static_cast<unsigned short>(port)};
}

asio::awaitable<Socket> connect(const Endpoint& endpoint) {
  Socket socket(co_await asio::this_coro::executor);
  co_await socket.async_connect(endpoint, use_awaitable);
  socket.set_option(asio::ip::tcp::no_delay(true));
  co_return socket;
}

asio::awaitable<Answer> fetch(Socket& socket, Call call) {
  http::request<http::string_body> request(http::string_to_verb(call.method), call.target, 11);
  request.set(http::field::host, "127.0.0.1");
  request.set(http::field::accept, call.on_event ? "text/event-stream" : "application/json");
  if (!call.body.empty()) {
    request.set(http::field::content_type, "application/json");
    request.body() = std::move(call.body);
  }
  request.prepare_payload();
  co_await http::async_write(socket, request, use_awaitable);

  beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(std::numeric_limits<uint64_t>::max());
  co_await http::async_read_header(socket, buffer, parser, use_awaitable);
  Answer answer;
  answer.status = static_cast<int>(parser.get().result_int());
  answer.stream = std::string(parser.get()["X-Millrace-Stream"]);
  if (call.on_head)
    call.on_head(answer);

  SseReader reader;
  const bool events = call.on_event && parser.get()[http::field::content_type].starts_with("text/event-stream");
  std::array<char, 16384> piece;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    parser.get().body().more = true;
    boost::system::error_code error;
    co_await http::async_read_some(socket, buffer, parser, asio::redirect_error(use_awaitable, error));
    if (error && error != http::error::need_buffer)
      throw boost::system::system_error(error);
    const std::string_view bytes(piece.data(), piece.size() - parser.get().body().size);
    if (!events)
      answer.body += bytes;
    else
      for (const SseEvent& event : reader.feed(bytes))
        if (!call.on_event(event))
          co_return answer;
  }
  co_return answer;
}

} // namespace millrace::load
