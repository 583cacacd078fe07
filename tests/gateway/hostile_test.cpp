// What a peer may send or leave undone without disturbing others (F31, F32 and section 5 of the fault list).

#include "gateway/zeromq/publisher.hpp"
#include "tests/gateway/gateway_test.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace millrace::test {
namespace {

using HostileTest = GatewayTest;

/// A bare TCP connection to a loopback endpoint.
class RawConnection {
public:
  explicit RawConnection(const std::string& endpoint) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("no connection");
  }
  ~RawConnection() { close(socket_); }
  RawConnection(const RawConnection&) = delete;

  /// As much as the other side takes before it closes.
  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0)
        return;
      bytes.remove_prefix(sent);
    }
  }
  /// Skips bytes that the other side sends.
  void skip(size_t bytes) {
    std::string buffer(bytes, '\0');
    pollfd item{socket_, POLLIN, 0};
    for (size_t got = 0; got < bytes;) {
      const bool ready = ::poll(&item, 1, static_cast<int>(kDeadline.count())) == 1;
      const ssize_t read = ready ? ::recv(socket_, buffer.data(), bytes - got, 0) : 0;
      if (read <= 0)
        throw std::runtime_error("the other side sent too little");
      got += read;
    }
  }
  /// Reads on until the other side closes; false at the deadline.
  bool closed_by_peer() {
    for (;;) {
      pollfd item{socket_, POLLIN, 0};
      if (::poll(&item, 1, static_cast<int>(kDeadline.count())) != 1)
        return false;
      char buffer[256];
      if (::recv(socket_, buffer, sizeof buffer, 0) <= 0)
        return true;
    }
  }

private:
  int socket_;
};

/// What a ZMTP 3.0 peer of this type sends before its first message.
std::string zmtp_handshake(const std::string& type) {
  std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16);
  greeting.resize(64);
  std::string ready = std::string("\5READY\x0bSocket-Type\0\0\0", 21) + static_cast<char>(type.size()) + type;
  return greeting + '\4' + static_cast<char>(ready.size()) + ready;
}

/// A frame with its length in 8 bytes; `claimed` may be another than that of the content.
std::string zmtp_frame(const std::string& content, uint64_t claimed) {
  std::string frame(1, '\2');
  for (int shift = 56; shift >= 0; shift -= 8)
    frame += static_cast<char>(claimed >> shift);
  return frame + content;
}

std::string msgpack_map(const std::function<void(msgpack::packer<msgpack::sbuffer>&)>& fill) {
  msgpack::sbuffer buffer;
  msgpack::packer packer(buffer);
  fill(packer);
  return {buffer.data(), buffer.size()};
}

/// {"type": "generate", "request": ‹id 1›, ‹key›: ‹what fill packs›}.
std::string generate_with(const std::string& key,
                          const std::function<void(msgpack::packer<msgpack::sbuffer>&)>& fill) {
  return msgpack_map([&](auto& packer) {
    packer.pack_map(3);
    packer.pack("type").pack("generate");
    packer.pack("request").pack_bin(16).pack_bin_body(bytes_of(stream(1)).data(), 16);
    packer.pack(key);
    fill(packer);
  });
}

struct BadRequest {
  const char* name;
  std::string frame;
};

std::vector<BadRequest> bad_requests() {
  const std::string good = encode(generate(1));
  return {
      {"nothing", ""},
      {"one byte", std::string(1, '\xc1')},
      {"no map", msgpack_map([](auto& p) { p.pack(42); })},
      {"an empty map", msgpack_map([](auto& p) { p.pack_map(0); })},
      {"no type", msgpack_map([](auto& p) { p.pack_map(1).pack("request").pack("x"); })},
      {"an unknown type", msgpack_map([](auto& p) { p.pack_map(1).pack("type").pack("shutdown"); })},
      {"a message of the server", encode(Welcome{})},
      {"a message of the pipeline", encode(SampledToken{})},
      {"a number as prompt", generate_with("prompt", [](auto& p) { p.pack(7); })},
      {"n as text", generate_with("n", [](auto& p) { p.pack("1"); })},
      {"n above 32 bits", generate_with("n", [](auto& p) { p.pack(int64_t{1} << 40); })},
      {"a prompt that is not UTF-8", generate_with("prompt", [](auto& p) { p.pack("\xff\xfe"); })},
      {"a truncated frame", good.substr(0, good.size() - 1)},
      {"trailing bytes", good + '\xc0'},
      {"two messages", good + good},
      {"a depth bomb", std::string(1'000'000, '\x91')},
      {"a depth bomb in a field", generate_with("later",
                                                [](auto& p) {
                                                  for (int i = 0; i < 100'000; ++i)
                                                    p.pack_array(1);
                                                  p.pack(1);
                                                })},
      {"an array of 2^31 in 5 bytes", std::string("\xdd\x7f\xff\xff\xff", 5)},
      {"a map of 2^32 - 1 in 5 bytes", std::string("\xdf\xff\xff\xff\xff", 5)},
      {"a string of 4 GiB in a field", generate_with("prompt", [](auto& p) { p.pack_str(0xffffffffu); })},
      {"a short id", msgpack_map([](auto& p) {
         p.pack_map(2).pack("type").pack("cancel").pack("request").pack_bin(15).pack_bin_body(
             std::string(15, 'x').data(), 15);
       })},
  };
}

TEST_F(HostileTest, AnswersEachMalformedFrameOnceAndServesTheNextRequest) {
  start();
  Requester client = requester();
  for (const BadRequest& bad : bad_requests()) {
    SCOPED_TRACE(bad.name);
    client.send_frames({bad.frame});
    const Rejected rejected = client.expect<Rejected>();
    EXPECT_TRUE(rejected.error == "malformed" || rejected.error == "invalid_field") << rejected.error;
    EXPECT_EQ(client.ask<Rejected>(Cancel{stream(9)}).error, "unknown_request");
  }
  EXPECT_TRUE(backend_.submitted().empty());
  EXPECT_EQ(client.ask<Ack>(generate(1)).of, "generate");
}

TEST_F(HostileTest, AddressesARefusalWhereTheIdIsReadable) {
  start();
  Requester client = requester();

  client.send_frames({generate_with("n", [](auto& p) { p.pack("many"); })});
  const Rejected rejected = client.expect<Rejected>();

  EXPECT_EQ(rejected.request, stream(1));
  EXPECT_EQ(rejected.field, "n");
}

TEST_F(HostileTest, RefusesExtraFrames) {
  start();
  Requester client = requester();
  const std::string good = encode(generate(1));

  client.send_frames({good, good});
  EXPECT_EQ(client.expect<Rejected>().error, "malformed");
  client.send_frames({good, good, good});
  EXPECT_EQ(client.expect<Rejected>().error, "malformed");
  client.send_frames({"", "", good}); // a delimiter too many
  client.send_frames({"", good});     // a DEALER that plays REQ; its answer has the delimiter, too
  EXPECT_THROW(client.next(), std::runtime_error);
  EXPECT_TRUE(eventually([&] { return backend_.submitted().size() == 1; }));
}

TEST_F(HostileTest, CutsOffWhoSendsAFrameAboveTheLimit) {
  start();
  Requester client = requester();
  {
    Requester greedy = requester();
    greedy.send_frames({std::string(kMaxFrameBytes + 100'000, 'x')});
    EXPECT_FALSE(greedy.next_within(std::chrono::milliseconds(300)));
  }
  EXPECT_EQ(client.ask<Ack>(generate(1)).of, "generate");
  EXPECT_EQ(gateway_->stats().requests, 1u);
}

TEST_F(HostileTest, AnswersAFrameJustAboveTheLimit) {
  start();
  Requester client = requester();

  client.send_frames({std::string(kMaxFrameBytes + 1, '\x91')});

  EXPECT_EQ(client.expect<Rejected>().error, "malformed");
}

TEST_F(HostileTest, DoesNotServeAClientThatReadsNoLargeAnswers) {
  options_.stream_log_bytes = 64u << 20;
  start();
  Requester mute = requester(zmq::socket_type::dealer, 1);
  Requester client = requester();
  client.ask<Ack>(generate(1));
  for (int64_t seq = 0; seq < 3; ++seq)
    gateway_->publish(token(1, seq, 0, 0, 1'200'000));
  // Kernel buffers take some snapshots, 8 MiB wait, and fewer than a thousand have to be asked for.
  for (int asked = 0; asked < 50; ++asked)
    mute.send(Look{stream(1)});

  EXPECT_TRUE(eventually([&] { return gateway_->stats().unanswered_requests > 0; }));
  EXPECT_EQ(client.ask<Snapshot>(Look{stream(1)}).choices[0].text.size(), 3'600'000u);
  mute.expect<Snapshot>();
}

TEST_F(HostileTest, DoesNotServeAClientThatReadsNoAnswers) {
  start();
  Requester mute = requester(zmq::socket_type::dealer, 1);
  Requester client = requester();
  // Each answer is dropped into queues and kernel buffers until these are full, then 256 are kept, then none
  // is.
  const Cancel question{stream(9)};
  uint64_t asked = 0;
  while (gateway_->stats().unanswered_requests == 0 && asked < 1'000'000) {
    mute.send(question);
    ++asked;
  }
  EXPECT_GT(gateway_->stats().unanswered_requests, 0u);
  EXPECT_EQ(client.ask<Ack>(generate(1)).of, "generate");
}

TEST_F(HostileTest, AdmitsNoTopicThatIsNotExactlyOneStream) {
  start();
  const std::string id = bytes_of(stream(1));
  std::vector<Subscriber> outsiders;
  for (const std::string& topic :
       {std::string(), id.substr(0, 1), id.substr(0, 15), id + "x", std::string(200, 'x')})
    outsiders.push_back(subscriber({topic}));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().refused_subscriptions == outsiders.size(); }));

  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  publish_whole(1, 10);
  while (!is<Done>(reader.next().body)) {
  }

  uint8_t name = 100; // what an outsider hears first is the welcome to a stream of its own
  for (Subscriber& outsider : outsiders) {
    outsider.subscribe(bytes_of(stream(++name)));
    const Delivered first = outsider.next();
    EXPECT_EQ(first.topic, stream(name));
    EXPECT_TRUE(is<Welcome>(first.body));
  }
}

// A raw peer, since a topic of this length overflows the stack of libzmq's own recursive trie: it would end
// the subscriber, and end the gateway if it were let in.
TEST_F(HostileTest, CutsOffWhoSubscribesToAMegabyte) {
  start();
  RawConnection outsider(gateway_->events_endpoint());
  std::string topic((1u << 20) + 1, 'x');
  topic[0] = '\1';
  outsider.write(zmtp_handshake("SUB") + zmtp_frame(topic, topic.size()));

  EXPECT_TRUE(outsider.closed_by_peer());
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  EXPECT_EQ(gateway_->stats().refused_subscriptions, 0u);
}

TEST_F(HostileTest, CutsOffWhoAnnouncesAFrameOfThreeGigabytes) {
  start();
  RawConnection greedy(gateway_->requests_endpoint());
  greedy.write(zmtp_handshake("DEALER") + zmtp_frame("and then some", uint64_t{3} << 30));

  EXPECT_TRUE(greedy.closed_by_peer());
  Requester client = requester();
  EXPECT_EQ(client.ask<Ack>(generate(1)).of, "generate");
}

TEST_F(HostileTest, AdmitsNoMoreSubscriptionsThanItsCap) {
  options_.max_subscriptions = 3;
  start();
  Subscriber reader = subscriber({bytes_of(stream(1)), bytes_of(stream(2)), bytes_of(stream(3))});
  for (int i = 0; i < 3; ++i)
    reader.expect<Welcome>();
  Subscriber late = subscriber(4);
  ASSERT_TRUE(eventually([&] { return gateway_->stats().refused_subscriptions == 1; }));

  reader.unsubscribe(bytes_of(stream(2)));
  // Whether the place is free yet shows when it is taken.
  EXPECT_TRUE(eventually([&] {
    late.unsubscribe(bytes_of(stream(4)));
    late.subscribe(bytes_of(stream(4)));
    return late.next_within(std::chrono::milliseconds(20)).has_value();
  }));
}

TEST_F(HostileTest, FreesThePlacesOfASubscriberThatLeft) {
  options_.max_subscriptions = 1;
  start();
  for (int round = 0; round < 3; ++round)
    EXPECT_TRUE(
        eventually([&] { return subscriber(1).next_within(std::chrono::milliseconds(200)).has_value(); }));
}

/// Becomes a SUB peer, in steps, since libzmq may not read what comes together with a greeting.
void introduce_subscriber(RawConnection& connection) {
  constexpr size_t kGreeting = 64, kReady = 28; // of an XPUB socket
  const std::string handshake = zmtp_handshake("SUB");
  connection.write(handshake.substr(0, kGreeting));
  connection.skip(kGreeting);
  connection.write(handshake.substr(kGreeting));
  connection.skip(kReady);
}

/// A subscription or its end as a short ZMTP frame.
std::string subscription_frame(char kind, uint8_t name) {
  return std::string("\0\x11", 2) + kind + bytes_of(stream(name));
}

TEST_F(HostileTest, CountsRepeatedSubscriptionsOfAPeerOnce) {
  options_.max_subscriptions = 2;
  start();
  {
    RawConnection greedy(gateway_->events_endpoint());
    introduce_subscriber(greedy);
    std::string frames;
    for (int i = 0; i < 1'000; ++i)
      frames += subscription_frame('\1', 1);
    frames += subscription_frame('\1', 2) + subscription_frame('\1', 3); // one too many
    greedy.write(frames);
    ASSERT_TRUE(eventually([&] { return gateway_->stats().refused_subscriptions > 0; }));
    EXPECT_EQ(gateway_->stats().refused_subscriptions, 1u);
  }
  Subscriber both = subscriber({}); // keeps its topics, so both places have to be free again
  for (const uint8_t name : {4, 5})
    EXPECT_TRUE(eventually([&] {
      both.unsubscribe(bytes_of(stream(name)));
      both.subscribe(bytes_of(stream(name)));
      const auto event = both.next_within(std::chrono::milliseconds(50));
      return event && event->topic == stream(name);
    }));
}

TEST_F(HostileTest, FreesNoPlaceForAPeerThatDoesNotHoldIt) {
  options_.max_subscriptions = 1;
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  RawConnection hostile(gateway_->events_endpoint());
  introduce_subscriber(hostile);
  std::string frames;
  for (int i = 0; i < 10; ++i)
    frames += subscription_frame('\0', 1);
  hostile.write(frames + subscription_frame('\1', 2));
  ASSERT_TRUE(eventually([&] { return gateway_->stats().refused_subscriptions == 1; }));

  Requester client = requester();
  client.ask<Ack>(generate(1));
  publish_whole(1, 1);
  while (!is<Done>(reader.next().body)) {
  }
}

// libzmq tells of the end of a refused subscription, too, and not whose it was.
TEST_F(HostileTest, FreesNoPlaceWhenAPeerThatWasRefusedItLeaves) {
  options_.max_subscriptions = 1;
  start();
  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  {
    RawConnection refused(gateway_->events_endpoint());
    introduce_subscriber(refused);
    refused.write(subscription_frame('\1', 2));
    ASSERT_TRUE(eventually([&] { return gateway_->stats().refused_subscriptions == 1; }));
    reader.unsubscribe(bytes_of(stream(1)));
    ASSERT_TRUE(eventually([&] {
      reader.unsubscribe(bytes_of(stream(2)));
      reader.subscribe(bytes_of(stream(2)));
      return reader.next_within(std::chrono::milliseconds(50)).has_value();
    }));
  }
  // Another peer's second topic is refused whether or not the first one's departure was noticed.
  const uint64_t before = gateway_->stats().refused_subscriptions;
  for (int i = 0; i < 20; ++i) {
    Subscriber late = subscriber(3);
    ASSERT_TRUE(eventually([&] { return gateway_->stats().refused_subscriptions > before + i; }));
  }
}

TEST_F(HostileTest, ServesWhoStaysWhenAnotherReaderOfTheTopicLeaves) {
  options_.max_subscriptions = 1;
  start();
  Subscriber stays = subscriber(1);
  stays.expect<Welcome>();
  for (const bool politely : {true, false}) {
    Subscriber leaves = subscriber(1); // shares the place
    leaves.expect<Welcome>();
    stays.expect<Welcome>();
    if (politely) {
      leaves.unsubscribe(bytes_of(stream(1)));
      leaves.subscribe(bytes_of(stream(1)));
      leaves.expect<Welcome>();
      stays.expect<Welcome>();
      leaves.unsubscribe(bytes_of(stream(1)));
    }
  }
  const Subscriber late = subscriber(2);
  ASSERT_TRUE(eventually([&] { return gateway_->stats().refused_subscriptions == 1; }));
  Requester client = requester();
  client.ask<Ack>(generate(1));
  publish_whole(1, 1);
  while (!is<Done>(stays.next().body)) {
  }
}

TEST(PublisherTest, NeverSubscribesAPeerToTheTopicOfAnother) {
  zmq::context_t context = make_context();
  Publisher publisher(context, "tcp://127.0.0.1:*", 100, 100);
  publisher.socket().bind("inproc://events"); // where what was sent has arrived when send returns
  auto peer = [&] {
    zmq::socket_t socket(context, zmq::socket_type::xsub);
    socket.set(zmq::sockopt::linger, 0);
    socket.connect("inproc://events");
    return socket;
  };
  zmq::socket_t hostile = peer(), alice = peer(), bob = peer();
  const auto subscription = [](uint8_t name) { return std::string(1, '\1').append(bytes_of(stream(name))); };
  const std::string to_alice = subscription(1), to_bob = subscription(2);
  std::vector<StreamId> joined;
  const auto admit = [&] {
    publisher.admit(
        100, [](const StreamId&, const Principal&) { return true; }, [&](const StreamId& id) { joined.push_back(id); });
  };

  hostile.send(zmq::str_buffer("no subscription"));
  alice.send(zmq::buffer(to_alice));
  bob.send(zmq::buffer(to_bob));
  admit();
  EXPECT_TRUE(joined.empty());
  alice.send(zmq::buffer(to_alice)); // they were not welcomed and ask again
  bob.send(zmq::buffer(to_bob));
  admit();
  EXPECT_EQ(joined, (std::vector{stream(1), stream(2)}));

  const std::string text(100, 'x');
  zmq::message_t body(text.data(), text.size());
  publisher.publish({.sequence = {stream(1), 0, 0}, .body = std::move(body)});
  zmq::message_t frame;
  EXPECT_TRUE(alice.recv(frame, zmq::recv_flags::dontwait));
  EXPECT_FALSE(bob.recv(frame, zmq::recv_flags::dontwait));
  EXPECT_FALSE(hostile.recv(frame, zmq::recv_flags::dontwait));
}

TEST_F(HostileTest, ServesOthersBesideHalfOpenConnectionsAndClosesThem) {
  start();
  std::vector<std::unique_ptr<RawConnection>> half_open;
  for (int i = 0; i < 50; ++i)
    for (const std::string& endpoint : {gateway_->requests_endpoint(), gateway_->events_endpoint()}) {
      half_open.push_back(std::make_unique<RawConnection>(endpoint));
      half_open.back()->write(zmtp_handshake("SUB").substr(0, i)); // of 90 bytes
    }

  Subscriber reader = subscriber(1);
  reader.expect<Welcome>();
  Requester client = requester();
  client.ask<Ack>(generate(1));
  publish_whole(1, 10);
  while (!is<Done>(reader.next().body)) {
  }

  for (const auto& connection : half_open)
    EXPECT_TRUE(connection->closed_by_peer());
}

TEST_F(HostileTest, SurvivesOldAndBrokenGreetings) {
  start();
  const std::string v1("\x01\0", 2), v2("\xff\0\0\0\0\0\0\0\1\x7f\1\x05\0\0", 14);
  for (const std::string& greeting :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(10'000, '\xff'), std::string(1'000, '\0'),
        v1 + std::string(500, 'x'), v2 + std::string("\2\xff\xff\xff\xff\xff\xff\xff\xff", 9),
        std::string("\x16\3\1\2\0\1", 6)})
    for (const std::string& endpoint : {gateway_->requests_endpoint(), gateway_->events_endpoint()})
      RawConnection(endpoint).write(greeting);

  Requester client = requester();
  EXPECT_EQ(client.ask<Ack>(generate(1)).of, "generate");
}

TEST_F(HostileTest, ListensOnLoopbackOnly) {
  start();
  std::set<std::string> own; // inodes of this process's sockets
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    if (target.starts_with("socket:["))
      own.insert(target.substr(8, target.size() - 9));
  }

  int listeners = 0;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line); // the head
    while (std::getline(file, line)) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
      if (state != "0A" || !own.contains(inode)) // LISTEN
        continue;
      ++listeners;
      EXPECT_EQ(local.substr(0, local.find(':')), "0100007F") << line;
    }
  }
  EXPECT_EQ(listeners, 2);
}

} // namespace
} // namespace millrace::test
