#pragma once

// Streams that outlive the process: one append-only file for each. A file holds records, each with length and
// checksum: the request as admitted, then its events. A cut or damaged tail is dropped: what it held is drawn
// again, to the same bits, since the request and its seed are all that a stream is made of.

#include "gateway/backend.hpp"
#include "gateway/principal.hpp"

#include <zmq.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace millrace {

/// What opened a stream.
struct JournalHead {
  static constexpr std::string_view kType = "journal";
  uint32_t version = 1;
  std::string principal;
  std::string fingerprint;   // of the model, see StreamsOptions
  Bytes body_hash;           // of the request as the client sent it: tells the same body from another
  Generate generate;         // as admitted, seed present
  MILLRACE_FIELDS(version, principal, fingerprint, body_hash, generate)
};

struct RecoveredStream {
  JournalHead head;
  std::vector<std::string> events; // msgpack bodies, in the order in which they were published
  std::chrono::system_clock::time_point touched;
};

struct JournalOptions {
  std::filesystem::path folder;
  size_t max_file_bytes = 64u << 20;
  size_t max_queued_bytes = 64u << 20; // waiting for the disk; beyond it events are dropped from the journal (and drawn again at need)
};

/// Thread-safe. A thread of its own writes; only begin() waits for it.
class Journal {
public:
  /// Takes the folder (made if absent, for its owner alone) under a lock that ends with the process. Throws std::system_error naming the path.
  explicit Journal(const JournalOptions& options);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// All streams of the folder, once, at start. Unreadable files are renamed to *.bad and told on stderr.
  std::vector<RecoveredStream> recover();

  /// Writes the head before it returns, so that an admitted stream is on disk. False if the disk does not take it: the
  /// request is to be refused.
  bool begin(const JournalHead& head);
  void append(const StreamId& stream, zmq::message_t event);
  /// The stream has left the log: its file goes.
  void forget(const StreamId& stream);

  uint64_t dropped() const; // events that did not reach the disk

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
