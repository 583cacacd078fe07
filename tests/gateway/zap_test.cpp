#include "gateway/zeromq/zap.hpp"

#include "gateway/zeromq/curve.hpp"
#include "gateway/zeromq/curve_key.hpp"
#include "tests/gateway/peers.hpp"
#include "tests/gateway/temporary_folder.hpp"

#include <gtest/gtest.h>

#include <fstream>

namespace millrace {
namespace {

constexpr SocketLimits kLimits{.max_frame_bytes = 1'024, .receive_queue = 10, .send_queue = 10};

std::string bytes_of_key(const std::string& z85) {
  uint8_t key[32];
  zmq_z85_decode(key, z85.c_str());
  return {reinterpret_cast<const char*>(key), sizeof key};
}

class ZapTest : public testing::Test {
protected:
  ZapTest() { allow({friend_.public_key}); }

  void allow(const std::vector<std::string>& keys) const {
    std::ofstream file(allow_file_, std::ios::trunc);
    for (const std::string& key : keys)
      file << key << '\n';
  }

  test::TemporaryFolder folder_;
  std::filesystem::path allow_file_ = folder_.path / "allow";
  CurveKeyPair server_ = make_curve_key_pair(), friend_ = make_curve_key_pair(),
               stranger_ = make_curve_key_pair();
};

// ---- the answer alone ----

class ZapAnswerTest : public ZapTest {
protected:
  ZapReply answer(const std::vector<std::string>& frames) {
    CurveAllowList allowed(allow_file_);
    return answer_zap(frames, allowed);
  }
  std::vector<std::string> good() const {
    return {"1.0", "42", "millrace", "127.0.0.1", "", "CURVE", bytes_of_key(friend_.public_key)};
  }
};

TEST_F(ZapAnswerTest, LetsInWhoIsOnTheListUnderTheNameOfItsKey) {
  const ZapReply reply = answer(good());

  EXPECT_EQ(reply.request_id, "42");
  EXPECT_EQ(reply.status, "200");
  EXPECT_EQ(reply.user_id, friend_.public_key);
}

TEST_F(ZapAnswerTest, RefusesEverythingElse) {
  struct Case {
    const char* what;
    size_t frame;
    std::string value;
    const char* status;
  };
  for (const Case& wrong : {Case{"another version", 0, "2.0", "500"},
                            {"another domain", 2, "", "400"},
                            {"another domain", 2, "global", "400"},
                            {"no mechanism", 5, "", "400"},
                            {"NULL", 5, "NULL", "400"},
                            {"PLAIN", 5, "PLAIN", "400"},
                            {"GSSAPI", 5, "GSSAPI", "400"},
                            {"an unknown mechanism", 5, "CURVE2", "400"},
                            {"an unknown key", 6, bytes_of_key(stranger_.public_key), "400"},
                            {"half a key", 6, bytes_of_key(friend_.public_key).substr(16), "400"},
                            {"a key as text", 6, friend_.public_key, "400"},
                            {"no key", 6, "", "400"}}) {
    auto frames = good();
    frames[wrong.frame] = wrong.value;
    const ZapReply reply = answer(frames);
    EXPECT_EQ(reply.status, wrong.status) << wrong.what;
    EXPECT_EQ(reply.user_id, "") << wrong.what;
    EXPECT_EQ(reply.request_id, "42") << wrong.what;
  }
}

TEST_F(ZapAnswerTest, RefusesRequestsOfAnotherShape) {
  for (size_t size = 0; size < good().size(); ++size) {
    auto frames = good();
    frames.resize(size);
    EXPECT_NE(answer(frames).status, "200") << size;
  }
  auto frames = good();
  frames.push_back("one more");
  EXPECT_NE(answer(frames).status, "200");
}

// ---- with sockets ----

/// Sockets of a server with CURVE; the test is the client.
class CurveSocketTest : public ZapTest {
protected:
  CurveSocketTest() {
    write_curve_key_pair(server_, folder_.path / "key_secret", folder_.path / "key");
    options_ = {.key_file = folder_.path / "key_secret", .allow_file = allow_file_};
  }

  zmq::socket_t bind(zmq::socket_type type, const SocketAccess& access) {
    return bind_socket(context_, type, "tcp://127.0.0.1:*", kLimits, access);
  }
  zmq::socket_t client(zmq::socket_type type) {
    zmq::socket_t socket(client_context_, type);
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvtimeo, static_cast<int>(test::kDeadline.count()));
    return socket;
  }
  zmq::socket_t client(zmq::socket_type type, const CurveKeyPair& keys, const std::string& server_key) {
    zmq::socket_t socket = client(type);
    socket.set(zmq::sockopt::curve_publickey, keys.public_key);
    socket.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    socket.set(zmq::sockopt::curve_serverkey, server_key);
    return socket;
  }

  /// Sees how handshakes with a socket end.
  class Handshakes : public zmq::monitor_t {
  public:
    explicit Handshakes(zmq::socket_t& socket) {
      init(socket, "inproc://handshakes",
           ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
               ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
    }
    /// Waits for the end of the next one.
    bool succeeds() {
      ended_ = false;
      while (!ended_ && check_event(static_cast<int>(test::kDeadline.count()))) {
      }
      EXPECT_TRUE(ended_);
      return succeeded_;
    }

  private:
    void end(bool succeeded) {
      ended_ = true;
      succeeded_ = succeeded;
    }
    void on_event_handshake_succeeded(const zmq_event_t&, const char*) override { end(true); }
    void on_event_handshake_failed_no_detail(const zmq_event_t&, const char*) override { end(false); }
    void on_event_handshake_failed_protocol(const zmq_event_t&, const char*) override { end(false); }
    void on_event_handshake_failed_auth(const zmq_event_t&, const char*) override { end(false); }
    bool ended_ = false, succeeded_ = false;
  };

  CurveOptions options_;
  zmq::context_t context_ = make_context();
  zmq::context_t client_context_ = make_context();
};

TEST_F(CurveSocketTest, TellsWhoSpeaksAndWhoSubscribes) {
  CurveGuard guard(context_, options_);
  zmq::socket_t router = bind(zmq::socket_type::router, guard.access(false));
  zmq::socket_t publisher = bind(zmq::socket_type::xpub, guard.access(false));
  zmq::socket_t dealer = client(zmq::socket_type::dealer, friend_, server_.public_key);
  zmq::socket_t subscriber = client(zmq::socket_type::sub, friend_, server_.public_key);
  for (zmq::socket_t* socket : {&router, &publisher})
    socket->set(zmq::sockopt::rcvtimeo, static_cast<int>(test::kDeadline.count()));

  dealer.connect(bound_endpoint(router));
  dealer.send(zmq::str_buffer("hello"), zmq::send_flags::none);
  subscriber.set(zmq::sockopt::subscribe, "topic");
  subscriber.connect(bound_endpoint(publisher));

  zmq::message_t id, frame, subscription;
  ASSERT_TRUE(router.recv(id));
  ASSERT_TRUE(router.recv(frame));
  EXPECT_EQ(frame.to_string(), "hello");
  EXPECT_STREQ(frame.gets("User-Id"), friend_.public_key.c_str());
  ASSERT_TRUE(publisher.recv(subscription));
  EXPECT_STREQ(subscription.gets("User-Id"), friend_.public_key.c_str());
}

TEST_F(CurveSocketTest, GivesNothingToWhoHasNoKeyOfTheList) {
  CurveGuard guard(context_, options_);
  zmq::socket_t router = bind(zmq::socket_type::router, guard.access(false));
  Handshakes handshakes(router);
  zmq::socket_t null = client(zmq::socket_type::dealer);
  zmq::socket_t plain = client(zmq::socket_type::dealer);
  plain.set(zmq::sockopt::plain_username, "admin");
  plain.set(zmq::sockopt::plain_password, "admin");
  zmq::socket_t stranger = client(zmq::socket_type::dealer, stranger_, server_.public_key);
  zmq::socket_t deceived = client(zmq::socket_type::dealer, friend_, stranger_.public_key);

  for (zmq::socket_t* socket : {&null, &plain, &stranger, &deceived}) {
    socket->connect(bound_endpoint(router));
    socket->send(zmq::str_buffer("hello"), zmq::send_flags::none);
    EXPECT_FALSE(handshakes.succeeds());
    socket->close();
  }

  zmq::message_t frame;
  EXPECT_FALSE(router.recv(frame, zmq::recv_flags::dontwait));
}

TEST_F(CurveSocketTest, LetsNobodyInWhenNobodyChecks) {
  zmq::socket_t router = bind(zmq::socket_type::router, {.secret_key = server_.secret_key});
  Handshakes handshakes(router);
  zmq::socket_t dealer = client(zmq::socket_type::dealer, friend_, server_.public_key);

  dealer.connect(bound_endpoint(router));

  EXPECT_FALSE(handshakes.succeeds());
}

TEST_F(CurveSocketTest, LetsNobodyInOnceTheHandlerHasGone) {
  std::optional<CurveGuard> guard;
  guard.emplace(context_, options_);
  zmq::socket_t router = bind(zmq::socket_type::router, guard->access(false));
  Handshakes handshakes(router);
  zmq::socket_t early = client(zmq::socket_type::dealer, friend_, server_.public_key);
  early.connect(bound_endpoint(router));
  ASSERT_TRUE(handshakes.succeeds());

  guard.reset();
  zmq::socket_t late = client(zmq::socket_type::dealer, friend_, server_.public_key);
  late.connect(bound_endpoint(router));

  EXPECT_FALSE(handshakes.succeeds());
}

TEST_F(CurveSocketTest, LetsNobodyInAgainWhoWasTakenOffTheList) {
  CurveGuard guard(context_, options_);
  zmq::socket_t router = bind(zmq::socket_type::router, guard.access(false));
  Handshakes handshakes(router);
  const auto comes_in = [&](const CurveKeyPair& keys) {
    zmq::socket_t dealer = client(zmq::socket_type::dealer, keys, server_.public_key);
    dealer.connect(bound_endpoint(router));
    return handshakes.succeeds();
  };
  ASSERT_TRUE(comes_in(friend_));
  ASSERT_FALSE(comes_in(stranger_));

  allow({stranger_.public_key});

  EXPECT_FALSE(comes_in(friend_));
  EXPECT_TRUE(comes_in(stranger_));
}

TEST_F(CurveSocketTest, NeedsBothFiles) {
  EXPECT_THROW(CurveGuard(context_, {.key_file = options_.key_file, .allow_file = {}}),
               std::invalid_argument);
  EXPECT_THROW(CurveGuard(context_, {.key_file = {}, .allow_file = options_.allow_file}),
               std::invalid_argument);
  EXPECT_THROW(CurveGuard(context_, {.key_file = options_.key_file, .allow_file = folder_.path / "none"}),
               std::system_error);
}

TEST_F(CurveSocketTest, ChecksNothingWithoutKeys) {
  CurveGuard guard(context_, {});
  zmq::socket_t router = bind(zmq::socket_type::router, guard.access(false));
  Handshakes handshakes(router);
  zmq::socket_t dealer = client(zmq::socket_type::dealer);

  dealer.connect(bound_endpoint(router));

  EXPECT_TRUE(handshakes.succeeds());
}

// ---- other machines ----

std::string refusal(const std::string& endpoint, const SocketAccess& access) {
  try {
    check_endpoint(endpoint, access);
    return "";
  } catch (const std::system_error& error) {
    return error.what();
  }
}

TEST(RemoteEndpoint, NeedsLeaveAndAKey) {
  const SocketAccess key_alone{.secret_key = "key", .allow_remote = false};
  const SocketAccess leave_alone{.secret_key = "", .allow_remote = true};
  const SocketAccess both{.secret_key = "key", .allow_remote = true};
  for (const char* endpoint : {"tcp://*:5555", "tcp://0.0.0.0:5555", "tcp://10.0.0.1:5555", "tcp://eth0:5555",
                               "tcp://[::]:5555", "tcp://128.0.0.1:1"}) {
    EXPECT_NE(refusal(endpoint, {}).find("only loopback"), std::string::npos) << endpoint;
    EXPECT_NE(refusal(endpoint, key_alone).find("only loopback"), std::string::npos) << endpoint;
    EXPECT_NE(refusal(endpoint, leave_alone).find("CURVE keys only"), std::string::npos) << endpoint;
    EXPECT_EQ(refusal(endpoint, both), "") << endpoint;
  }
  for (const char* endpoint :
       {"tcp://:5555", "tcp://10.0.0.1", "tcp://10.0.0.1;127.0.0.1:5555", "udp://10.0.0.1:1"})
    EXPECT_NE(refusal(endpoint, both), "") << endpoint;
}

} // namespace
} // namespace millrace
