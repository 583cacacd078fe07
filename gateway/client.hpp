#pragma once

// A client of the ZeroMQ protocol: opens streams and reads them in order, each event once, whatever the
// network or the server does meanwhile. Gaps are repaired, lost requests sent again, lost connections taken
// up where they broke. PROTOCOL.md tells the rules; this follows them.

#include "gateway/stream_order.hpp"
#include "messages/generation.hpp"
#include "messages/stats.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace millrace {

struct ClientOptions {
  std::string requests = "tcp://127.0.0.1:5555"; // the gateway's ROUTER
  std::string events = "tcp://127.0.0.1:5556";   // and XPUB; empty: only look(), stats() and paced streams
  // CURVE, all in Z85; with all of them empty the server must have none, either.
  std::string server_key = {}; // its public key
  std::string public_key = {}; // ours
  std::string secret_key = {};

  std::chrono::milliseconds heartbeat{2'000}; // the server's; three without a word are a lost connection
  std::chrono::milliseconds patience{2'000};  // for an answer, before it is asked for again
  size_t room = 4'096; // events of a stream that wait for its reader; the others wait in the server's log
};

/// How events come. broadcast: over the topic, which costs the server least. paced: over the requests'
/// connection, at the pace of the reader.
enum class Delivery { broadcast, paced };

/// Belongs to one thread, with all its streams. Nothing moves while no call is made.
class Client {
public:
  /// Throws zmq::error_t if an endpoint or a key is malformed. A server that isn't there is waited for.
  explicit Client(const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  static constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
  using Time = std::chrono::milliseconds;

  /// A stream that is read. Must not outlive its client; going away, it leaves the stream running.
  class Stream {
  public:
    ~Stream();
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;

    /// The next event. nullopt: none came within the time, or the stream has ended (see ended()). A stream
    /// ends in Done, or in Rejected: refused, or unknown to a server that was restarted without a log.
    std::optional<StreamEvent> next(Time timeout = kForever);
    /// Whether its last event was read.
    bool ended() const;
    /// Asks the server to end it; goes on until its last event.
    void cancel();
    /// Of an earlier stream, if the server joined the request to one with the same idempotency key.
    StreamId id() const;
    /// The next seq of each choice: where join() can go on, in this process or another.
    std::vector<int64_t> position() const;
    /// Times that something was asked for again: events, the request itself, a subscription.
    int64_t repairs() const;

  private:
    friend Client;
    struct State;
    explicit Stream(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// A new stream. An id of zeros gets a random one; with another id, or an idempotency key, the same request
  /// joins the stream that an earlier one opened. A client reads a stream once at a time; throws
  /// std::invalid_argument else.
  Stream generate(Generate request, Delivery delivery = Delivery::broadcast);
  /// One that somebody opened, from these seqs on (missing ones: 0). Likewise.
  Stream join(const StreamId& stream, std::vector<int64_t> from_seq = {},
              Delivery delivery = Delivery::broadcast);

  /// Where a stream stands, with its text so far; nullopt if no answer came in time.
  std::optional<std::variant<Snapshot, Rejected>> look(const StreamId& stream, Time timeout);
  /// How the server does; nullopt if no answer came in time.
  std::optional<ServerStats> stats(int32_t max_requests, Time timeout);

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
