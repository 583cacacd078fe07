#include "gateway/streams.hpp"

#include "gateway/event_frame.hpp"
#include "gateway/journal.hpp"
#include "gateway/metrics.hpp"
#include "gateway/recovery.hpp"
#include "gateway/request_log.hpp"
#include "gateway/stream_text.hpp"
#include "messages/codec.hpp"
#include "messages/msgpack_writer.hpp"
#include "messages/report.hpp"
#include "messages/validate.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <limits>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using Verdict = StreamLog::Verdict;

constexpr size_t kMaxOutboxBytes = 64u << 20;
constexpr size_t kOutboxOverhead = sizeof(LoggedEvent) + 64;
constexpr size_t kEntryOverhead = 512;        // besides strings: what is kept here for a stream
constexpr size_t kSnapshotPiece = 256u << 10; // read under one lock
constexpr size_t kMaxSnapshotText = 4u << 20; // half of what a frame may hold
constexpr size_t kKeptTexts = 64u << 20;      // of streams that were looked at
constexpr Limits kAnyModel{.vocab_size = std::numeric_limits<int32_t>::max(),
                           .context_length = std::numeric_limits<int32_t>::max()};
constexpr std::string_view kCurve = "curve:", kHttp = "http:"; // what names of keys begin with
const Failure kFull{Error::busy, "", "the log is full of running streams", 1'000};
const Origin kJournal{.door = "journal", .request_id = ""};

int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

/// What is the door's to say, and not the client's. Without a key nobody takes the name of one: its share of the device and
/// its cached prompts are its own.
std::optional<Failure> take_over(Generate& request, const Principal& who) {
  request.expires_at.reset();
  if (!who.name.empty())
    request.tenant = who.name;
  else if (request.tenant.starts_with(kCurve) || request.tenant.starts_with(kHttp))
    return Failure{Error::invalid_field, "tenant", "must not begin with \"curve:\" or \"http:\", as the names of keys do"};
  return std::nullopt;
}

uint64_t random_seed() {
  const StreamId random = random_stream_id();
  uint64_t seed;
  std::memcpy(&seed, random.bytes.data(), sizeof seed);
  return seed;
}

/// SHA-256 of all that the client asked for, but not under which id.
Bytes hash_of(Generate& request) {
  MsgpackWriter writer;
  const StreamId id = std::exchange(request.request, {});
  writer.write_frame(request);
  request.request = id;
  const std::string body = writer.take();
  Bytes hash{std::string(EVP_MAX_MD_SIZE, '\0')};
  unsigned int size = 0;
  if (EVP_Digest(body.data(), body.size(), reinterpret_cast<unsigned char*>(hash.data.data()), &size,
                 EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("SHA-256 is not available");
  hash.data.resize(size);
  return hash;
}

zmq::message_t share(zmq::message_t& frame) {
  zmq::message_t reference;
  reference.copy(frame);
  return reference;
}

} // namespace

struct Streams::State {
  State(const StreamsOptions& options, Backend backend);

  std::variant<Opened, Failure> open(Generate request, const Principal& who, const Origin& origin);
  void publish(const Event& event);
  void resume();
  std::optional<Snapshot> snapshot(const StreamId& stream);
  std::optional<StreamLog::Range> held(const StreamId& stream, int32_t choice) const;
  ServerStats server_stats(int32_t max_requests);
  void call_cancel(const StreamId& stream);
  bool cancelled(const StreamId& stream) const;
  void detach();

  /// What is kept about a stream besides its events, for as long as the log holds it.
  struct Entry {
    std::string owner;
    std::vector<std::string> readers;
    Bytes hash;
    std::optional<std::string> key; // for idempotency
    bool admitted = false;          // else it is being submitted right now
    bool cancelled = false;         // perhaps before the backend knew the stream
    int32_t prompt_tokens = 0;
    uint64_t number = 0; // tells it from an earlier stream of the same id
    StreamTimes times = {};
    RequestTrail trail = {};
    std::vector<std::shared_ptr<Watcher>> watchers = {};

    bool may_read(const Principal& who) const;
    size_t bytes() const;
    void wake(const StreamId& stream);
  };
  const Entry* find(const StreamId& stream) const;
  Entry* find(const StreamId& stream) { return const_cast<Entry*>(std::as_const(*this).find(stream)); }

  const StreamsOptions options_;
  std::shared_mutex backend_mutex_; // shared during calls, so that detach() waits for them
  Backend backend_;
  std::unique_ptr<Journal> journal_; // may be null
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> subscriptions_{0}, http_connections_{0};

  mutable std::mutex mutex_; // of all below
  std::condition_variable decided_;
  StreamLog log_;
  StreamTable<Entry> entries_;
  uint64_t begun_ = 0; // entries
  StreamTexts texts_{kKeptTexts};
  std::map<std::pair<std::string, std::string>, StreamId> keys_; // by owner and idempotency key
  std::function<void()> signal_;
  std::vector<LoggedEvent> outbox_;
  size_t outbox_bytes_ = 0;
  bool left_to_next_ = false; // a next process goes on with what runs: a pipeline that is stopped does not end it
  StreamsStats counts_;
  std::vector<std::pair<Recovery, bool>> unfinished_; // of an earlier process, and whether its model is ours

private:
  struct Earlier {
    StreamId stream;
    Failure conflict; // if it was another request
  };
  std::optional<Earlier> find_earlier(const Generate& request, const Principal& who) const;
  bool begin(const Generate& request, Entry entry, Clock::time_point now);
  std::optional<Failure> submit(const Generate& request, const Principal& who, const Bytes& hash);
  std::optional<Failure> write_down(const Generate& request, const Principal& who, const Bytes& hash);
  void tell_opened(const Generate& request, const Principal& who, const Origin& origin);
  void take_out(const StreamId& stream);
  void forget(const StreamId& stream);
  void recover(RecoveredStream recovered);
  std::optional<Failure> resume(const Resumption& resumption);
  Verdict store(const Event& event, const LoggedEvent& logged, zmq::message_t&& body, Clock::time_point now);
  void hand_over(LoggedEvent&& logged);
};

// ---- entries ----

bool Streams::State::Entry::may_read(const Principal& who) const {
  if (who.name == owner)
    return true;
  const std::string_view name = who.name;
  return name.starts_with(kCurve) && std::ranges::find(readers, name.substr(kCurve.size())) != readers.end();
}

size_t Streams::State::Entry::bytes() const {
  size_t bytes = kEntryOverhead + owner.size() + hash.data.size() + 2 * (key ? key->size() : 0);
  for (const std::string& reader : readers)
    bytes += sizeof reader + reader.size();
  return bytes;
}

void Streams::State::Entry::wake(const StreamId& stream) {
  for (const auto& watcher : watchers)
    watcher->wake(stream);
}

const Streams::State::Entry* Streams::State::find(const StreamId& stream) const {
  const auto entry = entries_.find(stream);
  return entry == entries_.end() ? nullptr : &entry->second;
}

/// When a stream has left the log.
void Streams::State::forget(const StreamId& stream) {
  auto entry = entries_.extract(stream);
  if (entry.empty())
    return;
  if (entry.mapped().key)
    keys_.erase({entry.mapped().owner, *entry.mapped().key});
  if (journal_)
    journal_->forget(stream);
  texts_.forget(stream);
  entry.mapped().wake(stream);
}

void Streams::State::take_out(const StreamId& stream) {
  log_.remove(stream);
  forget(stream);
}

bool Streams::State::begin(const Generate& request, Entry entry, Clock::time_point now) {
  if (!log_.open(request.request, request.n, now, entry.bytes()))
    return false;
  if (entry.key)
    keys_.insert_or_assign({entry.owner, *entry.key}, request.request);
  entry.number = ++begun_;
  entries_.insert_or_assign(request.request, std::move(entry));
  return true;
}

// ---- opening ----

std::variant<Streams::Opened, Failure> Streams::State::open(Generate request, const Principal& who,
                                                            const Origin& origin) {
  if (auto failure = take_over(request, who))
    return *std::move(failure);
  // The backend knows its model and looks closer, but the log has a place for each choice and the journal the
  // request before it does.
  if (auto failure = validate(request, kAnyModel))
    return *std::move(failure);
  const Bytes hash = hash_of(request);
  const StreamId id = request.request;

  std::unique_lock lock(mutex_);
  for (std::optional<Earlier> earlier; (earlier = find_earlier(request, who)); decided_.wait(lock)) {
    const Entry& entry = *find(earlier->stream);
    if (entry.owner != who.name || entry.hash != hash)
      return earlier->conflict;
    if (entry.admitted)
      return Opened{.stream = earlier->stream, .joined = true};
  }
  if (draining_)
    return Failure{Error::draining, "", "the server is stopping"};

  if (!request.sampling.seed)
    request.sampling.seed = random_seed();
  if (!request.time)
    request.time = std::time(nullptr);
  if (request.deadline_ms) // a moment, so that a restart does not put it off
    request.expires_at = unix_ms() + *request.deadline_ms;
  Entry entry{.owner = who.name, .readers = request.readers, .hash = hash, .key = request.idempotency_key};
  entry.trail = {
      .stream = to_hex(id).substr(0, 8), .origin = origin, .principal = who.name, .reasons = {}, .error = {}};
  entry.times.opened = Clock::now();
  entry.times.max_tokens = request.max_tokens.value_or(0);
  if (!begin(request, std::move(entry), Clock::now())) // before the backend is called, so that no event is missed
    return kFull;

  lock.unlock();
  const auto failure = submit(request, who, hash);
  if (!failure) {
    tell_opened(request, who, origin);
    if (cancelled(id))
      call_cancel(id);
  }
  lock.lock();

  if (failure)
    take_out(id);
  else if (Entry* const admitted = find(id)) // unless it has come and gone meanwhile
    admitted->admitted = true;
  decided_.notify_all();
  if (failure)
    return *failure;
  return Opened{.stream = id};
}

/// With times and trail of its own, since events may use those of the stream by now.
void Streams::State::tell_opened(const Generate& request, const Principal& who, const Origin& origin) {
  StreamTimes times{.max_tokens = request.max_tokens.value_or(0)};
  RequestTrail trail;
  if (options_.metrics)
    options_.metrics->opened(times);
  if (options_.request_log)
    options_.request_log->opened(request, who, origin, trail);
}

std::optional<Streams::State::Earlier> Streams::State::find_earlier(const Generate& request,
                                                                    const Principal& who) const {
  if (request.idempotency_key)
    if (const auto key = keys_.find({who.name, *request.idempotency_key}); key != keys_.end())
      return Earlier{key->second,
                     {Error::conflict, "idempotency_key", "the key was used for another request"}};
  if (entries_.contains(request.request))
    return Earlier{request.request, {Error::conflict, "request", "the stream id is in use"}};
  return std::nullopt;
}

std::optional<Failure> Streams::State::submit(const Generate& request, const Principal& who,
                                              const Bytes& hash) {
  const std::shared_lock lock(backend_mutex_);
  if (!backend_.submit)
    return Failure{Error::draining, "", "the server is stopping"};
  try {
    if (journal_)
      if (auto failure = write_down(request, who, hash))
        return failure;
    return backend_.submit(request);
  } catch (const std::exception& error) {
    report("gateway", std::string("submit: ") + error.what());
    return Failure{Error::internal, "", "the request could not be submitted"};
  }
}

/// What is refused anyway leaves no file.
std::optional<Failure> Streams::State::write_down(const Generate& request, const Principal& who,
                                                  const Bytes& hash) {
  if (backend_.check)
    if (auto failure = backend_.check(request))
      return failure;
  return journal_->begin({.principal = who.name,
                          .fingerprint = options_.model_fingerprint,
                          .body_hash = hash,
                          .generate = request});
}

void Streams::State::call_cancel(const StreamId& stream) {
  const std::shared_lock lock(backend_mutex_);
  if (backend_.cancel)
    backend_.cancel(stream);
}

bool Streams::State::cancelled(const StreamId& stream) const {
  const std::lock_guard lock(mutex_);
  const Entry* const entry = find(stream);
  return entry && entry->cancelled;
}

void Streams::State::detach() {
  draining_ = true;
  {
    const std::unique_lock lock(backend_mutex_);
    backend_ = {};
  }
  const std::lock_guard lock(mutex_);
  left_to_next_ = journal_ != nullptr;
}

// ---- what an earlier process left ----

Streams::State::State(const StreamsOptions& options, Backend backend)
    : options_(options), backend_(std::move(backend)),
      log_({.stream_bytes = options.stream_log_bytes,
            .total_bytes = options.total_log_bytes,
            .ttl = options.log_ttl},
           [this](const StreamId& stream) { forget(stream); }) {
  if (options_.log_dir.empty())
    return;
  journal_ = std::make_unique<Journal>(JournalOptions{.folder = options_.log_dir});
  journal_->recover([this](RecoveredStream stream) { recover(std::move(stream)); });
}

void Streams::State::recover(RecoveredStream recovered) {
  JournalHead& head = recovered.head;
  const StreamId id = head.generate.request;
  const auto age =
      std::max(std::chrono::system_clock::now() - recovered.touched, std::chrono::system_clock::duration{});
  const auto now = Clock::now();
  const auto touched = now - std::chrono::duration_cast<Clock::duration>(age);
  Entry entry{.owner = head.principal,
              .readers = head.generate.readers,
              .hash = head.body_hash,
              .key = head.generate.idempotency_key,
              .admitted = true};
  entry.trail = {.stream = to_hex(id).substr(0, 8),
                 .origin = kJournal,
                 .principal = head.principal,
                 .reasons = {},
                 .error = {}};
  if (validate(head.generate, kAnyModel) || !begin(head.generate, std::move(entry), touched)) {
    journal_->forget(id);
    return;
  }
  Recovery recovery(std::move(head.generate), head.principal);
  for (const std::string& body : recovered.events) {
    const auto decoded = decode_event(body);
    const auto* event = std::get_if<Event>(&decoded);
    if (!event || !recovery.take(*event))
      continue;
    LoggedEvent logged = to_logged(*event);
    store(*event, logged, std::move(logged.body), touched);
  }
  if (Entry* const found = find(id))
    found->prompt_tokens = recovery.prompt_tokens();
  if (!recovery.ended())
    unfinished_.emplace_back(std::move(recovery), head.fingerprint == options_.model_fingerprint);
}

void Streams::State::resume() {
  std::vector<std::pair<Recovery, bool>> unfinished;
  {
    const std::lock_guard lock(mutex_);
    unfinished.swap(unfinished_);
    for (const auto& [recovery, same_model] : unfinished) {
      const Generate& request = recovery.resumption().generate;
      if (Entry* const entry = find(request.request))
        entry->times = {.opened = Clock::now(), .max_tokens = request.max_tokens.value_or(0)};
    }
  }
  for (const auto& [recovery, same_model] : unfinished) {
    if (draining_) // the rest waits for the next process
      return;
    tell_opened(recovery.resumption().generate, {recovery.owner()}, kJournal);
    const auto failure = same_model ? resume(recovery.resumption())
                                    : Failure{Error::unsupported, "", "another model is served now"};
    if (failure)
      for (const Event& event : recovery.ending(failure->code))
        publish(event);
    else if (cancelled(recovery.resumption().generate.request))
      call_cancel(recovery.resumption().generate.request);
  }
}

std::optional<Failure> Streams::State::resume(const Resumption& resumption) {
  const std::shared_lock lock(backend_mutex_);
  if (!backend_.resume)
    return Failure{Error::unsupported, "", "streams cannot be resumed"};
  try {
    return backend_.resume(resumption);
  } catch (const std::exception& error) {
    report("gateway", std::string("resume: ") + error.what());
    return Failure{Error::internal, "", "the stream could not be resumed"};
  }
}

// ---- what the pipeline says ----

void Streams::State::publish(const Event& event) {
  LoggedEvent logged = to_logged(event);
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (left_to_next_)
    return;
  switch (store(event, logged, share(logged.body), now)) {
  case Verdict::taken: break;
  case Verdict::unknown_stream: ++counts_.unexpected_events; return;
  case Verdict::stale_epoch: ++counts_.stale_events; return;
  case Verdict::out_of_order: ++counts_.out_of_order_events; return;
  }
  ++counts_.published;
  // A stream may have left the log with its last event, if there is no room for it.
  if (Entry* const entry = find(logged.sequence.request)) {
    if (const auto* started = std::get_if<Started>(&event))
      entry->prompt_tokens = started->prompt_tokens;
    if (options_.metrics)
      options_.metrics->event(event, entry->times);
    if (options_.request_log)
      options_.request_log->event(event, entry->trail);
    if (journal_ && !std::holds_alternative<Progress>(event))
      journal_->append(logged.sequence.request, share(logged.body));
    entry->wake(logged.sequence.request);
  }
  if (signal_)
    hand_over(std::move(logged));
}

Verdict Streams::State::store(const Event& event, const LoggedEvent& logged, zmq::message_t&& body,
                              Clock::time_point now) {
  const SequenceId& sequence = logged.sequence;
  return std::visit(
      [&]<class E>(const E&) {
        if constexpr (std::is_same_v<E, Started>)
          return log_.start(sequence, std::move(body), now);
        else if constexpr (std::is_same_v<E, Progress>)
          return log_.admit(sequence, now);
        else if constexpr (std::is_same_v<E, PromptLogprobs>)
          return log_.keep(sequence, std::move(body), now);
        else if constexpr (std::is_same_v<E, Token> || std::is_same_v<E, Finished>)
          return log_.append(sequence, logged.seq, std::is_same_v<E, Finished>, std::move(body), now);
        else
          return log_.end(sequence.request, std::move(body), now);
      },
      event);
}

/// A door that is too far behind misses events, but no end of a stream.
void Streams::State::hand_over(LoggedEvent&& logged) {
  const size_t bytes = logged.body.size() + kOutboxOverhead;
  if (outbox_bytes_ + bytes > kMaxOutboxBytes && !logged.last) {
    ++counts_.unsent;
    return;
  }
  outbox_bytes_ += bytes;
  const bool first = outbox_.empty();
  outbox_.push_back(std::move(logged));
  if (first)
    signal_();
}

// ---- what is told about streams ----

std::optional<Snapshot> Streams::State::snapshot(const StreamId& stream) {
  Snapshot snapshot;
  snapshot.request = stream;
  std::optional<StreamText> text;
  std::vector<int64_t> ends;
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const Entry* const entry = find(stream);
    if (!entry)
      return std::nullopt;
    number = entry->number;
    snapshot.live = log_.live(stream);
    snapshot.prompt_tokens = entry->prompt_tokens;
    ends = log_.next_seqs(stream);
    text = texts_.take(stream);
  }
  if (!text)
    text.emplace(ends.size(), kMaxSnapshotText);
  while (text->behind(ends)) {
    Piece piece;
    {
      const std::lock_guard lock(mutex_);
      piece = log_.read(stream, text->cursor(), kSnapshotPiece);
      counts_.looked_through += piece.events.size();
    }
    if (!piece.known)
      return std::nullopt;
    text->take(piece);
  }
  for (size_t choice = 0; choice < ends.size(); ++choice)
    if (const auto range = held(stream, static_cast<int32_t>(choice)))
      text->drop_before(choice, range->first);
  snapshot.choices = text->choices();

  const std::lock_guard lock(mutex_);
  if (const Entry* const entry = find(stream); entry && entry->number == number)
    texts_.put(stream, *std::move(text));
  return snapshot;
}

std::optional<StreamLog::Range> Streams::State::held(const StreamId& stream, int32_t choice) const {
  const std::lock_guard lock(mutex_);
  return log_.held(stream, choice);
}

ServerStats Streams::State::server_stats(int32_t max_requests) {
  ServerStats stats;
  {
    const std::shared_lock lock(backend_mutex_);
    if (backend_.stats)
      stats = backend_.stats(max_requests);
  }
  if (draining_ && (stats.state.empty() || stats.state == "serving"))
    stats.state = "draining";
  stats.subscriptions = subscriptions_;
  stats.http_connections = http_connections_;
  const std::lock_guard lock(mutex_);
  stats.log_streams = static_cast<int64_t>(log_.size());
  stats.log_bytes = static_cast<int64_t>(log_.bytes());
  stats.replays = static_cast<int64_t>(counts_.replayed);
  stats.lagging = static_cast<int64_t>(counts_.lagging);
  return stats;
}

// ---- the interface ----

Streams::Streams(const StreamsOptions& options, Backend backend)
    : state_(std::make_unique<State>(options, std::move(backend))) {}
Streams::~Streams() = default;

void Streams::resume() {
  state_->resume();
}

std::variant<Streams::Opened, Failure> Streams::open(Generate request, const Principal& who,
                                                     const Origin& origin) {
  const StreamId id = request.request;
  auto result = state_->open(std::move(request), who, origin);
  const StreamsOptions& options = state_->options_;
  const auto* const failure = std::get_if<Failure>(&result);
  if (failure && options.metrics)
    options.metrics->refused(to_string(failure->code));
  if (failure && options.request_log)
    options.request_log->refused(id, who, origin, *failure);
  if (!failure && options.request_log && std::get<Opened>(result).joined)
    options.request_log->joined(std::get<Opened>(result).stream, who, origin);
  return result;
}

std::optional<Failure> Streams::cancel(const StreamId& stream, const Principal& who, const Origin& origin) {
  {
    const std::lock_guard lock(state_->mutex_);
    auto* entry = state_->find(stream);
    if (!entry || entry->owner != who.name)
      return Failure{Error::unknown_request, "request", "no such stream"};
    entry->cancelled = true;
  }
  if (state_->options_.request_log)
    state_->options_.request_log->cancelled(stream, who, origin);
  state_->call_cancel(stream); // one that has ended is ignored there
  return std::nullopt;
}

bool Streams::may_read(const StreamId& stream, const Principal& who) const {
  const std::lock_guard lock(state_->mutex_);
  const auto* entry = state_->find(stream);
  return entry && entry->may_read(who);
}

void Streams::publish(const Event& event) {
  state_->publish(event);
}

Streams::Piece Streams::read(const StreamId& stream, Cursor& cursor, size_t max_bytes) {
  const std::lock_guard lock(state_->mutex_);
  Piece piece = state_->log_.read(stream, cursor, max_bytes);
  state_->counts_.replayed += piece.again;
  state_->counts_.lagging += piece.lag.has_value();
  return piece;
}

void Streams::watch(const StreamId& stream, std::shared_ptr<Watcher> watcher) {
  const std::lock_guard lock(state_->mutex_);
  if (auto* const entry = state_->find(stream))
    entry->watchers.push_back(std::move(watcher));
  else
    watcher->wake(stream);
}

void Streams::unwatch(const StreamId& stream, const Watcher* watcher) {
  std::shared_ptr<Watcher> gone; // its last reference must not be dropped under the lock
  const std::lock_guard lock(state_->mutex_);
  auto* const entry = state_->find(stream);
  if (!entry)
    return;
  const auto found = std::ranges::find(entry->watchers, watcher, &std::shared_ptr<Watcher>::get);
  if (found == entry->watchers.end())
    return;
  gone = std::move(*found);
  entry->watchers.erase(found);
}

void Streams::attach_outbox(std::function<void()> signal) {
  const std::lock_guard lock(state_->mutex_);
  state_->signal_ = std::move(signal);
  state_->outbox_.clear();
  state_->outbox_bytes_ = 0;
}

void Streams::take_outbox(std::vector<LoggedEvent>& events) {
  events.clear();
  const std::lock_guard lock(state_->mutex_);
  events.swap(state_->outbox_);
  state_->outbox_bytes_ = 0;
}

bool Streams::contains(const StreamId& stream) const {
  const std::lock_guard lock(state_->mutex_);
  return state_->log_.contains(stream);
}

bool Streams::live(const StreamId& stream) const {
  const std::lock_guard lock(state_->mutex_);
  return state_->log_.live(stream);
}

std::vector<int64_t> Streams::next_seqs(const StreamId& stream) const {
  const std::lock_guard lock(state_->mutex_);
  return state_->log_.next_seqs(stream);
}

std::optional<StreamLog::Range> Streams::held(const StreamId& stream, int32_t choice) const {
  return state_->held(stream, choice);
}

std::optional<Snapshot> Streams::snapshot(const StreamId& stream) const {
  return state_->snapshot(stream);
}

std::vector<StreamId> Streams::idle(std::chrono::milliseconds silence) {
  const std::lock_guard lock(state_->mutex_);
  return state_->log_.idle(Clock::now(), silence);
}

void Streams::expire() {
  const std::lock_guard lock(state_->mutex_);
  state_->log_.expire(Clock::now());
}

ServerStats Streams::server_stats(int32_t max_requests) const {
  return state_->server_stats(max_requests);
}

void Streams::tell_subscriptions(int64_t topics_in_force) {
  state_->subscriptions_ = topics_in_force;
}

void Streams::tell_http_connections(int64_t open) {
  state_->http_connections_ = open;
}

StreamsStats Streams::stats() const {
  const std::lock_guard lock(state_->mutex_);
  StreamsStats stats = state_->counts_;
  stats.outbox = state_->outbox_.size();
  stats.streams = state_->log_.size();
  stats.bytes = state_->log_.bytes();
  return stats;
}

void Streams::drain() {
  state_->draining_ = true;
}

void Streams::detach() {
  state_->detach();
}

} // namespace millrace
