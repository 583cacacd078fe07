#include "actors/supervisor.hpp"
#include "tests/actors/actor_test.hpp"

namespace millrace::testing {
namespace {

/// Actors that do nothing, so that a test can look at who lives.
class SupervisorTest : public ActorTest {
protected:
  SupervisorTest() {
    supervisor = system.spawn(supervisor_actor, Charges{.device_name = "fake:0",
                                                        .tokenizer = tokenizer,
                                                        .dispatch = dispatch,
                                                        .spawn_device = [this] { return spawn_device(); },
                                                        .report = [](std::string) {},
                                                        .on_end_of_dispatch = [this] { ++ends_of_dispatch; },
                                                        .on_death = [this] { ++deaths; }});
    run();
  }
  ~SupervisorTest() override {
    caf::anon_send(supervisor, stop_atom_v);
    run();
  }

  LocalDeviceActors spawn_device() {
    // The predecessors have let go of everything.
    EXPECT_TRUE(generations.empty() || alive == 0);
    if (spawning_fails)
      throw std::runtime_error("no more threads");
    alive = 3;
    const auto watch = [this](auto* actor) { actor->attach_functor([this] { --alive; }); };
    generations.push_back(
        {system.spawn([=](PrefillActor::pointer self) -> PrefillActor::behavior_type {
           watch(self);
           return {[](Sequence&) {}, [](const CancelSequence&) {}, [](freed_atom) {}, [](const LocalNextIds&) {},
                   [](step_atom) {}};
         }),
         system.spawn([=](DecodeActor::pointer self) -> DecodeActor::behavior_type {
           watch(self);
           return {[](PrefillActor&) {}, [](LocalSequence&) {}, [](const CancelSequence&) {},
                   [](const YieldSequence&) {}, [](const LocalNextIds&) {}, [](step_atom) {}};
         }),
         system.spawn([=](SamplerActor::pointer self) -> SamplerActor::behavior_type {
           watch(self);
           return {[](Sequence&) {}, [](const LocalLogits&) { return LocalNextIds{}; },
                   [](const CancelSequence&) {}};
         })});
    return generations.back();
  }

  bool spawning_fails = false;
  int alive = 0, ends_of_dispatch = 0, deaths = 0, served = 0, lost = 0;
  std::vector<LocalDeviceActors> generations;
  TokenizerActor tokenizer = system.spawn(
      []() -> TokenizerActor::behavior_type {
        return {[](Generate&) {}, [](ResumedRequest&) {}, [](const Cancel&) {}};
      });
  DispatchActor dispatch = system.spawn([this]() -> DispatchActor::behavior_type {
    return {[](Prompt&) {},
            [](LocalResumption&) {},
            [](const Rejected&) {},
            [](const Cancel&) {},
            [this](const LocalDeviceActors&) { ++served; },
            [this](lost_atom) { ++lost; },
            [](const SequenceStarted&) {},
            [](const SequencePreempted&) {},
            [](expire_atom) {},
            [](const Progress&) {},
            [](const PromptLogprobs&) {},
            [](SampledBatch&) {}};
  });
  SupervisorActor supervisor;
};

TEST_F(SupervisorTest, RestartsAllActorsOfADeviceWhicheverDies) {
  const auto kill = [&](auto& actor) {
    self->send_exit(actor, caf::exit_reason::kill);
    run();
  };

  kill(generations.back().prefill);
  kill(generations.back().decode);
  kill(generations.back().sampler);

  EXPECT_EQ(generations.size(), 4u);
  EXPECT_EQ(served, 4);
  EXPECT_EQ(alive, 3);
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(deaths, 0);
}

TEST_F(SupervisorTest, GivesTheDeviceUpAtTheFourthDeathInAMinute) {
  for (int i = 0; i < 4; ++i) {
    self->send_exit(generations.back().decode, caf::exit_reason::kill);
    run();
  }

  EXPECT_EQ(generations.size(), 4u);
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(lost, 1);
  EXPECT_EQ(deaths, 1);
}

TEST_F(SupervisorTest, TellsTheDeathOfDispatchAndOfTheTokenizer) {
  self->send_exit(tokenizer, caf::exit_reason::kill);
  run();

  EXPECT_EQ(alive, 0);
  EXPECT_EQ(ends_of_dispatch, 1);
  EXPECT_EQ(deaths, 1);
}

TEST_F(SupervisorTest, GivesADeviceUpWhoseActorsCannotBeSpawned) {
  spawning_fails = true;
  self->send_exit(generations.back().decode, caf::exit_reason::kill);
  run();

  EXPECT_EQ(lost, 1);
}

TEST_F(SupervisorTest, StopsAllWithoutCallingItADeath) {
  caf::anon_send(supervisor, stop_atom_v);
  run();

  EXPECT_EQ(alive, 0);
  EXPECT_EQ(generations.size(), 1u);
  EXPECT_EQ(ends_of_dispatch, 0);
  EXPECT_EQ(deaths, 0);
}

} // namespace
} // namespace millrace::testing
