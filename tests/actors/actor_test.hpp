#pragma once

#include "actors/graph.hpp"
#include "tests/actors/fake_device.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

namespace millrace::testing {

/// A tokenizer of 512 ids; the one with a BOS is of the SentencePiece kind.
inline std::shared_ptr<const Tokenizer> tiny_tokenizer(const char* name = "spm-llama") {
  return std::make_shared<Tokenizer>(GgufFile(MILLRACE_TEST_DATA "/vocab/tiny/" + std::string(name) + ".gguf"));
}

inline StreamId stream_id(int i) {
  StreamId id;
  id.bytes[0] = uint8_t(i);
  id.bytes[1] = uint8_t(i >> 8);
  return id;
}

/// What a reader of one choice ends up with.
struct Output {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::string text;
  std::string reason, error;
  bool operator==(const Output&) const = default;
};

/// Reads the events of requests as a client would, and checks their order.
class Reader {
public:
  void operator()(const Event& event) {
    std::visit([this](const auto& held) { take(held); }, event);
  }

  Output& output(int request, int32_t choice = 0) { return outputs[{stream_id(request), choice}]; }

  std::map<std::pair<StreamId, int32_t>, Output> outputs;
  std::map<StreamId, Done> done;
  std::map<StreamId, Rejected> rejected;
  std::map<StreamId, Started> started; // the last of each request
  std::map<StreamId, std::vector<PromptToken>> scored;
  int progress = 0;
  uint32_t highest_epoch = 0;

private:
  void expect_open(const StreamId& request) {
    EXPECT_FALSE(done.contains(request)) << "an event after the end";
    EXPECT_FALSE(rejected.contains(request)) << "an event after a refusal";
  }
  void take(const Started& event) {
    expect_open(event.request);
    started[event.request] = event;
    highest_epoch = std::max(highest_epoch, event.epoch);
  }
  void take(const Progress& event) {
    expect_open(event.request);
    ++progress;
  }
  void take(const PromptLogprobs& event) {
    expect_open(event.request);
    EXPECT_EQ(event.choice, 0);
    EXPECT_TRUE((outputs[{event.request, 0}].ids.empty())) << "the prompt after the output";
    auto& tokens = scored[event.request];
    EXPECT_EQ(event.position, int32_t(tokens.size())) << "positions lack or come twice";
    tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
  }
  void take(const Token& event) {
    expect_open(event.request);
    Output& output = outputs[{event.request, event.choice}];
    EXPECT_TRUE(output.reason.empty()) << "a token after the end of its choice";
    EXPECT_EQ(event.seq, int64_t(output.ids.size())) << "tokens lack or come twice";
    output.ids.push_back(event.id);
    output.logprobs.push_back(event.logprob);
    output.text += event.text;
  }
  void take(const Finished& event) {
    expect_open(event.request);
    Output& output = outputs[{event.request, event.choice}];
    EXPECT_TRUE(output.reason.empty()) << "a choice ended twice";
    EXPECT_EQ(event.seq, int64_t(output.ids.size()));
    output.reason = event.reason;
    output.error = event.error;
    output.text += event.text;
  }
  void take(const Done& event) {
    expect_open(event.request);
    int32_t tokens = 0;
    for (const auto& [key, output] : outputs) {
      if (key.first != event.request)
        continue;
      EXPECT_FALSE(output.reason.empty()) << "a choice without an end";
      tokens += int32_t(output.ids.size());
    }
    EXPECT_EQ(event.generated_tokens, tokens);
    done[event.request] = event;
  }
  void take(const Rejected& event) {
    expect_open(event.request);
    rejected[event.request] = event;
  }
};

/// An actor system without threads: nothing moves until a test calls run().
class ActorTest : public ::testing::Test {
protected:
  struct Config : caf::actor_system_config {
    Config() {
      set("scheduler.policy", caf::atom("testing"));
      add_message_types<caf::id_block::millrace>();
    }
  };

  /// Delivers messages until every mailbox is empty, or so many. The actors take turns; CAF's own run() lets one go on until its
  /// mailbox is empty.
  void run(size_t messages = std::numeric_limits<size_t>::max()) {
    auto& jobs = scheduler.jobs;
    for (; messages > 0 && !jobs.empty(); --messages) {
      const auto* job = jobs.front();
      scheduler.run_once();
      if (!jobs.empty() && jobs.front() == job)
        std::rotate(jobs.begin(), jobs.begin() + 1, jobs.end());
    }
  }
  /// As run(), but whose turn it is, is left to chance.
  void run_in_random_order(std::mt19937_64& random, size_t messages = std::numeric_limits<size_t>::max()) {
    auto& jobs = scheduler.jobs;
    for (; messages > 0 && !jobs.empty(); --messages) {
      std::swap(jobs.front(), jobs[random() % jobs.size()]);
      scheduler.run_once();
    }
  }

  Config config;
  caf::actor_system system{config};
  caf::scoped_actor self{system};
  caf::scheduler::test_coordinator& scheduler =
      dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
};

} // namespace millrace::testing
