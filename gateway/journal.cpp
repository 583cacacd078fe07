#include "gateway/journal.hpp"

#include "gateway/journal_format.hpp"
#include "messages/report.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

namespace millrace {
namespace {

constexpr const char* kLockName = "lock";
constexpr const char* kUnfinished = ".new"; // of a file whose head is being written
constexpr size_t kMaxOpenFiles = 256;
constexpr size_t kWriteBytes = 1u << 20; // of one batch, gathered in memory
constexpr size_t kOperationBytes = 96;   // what an operation in the queue is charged with, besides its event
constexpr size_t kKeptOperations = 1u << 16; // capacity of the queue that outlives a burst
constexpr int kToldFiles = 10;               // odd files that are named on stderr
const Failure kTooLarge{Error::unsupported, "", "the request is too large for the streams' journal"};
const Failure kFull{Error::busy, "", "the streams' journal is full", 10'000}; // streams leave it in minutes
const Failure kBroken{Error::internal, "", "the stream's journal cannot be written"};

[[noreturn]] void fail(int error, const std::filesystem::path& folder, const std::string& why) {
  throw std::system_error(error, std::generic_category(),
                          "journal folder \"" + folder.string() + "\": " + why);
}

/// Owns a file descriptor.
class Descriptor {
public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  void close() {
    if (fd_ >= 0)
      ::close(std::exchange(fd_, -1));
  }
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

private:
  int fd_;
};

/// False with errno if not all was written.
bool write_all(int fd, std::string_view bytes, size_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return false;
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<size_t>(written);
  }
  return true;
}

/// False with errno if it can't be read. The file may be shorter than `size`.
bool read_all(int fd, size_t size, std::string& bytes) {
  bytes.resize(size);
  size_t filled = 0;
  while (filled < size) {
    const ssize_t got = ::pread(fd, bytes.data() + filled, size - filled, static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return false;
    if (got == 0)
      break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return true;
}

Descriptor open_folder(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    fail(errno, folder, "can't be made");
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status;
  if (!descriptor || ::fstat(descriptor.get(), &status) != 0)
    fail(errno, folder, "can't be opened");
  if (status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    fail(EPERM, folder,
         "it holds what people write, so it must belong to its user and nobody else may enter (chmod 700)");
  return descriptor;
}

Descriptor lock_folder(int folder, const std::filesystem::path& path) {
  Descriptor lock(::openat(folder, kLockName, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock)
    fail(errno, path, "its lock can't be opened");
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    fail(errno, path, errno == EWOULDBLOCK ? "another server uses it" : "it can't be locked");
  return lock;
}

/// Names of all entries; throws if the folder can't be read.
std::vector<std::string> names_in(int folder, const std::filesystem::path& path) {
  DIR* directory = ::fdopendir(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory)
    fail(errno, path, "can't be read");
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory))
    names.emplace_back(entry->d_name);
  ::closedir(directory);
  return names;
}

/// The stream that a file of this name belongs to.
std::optional<StreamId> stream_of(const std::string& name) {
  const auto stream = stream_id_from_hex(name);
  return stream && to_hex(*stream) == name ? stream : std::nullopt;
}

size_t charge(const zmq::message_t& event) {
  return kOperationBytes + event.size();
}

} // namespace

struct Journal::State {
  explicit State(const JournalOptions& options)
      : options_(options), folder_(open_folder(options.folder)),
        lock_(lock_folder(folder_.get(), options.folder)), thread_([this] { run(); }) {}
  ~State();

  void recover(const std::function<void(RecoveredStream)>& take);
  std::optional<Failure> begin(const JournalHead& head);
  void append(const StreamId& stream, zmq::message_t event);
  void forget(const StreamId& stream);
  void flush();

  std::atomic<uint64_t> dropped_{0};

private:
  /// An event for a stream's file, or none: the file goes.
  struct Operation {
    StreamId stream;
    zmq::message_t event;
    bool forget = false;
  };
  struct File {
    size_t bytes = 0;
    bool cut = false; // something could not be written: nothing may follow
    Descriptor descriptor;
  };
  using Files = std::map<StreamId, File>; // ordered, because clients choose the ids

  std::optional<RecoveredStream> read(const StreamId& stream, const std::string& name);
  void set_aside(const std::string& name, int& told);

  void run();
  void write(std::vector<Operation>& operations, const std::set<StreamId>& overflowed);
  void write(const StreamId& stream, std::string_view records, uint64_t events);
  bool write(File& file, const std::string& name, std::string_view records);
  void remove(const StreamId& stream);
  bool close_and_erase(const StreamId& stream);
  void cut(File& file);
  void complain(const char* what, int error);

  const JournalOptions options_;
  const Descriptor folder_;
  const Descriptor lock_;

  std::mutex queue_mutex_;
  std::condition_variable queued_;  // for the thread
  std::condition_variable written_; // for flush()
  std::vector<Operation> queue_;
  size_t queued_bytes_ = 0;
  std::set<StreamId> overflowed_;      // streams whose events did not fit into the queue
  uint64_t pushed_ = 0, finished_ = 0; // operations
  bool sleeping_ = false;              // the thread must be told of the next operation
  bool hurry_ = false;                 // somebody waits: no lingering
  bool stopping_ = false;

  std::mutex files_mutex_; // held while the thread writes to one file
  Files files_;
  size_t open_files_ = 0;
  uint64_t total_bytes_ = 0;
  bool complained_ = false; // until something can be written again

  std::thread thread_; // last: it begins when all else is there
};

Journal::State::~State() {
  {
    std::lock_guard lock(queue_mutex_);
    stopping_ = true;
  }
  queued_.notify_one();
  thread_.join();
}

// ---- at the start ----

void Journal::State::recover(const std::function<void(RecoveredStream)>& take) {
  struct Found {
    timespec touched;
    StreamId stream;
    std::string name;
  };
  std::vector<Found> found;
  for (std::string& name : names_in(folder_.get(), options_.folder)) {
    if (name.ends_with(kUnfinished) && stream_of(name.substr(0, name.size() - 4)))
      ::unlinkat(folder_.get(), name.c_str(), 0); // its request was never admitted
    struct stat status;
    if (const auto stream = stream_of(name);
        stream && ::fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
      found.push_back({status.st_mtim, *stream, std::move(name)});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.touched.tv_sec, a.touched.tv_nsec) < std::tie(b.touched.tv_sec, b.touched.tv_nsec);
  });

  int told = 0;
  for (const Found& file : found) {
    if (auto stream = read(file.stream, file.name))
      take(std::move(*stream));
    else
      set_aside(file.name, told);
  }
  if (told > kToldFiles)
    report("journal", std::to_string(told - kToldFiles) + " more files like that");
}

/// Reads a file and drops its tail; nullopt if it is no journal of this stream. Never waits (O_NONBLOCK: a
/// FIFO may have the name) and follows no link.
std::optional<RecoveredStream> Journal::State::read(const StreamId& stream, const std::string& name) {
  File file;
  file.descriptor =
      Descriptor(::openat(folder_.get(), name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status;
  std::string bytes;
  if (!file.descriptor || ::fstat(file.descriptor.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      !read_all(file.descriptor.get(), std::min<uint64_t>(status.st_size, options_.max_file_bytes), bytes))
    return std::nullopt;
  auto contents = read_journal(bytes);
  if (!contents || contents->head.generate.request != stream)
    return std::nullopt;

  file.bytes = contents->good_bytes;
  if (static_cast<uint64_t>(status.st_size) > file.bytes &&
      ::ftruncate(file.descriptor.get(), static_cast<off_t>(file.bytes)) != 0)
    file.cut = true;
  file.descriptor.close(); // opened again at need
  using std::chrono::system_clock;
  RecoveredStream recovered{
      .head = std::move(contents->head),
      .events = {contents->events.begin(), contents->events.end()},
      .touched = system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(
          std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec)))};

  std::lock_guard lock(files_mutex_);
  total_bytes_ += file.bytes;
  files_.insert_or_assign(stream, std::move(file));
  return recovered;
}

void Journal::State::set_aside(const std::string& name, int& told) {
  const bool renamed = ::renameat(folder_.get(), name.c_str(), folder_.get(), (name + ".bad").c_str()) == 0;
  if (++told <= kToldFiles)
    report("journal", (options_.folder / name).string() + " is no journal" +
                          (renamed ? "; it is renamed to *.bad" : " and can't be renamed"));
}

// ---- what others call ----

std::optional<Failure> Journal::State::begin(const JournalHead& head) {
  const StreamId& stream = head.generate.request;
  const std::string name = to_hex(stream), unfinished = name + kUnfinished;
  std::string bytes;
  try {
    bytes = encode_journal_head(head);
  } catch (const std::length_error&) {
    return kTooLarge;
  }
  if (bytes.size() > options_.max_file_bytes)
    return kTooLarge;
  {
    std::unique_lock lock(files_mutex_);
    if (total_bytes_ + bytes.size() > options_.max_total_bytes)
      return kFull;
    if (files_.contains(stream)) { // forgotten, but not gone yet
      lock.unlock();
      flush();
    }
  }

  File file;
  file.descriptor = Descriptor(::openat(folder_.get(), unfinished.c_str(),
                                        O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written = file.descriptor && write_all(file.descriptor.get(), bytes, 0) &&
                       (!options_.sync || ::fdatasync(file.descriptor.get()) == 0) &&
                       ::renameat(folder_.get(), unfinished.c_str(), folder_.get(), name.c_str()) == 0 &&
                       (!options_.sync || ::fsync(folder_.get()) == 0);
  const int error = errno;
  std::lock_guard lock(files_mutex_);
  if (!written) {
    ::unlinkat(folder_.get(), unfinished.c_str(), 0);
    complain("a request is refused, for it can't be written", error);
    return error == ENOSPC || error == EDQUOT ? kFull : kBroken;
  }
  complained_ = false;
  file.bytes = bytes.size();
  file.descriptor.close();
  close_and_erase(stream);
  total_bytes_ += file.bytes;
  files_.emplace(stream, std::move(file));
  return std::nullopt;
}

void Journal::State::append(const StreamId& stream, zmq::message_t event) {
  const size_t bytes = charge(event);
  bool wake = false;
  {
    std::lock_guard lock(queue_mutex_);
    if (queued_bytes_ + bytes > options_.max_queued_bytes ||
        (!overflowed_.empty() && overflowed_.contains(stream))) {
      overflowed_.insert(stream);
      ++dropped_;
      return;
    }
    queued_bytes_ += bytes;
    queue_.push_back({stream, std::move(event)});
    ++pushed_;
    wake = std::exchange(sleeping_, false);
  }
  if (wake)
    queued_.notify_one();
}

void Journal::State::forget(const StreamId& stream) {
  bool wake = false;
  {
    std::lock_guard lock(queue_mutex_);
    queue_.push_back({stream, {}, true});
    ++pushed_;
    wake = std::exchange(sleeping_, false);
  }
  if (wake)
    queued_.notify_one();
}

void Journal::State::flush() {
  std::unique_lock lock(queue_mutex_);
  const uint64_t wanted = pushed_;
  hurry_ = true;
  queued_.notify_one();
  written_.wait(lock, [&] { return finished_ >= wanted; });
}

// ---- the thread ----

void Journal::State::run() {
  sigset_t all; // SIGXFSZ among them, so that a limit on file sizes is an error like a full disk
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);

  std::vector<Operation> operations;
  std::set<StreamId> overflowed;
  std::unique_lock lock(queue_mutex_);
  while (true) {
    sleeping_ = true;
    queued_.wait(lock, [this] { return !queue_.empty() || !overflowed_.empty() || stopping_; });
    sleeping_ = false;
    // Whoever appends meanwhile need not wake anybody, which costs more than all the rest of it.
    queued_.wait_for(lock, options_.linger, [this] { return hurry_ || stopping_; });
    if (queue_.empty() && overflowed_.empty())
      return;
    hurry_ = false;
    operations.swap(queue_);
    overflowed.swap(overflowed_);
    queued_bytes_ = 0;
    lock.unlock();

    const size_t count = operations.size();
    write(operations, overflowed);
    operations.clear();
    if (operations.capacity() > kKeptOperations)
      operations = std::vector<Operation>();
    overflowed.clear();

    lock.lock();
    finished_ += count;
    written_.notify_all();
  }
}

/// In the order of the operations, gathered by stream.
void Journal::State::write(std::vector<Operation>& operations, const std::set<StreamId>& overflowed) {
  struct Gathered {
    std::string records;
    uint64_t events = 0;
    size_t offset = 0; // of the records
  };
  std::map<StreamId, Gathered> gathered;
  size_t bytes = 0;
  const auto write_gathered = [&] {
    for (const auto& [stream, records] : gathered)
      write(stream, records.records, records.events);
    gathered.clear();
    bytes = 0;
  };

  for (Operation& operation : operations) {
    if (operation.forget) {
      if (const auto lost = gathered.extract(operation.stream))
        bytes -= lost.mapped().records.size();
      remove(operation.stream);
      continue;
    }
    const auto [place, fresh] = gathered.try_emplace(operation.stream);
    Gathered& records = place->second;
    if (fresh) {
      std::lock_guard lock(files_mutex_);
      const auto file = files_.find(operation.stream);
      records.offset = file == files_.end() ? 0 : file->second.bytes;
    }
    append_record(records.records, records.offset + records.records.size(), operation.event.to_string_view());
    ++records.events;
    bytes += kRecordOverhead + operation.event.size();
    operation.event.rebuild(); // others need its memory
    if (bytes > kWriteBytes)
      write_gathered();
  }
  write_gathered();

  std::lock_guard lock(files_mutex_);
  for (const StreamId& stream : overflowed)
    if (const auto file = files_.find(stream); file != files_.end())
      cut(file->second);
}

void Journal::State::write(const StreamId& stream, std::string_view records, uint64_t events) {
  std::lock_guard lock(files_mutex_);
  const auto found = files_.find(stream);
  if (found == files_.end() || found->second.cut || !write(found->second, to_hex(stream), records))
    dropped_ += events;
}

bool Journal::State::write(File& file, const std::string& name, std::string_view records) {
  if (file.bytes + records.size() > options_.max_file_bytes ||
      total_bytes_ + records.size() > options_.max_total_bytes) {
    cut(file);
    return false;
  }
  if (!file.descriptor) {
    if (open_files_ == kMaxOpenFiles) {
      for (auto& [stream, other] : files_)
        other.descriptor.close();
      open_files_ = 0;
    }
    file.descriptor = Descriptor(::openat(folder_.get(), name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
    open_files_ += file.descriptor ? 1 : 0;
  }
  if (!file.descriptor || !write_all(file.descriptor.get(), records, file.bytes) ||
      (options_.sync && ::fdatasync(file.descriptor.get()) != 0)) {
    complain("events are dropped, for they can't be written", errno);
    // If that fails, too, half a record stays, which recover() drops.
    [[maybe_unused]] const int result = ::ftruncate(file.descriptor.get(), static_cast<off_t>(file.bytes));
    cut(file);
    return false;
  }
  complained_ = false;
  file.bytes += records.size();
  total_bytes_ += records.size();
  return true;
}

void Journal::State::cut(File& file) {
  open_files_ -= file.descriptor ? 1 : 0;
  file.descriptor.close();
  file.cut = true;
}

void Journal::State::remove(const StreamId& stream) {
  std::lock_guard lock(files_mutex_);
  if (close_and_erase(stream))
    ::unlinkat(folder_.get(), to_hex(stream).c_str(), 0);
}

/// The file stays; false if there is none.
bool Journal::State::close_and_erase(const StreamId& stream) {
  const auto file = files_.find(stream);
  if (file == files_.end())
    return false;
  total_bytes_ -= file->second.bytes;
  cut(file->second);
  files_.erase(file);
  return true;
}

/// Once until something can be written again, or a full disk would fill the log of errors.
void Journal::State::complain(const char* what, int error) {
  if (!std::exchange(complained_, true))
    report("journal", options_.folder.string() + ": " + what + ": " + std::generic_category().message(error));
}

// ---- the journal ----

Journal::Journal(const JournalOptions& options) : state_(std::make_unique<State>(options)) {}
Journal::~Journal() = default;

void Journal::recover(const std::function<void(RecoveredStream)>& take) {
  state_->recover(take);
}
std::optional<Failure> Journal::begin(const JournalHead& head) {
  return state_->begin(head);
}
void Journal::append(const StreamId& stream, zmq::message_t event) {
  state_->append(stream, std::move(event));
}
void Journal::forget(const StreamId& stream) {
  state_->forget(stream);
}
void Journal::flush() {
  state_->flush();
}
uint64_t Journal::dropped() const {
  return state_->dropped_;
}

} // namespace millrace
