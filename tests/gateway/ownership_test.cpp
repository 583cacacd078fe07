// Who may read and end which stream, with keys.

#include "gateway/zeromq/curve_key.hpp"
#include "tests/gateway/gateway_test.hpp"
#include "tests/gateway/temporary_folder.hpp"

#include <fstream>

namespace millrace::test {
namespace {

class OwnershipTest : public GatewayTest {
protected:
  OwnershipTest() {
    write_curve_key_pair(server_, folder_.path / "key_secret", folder_.path / "key");
    std::ofstream(folder_.path / "allow") << alice_.public_key << '\n' << bob_.public_key << '\n';
    options_.curve = {.key_file = folder_.path / "key_secret", .allow_file = folder_.path / "allow"};
    start();
  }

  Requester requester(const CurveKeyPair& keys) {
    return {context_, gateway_->requests_endpoint(), zmq::socket_type::dealer, 1'000, setup(keys)};
  }
  Subscriber subscriber(const CurveKeyPair& keys, uint8_t name) {
    return {context_, gateway_->events_endpoint(), {bytes_of(stream(name))}, {1'000, 0}, setup(keys)};
  }
  SocketSetup setup(const CurveKeyPair& keys) const {
    return [&keys, this](zmq::socket_t& socket) {
      socket.set(zmq::sockopt::curve_publickey, keys.public_key);
      socket.set(zmq::sockopt::curve_secretkey, keys.secret_key);
      socket.set(zmq::sockopt::curve_serverkey, server_.public_key);
    };
  }
  bool refuses_subscriptions(uint64_t count) {
    return eventually([&] { return gateway_->stats().refused_subscriptions == count; });
  }

  TemporaryFolder folder_;
  const CurveKeyPair server_ = make_curve_key_pair(), alice_ = make_curve_key_pair(),
                     bob_ = make_curve_key_pair();
};

TEST_F(OwnershipTest, KeepsAStreamToTheKeyThatOpenedIt) {
  Requester alice = requester(alice_), bob = requester(bob_);
  alice.ask<Ack>(generate(1));
  publish_whole(1, 2);

  EXPECT_EQ(bob.ask<Rejected>(Cancel{stream(1)}).error, "unknown_request");
  EXPECT_EQ(bob.ask<Rejected>(Replay{stream(1), 0, 0}).error, "unknown_request");
  EXPECT_EQ(bob.ask<Rejected>(Follow{stream(1), {}, 10}).error, "unknown_request");
  EXPECT_EQ(bob.ask<Rejected>(Look{stream(1)}).error, "unknown_request");
  EXPECT_EQ(bob.ask<Rejected>(generate(1)).error, "conflict");
  const Subscriber outsider = subscriber(bob_, 1);
  EXPECT_TRUE(refuses_subscriptions(1));
  Subscriber owner = subscriber(alice_, 1);
  EXPECT_EQ(owner.expect<Welcome>().next_seq, std::vector<int64_t>{3});
  EXPECT_EQ(alice.ask<Snapshot>(Look{stream(1)}).choices.at(0).next_seq, 3);
}

TEST_F(OwnershipTest, LetsThoseReadThatTheOwnerNames) {
  Requester alice = requester(alice_), bob = requester(bob_);
  Generate request = generate(1);
  request.readers = {bob_.public_key};
  alice.ask<Ack>(request);

  Subscriber reader = subscriber(bob_, 1);
  reader.expect<Welcome>();
  bob.ask<Ack>(Follow{stream(1), {}, 10});
  gateway_->publish(token(1, 0));

  reader.expect<Token>();
  bob.expect<Token>();
  EXPECT_EQ(bob.ask<Rejected>(Cancel{stream(1)}).error, "unknown_request") << "reading is not ending";
}

TEST_F(OwnershipTest, GivesATopicToTheKeyThatSubscribesFirst) {
  {
    Subscriber first = subscriber(alice_, 1);
    first.expect<Welcome>();
    const Subscriber second = subscriber(bob_, 1);
    EXPECT_TRUE(refuses_subscriptions(1));
    EXPECT_EQ(requester(bob_).ask<Rejected>(generate(1)).error, "conflict");
    EXPECT_TRUE(backend_.submitted().empty());
    Requester alice = requester(alice_);
    alice.ask<Ack>(generate(1));
    publish_whole(1, 1);
    first.expect<Token>(); // and no Rejected before
  }
  Subscriber late = subscriber(bob_, 2);
  late.expect<Welcome>();
}

} // namespace
} // namespace millrace::test
