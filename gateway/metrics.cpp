#include "gateway/metrics.hpp"

#include "gateway/streams.hpp"
#include "messages/utf8.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>
#include <variant>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
using Buckets = prometheus::Histogram::BucketBoundaries;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
template <class T> using Family = prometheus::Family<T>;

// From well below what the smallest model needs to well above what anybody waits for. docs/operations.md
// names them.
const Buckets kTokenSeconds = {0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15,
                               0.2,     0.3,    0.5,   1,      2.5,   5,    10,    20,   40,    80};
const Buckets kFirstTokenSeconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const Buckets kRequestSeconds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,   1.5, 2,   2.5,  5,
                                 10,    15,   20,    30,   40,  50,   60,  120, 240, 480, 1920, 7680};
const Buckets kTokens = {1,     2,     5,     10,     20,     50,     100,     200,     500,
                         1'000, 2'000, 5'000, 10'000, 20'000, 50'000, 100'000, 200'000, 1'000'000};

constexpr std::array<std::string_view, 4> kStates = {"serving", "draining", "stalled", "dead"};
constexpr size_t kMaxRoutes = 64; // more are a caller's mistake and must not grow the answer without bound

double seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

/// A label's value may hold anything but what is not UTF-8.
std::string label(std::string_view text) {
  if (is_valid_utf8(text))
    return std::string(text);
  std::string ascii(text);
  std::replace_if(
      ascii.begin(), ascii.end(), [](unsigned char c) { return c >= 0x80; }, '?');
  return ascii;
}

/// A counter that repeats what somebody else counts. A smaller total than before is a count that began anew.
class Mirror {
public:
  explicit Mirror(Counter& counter) : counter_(counter) {}
  void reach(double total) {
    counter_.Increment(total >= last_ ? total - last_ : total);
    last_ = total;
  }

private:
  Counter& counter_;
  double last_ = 0;
};

/// Totals of prefill and decode.
struct Phases {
  explicit Phases(Family<Counter>& family)
      : prefill(family.Add({{"phase", "prefill"}})), decode(family.Add({{"phase", "decode"}})) {}
  Mirror prefill, decode;
};

/// Passes until the blocks of a sequence were free; the last one stands for all from there on.
constexpr std::array<const char*, 4> kFreedLabels = {"0", "1", "2", "3+"};

std::array<Mirror, kFreedLabels.size()> mirrors(Family<Counter>& freed) {
  const auto one = [&](size_t passes) { return Mirror(freed.Add({{"passes", kFreedLabels[passes]}})); };
  return {one(0), one(1), one(2), one(3)};
}

/// A family that has its one series from when it is known.
void set_if_known(Family<Gauge>& family, double part, double whole) {
  if (part > 0 && whole > 0)
    family.Add({}).Set(part / whole);
}

int64_t resident_bytes() {
  long long pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%*d %lld", &pages) != 1)
      pages = 0;
    std::fclose(file);
  }
  return pages * ::sysconf(_SC_PAGESIZE);
}

int64_t open_descriptors() {
  std::error_code failed;
  std::filesystem::directory_iterator entry("/proc/self/fd", failed), end;
  int64_t count = -1; // the folder's own
  for (; !failed && entry != end; entry.increment(failed))
    ++count;
  return std::max<int64_t>(count, 0);
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

} // namespace

struct Metrics::State {
  explicit State(std::string_view model_name) : model_name_{{"model_name", label(model_name)}} {}

  Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Labels(model_name_).Register(registry_);
  }
  Family<Gauge>& gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Labels(model_name_).Register(registry_);
  }
  Family<Histogram>& histograms(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Labels(model_name_).Register(registry_);
  }
  Counter& counter(const char* name, const char* help) { return counters(name, help).Add({}); }
  Gauge& gauge(const char* name, const char* help) { return gauges(name, help).Add({}); }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets) {
    return histograms(name, help).Add({}, buckets);
  }

  void handle(const Started& started, StreamTimes& times) { times.prompt_tokens = started.prompt_tokens; }
  void handle(const Progress&, StreamTimes&) {}
  void handle(const PromptLogprobs&, StreamTimes&) {}
  void handle(const Token& token, StreamTimes& times);
  void handle(const Finished& finished, StreamTimes&);
  void handle(const Done& done, StreamTimes& times);
  void handle(const Rejected& rejected, StreamTimes&) { refuse(rejected.error); }
  void refuse(std::string_view error);
  void take(const ServerStats& stats);
  void take(const SchedulerStats& stats);
  void take(const StreamsStats& stats);
  void take_process();
  std::string text();

  std::mutex scrape_mutex_; // one at a time: mirrors
  prometheus::Registry registry_;
  const prometheus::Labels model_name_;
  std::mutex routes_mutex_;
  std::map<std::string, Histogram*, std::less<>> routes_;

  // ---- vLLM's names ----
  Gauge& running_ = gauge("vllm:num_requests_running", "Choices that are read or generated now.");
  Gauge& waiting_ = gauge("vllm:num_requests_waiting", "Choices that wait for a device.");
  Gauge& kv_usage_ = gauge("vllm:kv_cache_usage_perc", "Part of the KV blocks in use; 1 is all of them.");
  Mirror prompt_tokens_{counter("vllm:prompt_tokens_total", "Prompt tokens read.")};
  Mirror generated_tokens_{counter("vllm:generation_tokens_total", "Tokens generated.")};
  Mirror preempted_{
      counter("vllm:num_preemptions_total", "Sequences that left the device since no KV block was free.")};
  Mirror cache_queries_{
      counter("vllm:prefix_cache_queries_total", "Prompt tokens that were looked up in the prefix cache.")};
  Mirror cache_hits_{counter("vllm:prefix_cache_hits_total", "Of them, those that were found.")};
  Family<Counter>& finished_ =
      counters("vllm:request_success_total", "Choices that have ended, by reason; abort: cancelled.");
  Counter& stop_ = finished_.Add({{"finished_reason", "stop"}});
  Counter& length_ = finished_.Add({{"finished_reason", "length"}});
  Counter& abort_ = finished_.Add({{"finished_reason", "abort"}});
  Counter& deadline_ = finished_.Add({{"finished_reason", "deadline"}});
  Counter& error_ = finished_.Add({{"finished_reason", "error"}});
  Histogram& first_token_ = histogram("vllm:time_to_first_token_seconds",
                                      "From admission to the first token of a request.", kFirstTokenSeconds);
  Histogram& inter_token_ =
      histogram("vllm:inter_token_latency_seconds", "Between two tokens of a choice, whatever held them up.",
                kTokenSeconds);
  Histogram& whole_ = histogram("vllm:e2e_request_latency_seconds", "From admission to the end of a request.",
                                kRequestSeconds);
  Histogram& queue_ = histogram("vllm:request_queue_time_seconds",
                                "From admission to the first pass over the prompt.", kRequestSeconds);
  Histogram& prefill_ = histogram("vllm:request_prefill_time_seconds",
                                  "From the first pass over the prompt to the first token.", kRequestSeconds);
  Histogram& decode_ = histogram("vllm:request_decode_time_seconds",
                                 "From the first token to the end of a request.", kRequestSeconds);
  Histogram& request_prompt_ =
      histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", kTokens);
  Histogram& request_generated_ = histogram("vllm:request_generation_tokens",
                                            "Tokens generated for a request, all choices together.", kTokens);
  Histogram& request_max_tokens_ =
      histogram("vllm:request_params_max_tokens", "max_tokens of a request that names it.", kTokens);

  // ---- our own ----
  Family<Counter>& refused_ =
      counters("millrace:requests_refused_total", "Requests that were refused, by error.");
  Counter& opened_ = counter("millrace:requests_total", "Requests admitted.");
  Gauge& queued_tokens_ = gauge("millrace:queued_prompt_tokens", "Prompt tokens that wait for a device.");
  Gauge& kv_used_ = gauge("millrace:kv_blocks_used", "KV blocks in use.");
  Gauge& kv_total_ = gauge("millrace:kv_blocks", "KV blocks there are.");
  Gauge& kv_cached_ = gauge("millrace:kv_blocks_cached", "KV blocks not in use, kept for who has the same prefix.");
  Mirror cache_evictions_{
      counter("millrace:prefix_cache_evictions_total", "Cached KV blocks that others have taken.")};
  Mirror yielded_{counter("millrace:sequences_yielded_total",
                          "Sequences that left the device for another tenant or a more urgent request.")};
  Mirror cancelled_{counter("millrace:requests_cancelled_total", "Requests that their clients cancelled.")};
  Mirror expired_{counter("millrace:requests_expired_total", "Requests that their deadline ended.")};
  Phases passes_by_phase_{counters("millrace:phase_passes_total", "Passes of the device, by what they are for.")};
  Phases rows_{counters("millrace:phase_rows_total", "Tokens in these passes.")};
  Phases seconds_{counters("millrace:phase_seconds_total", "Time in these passes.")};
  Mirror loop_{counter("millrace:decode_loop_seconds_total",
                       "From the end of a decode pass until its tokens could be fed, summed.")};
  Mirror decode_bytes_{
      counter("millrace:decode_bytes_total", "Weights, keys and values that decode passes had to read.")};
  Mirror prefill_operations_{counter("millrace:prefill_operations_total",
                                     "Operations of the matrix products of prefill passes, two a weight.")};
  Family<Gauge>& decode_rate_ =
      gauges("millrace:decode_bytes_per_second", "Of decode passes since the start, if their bytes are known.");
  Family<Gauge>& prefill_rate_ = gauges("millrace:prefill_operations_per_second",
                                        "Of prefill passes since the start, if their operations are known.");
  Family<Gauge>& decode_peak_ = gauges("millrace:decode_peak_ratio",
                                       "decode_bytes_per_second by the measured peak of the machine, if known.");
  Family<Gauge>& prefill_peak_ = gauges(
      "millrace:prefill_peak_ratio", "prefill_operations_per_second by the measured peak, if known.");
  Family<Counter>& freed_family_ = counters(
      "millrace:sequences_freed_total", "Sequences by the passes from their end until their blocks were free.");
  std::array<Mirror, kFreedLabels.size()> freed_ = mirrors(freed_family_);
  Mirror restarts_{counter("millrace:device_restarts_total", "Restarts of a device's actors.")};
  Mirror passes_{counter("millrace:device_passes_total", "Passes of the device.")};
  Mirror busy_{counter("millrace:device_busy_seconds_total", "Time the device has spent in passes.")};
  Family<Gauge>& state_ = gauges("millrace:state", "1 for the state the server is in, 0 for the others.");
  Gauge& uptime_ = gauge("millrace:uptime_seconds", "Since the server began to serve.");
  Gauge& log_streams_ = gauge("millrace:log_streams", "Streams the log holds, ended ones included.");
  Gauge& log_bytes_ = gauge("millrace:log_bytes", "Bytes the log is charged with.");
  Gauge& subscriptions_ = gauge("millrace:subscriptions", "Topics in force on the XPUB socket.");
  Mirror replays_{counter("millrace:replayed_events_total", "Events that were sent again.")};
  Mirror lagging_{
      counter("millrace:lagging_readers_total", "Readers told that what they wait for has left the log.")};
  Mirror published_{counter("millrace:events_published_total", "Events that went to the readers.")};
  Family<Counter>& dropped_ =
      counters("millrace:events_dropped_total", "Events of the pipeline that no stream took, by reason.");
  Mirror stale_{dropped_.Add({{"reason", "stale"}})};
  Mirror unexpected_{dropped_.Add({{"reason", "unexpected"}})};
  Mirror out_of_order_{dropped_.Add({{"reason", "out_of_order"}})};
  Mirror unsent_{counter("millrace:events_unsent_total",
                         "Events in the log that the ZeroMQ door was too far behind to broadcast.")};
  Gauge& http_open_ = gauge("millrace:http_connections", "Open HTTP connections.");
  Family<Counter>& http_requests_ =
      counters("millrace:http_requests_total", "HTTP requests answered, by route and status.");
  Family<Histogram>& http_seconds_ =
      histograms("millrace:http_request_duration_seconds", "From an HTTP request to the end of its answer.");
  Histogram& first_byte_ =
      histogram("millrace:http_first_byte_seconds", "From an HTTP request to the first event of its stream.",
                kFirstTokenSeconds);
  Family<Gauge>& build_ = gauges("millrace:build_info", "1; the labels tell version and device.");

  Gauge& resident_ = gauge("process_resident_memory_bytes", "Resident memory.");
  Gauge& descriptors_ = gauge("process_open_fds", "Open file descriptors.");
  Mirror cpu_{counter("process_cpu_seconds_total", "User and system time.")};
};

void Metrics::State::handle(const Token& token, StreamTimes& times) {
  const auto now = Clock::now();
  if (times.first_token == Clock::time_point{}) {
    times.first_token = now;
    if (!times.resumed)
      first_token_.Observe(seconds(now - times.opened));
  }
  const auto choice = static_cast<size_t>(token.choice);
  if (choice >= times.last_tokens.size())
    times.last_tokens.resize(choice + 1);
  else if (times.last_tokens[choice] != Clock::time_point{})
    inter_token_.Observe(seconds(now - times.last_tokens[choice]));
  times.last_tokens[choice] = now;
}

void Metrics::State::handle(const Finished& finished, StreamTimes&) {
  Counter& counter = finished.reason == "stop"        ? stop_
                     : finished.reason == "length"    ? length_
                     : finished.reason == "cancelled" ? abort_
                     : finished.reason == "deadline"  ? deadline_
                                                      : error_;
  counter.Increment();
}

void Metrics::State::handle(const Done& done, StreamTimes& times) {
  times.prompt_tokens = done.prompt_tokens;
  request_prompt_.Observe(done.prompt_tokens);
  request_generated_.Observe(done.generated_tokens);
  if (times.resumed)
    return;
  whole_.Observe(seconds(Clock::now() - times.opened));
  queue_.Observe(done.queue_ms / 1e3);
  prefill_.Observe(done.prefill_ms / 1e3);
  decode_.Observe(done.decode_ms / 1e3);
}

void Metrics::State::refuse(std::string_view error) {
  for (int code = 1; code <= static_cast<int>(Error::internal); ++code)
    if (to_string(static_cast<Error>(code)) == error)
      return refused_.Add({{"error", std::string(error)}}).Increment();
  refused_.Add({{"error", "other"}}).Increment();
}

void Metrics::State::take(const ServerStats& stats) {
  running_.Set(stats.running);
  waiting_.Set(stats.waiting);
  kv_usage_.Set(stats.kv_blocks_total > 0 ? double(stats.kv_blocks_used) / stats.kv_blocks_total : 0);
  kv_used_.Set(stats.kv_blocks_used);
  kv_total_.Set(stats.kv_blocks_total);
  queued_tokens_.Set(static_cast<double>(stats.queued_tokens));
  prompt_tokens_.reach(static_cast<double>(stats.prompt_tokens));
  generated_tokens_.reach(static_cast<double>(stats.generated_tokens));
  restarts_.reach(static_cast<double>(stats.restarts));
  passes_.reach(static_cast<double>(stats.passes));
  busy_.reach(stats.device_busy_seconds);
  for (const std::string_view state : kStates)
    state_.Add({{"state", std::string(state)}}).Set(stats.state == state ? 1 : 0);
  uptime_.Set(stats.uptime_seconds);
  log_streams_.Set(static_cast<double>(stats.log_streams));
  log_bytes_.Set(static_cast<double>(stats.log_bytes));
  subscriptions_.Set(static_cast<double>(stats.subscriptions));
  replays_.reach(static_cast<double>(stats.replays));
  lagging_.reach(static_cast<double>(stats.lagging));
  http_open_.Set(static_cast<double>(stats.http_connections));
  build_.Add({{"version", label(stats.version)}, {"device", label(stats.device)}}).Set(1);
  take(stats.scheduler);
}

void Metrics::State::take(const SchedulerStats& stats) {
  const auto reach = [](Mirror& mirror, int64_t total) { mirror.reach(static_cast<double>(total)); };
  reach(preempted_, stats.preempted);
  reach(yielded_, stats.yielded);
  reach(cancelled_, stats.cancelled);
  reach(expired_, stats.expired);
  reach(cache_queries_, stats.cache_queries);
  reach(cache_hits_, stats.cache_hits);
  reach(cache_evictions_, stats.cache_evictions);
  kv_cached_.Set(stats.kv_blocks_cached);
  reach(passes_by_phase_.prefill, stats.prefill_passes);
  reach(passes_by_phase_.decode, stats.decode_passes);
  reach(rows_.prefill, stats.prefill_rows);
  reach(rows_.decode, stats.decode_rows);
  seconds_.prefill.reach(stats.prefill_seconds);
  seconds_.decode.reach(stats.decode_seconds);
  loop_.reach(stats.loop_seconds);
  decode_bytes_.reach(stats.decode_bytes);
  prefill_operations_.reach(stats.prefill_operations);
  set_if_known(decode_rate_, stats.decode_bytes, stats.decode_seconds);
  set_if_known(prefill_rate_, stats.prefill_operations, stats.prefill_seconds);
  set_if_known(decode_peak_, stats.decode_bytes, stats.decode_seconds * stats.peak_bytes_per_second);
  set_if_known(prefill_peak_, stats.prefill_operations, stats.prefill_seconds * stats.peak_operations_per_second);
  std::array<int64_t, kFreedLabels.size()> freed{};
  for (size_t passes = 0; passes < stats.cancel_passes.size(); ++passes)
    freed[std::min(passes, freed.size() - 1)] += stats.cancel_passes[passes];
  for (size_t passes = 0; passes < freed.size(); ++passes)
    reach(freed_[passes], freed[passes]);
}

void Metrics::State::take(const StreamsStats& stats) {
  published_.reach(static_cast<double>(stats.published));
  stale_.reach(static_cast<double>(stats.stale_events));
  unexpected_.reach(static_cast<double>(stats.unexpected_events));
  out_of_order_.reach(static_cast<double>(stats.out_of_order_events));
  unsent_.reach(static_cast<double>(stats.unsent));
}

void Metrics::State::take_process() {
  resident_.Set(static_cast<double>(resident_bytes()));
  descriptors_.Set(static_cast<double>(open_descriptors()));
  cpu_.reach(cpu_seconds());
}

std::string Metrics::State::text() {
  take_process();
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

// ---- the interface ----

Metrics::Metrics(std::string_view model_name) : state_(std::make_unique<State>(model_name)) {}
Metrics::~Metrics() = default;

void Metrics::opened(StreamTimes& times) {
  times.opened = Clock::now();
  state_->opened_.Increment();
  if (times.max_tokens > 0)
    state_->request_max_tokens_.Observe(times.max_tokens);
}

void Metrics::refused(std::string_view error) {
  state_->refuse(error);
}

void Metrics::event(const Event& event, StreamTimes& times) {
  std::visit([&](const auto& e) { state_->handle(e, times); }, event);
}

void Metrics::http(std::string_view route, int status, double seconds) {
  Histogram* duration = nullptr;
  {
    const std::lock_guard lock(state_->routes_mutex_);
    auto entry = state_->routes_.find(route);
    if (entry == state_->routes_.end() && state_->routes_.size() >= kMaxRoutes)
      route = "other";
    entry = state_->routes_.find(route);
    if (entry == state_->routes_.end()) {
      Histogram& added = state_->http_seconds_.Add({{"route", label(route)}}, kRequestSeconds);
      entry = state_->routes_.emplace(route, &added).first;
    }
    duration = entry->second;
  }
  duration->Observe(seconds);
  state_->http_requests_
      .Add({{"route", label(route)}, {"status", std::to_string(std::clamp(status, 100, 599))}})
      .Increment();
}

void Metrics::first_byte(double seconds) {
  state_->first_byte_.Observe(seconds);
}

std::string Metrics::scrape(const ServerStats& stats, const StreamsStats& streams) {
  const std::lock_guard lock(state_->scrape_mutex_);
  state_->take(stats);
  state_->take(streams);
  return state_->text();
}

std::string Metrics::scrape(const ServerStats& stats) {
  const std::lock_guard lock(state_->scrape_mutex_);
  state_->take(stats);
  return state_->text();
}

} // namespace millrace
