// Many connections, and too many.

#include "tests/gateway/http/server_test.hpp"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>

namespace millrace::http::test {
namespace {

/// Changes how many descriptors the process may have; the old limit comes back.
class DescriptorLimit {
public:
  DescriptorLimit() { ::getrlimit(RLIMIT_NOFILE, &before_); }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  bool set(rlim_t n) const {
    const rlimit limit{n, before_.rlim_max};
    return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  }
  rlim_t largest() const { return before_.rlim_max; }

private:
  rlimit before_{};
};

/// Takes all descriptors that the process has left, and gives them back one by one.
class Hoard {
public:
  Hoard() {
    for (int fd; (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
      descriptors_.push_back(fd);
  }
  ~Hoard() { give(descriptors_.size()); }
  void give(size_t n) {
    for (; n > 0; --n) {
      ::close(descriptors_.back());
      descriptors_.pop_back();
    }
  }

private:
  std::vector<int> descriptors_;
};

class Connections : public ServerTest {
protected:
  void wait_for_connections(size_t n) const {
    while (server_->stats().connections != n)
      std::this_thread::yield();
  }
};

TEST_F(Connections, OfThousandsThatIdleCostLittle) {
  const DescriptorLimit limit;
  const size_t n_peers = std::min<size_t>(10'000, limit.largest() / 2 - 300); // both ends are this process's
  ASSERT_TRUE(limit.set(2 * n_peers + 600));
  start_echo();
  std::vector<Peer> peers;
  peers.reserve(n_peers);
  peer().request("GET", "/").answer(); // what is allocated once, is

  const size_t before = ::mallinfo2().uordblks;
  for (size_t i = 0; i < n_peers; ++i)
    peers.push_back(peer());
  wait_for_connections(n_peers);
  const size_t silent_bytes = (::mallinfo2().uordblks - before) / n_peers;
  for (auto& client : peers)
    client.request("POST", "/warm", std::string(2'000, 'x'));
  for (auto& client : peers)
    ASSERT_EQ(client.answer().status, 200);
  const size_t idle_bytes = (::mallinfo2().uordblks - before) / n_peers;

  RecordProperty("heap_bytes_of_an_idle_connection", int(idle_bytes));
  std::printf("heap of a connection: %zu bytes before its first request, %zu between two\n", silent_bytes,
              idle_bytes);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(silent_bytes, 4'096u);
  EXPECT_LT(idle_bytes, 4'096u);
#endif
  EXPECT_EQ(server_->stats().evicted, 0u);
}

TEST_F(Connections, BeyondTheBoundTakeThePlaceOfWhoIdlesLongest) {
  options_.max_connections = 3;
  start_held();
  auto busy = peer(), old = peer(), young = peer();
  busy.request("GET", "/busy");
  const auto exchange = held_.take();
  young.request("GET", "/");
  respond(*held_.take(), "");
  young.answer();
  wait_for_connections(3);

  auto fresh = peer();

  EXPECT_TRUE(old.at_end());
  fresh.request("GET", "/fresh");
  respond(*held_.take(), "fresh");
  EXPECT_EQ(fresh.answer().body, "fresh");
  respond(*exchange, "busy");
  EXPECT_EQ(busy.answer().body, "busy");
  EXPECT_EQ(server_->stats().evicted, 1u);
}

TEST_F(Connections, BeyondTheBoundWaitWhenAllAreBusy) {
  options_.max_connections = 1;
  start_held();
  auto busy = peer();
  busy.request("GET", "/busy", "", "Connection: close\r\n");
  const auto exchange = held_.take();

  auto waiting = peer();
  waiting.request("GET", "/waiting");
  while (server_->stats().accept_pauses == 0)
    std::this_thread::yield();
  respond(*exchange, "busy");
  EXPECT_EQ(busy.answer().body, "busy");
  busy.close();

  respond(*held_.take(), "waiting");
  EXPECT_EQ(waiting.answer().body, "waiting");
}

TEST_F(Connections, WaitForDescriptorsWhileStreamsGoOn) {
  const DescriptorLimit limit;
  ASSERT_TRUE(limit.set(300));
  start_held();
  auto streaming = peer();
  streaming.request("GET", "/stream");
  const auto stream = held_.take();
  Answered head;
  on_loop(*stream, [](Exchange& e) { e.begin({}); });
  streaming.receive_head(head);

  Hoard hoard;
  hoard.give(1);
  auto waiting = peer(); // has its descriptor; the server gets none for it
  ASSERT_TRUE(waiting.connected());
  waiting.request("GET", "/waiting");
  while (server_->stats().accept_pauses == 0)
    std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    on_loop(*stream, [](Exchange& e) { e.write("token"); });
    ASSERT_EQ(streaming.receive_chunk(), "token");
  }
  EXPECT_LE(server_->stats().accept_pauses, 10u); // one a second: it does not spin
  EXPECT_EQ(server_->stats().accepted, 1u);

  hoard.give(5);
  on_loop(*stream, [](Exchange& e) { e.end(); });
  streaming.close(); // the end of a connection makes it look at once
  respond(*held_.take(), "waiting");
  EXPECT_EQ(waiting.answer().body, "waiting");
}

TEST_F(Connections, LeaveDescriptorsToOthers) {
  const DescriptorLimit limit;
  ASSERT_TRUE(limit.set(300));
  start_held();
  std::vector<Peer> peers;
  const size_t bound = 300 - 128;
  for (size_t i = 0; i < 100; ++i)
    peers.push_back(peer());
  wait_for_connections(100);

  std::vector<int> others; // both ends of the connections are this process's
  for (int fd; others.size() < 64 && (fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;)
    others.push_back(fd);
  for (const int fd : others)
    ::close(fd);

  EXPECT_EQ(others.size(), 64u);
  EXPECT_LE(server_->stats().connections, bound);
}

} // namespace
} // namespace millrace::http::test
