// A gateway without a model, for tests of clients in other languages. It prints its two endpoints and then
// obeys lines of its standard input, each answered with "ok" when the gateway has done it:
//   tokens N   waits for a request, then publishes the next N tokens of its stream
//   finish     ends the stream

#include "tests/gateway/gateway_test.hpp"

#include <iostream>
#include <sstream>
#include <type_traits>

namespace millrace::test {
namespace {

constexpr size_t kTextBytes = 1'200; // so that kernel buffers fill up early

int serve() {
  FakeBackend backend;
  GatewayOptions options;
  options.requests = options.events = "tcp://127.0.0.1:*";
  options.stream_log_bytes = options.total_log_bytes = 256u << 20;
  options.subscriber_queue = 500;
  Gateway gateway(options, backend.interface());
  std::cout << gateway.requests_endpoint() << '\n' << gateway.events_endpoint() << std::endl;

  int64_t seq = 0;
  uint64_t published = 0;
  const auto publish = [&](auto event) {
    if constexpr (std::is_same_v<decltype(event), Token>)
      event.bytes.data.resize(16); // as long as an id, and cheap to print as JSON
    event.request = backend.submitted().front().request;
    gateway.publish(event);
    ++published;
  };
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    int64_t count = 0;
    words >> command >> count;
    if (!eventually([&] { return !backend.submitted().empty(); }))
      return 1;
    for (const int64_t end = seq + count; seq < end; ++seq)
      publish(token(0, seq, 0, 0, kTextBytes));
    if (command == "finish") {
      publish(finished(0, seq));
      publish(done(0));
    }
    if (!eventually([&] { return gateway.stats().sent == published; }))
      return 1;
    std::cout << "ok" << std::endl;
  }
  return 0;
}

} // namespace
} // namespace millrace::test

int main() {
  return millrace::test::serve();
}
