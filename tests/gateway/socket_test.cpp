#include "gateway/zeromq/socket.hpp"

#include "tests/gateway/temporary_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace millrace {
namespace {

constexpr SocketLimits kLimits{.max_frame_bytes = 1'024, .receive_queue = 10, .send_queue = 10};

using test::TemporaryFolder;

std::string refusal(const std::string& endpoint) {
  try {
    check_endpoint(endpoint);
    return "";
  } catch (const std::system_error& error) {
    return error.what();
  }
}

TEST(CheckEndpoint, PassesLoopbackAndIpc) {
  for (const char* endpoint :
       {"tcp://127.0.0.1:5555", "tcp://127.0.0.1:*", "tcp://127.0.0.1:0", "tcp://127.8.9.1:65535",
        "tcp://[::1]:5555", "ipc:///tmp/a", "ipc://relative", "ipc://*", "ipc://@abstract"})
    EXPECT_EQ(refusal(endpoint), "") << endpoint;
}

TEST(CheckEndpoint, RefusesWhatOthersCouldReach) {
  for (const char* endpoint : {"tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://10.0.0.1:5555", "tcp://eth0:5555",
                               "tcp://[::]:5555", "tcp://localhost:5555", "tcp://[::1%lo]:5555",
                               "tcp://127.1:5555", "tcp://128.0.0.1:1", "tcp://[::ffff:127.0.0.1]:1",
                               "tcp://127.0.0.1.evil.org:1", "tcp://10.0.0.1;127.0.0.1:5555", "tcp://:5555"})
    EXPECT_NE(refusal(endpoint).find("only loopback"), std::string::npos) << endpoint;
}

TEST(CheckEndpoint, RefusesWhatIsNoEndpointAndNamesIt) {
  for (const char* endpoint :
       {"", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:5x", "ipc://", "inproc://a", "udp://127.0.0.1:1", "pgm://127.0.0.1;1.2.3.4:1",
        "127.0.0.1:5555", "TCP://127.0.0.1:1"})
    EXPECT_NE(refusal(endpoint).find("\"" + std::string(endpoint) + "\""), std::string::npos) << endpoint;
}

TEST(BindSocket, SetsEveryLimit) {
  zmq::context_t context = make_context();
  const zmq::socket_t socket = bind_socket(context, zmq::socket_type::router, "tcp://127.0.0.1:*", kLimits);

  EXPECT_EQ(socket.get(zmq::sockopt::linger), 200);
  EXPECT_EQ(socket.get(zmq::sockopt::maxmsgsize), 1'024);
  EXPECT_EQ(socket.get(zmq::sockopt::rcvhwm), 10);
  EXPECT_EQ(socket.get(zmq::sockopt::sndhwm), 10);
  EXPECT_EQ(socket.get(zmq::sockopt::handshake_ivl), 3'000);
  EXPECT_EQ(socket.get(zmq::sockopt::heartbeat_ivl), 0); // see socket.cpp
  EXPECT_EQ(socket.get(zmq::sockopt::tcp_keepalive), 1);
  EXPECT_EQ(socket.get(zmq::sockopt::tcp_maxrt), 60'000);
  EXPECT_FALSE(socket.get(zmq::sockopt::ipv6));
}

TEST(BindSocket, TellsThePortThatWasPicked) {
  zmq::context_t context = make_context();
  const zmq::socket_t socket = bind_socket(context, zmq::socket_type::router, "tcp://127.0.0.1:*", kLimits);

  const std::string endpoint = bound_endpoint(socket);
  EXPECT_TRUE(endpoint.starts_with("tcp://127.0.0.1:"));
  EXPECT_EQ(refusal(endpoint), "");
  EXPECT_NE(endpoint.back(), '*');
}

TEST(BindSocket, NamesAnEndpointInUse) {
  zmq::context_t context = make_context();
  const zmq::socket_t socket = bind_socket(context, zmq::socket_type::router, "tcp://127.0.0.1:*", kLimits);
  const std::string endpoint = bound_endpoint(socket);

  try {
    bind_socket(context, zmq::socket_type::xpub, endpoint, kLimits);
    FAIL() << "bound twice";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::address_in_use);
    EXPECT_NE(std::string(error.what()).find(endpoint), std::string::npos);
  }
}

TEST(BindSocket, DoesNotTakeAnIpcPathFromALivingServer) {
  const TemporaryFolder folder;
  const std::string endpoint = "ipc://" + (folder.path / "requests").string();
  zmq::context_t context = make_context();
  const zmq::socket_t first = bind_socket(context, zmq::socket_type::router, endpoint, kLimits);

  try {
    bind_socket(context, zmq::socket_type::router, endpoint, kLimits);
    FAIL() << "bound twice";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code(), std::errc::address_in_use);
  }
}

TEST(BindSocket, DoesNotRemoveAFileThatIsNoSocket) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "thesis.txt";
  std::ofstream(path) << "years of work";
  zmq::context_t context = make_context();

  EXPECT_THROW(bind_socket(context, zmq::socket_type::router, "ipc://" + path.string(), kLimits),
               std::system_error);
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

} // namespace
} // namespace millrace
