#pragma once

#include "actors/graph.hpp"
#include "tests/actors/fake_device.hpp"
#include "tests/actors/reader.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace millrace::testing {

/// A tokenizer of 512 ids; the one with a BOS is of the SentencePiece kind.
inline std::shared_ptr<const Tokenizer> tiny_tokenizer(const char* name = "spm-llama") {
  return std::make_shared<Tokenizer>(GgufFile(MILLRACE_TEST_DATA "/vocab/tiny/" + std::string(name) + ".gguf"));
}

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
