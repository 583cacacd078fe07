#pragma once

// Streams that outlive the process: one append-only file for each, in the form of gateway/journal_format.hpp,
// that holds the request as admitted and then its events. A file is always a beginning of its stream: a cut
// or damaged tail is dropped, and a stream that once could not be written is not written on. What is missing
// is drawn again, to the same bits, since the request and its seed are all that a stream is made of.

#include "gateway/backend.hpp"
#include "gateway/principal.hpp"
#include "messages/error.hpp"

#include <zmq.hpp>

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// What opened a stream.
struct JournalHead {
  static constexpr std::string_view kType = "journal";
  uint32_t version = 1;
  std::string principal;
  std::string fingerprint; // of the model, see StreamsOptions
  Bytes body_hash;         // of the request as the client sent it: tells the same body from another
  Generate generate;       // as admitted, seed present
  MILLRACE_FIELDS(version, principal, fingerprint, body_hash, generate)
};

struct RecoveredStream {
  JournalHead head;
  std::vector<std::string> events; // msgpack bodies, in the order in which they were published
  std::chrono::system_clock::time_point touched;
};

struct JournalOptions {
  std::filesystem::path folder;
  size_t max_file_bytes = 64u << 20;     // of one stream; its later events are dropped
  uint64_t max_total_bytes = 4ull << 30; // of all files; beyond it nothing is begun, and events are dropped
  size_t max_queued_bytes = 64u << 20;   // waiting for the disk; beyond it events are dropped
  std::chrono::milliseconds linger{1};   // how long events may gather before they are written together
  bool sync = false; // wait for the disk itself: only a power cut or a crash of the system asks for it
};

/// Thread-safe. A thread of its own writes; only begin() waits for the disk.
class Journal {
public:
  /// Takes the folder (made if absent, for its owner alone) under a lock that ends with the process. Throws
  /// std::system_error naming the path; a folder that others may enter is refused.
  explicit Journal(const JournalOptions& options);
  /// Writes what waits.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// All streams of the folder, the one that was silent longest first, one at a time; events that are
  /// appended to them go on in their files. Once, at the start, before anything is begun. Files that are no
  /// journals are renamed to *.bad and told on stderr. `take` may forget what it doesn't want.
  void recover(const std::function<void(RecoveredStream)>& take);

  /// Writes the head before it returns, so that an admitted stream is on disk. Else says why the request is to
  /// be refused: `busy` if the disk is full, or a limit above reached, until files of old streams go.
  std::optional<Failure> begin(const JournalHead& head);
  /// Puts the event into a queue; of a stream that was not begun it is dropped.
  void append(const StreamId& stream, zmq::message_t event);
  /// The stream has left the log: its file goes.
  void forget(const StreamId& stream);
  /// Returns when all that was appended and forgotten before is on disk.
  void flush();

  uint64_t dropped() const; // events that did not reach the disk

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
