// The public class with its real threads.

#include "actors/pipeline.hpp"
#include "tests/actors/actor_test.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace millrace::testing {
namespace {

using namespace std::chrono_literals;

/// A Reader that threads may share.
class SharedReader {
public:
  void operator()(const Event& event) {
    std::lock_guard lock{mutex_};
    reader_(event);
    changed_.notify_all();
  }
  /// Waits until the predicate holds, and gives what was read until then.
  Reader wait(const std::function<bool(const Reader&)>& holds) {
    std::unique_lock lock{mutex_};
    EXPECT_TRUE(changed_.wait_for(lock, 60s, [&] { return holds(reader_); }));
    return reader_;
  }
  Reader wait_for_ends(size_t ends) {
    return wait([=](const Reader& reader) { return reader.done.size() + reader.rejected.size() == ends; });
  }
  Reader now() {
    std::lock_guard lock{mutex_};
    return reader_;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Reader reader_;
};

/// Holds passes until it is opened.
class Gate {
public:
  void pass() {
    std::unique_lock lock{mutex_};
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_arrival() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return arrived_ > 0; });
  }
  void open() {
    std::lock_guard lock{mutex_};
    open_ = true;
    changed_.notify_all();
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  bool open_ = false;
};

Generate request(int id, int32_t max_tokens = 20) {
  Generate generate;
  generate.request = stream_id(id);
  generate.prompt = "Once upon a time, number " + std::to_string(id);
  generate.max_tokens = max_tokens;
  generate.ignore_eos = true;
  generate.sampling.seed = uint64_t(id);
  return generate;
}

class PipelineTest : public ::testing::Test {
protected:
  void start(const PipelineOptions& options = {}) {
    pipeline = std::make_unique<Pipeline>(tokenizer, device, options, std::ref(reader));
  }

  std::shared_ptr<const Tokenizer> tokenizer = tiny_tokenizer();
  std::shared_ptr<FakeDevice> device = std::make_shared<FakeDevice>();
  SharedReader reader;
  std::unique_ptr<Pipeline> pipeline;
};

TEST_F(PipelineTest, ManyThreadsGetTheSameAsOne) {
  start();
  for (int id = 0; id < 16; ++id) {
    EXPECT_FALSE(pipeline->submit(request(id)));
    reader.wait_for_ends(size_t(id) + 1);
  }
  const auto alone = reader.now().outputs;

  SharedReader together;
  Pipeline busy(tokenizer, device, {{.max_batch_size = 8, .prefill_chunk = 5}}, std::ref(together));
  std::vector<std::thread> clients;
  for (int first = 0; first < 16; first += 4)
    clients.emplace_back([&, first] {
      for (int id = first; id < first + 4; ++id)
        EXPECT_FALSE(busy.submit(request(id)));
    });
  for (std::thread& client : clients)
    client.join();

  EXPECT_EQ(together.wait_for_ends(16).outputs, alone);
  EXPECT_EQ(busy.stats().generated_tokens, 16 * 20);
  EXPECT_EQ(busy.stats().finished, 16);
}

TEST_F(PipelineTest, RefusesAtOnceWhatBreaksALimit) {
  start();
  Generate wrong = request(1);
  wrong.sampling.top_p = 0;

  EXPECT_EQ(pipeline->submit(wrong)->field, "sampling.top_p");
  EXPECT_EQ(pipeline->limits().context_length, 128);
  EXPECT_EQ(pipeline->limits().vocab_size, 512);
}

TEST_F(PipelineTest, APoolSmallerThanTheContextBoundsTheContext) {
  device = std::make_shared<FakeDevice>(FakeDevice::Shape{.context_length = 128, .n_blocks = 3});
  start();

  EXPECT_EQ(pipeline->limits().context_length, 3 * kBlockSize);
  EXPECT_FALSE(pipeline->submit(request(1, 1000)));
  EXPECT_EQ(reader.wait_for_ends(1).output(1).reason, "length");
}

TEST_F(PipelineTest, RefusesAnIdThatIsInUseAndTakesItWhenItIsNot) {
  Gate gate;
  device->before_pass = [&](int, auto) { gate.pass(); };
  start();

  EXPECT_FALSE(pipeline->submit(request(1)));
  EXPECT_EQ(pipeline->submit(request(1))->code, Error::conflict);
  gate.open();
  reader.wait_for_ends(1);
}

TEST_F(PipelineTest, ChoosesASeedAndTellsIt) {
  start();
  Generate unseeded = request(1);
  unseeded.sampling.seed.reset();
  EXPECT_FALSE(pipeline->submit(unseeded));
  const Reader first = reader.wait_for_ends(1);

  Generate again = request(2);
  again.prompt = unseeded.prompt;
  again.sampling.seed = first.started.at(stream_id(1)).seed;
  EXPECT_FALSE(pipeline->submit(again));
  Reader second = reader.wait_for_ends(2);

  EXPECT_EQ(second.output(1), second.output(2));
}

TEST_F(PipelineTest, CancelsWhileAPassRuns) {
  Gate gate;
  device->before_pass = [&](int, auto) { gate.pass(); };
  start();
  EXPECT_FALSE(pipeline->submit(request(1)));
  EXPECT_FALSE(pipeline->submit(request(2)));
  gate.wait_for_arrival();

  pipeline->cancel(stream_id(1));
  pipeline->cancel(stream_id(99));
  Reader cancelled = reader.wait_for_ends(1); // the reader doesn't wait for the pass
  EXPECT_EQ(cancelled.output(1).reason, "cancelled");

  gate.open();
  EXPECT_EQ(reader.wait_for_ends(2).output(2).reason, "length");
}

TEST_F(PipelineTest, DrainsAndRefusesMeanwhile) {
  Gate gate;
  device->before_pass = [&](int, auto) { gate.pass(); };
  start();
  EXPECT_FALSE(pipeline->submit(request(1)));
  gate.wait_for_arrival();

  EXPECT_FALSE(pipeline->drain(1ms));
  EXPECT_EQ(pipeline->submit(request(2))->code, Error::draining);
  gate.open();
  EXPECT_TRUE(pipeline->drain(60s));
  EXPECT_EQ(reader.now().done.size(), 1u);
}

TEST_F(PipelineTest, EndsEveryRequestWhenItIsDestroyed) {
  for (int round = 0; round < 40; ++round) {
    SharedReader shared;
    {
      Pipeline busy(tokenizer, device, {{.max_batch_size = 3, .prefill_chunk = 8}}, std::ref(shared));
      for (int id = 0; id < 10; ++id)
        EXPECT_FALSE(busy.submit(request(id, 90)));
      if (round % 2)
        shared.wait([&](const Reader& reader) { return reader.progress > round % 10; });
    }
    EXPECT_EQ(shared.now().done.size(), 10u);
    EXPECT_EQ(device->blocks().used(), 0);
    device->blocks().check_integrity();
  }
}

TEST_F(PipelineTest, GoesOnExactlyWhenTheDeviceFails) {
  start();
  for (int id = 0; id < 6; ++id)
    EXPECT_FALSE(pipeline->submit(request(id)));
  const auto expected = reader.wait_for_ends(6).outputs;
  pipeline.reset();

  device->before_pass = [first = device->passes()](int pass, auto) {
    if (pass == first + 1 || pass == first + 9)
      throw std::runtime_error("injected fault");
  };
  SharedReader shared;
  Pipeline failing(tokenizer, device, {}, std::ref(shared));
  for (int id = 0; id < 6; ++id)
    EXPECT_FALSE(failing.submit(request(id)));

  EXPECT_EQ(shared.wait_for_ends(6).outputs, expected);
  EXPECT_EQ(failing.stats().restarts, 2);
}

TEST_F(PipelineTest, EndsRequestsOfADeviceThatIsLost) {
  device->before_pass = [](int, auto) { throw std::runtime_error("injected fault"); };
  start();

  EXPECT_FALSE(pipeline->submit(request(1)));
  Reader ended = reader.wait_for_ends(1);

  EXPECT_EQ(ended.output(1).error, "device_lost");
  EXPECT_FALSE(pipeline->submit(request(2)));
  EXPECT_EQ(reader.wait_for_ends(2).rejected.at(stream_id(2)).error, "device_lost");
}

TEST_F(PipelineTest, TellsThatItWillServeNoMore) {
  device->before_pass = [](int, auto) { throw std::runtime_error("injected fault"); };
  std::atomic<bool> dead = false;
  PipelineOptions options;
  options.on_death = [&dead] {
    dead = true;
    dead.notify_all();
  };
  SharedReader shared;
  Pipeline failing(tokenizer, device, options, std::ref(shared));

  EXPECT_FALSE(failing.submit(request(1)));
  dead.wait(false);

  EXPECT_EQ(shared.wait_for_ends(1).output(1).error, "device_lost");
}

// ---- what it tells of itself ----

/// A clock that can be put forward.
struct BentClock {
  std::atomic<int64_t> ahead_ms = 0;
  std::chrono::steady_clock::time_point operator()() const {
    return std::chrono::steady_clock::now() + std::chrono::milliseconds(ahead_ms);
  }
};

TEST_F(PipelineTest, StallsOnlyWhileThereIsWorkAndNoPassEnds) {
  using State = PipelineHealth::State;
  Gate gate;
  BentClock clock;
  device->before_pass = [&](int, auto) { gate.pass(); };
  PipelineOptions bent;
  bent.clock = std::ref(clock);
  start(bent);

  clock.ahead_ms = 100'000;
  EXPECT_EQ(pipeline->health().state, State::serving); // nothing to do
  EXPECT_EQ(pipeline->health().since_progress, 0ms);

  EXPECT_FALSE(pipeline->submit(request(1)));
  gate.wait_for_arrival();
  EXPECT_EQ(pipeline->health().state, State::serving);
  clock.ahead_ms += 25'000;
  EXPECT_EQ(pipeline->health().state, State::serving);
  EXPECT_GE(pipeline->health().since_progress, 25s);
  EXPECT_FALSE(pipeline->submit(request(2))); // is no progress
  clock.ahead_ms += 6'000;
  EXPECT_EQ(pipeline->health().state, State::stalled);

  gate.open();
  reader.wait_for_ends(2);
  EXPECT_EQ(pipeline->health().state, State::serving);
}

TEST_F(PipelineTest, APassIsProgress) {
  BentClock clock;
  Gate gate;
  device->before_pass = [&](int pass, auto) {
    if (pass == 3)
      gate.pass();
  };
  PipelineOptions bent;
  bent.clock = std::ref(clock);
  start(bent);
  EXPECT_FALSE(pipeline->submit(request(1)));
  gate.wait_for_arrival();

  clock.ahead_ms = 20'000;
  const auto since = pipeline->health().since_progress;

  EXPECT_GE(since, 20s);
  EXPECT_LT(since, 25s); // since the third pass, not since the beginning of time
  gate.open();
  reader.wait_for_ends(1);
}

TEST_F(PipelineTest, IsDeadWhenItsDeviceIsLost) {
  device->before_pass = [](int, auto) { throw std::runtime_error("injected fault"); };
  start();
  EXPECT_EQ(pipeline->health().state, PipelineHealth::State::serving);

  EXPECT_FALSE(pipeline->submit(request(1)));
  reader.wait_for_ends(1);
  while (pipeline->health().state != PipelineHealth::State::dead)
    std::this_thread::yield();
}

TEST_F(PipelineTest, TellsThePhaseOfEachRequest) {
  Gate gate;
  device->before_pass = [&](int, auto) { gate.pass(); };
  start({{.max_batch_size = 1}});
  for (int id = 1; id <= 3; ++id)
    EXPECT_FALSE(pipeline->submit(request(id)));
  gate.wait_for_arrival();
  const auto waits = [](const RequestStats& stats) { return stats.phase == "waiting"; };
  while (!waits(pipeline->requests(9).at(2)) || pipeline->requests(9).at(0).phase != "prefill")
    std::this_thread::yield();

  const auto all = pipeline->requests(9);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].stream, "01000000");
  EXPECT_GT(all[0].prompt_tokens, 5);
  EXPECT_EQ(all[0].processed_tokens, 0);
  EXPECT_EQ(all[1].stream, "02000000");
  EXPECT_TRUE(waits(all[1]));
  EXPECT_EQ(pipeline->requests(2).size(), 2u);
  gate.open();
  reader.wait_for_ends(3);
  EXPECT_TRUE(pipeline->requests(9).empty());
}

TEST_F(PipelineTest, CountsThePassesOfTheDevice) {
  start();
  EXPECT_FALSE(pipeline->submit(request(1)));
  reader.wait_for_ends(1);

  EXPECT_GE(pipeline->stats().passes, 20);
  EXPECT_GT(pipeline->stats().device_busy_seconds, 0);
}

// ---- resumption ----

TEST_F(PipelineTest, RefusesAResumptionThatDoesNotFitTheModel) {
  start();
  ResumedRequest whole{.generate = request(1), .choices = {{}}, .scored = 0};
  ResumedRequest seedless = whole, lacking = whole, foreign = whole, invalid = whole;
  seedless.generate.sampling.seed.reset();
  lacking.choices.clear();
  foreign.choices[0].emitted_ids = {512};
  invalid.generate.sampling.top_p = 2;

  EXPECT_EQ(pipeline->resume(seedless)->field, "sampling.seed");
  EXPECT_EQ(pipeline->resume(lacking)->field, "choices");
  EXPECT_EQ(pipeline->resume(foreign)->field, "emitted_ids");
  EXPECT_EQ(pipeline->resume(invalid)->field, "sampling.top_p");
  EXPECT_FALSE(pipeline->resume(whole));
  EXPECT_EQ(reader.wait_for_ends(1).output(1).ids.size(), 20u);
}

TEST_F(PipelineTest, ResumesWhereAnotherPipelineEnded) {
  start();
  EXPECT_FALSE(pipeline->submit(request(1)));
  const auto whole = reader.wait_for_ends(1).output(1);
  pipeline.reset();

  Gate gate;
  device->before_pass = [&](int, auto) { gate.pass(); };
  Pipeline second(tokenizer, device, {}, [&](const Event& event) {
    if (const auto* token = std::get_if<Token>(&event)) {
      EXPECT_EQ(token->id, whole.ids.at(size_t(token->seq)));
      EXPECT_EQ(token->logprob, whole.logprobs.at(size_t(token->seq)));
      EXPECT_GE(token->seq, 7);
    } else if (std::holds_alternative<Rejected>(event)) {
      ADD_FAILURE() << "refused";
    } else if (const auto* done = std::get_if<Done>(&event)) {
      EXPECT_EQ(done->generated_tokens, 20);
    }
  });
  EXPECT_FALSE(second.resume({.generate = request(1),
                              .choices = {{.emitted_ids = {whole.ids.begin(), whole.ids.begin() + 7},
                                           .next_epoch = 1,
                                           .finished = false}},
                              .scored = 0}));
  EXPECT_EQ(second.requests(1).at(0).generated_tokens, 7);
  gate.open();
  EXPECT_TRUE(second.drain(60s));
}

} // namespace
} // namespace millrace::testing
