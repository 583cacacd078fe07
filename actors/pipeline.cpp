#include "actors/pipeline.hpp"

#include "actors/graph.hpp"
#include "actors/open_requests.hpp"
#include "kernels/attention.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <random>

namespace millrace {
namespace {

/// What waits for the tokenizer; the largest prompt is 4 MiB.
constexpr int64_t kMaxBacklogBytes = 64 << 20;
/// A cancelled request ends in dispatch, at once; only a tokenizer that has much to do can keep it longer.
constexpr std::chrono::seconds kEndPatience{30};

struct SystemConfig : caf::actor_system_config {
  SystemConfig() {
    // Prefill and decode have threads of their own. Idle workers sleep under "sharing"; "stealing" polls.
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", size_t{2});
    set("scheduler.max-throughput", size_t{50}); // nobody keeps a worker while others wait
    add_message_types<caf::id_block::millrace>();
  }
};

PipelineOptions checked(PipelineOptions options) {
  options.max_batch_size = std::max(options.max_batch_size, 1);
  options.prefill_chunk = std::max(options.prefill_chunk, 1);
  options.max_queued_requests = std::max(options.max_queued_requests, 1);
  options.prefill_stretch = std::max(options.prefill_stretch, 0.0);
  if (!options.clock)
    options.clock = std::chrono::steady_clock::now;
  if (!options.unix_ms)
    options.unix_ms = unix_time_ms;
  return options;
}

SchedulerStats scheduler_stats(const StatsBoard::Figures& figures, const StepBudget::Totals& steps,
                               const BlockManager& blocks) {
  SchedulerStats stats;
  stats.preempted = figures.preempted;
  stats.yielded = figures.yielded;
  stats.cancelled = figures.cancelled;
  stats.expired = figures.expired;
  const CacheCounters cache = blocks.counters();
  stats.cache_queries = cache.queries;
  stats.cache_hits = cache.hits;
  stats.cache_evictions = cache.evictions;
  stats.kv_blocks_cached = blocks.cached();
  stats.prefill_passes = steps.prefill_passes;
  stats.prefill_rows = steps.prefill_rows;
  stats.prefill_seconds = steps.prefill_seconds;
  stats.decode_passes = steps.decode_passes;
  stats.decode_rows = steps.decode_rows;
  stats.decode_seconds = steps.decode_seconds;
  stats.loop_seconds = steps.loop_seconds;
  stats.decode_bytes = steps.decode_bytes;
  stats.prefill_operations = steps.prefill_operations;
  stats.cancel_passes.assign(steps.freed_after.begin(), steps.freed_after.end());
  return stats;
}

std::optional<Failure> check(const ResumedRequest& request, const Limits& limits) {
  if (auto failure = validate(request.generate, limits))
    return failure;
  if (!request.generate.sampling.seed)
    return Failure{Error::invalid_field, "sampling.seed", "a resumed request has its seed"};
  if (request.choices.size() != size_t(request.generate.n) || request.scored < 0)
    return Failure{Error::invalid_field, "choices", "a resumed request has each of its choices"};
  for (const ResumedRequest::Choice& choice : request.choices)
    for (const TokenId id : choice.emitted_ids)
      if (id < 0 || id >= limits.vocab_size)
        return Failure{Error::invalid_field, "emitted_ids", "is not of this model's vocabulary"};
  return std::nullopt;
}

} // namespace

int64_t unix_time_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

struct Pipeline::State {
  State(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<Device> device,
        const PipelineOptions& options, EventSink sink);
  ~State();

  PipelineOptions options;
  std::shared_ptr<Device> device;
  Limits limits;
  std::shared_ptr<Backlog> backlog;
  std::shared_ptr<StatsBoard> board = std::make_shared<StatsBoard>();
  std::shared_ptr<StepBudget> budget;
  std::atomic<bool> dead = false; // serves no more
  OpenRequests open;
  SystemConfig config;
  caf::actor_system system{config}; // waits for its actors when it is destroyed, before what stands above
  Graph graph;
};

Pipeline::State::State(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<Device> device_,
                       const PipelineOptions& given, EventSink sink)
    : options(checked(given)), device(std::move(device_)),
      backlog(std::make_shared<Backlog>(kMaxBacklogBytes, options.max_queued_requests)),
      budget(std::make_shared<StepBudget>(options.prefill_chunk, options.prefill_stretch, device->cost())),
      open(std::move(sink), options.clock) {
  limits.vocab_size = device->config().vocab_size;
  // A sequence that does not fit the pool would wait for ever, so the pool bounds the context, too.
  limits.context_length =
      int32_t(std::min(int64_t(device->context_length()), int64_t(device->blocks().total()) * kBlockSize));
  options.on_death = [this, told = std::move(options.on_death)] {
    dead = true;
    if (told)
      told();
  };
  graph = spawn_graph(
      system,
      {.tokenizer = std::move(tokenizer),
       .device = device,
       .options = options,
       .context_length = limits.context_length,
       .backlog = backlog,
       .on_encoded = [this](const StreamId& id, int32_t tokens) { open.encoded(id, tokens); },
       .board = board,
       .budget = budget,
       .sink = [this](const Event& event) { open.publish(event); },
       .report = [](const std::string& text) { std::fprintf(stderr, "millrace: %s\n", text.c_str()); },
       .on_end_of_dispatch =
           [this] {
             open.refuse({Error::internal, {}, "the pipeline has ended"});
             open.fail_all(Error::internal);
           }},
      Pinning::own_threads);
}

Pipeline::State::~State() {
  open.refuse({Error::draining, {}, "the pipeline is stopping"});
  for (const StreamId& id : open.ids())
    caf::anon_send(graph.tokenizer, Cancel{id});
  open.wait_until_empty(kEndPatience);
  caf::anon_send(graph.supervisor, stop_atom_v);
}

Pipeline::Pipeline(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<Device> device,
                   const PipelineOptions& options, EventSink sink)
    : state_(std::make_unique<State>(std::move(tokenizer), std::move(device), options, std::move(sink))) {}

Pipeline::~Pipeline() = default;

const Limits& Pipeline::limits() const {
  return state_->limits;
}

std::optional<Failure> Pipeline::submit(Generate request) {
  if (auto failure = validate(request, state_->limits))
    return failure;
  if (!request.sampling.seed)
    request.sampling.seed = std::random_device{}() | uint64_t{std::random_device{}()} << 32;
  if (!request.time)
    request.time = std::time(nullptr);
  if (request.deadline_ms && !request.expires_at)
    request.expires_at = state_->options.unix_ms() + *request.deadline_ms;
  if (auto failure = state_->open.open(request))
    return failure;
  if (!state_->backlog->enter(request)) {
    state_->open.forget(request.request);
    return Failure{Error::busy,
                   {},
                   "too many prompts wait to be encoded",
                   int32_t(state_->backlog->retry_after().count())};
  }
  caf::anon_send(state_->graph.tokenizer, std::move(request));
  return std::nullopt;
}

std::optional<Failure> Pipeline::resume(ResumedRequest request) {
  if (auto failure = check(request, state_->limits))
    return failure;
  if (auto failure = state_->open.open(request))
    return failure;
  caf::anon_send(state_->graph.tokenizer, std::move(request));
  return std::nullopt;
}

// Dispatch ends what it knows at once; through the tokenizer the cancellation reaches what is on its way
// there.
void Pipeline::cancel(const StreamId& request) {
  caf::anon_send(state_->graph.dispatch, Cancel{request});
  caf::anon_send(state_->graph.tokenizer, Cancel{request});
}

bool Pipeline::drain(std::chrono::milliseconds grace) {
  state_->open.refuse({Error::draining, {}, "the server is stopping"});
  return state_->open.wait_until_empty(grace);
}

PipelineStats Pipeline::stats() const {
  const StatsBoard::Figures figures = state_->board->read();
  PipelineStats stats;
  stats.running = figures.running;
  stats.waiting = figures.waiting;
  stats.queued_tokens = figures.queued_tokens;
  stats.prompt_tokens = figures.prompt_tokens;
  stats.generated_tokens = figures.generated_tokens;
  stats.finished = figures.finished;
  stats.rejected = figures.rejected;
  stats.restarts = figures.restarts;
  stats.scheduler = scheduler_stats(figures, state_->budget->totals(), state_->device->blocks());
  stats.kv_blocks_used = state_->device->blocks().used();
  stats.kv_blocks_total = state_->device->blocks().total();
  const Device::Counters counters = state_->device->counters();
  stats.passes = counters.passes;
  stats.device_busy_seconds = counters.busy_seconds;
  return stats;
}

PipelineHealth Pipeline::health() const {
  PipelineHealth health;
  if (const auto busy_since = state_->open.busy_since()) {
    const auto last = std::max(*busy_since, state_->device->counters().last_pass);
    const auto since = std::chrono::floor<std::chrono::milliseconds>(state_->options.clock() - last);
    health.since_progress = std::max(since, std::chrono::milliseconds{0});
    if (health.since_progress > state_->options.stall_limit)
      health.state = PipelineHealth::State::stalled;
  }
  if (state_->dead)
    health.state = PipelineHealth::State::dead;
  return health;
}

std::vector<RequestStats> Pipeline::requests(size_t limit) const {
  return state_->open.stats(limit);
}

} // namespace millrace
