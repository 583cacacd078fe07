// The scheduler in its actors: what ends early leaves nothing behind, who has a better claim gets its place, and none of it shows
// in anybody's output.

#include "actors/decode.hpp"
#include "tests/actors/graph_test.hpp"

#include <numeric>

namespace millrace::testing {
namespace {

class SchedulingTest : public GraphTest {
protected:
  /// Runs until so many passes have been run in all, or nothing is left to do.
  void run_passes(int passes) {
    while (device->passes() < passes && !scheduler.jobs.empty())
      run(1);
  }

  /// Requests of all kinds that crowd a pool of 14 blocks and a batch of 4: they wait, read, decode and give way.
  static std::vector<Generate> crowd() {
    std::vector<Generate> requests{request_of(0, 60, 40), request_of(1, 30, 40), request_of(2, 20, 30),
                                   request_of(3, 50, 10), request_of(4, 40, 0)};
    requests[2].n = 3;
    requests[4].prompt_logprobs = 0;
    return requests;
  }
  void start_crowd() {
    options = {{.max_batch_size = 4, .prefill_chunk = 16, .prefill_stretch = 1e12}};
    start({.n_blocks = 14});
  }

  /// Ends request `id` of the crowd after each third message by `end`; its choices say `reason` then.
  void sweep(int id, const std::string& reason, const std::function<void()>& end);

  std::map<int, int64_t> deadlines; // of the crowd, in ms

  /// A step is a pass of decode and one of prefill, which may come first.
  static constexpr size_t kStep = 2;
  int64_t freed() const {
    const auto counts = budget->totals().freed_after;
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  int64_t freed_too_late() const {
    const auto counts = budget->totals().freed_after;
    return std::accumulate(counts.begin() + kStep + 1, counts.end(), int64_t{0});
  }
};

void SchedulingTest::sweep(int id, const std::string& reason, const std::function<void()>& end) {
  const auto requests = crowd();
  const auto whole = alone(requests);
  bool all_done = false, ended_any = false;
  int64_t counted = 0;
  for (size_t messages = size_t(id) % 3; !all_done; messages += 3) {
    start_crowd();
    for (int index = 0; Generate generate : requests) {
      if (const auto deadline = deadlines.find(index++); deadline != deadlines.end())
        generate.deadline_ms = deadline->second;
      submit(generate);
    }
    run(messages);
    all_done = reader.done.size() == requests.size();

    end();
    run();

    ASSERT_EQ(reader.done.size(), requests.size()) << messages;
    for (const auto& [key, output] : reader.outputs) {
      const Output& undisturbed = whole.at(key);
      if (output.reason != reason) {
        ASSERT_EQ(output, undisturbed) << messages;
        continue;
      }
      ended_any = true;
      ASSERT_EQ(key.first, stream_id(id)) << messages;
      ASSERT_TRUE(std::ranges::equal(output.ids, std::span(undisturbed.ids).first(output.ids.size()))) << messages;
    }
    ASSERT_EQ(freed_too_late(), 0) << messages;
    counted += freed();
    expect_idle();
    stop();
  }
  EXPECT_TRUE(ended_any);
  EXPECT_GT(counted, 0);
}

TEST_F(SchedulingTest, ACancellationAtAnyMomentLeavesNothingBehindAndNobodyElseNotices) {
  for (int id = 0; id < 5; ++id)
    sweep(id, "cancelled", [&] { cancel(id); });
}

TEST_F(SchedulingTest, ADeadlineAtAnyMomentLeavesNothingBehindAndNobodyElseNotices) {
  for (int id = 0; id < 5; ++id) {
    deadlines = {{id, 1000}};
    sweep(id, "deadline", [&] {
      scheduler.advance_time(std::chrono::milliseconds(1000));
      run();
      scheduler.advance_time(std::chrono::milliseconds(1000)); // its time began only now if it was not admitted yet
    });
  }
}

TEST_F(SchedulingTest, ADeadlineThatIsOverBeforeTheDeviceIsFreeCostsNoPass) {
  options.max_batch_size = 1;
  start();
  submit(request_of(1, 5, 30));
  Generate late = request_of(2, 5, 30);
  late.deadline_ms = 50;
  submit(late);
  run_passes(3);

  scheduler.advance_time(std::chrono::milliseconds(50));
  run();

  EXPECT_EQ(reader.output(2).reason, "deadline");
  EXPECT_TRUE(reader.output(2).ids.empty());
  EXPECT_EQ(device->passes(), 30);
  EXPECT_EQ(reader.done[stream_id(2)].generated_tokens, 0);
  expect_idle();
}

TEST_F(SchedulingTest, ARequestThatComesAfterItsDeadlineEndsAtOnce) {
  options.unix_ms = [] { return int64_t{1'700'000'000'000}; };
  start();
  Generate late = request_of(1, 5, 30);
  late.expires_at = 1'700'000'000'000 - 1;
  submit(late);
  run();

  EXPECT_EQ(reader.output(1).reason, "deadline");
  EXPECT_EQ(device->passes(), 0);
  expect_idle();
}

TEST_F(SchedulingTest, ACancellationThatOvertakesItsSequenceSavesItsStep) {
  start();
  const auto sampler = system.spawn([]() -> SamplerActor::behavior_type {
    return {[](Sequence&) {}, [](const LocalLogits&) { return LocalNextIds{}; }, [](const CancelSequence&) {}};
  });
  const auto decode = system.spawn(decode_actor, std::static_pointer_cast<Device>(device), budget, graph.dispatch, sampler);
  LocalSequence sequence{.id = {stream_id(1), 0, 0},
                         .blocks = device->blocks().allocate(20),
                         .tokens = std::vector<TokenId>(20, 10),
                         .prompt_size = 19,
                         .rank = 0};

  caf::anon_send(decode, CancelSequence{sequence.id, 0});
  caf::anon_send(decode, std::move(sequence));
  run();

  EXPECT_EQ(device->passes(), 0);
  EXPECT_EQ(device->blocks().tables(), 0);
  EXPECT_EQ(freed(), 1);
  caf::anon_send_exit(decode, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(sampler, caf::exit_reason::user_shutdown);
  run();
}

TEST_F(SchedulingTest, ALightTenantGetsAPlaceInAFullBatch) {
  std::vector<Generate> heavy;
  for (int id = 0; id < 6; ++id) {
    heavy.push_back(request_of(id, 8, 60));
    heavy.back().tenant = "heavy";
  }
  Generate light = request_of(9, 8, 3);
  light.tenant = "light";
  auto everything = heavy;
  everything.push_back(light);
  const auto whole = alone(everything);
  options = {{.max_batch_size = 3, .prefill_chunk = 16, .prefill_stretch = 1e12}};
  start();
  for (const Generate& generate : heavy)
    submit(generate);
  run_passes(10);
  const int before = device->passes();

  submit(light);
  while (!reader.done.contains(stream_id(9)) && !scheduler.jobs.empty())
    run(1);

  EXPECT_LE(device->passes() - before, 8) << "it waited for a stream of the heavy one to end";
  run();
  EXPECT_EQ(reader.outputs, whole);
  EXPECT_EQ(board->read().yielded, 1);
  expect_idle();
}

TEST_F(SchedulingTest, AnUrgentRequestGetsAPlaceInAFullBatch) {
  std::vector<Generate> patient;
  for (int id = 0; id < 3; ++id)
    patient.push_back(request_of(id, 8, 60));
  Generate urgent = request_of(9, 8, 3);
  urgent.priority = -1;
  auto everything = patient;
  everything.push_back(urgent);
  const auto whole = alone(everything);
  options = {{.max_batch_size = 3, .prefill_chunk = 16, .prefill_stretch = 1e12}};
  start();
  for (const Generate& generate : patient)
    submit(generate);
  run_passes(10);
  const int before = device->passes();

  submit(urgent);
  while (!reader.done.contains(stream_id(9)) && !scheduler.jobs.empty())
    run(1);

  EXPECT_LE(device->passes() - before, 8);
  run();
  EXPECT_EQ(reader.outputs, whole);
  expect_idle();
}

TEST_F(SchedulingTest, ChoicesShareTheBlocksOfTheirPrompt) {
  start();
  size_t rows = 0, positions = 0;
  int32_t most = 0;
  device->before_pass = [&](int, auto pass) {
    rows += pass.size();
    for (const Row& row : pass)
      positions += row.position < 100;
    most = std::max(most, device->blocks().used());
  };
  Generate generate = request_of(1, 100, 8);
  generate.n = 4;

  submit(generate);
  run();

  EXPECT_LE(positions, 100u + 3 * kBlockSize) << "the prompt was read again";
  EXPECT_EQ(rows, positions + 4 * 7);
  EXPECT_LE(most, 6 + 4 * 2);
  expect_idle();
}

TEST_F(SchedulingTest, OnlyATenantsOwnRequestsFindItsPrompts) {
  start();
  const auto started_with = [&](int id, std::string tenant, std::string salt) {
    Generate generate = request_of(7, 60, 2);
    generate.request = stream_id(id);
    generate.tenant = std::move(tenant);
    generate.cache_salt = std::move(salt);
    submit(generate);
    run();
    return reader.started[stream_id(id)].cached_tokens;
  };

  EXPECT_EQ(started_with(1, "a", ""), 0);
  EXPECT_GT(started_with(2, "a", ""), 0);
  EXPECT_EQ(started_with(3, "b", ""), 0);
  EXPECT_EQ(started_with(4, "", ""), 0);
  EXPECT_EQ(started_with(5, "a", "x"), 0);
  EXPECT_GT(started_with(6, "a", "x"), 0);
  EXPECT_EQ(started_with(7, "ax", ""), 0);
  expect_idle();
}

} // namespace
} // namespace millrace::testing
