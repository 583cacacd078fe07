// The whole graph on a fake device and without threads: whatever happens, each request gets its tokens once and one end.

#include "tests/actors/graph_test.hpp"

#include <gmock/gmock.h>

namespace millrace::testing {
namespace {

using ::testing::HasSubstr;

// ---- ends ----

TEST_F(GraphTest, EndsAtMaxTokens) {
  start();

  submit(request(1, "Once upon a time", 5));
  run();

  EXPECT_EQ(reader.output(1).ids.size(), 5u);
  EXPECT_EQ(reader.output(1).reason, "length");
  EXPECT_EQ(reader.started[stream_id(1)].seed, 101u);
  EXPECT_EQ(reader.done[stream_id(1)].prompt_tokens, reader.started[stream_id(1)].prompt_tokens);
  EXPECT_EQ(board->read().finished, 1);
  EXPECT_EQ(board->read().generated_tokens, 5);
  expect_idle();
}

TEST_F(GraphTest, EndsAtAnEndOfGenerationIdUnlessItIsIgnored) {
  start();
  device->script = [&](auto history) -> std::optional<TokenId> {
    return history.size() == 6 ? std::optional(tokenizer->eos()) : std::nullopt;
  };
  Generate plain = request_of(1, 4), ignoring = request_of(2, 4);
  plain.ignore_eos = false;

  submit(ignoring);
  submit(plain);
  run();

  EXPECT_EQ(reader.output(1).ids.size(), 2u);
  EXPECT_EQ(reader.output(1).reason, "stop");
  EXPECT_EQ(reader.output(2).ids.size(), 8u);
  EXPECT_EQ(reader.output(2).ids[2], tokenizer->eos());
  EXPECT_EQ(reader.output(2).reason, "length");
  expect_idle();
}

TEST_F(GraphTest, EndsAtAStopIdWhichIsNotOutput) {
  start();
  device->script = [&](auto history) -> std::optional<TokenId> { return history.size() == 5 ? 77 : 300; };
  Generate generate = request_of(1, 4);
  generate.stop_ids = {77};

  submit(generate);
  run();

  EXPECT_EQ(reader.output(1).ids, std::vector<TokenId>{300});
  EXPECT_EQ(reader.output(1).reason, "stop");
  expect_idle();
}

TEST_F(GraphTest, EndsTheFirstTokenAlready) {
  start();
  device->script = [&](auto) -> std::optional<TokenId> { return tokenizer->eos(); };
  Generate generate = request(1);
  generate.ignore_eos = false;

  submit(generate);
  run();

  EXPECT_TRUE(reader.output(1).ids.empty());
  EXPECT_EQ(reader.output(1).reason, "stop");
  EXPECT_TRUE(reader.done.contains(stream_id(1)));
  expect_idle();
}

TEST_F(GraphTest, EndsBeforeAStopStringThatCrossesTokens) {
  start();
  const auto ids = tokenizer->encode("the end of", {.add_bos = false});
  device->script = [&](auto history) -> std::optional<TokenId> { return ids[(history.size() - 4) % ids.size()]; };
  const std::string text = tokenizer->decode(ids, false);
  ASSERT_NE(text.find("e end"), std::string::npos);
  Generate generate = request_of(1, 4, 50);
  generate.stop = {"e end"};

  submit(generate);
  run();

  EXPECT_EQ(reader.output(1).text, text.substr(0, text.find("e end")));
  EXPECT_EQ(reader.output(1).reason, "stop");
  expect_idle();
}

TEST_F(GraphTest, ARowWithoutNumbersEndsItsRequestAlone) {
  start();
  device->poison = [](auto history) { return history.front() == 11 && history.size() == 7; };

  submit(request_of(1, 4)); // begins with 11
  submit(request_of(2, 4));
  run();

  EXPECT_EQ(reader.output(1).reason, "error");
  EXPECT_EQ(reader.output(1).error, "non_finite_logits");
  EXPECT_EQ(reader.output(1).ids.size(), 3u);
  EXPECT_EQ(reader.output(2).reason, "length");
  expect_idle();
}

// ---- the context ----

TEST_F(GraphTest, AContextLessOneGivesExactlyOneToken) {
  start({.context_length = 64});

  submit(request_of(1, 63, std::nullopt));
  submit(request_of(2, 62, 100));
  submit(request_of(3, 10, std::nullopt));
  run();

  EXPECT_EQ(reader.output(1).ids.size(), 1u);
  EXPECT_EQ(reader.output(2).ids.size(), 2u);
  EXPECT_EQ(reader.output(3).ids.size(), 54u);
  EXPECT_EQ(reader.output(3).reason, "length");
  expect_idle();
}

TEST_F(GraphTest, RefusesAFullContextWithBothNumbers) {
  start({.context_length = 64});

  submit(request_of(1, 64));
  submit(request_of(2, 65));
  run();

  EXPECT_EQ(reader.rejected[stream_id(1)].error, "prompt_too_long");
  EXPECT_THAT(reader.rejected[stream_id(1)].message, HasSubstr("64 tokens"));
  EXPECT_THAT(reader.rejected[stream_id(2)].message, HasSubstr("65 tokens"));
  EXPECT_THAT(reader.rejected[stream_id(2)].message, HasSubstr("context of 64"));
  EXPECT_EQ(board->read().rejected, 2);
  EXPECT_EQ(device->passes(), 0);
}

TEST_F(GraphTest, AnEmptyPromptIsTheBosToken) {
  start();
  std::vector<TokenId> first;
  device->before_pass = [&](int, auto rows) { first.push_back(rows[0].token); };

  submit(request(1, "", 1));
  run();

  EXPECT_EQ(first, std::vector{tokenizer->bos()});
  EXPECT_EQ(reader.done[stream_id(1)].prompt_tokens, 1);
}

TEST_F(GraphTest, RefusesAnEmptyPromptWhereNothingStandsForIt) {
  start();
  Generate without_bos = request(1, ""), without_ids = request_of(2, 0);
  without_bos.add_bos = without_ids.add_bos = false;

  submit(without_bos);
  submit(without_ids);
  run();

  EXPECT_EQ(reader.rejected[stream_id(1)].field, "prompt");
  EXPECT_EQ(reader.rejected[stream_id(2)].field, "prompt_ids");
  EXPECT_EQ(reader.rejected[stream_id(2)].error, "invalid_field");
}

// ---- batches ----

TEST_F(GraphTest, RequestsGiveTheSameTogetherAsAlone) {
  const auto requests = mixture();
  const auto expected = alone(requests);
  struct Case {
    int32_t batch, chunk;
  };
  for (const Case c : {Case{16, 16}, Case{16, 1}, Case{16, 7}, Case{3, 128}, Case{1, 5}}) {
    options = {{.max_batch_size = c.batch, .prefill_chunk = c.chunk}};
    start();

    for (const Generate& generate : requests)
      submit(generate);
    run();

    EXPECT_EQ(reader.outputs, expected) << c.batch << " " << c.chunk;
    EXPECT_EQ(reader.done.size(), requests.size());
    for (size_t size : device->sizes())
      EXPECT_LE(size, size_t(std::max(c.batch, c.chunk)));
    expect_idle();
    reader = {};
    caf::anon_send(graph.supervisor, stop_atom_v);
    run();
  }
}

TEST_F(GraphTest, DecodesTogetherWhatRunsTogether) {
  start();

  for (int id = 0; id < 8; ++id)
    submit(request_of(id, 2, 10));
  run();

  EXPECT_GE(std::ranges::count(device->sizes(), 8u), 6); // of ten steps; they came and went one by one
  EXPECT_LT(device->passes(), 20);
}

TEST_F(GraphTest, ChoicesDifferAndEachIsTheSameAlone) {
  start();
  Generate three = request(1), again = request(2);
  three.n = 3;
  again.n = 3;
  again.sampling.seed = three.sampling.seed;

  submit(three);
  run();
  options.max_batch_size = 1;
  submit(again);
  run();

  EXPECT_NE(reader.output(1, 0).ids, reader.output(1, 1).ids);
  EXPECT_NE(reader.output(1, 1).ids, reader.output(1, 2).ids);
  for (int choice = 0; choice < 3; ++choice)
    EXPECT_EQ(reader.output(1, choice), reader.output(2, choice));
  EXPECT_EQ(reader.done[stream_id(1)].generated_tokens, 24);
}

TEST_F(GraphTest, ReadsALongPromptBetweenStepsOfTheOthers) {
  start();
  std::string passes; // d: decode, p: prefill
  device->before_pass = [&](int, auto rows) { passes += rows.size() == 1 ? 'd' : 'p'; };
  submit(request_of(1, 2, 60));
  run(40);
  passes.clear();

  submit(request_of(2, 100, 1));
  run();

  EXPECT_EQ(passes.find("ppppp"), std::string::npos) << passes; // a step of decode is four messages
  EXPECT_EQ(std::ranges::count(passes, 'p'), 7) << passes;
  EXPECT_EQ(reader.progress, 1 + 7);
}

TEST_F(GraphTest, WaitsForBlocksInOrder) {
  start({.context_length = 64, .n_blocks = 6});
  std::vector<TokenId> order;
  device->before_pass = [&](int, auto rows) {
    for (const Row& row : rows)
      if (row.position == 0 && std::ranges::find(order, row.token) == order.end())
        order.push_back(row.token); // those that give way are read again
  };

  for (int id = 0; id < 12; ++id)
    submit(request_of(id, 10 + size_t(id), id % 2 ? 50 : 5));
  run();

  EXPECT_EQ(order, (std::vector<TokenId>{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}));
  EXPECT_EQ(reader.done.size(), 12u);
  expect_idle();
}

TEST_F(GraphTest, RefusesWhatTheQueueCannotHold) {
  options.max_batch_size = 1;
  options.max_queued_tokens = 50;
  start();

  for (int id = 1; id <= 4; ++id)
    submit(request_of(id, 25));
  run(5);
  run();

  EXPECT_TRUE(reader.done.contains(stream_id(1)));
  EXPECT_TRUE(reader.done.contains(stream_id(2)));
  EXPECT_EQ(reader.rejected[stream_id(4)].error, "busy");
  EXPECT_GE(reader.rejected[stream_id(4)].retry_after_ms, 100);
  expect_idle();

  submit(request_of(5, 25));
  run();

  EXPECT_TRUE(reader.done.contains(stream_id(5)));
}

// ---- cancellation ----

TEST_F(GraphTest, ACancellationEndsARequestInAnyPhase) {
  for (size_t messages = 0;; ++messages) {
    start({.n_blocks = 12});
    options = {{.max_batch_size = 3, .prefill_chunk = 16}};
    for (int id = 0; id < 5; ++id)
      submit(request_of(id, 3 + 12 * size_t(id), 6)); // the last ones wait for a place or for blocks
    run(messages);
    const bool all_done = reader.done.size() == 5;

    cancel(3);
    run();

    EXPECT_EQ(reader.done.size(), 5u) << messages;
    EXPECT_TRUE(reader.output(3).reason == "cancelled" || reader.output(3).reason == "length") << messages;
    expect_idle();
    if (all_done) {
      EXPECT_GT(messages, 60u);
      break;
    }
    reader = {};
    caf::anon_send(graph.supervisor, stop_atom_v);
    run();
  }
}

TEST_F(GraphTest, ACancellationWaitsForAtMostOnePass) {
  start();
  submit(request_of(1, 2, 100));
  submit(request_of(2, 2, 100));
  run(60);
  const int passes = device->passes();
  ASSERT_GT(passes, 3);

  cancel(1);
  cancel(2);
  run();

  EXPECT_LE(device->passes(), passes + 1);
  EXPECT_EQ(reader.output(1).reason, "cancelled");
  expect_idle();
}

TEST_F(GraphTest, ACancelledPromptIsReadNoFurther) {
  start();
  submit(request_of(1, 120, 2));
  run(12);
  const int passes = device->passes();
  ASSERT_GT(passes, 0);
  ASSERT_LT(passes, 4);

  cancel(1);
  run();

  EXPECT_LT(device->passes(), 7); // dispatch had events of the first chunks to book
  expect_idle();
}

TEST_F(GraphTest, ACancelledIdMayBeUsedAgainAtOnce) {
  const auto expected = alone({request_of(1, 5, 20)});
  for (size_t messages = 1; messages < 80; ++messages) {
    start();
    submit(request_of(1, 9, 20));
    run(messages);
    cancel(1);
    run(1);
    if (!reader.done.contains(stream_id(1)))
      run();
    ASSERT_TRUE(reader.done.contains(stream_id(1)));
    reader = {};

    submit(request_of(1, 5, 20));
    run();

    EXPECT_EQ(reader.outputs, expected) << messages;
    expect_idle();
    reader = {};
    caf::anon_send(graph.supervisor, stop_atom_v);
    run();
  }
}

// ---- deaths ----

TEST_F(GraphTest, GoesOnExactlyAfterADeathInAnyPass) {
  const auto requests = mixture();
  const auto expected = alone(requests);
  int restarts = 0;
  for (int fatal = 0;; ++fatal) {
    start();
    device->before_pass = [&](int pass, auto) {
      if (pass == fatal)
        throw std::runtime_error("injected fault");
    };

    for (const Generate& generate : requests)
      submit(generate);
    run();

    EXPECT_EQ(reader.outputs, expected) << "death in pass " << fatal;
    EXPECT_EQ(reader.done.size(), requests.size());
    expect_idle();
    restarts = int(board->read().restarts);
    const bool past_the_end = restarts == 0;
    EXPECT_EQ(reader.highest_epoch, past_the_end ? 0u : 1u);
    reader = {};
    caf::anon_send(graph.supervisor, stop_atom_v);
    run();
    if (past_the_end) {
      EXPECT_GT(fatal, 15);
      break;
    }
  }
}

TEST_F(GraphTest, GoesOnExactlyAfterThreeDeaths) {
  const auto requests = mixture();
  const auto expected = alone(requests);
  start();
  device->before_pass = [&](int pass, auto) {
    if (pass == 3 || pass == 11 || pass == 20)
      throw std::runtime_error("injected fault");
  };

  for (const Generate& generate : requests)
    submit(generate);
  run();

  EXPECT_EQ(reader.outputs, expected);
  EXPECT_EQ(board->read().restarts, 3);
  expect_idle();
}

TEST_F(GraphTest, GivesADeviceUpThatDiesTooOften) {
  start();
  device->before_pass = [&](int pass, auto) {
    if (pass >= 4)
      throw std::runtime_error("injected fault");
  };

  submit(request_of(1, 2, 20));
  submit(request_of(2, 120, 20));
  run();
  submit(request_of(3, 2));
  run();

  for (int id : {1, 2}) {
    EXPECT_EQ(reader.output(id).reason, "error");
    EXPECT_EQ(reader.output(id).error, "device_lost");
    EXPECT_TRUE(reader.done.contains(stream_id(id)));
  }
  EXPECT_EQ(reader.rejected[stream_id(3)].error, "device_lost");
  EXPECT_EQ(board->read().restarts, 3);
  EXPECT_EQ(reports, (std::vector<std::string>{
                         "an actor of fake:0 ended: injected fault", "an actor of fake:0 ended: injected fault",
                         "an actor of fake:0 ended: injected fault", "an actor of fake:0 ended: injected fault",
                         "fake:0 is given up: its actors died too often"}));
  expect_idle();
}

TEST_F(GraphTest, DeathsAreForgivenAfterAMinute) {
  start();
  bool dies = false;
  device->before_pass = [&](int, auto) {
    if (std::exchange(dies, false))
      throw std::runtime_error("injected fault");
  };

  for (int id = 0; id < 8; ++id) {
    dies = true;
    submit(request_of(id, 3));
    run();
    scheduler.advance_time(std::chrono::seconds(21));
  }

  EXPECT_EQ(reader.done.size(), 8u);
  EXPECT_EQ(reader.output(7).reason, "length");
  EXPECT_EQ(board->read().restarts, 8);
}

TEST_F(GraphTest, TheDeathOfDispatchIsTold) {
  start();
  submit(request_of(1, 3));
  run(10);

  self->send_exit(graph.dispatch, caf::exit_reason::kill);
  run();

  EXPECT_TRUE(dispatch_ended);
  EXPECT_EQ(device->blocks().used(), 0);
}

TEST_F(GraphTest, TheDeathOfTheTokenizerEndsDispatch) {
  start();

  self->send_exit(graph.tokenizer, caf::exit_reason::kill);
  run();

  EXPECT_TRUE(dispatch_ended);
}

// Cancellations and deaths at random moments, with the actors' turns in random order.
TEST_F(GraphTest, KeepsItsPromisesInAnyOrderOfEvents) {
  const auto requests = mixture();
  const auto expected = alone(requests);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    options = {{.max_batch_size = int32_t(1 + random() % 6), .prefill_chunk = int32_t(1 + random() % 30)}};
    start({.n_blocks = int32_t(8 + random() % 20)});
    device->before_pass = [&](int, auto) {
      if (random() % 40 == 0)
        throw std::runtime_error("injected fault");
    };

    std::vector<bool> cancelled(requests.size());
    for (const Generate& generate : requests) {
      submit(generate);
      run_in_random_order(random, random() % 30);
    }
    for (int i = 0; i < 3; ++i) {
      const int id = int(random() % requests.size());
      cancel(id);
      cancelled[size_t(id)] = true;
      run_in_random_order(random, random() % 60);
      scheduler.advance_time(std::chrono::seconds(random() % 60));
    }
    run_in_random_order(random);

    EXPECT_EQ(reader.done.size() + reader.rejected.size(), requests.size()) << "seed " << seed;
    for (const auto& [key, output] : reader.outputs) {
      const Output& whole = expected.at(key);
      if (output.reason == "cancelled" || output.error == "device_lost") {
        EXPECT_LE(output.ids.size(), whole.ids.size());
        EXPECT_TRUE(std::ranges::equal(output.ids, std::span(whole.ids).first(output.ids.size())));
      } else {
        EXPECT_EQ(output, whole) << "seed " << seed;
      }
    }
    expect_idle();
    caf::anon_send(graph.supervisor, stop_atom_v);
    run();
    reader = {};
    if (HasFailure())
      break;
  }
}

TEST_F(GraphTest, StopsInTheMiddleOfAnything) {
  for (size_t messages = 0; messages < 60; ++messages) {
    start();
    for (const Generate& generate : mixture())
      submit(generate);
    run(messages);

    caf::anon_send(graph.supervisor, stop_atom_v);
    run();

    EXPECT_FALSE(dispatch_ended);
    EXPECT_EQ(device->blocks().used(), 0);
    reader = {};
  }
}

} // namespace
} // namespace millrace::testing
