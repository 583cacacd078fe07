// What holds for any requests in any order of messages: each ends once, with the tokens that it would have had alone.

#include "actors/scheduler/make_sequence.hpp"
#include "tests/actors/scheduler/world.hpp"

#include <rapidcheck.h>

#include <cstdlib>
#include <numeric>

namespace millrace::testing {
namespace {

using namespace std::chrono_literals;

// The same cases in each run; another seed can be set from outside.
[[maybe_unused]] const int seed_is_set = setenv("RC_PARAMS", "seed=1", /*overwrite=*/0);

/// Something that happens after so many messages.
struct Happening {
  enum What { request, cancel, kill, caching_off, caching_on } what = request;
  int after = 0; // messages since the last one
  // Of a request:
  int prefix = 0, prefix_length = 0, length = 1, max_tokens = 1, n = 1, priority = 0, tenant = 0, salt = 0;
  int deadline_ms = -1; // none if negative
  bool scored = false;
  // Of a cancellation:
  int which = 0;

  bool operator==(const Happening&) const = default;
};

void showValue(const Happening& h, std::ostream& out) {
  out << "{what " << h.what << " after " << h.after << ", prompt " << h.prefix << "/" << h.prefix_length << "+" << h.length << " -> "
      << h.max_tokens << " x" << h.n << ", priority " << h.priority << ", tenant " << h.tenant << ", salt " << h.salt
      << ", deadline " << h.deadline_ms << (h.scored ? ", scored" : "") << ", which " << h.which << "}\n";
}

rc::Gen<Happening> happenings(bool disturbed) {
  using rc::gen::inRange;
  using rc::gen::set;
  using What = Happening::What;
  const auto what = disturbed ? rc::gen::weightedElement<What>({{20, Happening::request},
                                                                {5, Happening::cancel},
                                                                {2, Happening::kill},
                                                                {1, Happening::caching_off},
                                                                {1, Happening::caching_on}})
                              : rc::gen::just(Happening::request);
  return rc::gen::build<Happening>(
      set(&Happening::what, what), set(&Happening::after, inRange(0, 60)), set(&Happening::prefix, inRange(0, 3)),
      set(&Happening::prefix_length, inRange(0, 50)), set(&Happening::length, inRange(1, 40)),
      set(&Happening::max_tokens, inRange(0, 50)), set(&Happening::n, rc::gen::element(1, 1, 1, 2, 3)),
      set(&Happening::priority, inRange(-2, 3)), set(&Happening::tenant, inRange(0, 4)),
      set(&Happening::salt, rc::gen::element(0, 0, 0, 1)),
      set(&Happening::deadline_ms, disturbed ? rc::gen::element(-1, -1, -1, 5, 40) : rc::gen::just(-1)),
      set(&Happening::scored, rc::gen::element(false, false, true)), set(&Happening::which, inRange(0, 100)));
}

Prompt to_prompt(const Happening& h, int id) {
  Prompt prompt;
  Generate& generate = prompt.generate;
  generate.request = stream_id(id);
  generate.n = h.n;
  generate.max_tokens = h.max_tokens;
  if (h.deadline_ms >= 0)
    generate.deadline_ms = h.deadline_ms;
  generate.priority = h.priority;
  if (h.tenant > 0)
    generate.tenant = "tenant " + std::to_string(h.tenant);
  generate.cache_salt = h.salt ? "salt" : "";
  if (h.scored)
    generate.prompt_logprobs = 0;
  prompt.token_ids.resize(size_t(h.prefix_length));
  std::iota(prompt.token_ids.begin(), prompt.token_ids.end(), h.prefix * 1000);
  for (int i = 0; i < h.length; ++i)
    prompt.token_ids.push_back(i % 3 == 0 ? id % 2 : i);
  return prompt;
}

/// Blocks of the largest request.
int32_t least_pool(const std::vector<Happening>& all) {
  int64_t most = 2;
  for (const Happening& h : all)
    if (h.what == Happening::request)
      most = std::max<int64_t>(most, h.prefix_length + h.length + std::max(h.max_tokens, 1));
  return BlockManager::blocks_for(most);
}

World::Options world_options(const std::vector<Happening>& all) {
  using rc::gen::inRange;
  World::Options options;
  options.blocks = least_pool(all) + *rc::gen::weightedOneOf<int>({{2, rc::gen::just(0)}, {2, inRange(0, 5)}, {1, inRange(0, 60)}});
  options.context_length = options.blocks * kBlockSize;
  options.caching = *rc::gen::weightedElement<bool>({{3, true}, {1, false}});
  options.share_output = *rc::gen::arbitrary<bool>();
  options.prefill_rows = *inRange(1, 40);
  options.scheduler.max_batch_size = *inRange(1, 8);
  options.scheduler.prefill_chunk = *inRange(1, 40);
  options.scheduler.max_queued_tokens = 1'000'000;
  options.scheduler.max_tenant_share = 1;
  options.scheduler.max_queue_wait = 0ms;
  options.scheduler.ageing = std::chrono::milliseconds(*inRange(0, 30));
  options.seed = *rc::gen::arbitrary<uint64_t>();
  return options;
}

/// Passes that such requests may take, though they give way to each other again and again: each time that one is read, it has a
/// token of it.
int64_t most_passes(const std::vector<Happening>& all, const World::Options& options) {
  int64_t passes = 100;
  for (const Happening& h : all) {
    const int64_t reads = (h.prefix_length + h.length + h.max_tokens) / options.prefill_rows + 2;
    passes += int64_t(h.n) * (h.max_tokens + 2) * reads;
  }
  return passes * (1 + std::ranges::count(all, Happening::kill, &Happening::what));
}

/// What is wrong with a reader's output, if anything.
std::string compare(World& world, const Prompt& prompt, int32_t context_length) {
  const StreamId& id = prompt.generate.request;
  if (const auto rejected = world.reader.rejected.find(id); rejected != world.reader.rejected.end())
    return rejected->second.error == "busy" && prompt.generate.deadline_ms ? "" : "a request is refused: " + rejected->second.message;
  if (!world.reader.done.contains(id))
    return "a request has no end";
  for (int32_t choice = 0; choice < prompt.generate.n; ++choice) {
    const Output whole = undisturbed(prompt, choice, context_length);
    const Output& output = world.reader.outputs[{id, choice}];
    const bool stopped = output.reason == "cancelled" || output.reason == "deadline";
    if (output.ids.size() > whole.ids.size() || !std::equal(output.ids.begin(), output.ids.end(), whole.ids.begin()))
      return "a choice has other tokens";
    if (!stopped && (output.ids.size() != whole.ids.size() || output.reason != whole.reason || output.error != whole.error))
      return "a choice ended otherwise: " + output.reason + " after " + std::to_string(output.ids.size()) + ", not " + whole.reason +
             " after " + std::to_string(whole.ids.size());
    if (!stopped && choice == 0 && prompt.generate.prompt_logprobs && world.reader.scored[id].size() != prompt.token_ids.size())
      return "a prompt was not scored";
  }
  uint64_t seen = 0, history = 0;
  for (size_t position = 0; position < world.reader.scored[id].size(); ++position) {
    const PromptToken& token = world.reader.scored[id][position];
    if (token.id != prompt.token_ids[position] || (position > 0 && token.logprob != float(history % 1024)))
      return "a token of a prompt has another score";
    history = mix(seen, uint64_t(prompt.token_ids[position]));
    seen = mix(seen, history);
  }
  return {};
}

/// Lets it all happen, and checks what is told of it.
void play(const std::vector<Happening>& all, const World::Options& options) {
  World world(options);
  world.max_passes = most_passes(all, options);
  std::vector<Prompt> prompts;
  bool disturbed = false;
  for (const Happening& h : all) {
    for (int i = 0; i < h.after && world.step(); ++i) {
    }
    switch (h.what) {
    case Happening::request:
      prompts.push_back(to_prompt(h, int(prompts.size()) + 1));
      world.admit(prompts.back(), h.deadline_ms < 0 ? std::nullopt : std::optional(std::chrono::milliseconds(h.deadline_ms)));
      disturbed |= h.deadline_ms >= 0;
      break;
    case Happening::cancel: world.cancel(stream_id(h.which % (int(prompts.size()) + 1) + 1)); break;
    case Happening::kill: world.kill_device(); break;
    case Happening::caching_off: world.set_caching(false); break;
    case Happening::caching_on: world.set_caching(options.caching); break;
    }
    disturbed |= h.what == Happening::cancel || h.what == Happening::kill;
  }
  try {
    world.run();
  } catch (const std::exception& error) {
    RC_FAIL(error.what());
  }
  for (const Prompt& prompt : prompts) {
    const std::string wrong = compare(world, prompt, options.context_length);
    if (!wrong.empty())
      RC_FAIL(wrong + ": request " + std::to_string(prompt.generate.request.bytes[0]));
  }
  const auto totals = world.ledger().totals();
  RC_ASSERT(totals.finished + totals.rejected == int64_t(prompts.size()));
  if (!disturbed)
    RC_ASSERT(world.ledger().stale() == 0);
  RC_ASSERT(!::testing::Test::HasFailure()); // of the reader: gaps, words after the end
  RC_CLASSIFY(totals.preempted > 0, "lack of blocks");
  RC_CLASSIFY(totals.yielded > 0, "made room");
  RC_CLASSIFY(totals.expired > 0, "deadline");
  RC_CLASSIFY(totals.cancelled > 0, "cancelled");
  RC_CLASSIFY(world.blocks().counters().hits > 0, "cache hits");
  RC_CLASSIFY(world.blocks().counters().evictions > 0, "evictions");
}

TEST(SchedulerProperties, EachRequestEndsOnceWithItsOwnTokens) {
  EXPECT_TRUE(rc::check("any requests", [] {
    const auto all = *rc::gen::container<std::vector<Happening>>(happenings(false));
    play(all, world_options(all));
  }));
}

TEST(SchedulerProperties, WhateverIsCancelledOrDies) {
  EXPECT_TRUE(rc::check("any requests, cancellations, deadlines and deaths", [] {
    const auto all = *rc::gen::container<std::vector<Happening>>(happenings(true));
    play(all, world_options(all));
  }));
}

/// Until these requests have ended, beside a stream that began before them and has always six more; how many passes that took.
int64_t passes_beside_a_stream(World& world, const std::vector<Prompt>& prompts, const std::function<Prompt(int)>& stream) {
  int next_id = 1000;
  bool admitted = false;
  std::vector<StreamId> open;
  const auto ended = [&](const StreamId& id) { return world.reader.done.contains(id); };
  const auto all_ended = [&] {
    return std::ranges::all_of(prompts, [&](const Prompt& prompt) { return ended(prompt.generate.request); });
  };
  while (!all_ended()) {
    std::erase_if(open, ended);
    while (open.size() < 6) {
      world.admit(stream(next_id));
      open.push_back(stream_id(next_id++));
    }
    for (int i = 0; i < 10; ++i)
      world.step();
    if (!admitted && world.passes() > 20) {
      admitted = true;
      for (const Prompt& prompt : prompts)
        world.admit(prompt);
    }
    if (world.passes() > world.max_passes)
      break;
  }
  return world.passes();
}

TEST(SchedulerProperties, NobodyStarvesBesideAnEndlessStreamOfUrgentRequests) {
  EXPECT_TRUE(rc::check("some requests beside an endless stream", [] {
    auto all = *rc::gen::resize(4, rc::gen::nonEmpty(rc::gen::container<std::vector<Happening>>(happenings(false))));
    auto options = world_options(all);
    options.blocks += 2; // requests of the stream, too
    options.context_length = options.blocks * kBlockSize;
    options.scheduler.ageing = std::chrono::milliseconds(*rc::gen::inRange(1, 30));
    World world(options);
    world.max_passes = 3000;
    std::vector<Prompt> prompts;
    for (const Happening& h : all)
      prompts.push_back(to_prompt(h, int(prompts.size()) + 1));
    const auto passes = passes_beside_a_stream(world, prompts, [](int id) {
      Happening h{.length = 10 + id % 7, .max_tokens = 5 + id % 11, .priority = -5};
      h.tenant = 10 + id % 2;
      return to_prompt(h, id);
    });
    if (passes > world.max_passes)
      RC_FAIL("one waits, while others are served again and again");
    for (const Prompt& prompt : prompts) {
      const std::string wrong = compare(world, prompt, options.context_length);
      if (!wrong.empty())
        RC_FAIL(wrong);
    }
    world.run();
  }));
}

TEST(SchedulerProperties, APromptThatNeedsThePoolStartsBesideAnEndlessStreamThatIsReadAhead) {
  // Its tenant has more than its share of the device when it is given out, so those of the others are read ahead of it.
  World::Options options;
  options.blocks = 8;
  options.context_length = options.blocks * kBlockSize;
  options.scheduler.max_batch_size = 6;
  options.scheduler.max_queued_tokens = 1'000'000;
  options.scheduler.max_tenant_share = 1;
  options.scheduler.max_queue_wait = 0ms;
  for (options.seed = 0; options.seed < 10; ++options.seed) {
    World world(options);
    world.max_passes = 2000;
    std::vector<Prompt> prompts;
    for (const int length : {10, 10, 10, 100})
      prompts.push_back(to_prompt({.length = length, .max_tokens = 20, .tenant = 1}, int(prompts.size()) + 1));
    const auto passes = passes_beside_a_stream(world, prompts, [](int id) {
      return to_prompt({.length = 10 + id % 7, .max_tokens = 10 + id % 11, .tenant = 2 + id % 12}, id);
    });
    EXPECT_LE(passes, world.max_passes) << "it waits for blocks, while others take them again and again";
  }
}

} // namespace
} // namespace millrace::testing
