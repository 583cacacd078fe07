// Requests that an earlier process began: wherever that died, their readers see the undisturbed run.

#include "tests/actors/graph_test.hpp"

namespace millrace::testing {
namespace {

/// How much of each choice the readers have: a cut of the number of its tokens and one more says that they
/// have its end, too.
using Cuts = std::vector<int64_t>;

class ResumeTest : public GraphTest {
protected:
  /// The events of a request on a graph of its own.
  std::vector<Event> undisturbed(const Generate& generate) {
    start();
    prepare();
    submit(generate);
    run();
    std::vector<Event> all = events;
    stop();
    return all;
  }

  /// What a reader has that saw each choice until its cut, and `scored` tokens of the prompt.
  static Reader reader_at(const std::vector<Event>& all, const Cuts& cuts, int32_t scored) {
    Reader reader;
    for (const Event& event : all) {
      if (const auto* token = std::get_if<Token>(&event);
          token && token->seq < cuts.at(size_t(token->choice)))
        reader(event);
      if (const auto* end = std::get_if<Finished>(&event); end && end->seq < cuts.at(size_t(end->choice)))
        reader(event);
      if (const auto* piece = std::get_if<PromptLogprobs>(&event); piece && piece->position < scored) {
        PromptLogprobs part = *piece;
        part.tokens.resize(std::min(part.tokens.size(), size_t(scored - piece->position)));
        reader(part);
      }
    }
    return reader;
  }

  static ResumedRequest resumption(const Generate& generate, Reader& reader, uint32_t epoch = 1) {
    ResumedRequest resumed{
        .generate = generate, .choices = {}, .scored = int32_t(reader.scored[generate.request].size())};
    for (int32_t choice = 0; choice < generate.n; ++choice) {
      const Output& output = reader.outputs[{generate.request, choice}];
      resumed.choices.push_back(
          {.emitted_ids = output.ids, .next_epoch = epoch, .finished = !output.reason.empty()});
    }
    return resumed;
  }
  void resume(ResumedRequest resumed) { caf::anon_send(graph.tokenizer, std::move(resumed)); }

  /// Goes on from there, on a graph of its own.
  void expect_same_from(const Generate& generate, const std::vector<Event>& all, const Cuts& cuts,
                        int32_t scored = 0) {
    Reader whole = reader_at(all, Cuts(size_t(generate.n), 1 << 20), 1 << 20);
    start();
    prepare();
    reader = reader_at(all, cuts, scored);

    resume(resumption(generate, reader));
    run();

    EXPECT_EQ(reader.outputs, whole.outputs) << generate.request.bytes[0] << " cut at " << cuts[0];
    EXPECT_EQ(reader.scored[generate.request].size(), whole.scored[generate.request].size());
    ASSERT_TRUE(reader.done.contains(generate.request));
    EXPECT_EQ(reader.done[generate.request].prompt_tokens, std::get<Done>(all.back()).prompt_tokens);
    for (const Event& event : events)
      std::visit(
          []<class E>(const E& event) {
            if constexpr (requires { event.epoch; }) {
              EXPECT_EQ(event.epoch, 1u);
            }
          },
          event);
    expect_idle();
    passes = device->passes();
    stop();
  }

  void expect_same_from_any_cut(const Generate& generate) {
    const std::vector<Event> all = undisturbed(generate);
    Cuts ends(size_t(generate.n), 0);
    for (const Event& event : all)
      if (const auto* end = std::get_if<Finished>(&event))
        ends[size_t(end->choice)] = end->seq + 1;
    const int64_t longest = std::ranges::max(ends);
    for (int64_t cut = 0; cut <= longest + 2 * (generate.n - 1); ++cut) {
      Cuts cuts;
      for (size_t choice = 0; choice < ends.size();
           ++choice) // each choice is two tokens behind the one before
        cuts.push_back(std::clamp<int64_t>(cut - 2 * int64_t(choice), 0, ends[choice]));
      expect_same_from(generate, all, cuts);
    }
  }

  void prepare() {
    if (script)
      device->script = script;
  }

  std::function<std::optional<TokenId>(std::span<const TokenId>)> script;
  int passes = 0; // of the latest resumption
};

TEST_F(ResumeTest, GoesOnFromAnyTokenOfAnyRequest) {
  for (const Generate& generate : mixture())
    expect_same_from_any_cut(generate);
}

TEST_F(ResumeTest, PenaltiesCountWhatWasEmittedBefore) {
  Generate generate = request(1, "The fox said", 30);
  generate.sampling.repetition_penalty = 1.4f;
  generate.sampling.frequency_penalty = 0.7f;
  generate.sampling.presence_penalty = 0.3f;
  generate.sampling.logit_bias = {{7, 3.0f}};
  generate.sampling.top_k = 40;
  generate.sampling.min_p = 0.01f;

  expect_same_from_any_cut(generate);
}

TEST_F(ResumeTest, HeldBackTextComesOutAtItsPlace) {
  const auto ids = tokenizer->encode("a stop string, never the end", {.add_bos = false});
  script = [&](auto history) -> std::optional<TokenId> { return ids[(history.size() - 4) % ids.size()]; };
  for (const char* stop : {"string, never!", "the end", "ing", "g, n"}) {
    Generate generate = request_of(1, 4, 2 * int32_t(ids.size()));
    generate.stop = {stop, "end of all"};
    expect_same_from_any_cut(generate);
  }
  // The match that might have been beaten by one that begins earlier, at the end of the tokens.
  for (int32_t max_tokens = 1; max_tokens < int32_t(ids.size()); ++max_tokens) {
    Generate generate = request_of(1, 4, max_tokens);
    generate.stop = {"str", "op string, never the end of it"};
    expect_same_from_any_cut(generate);
  }
}

TEST_F(ResumeTest, CharactersOfManyTokensComeOutWhole) {
  const auto ids = tokenizer->encode("\xC3\xBC\xF0\x9F\x98\x80z\xE2\x82", {.add_bos = false});
  ASSERT_GT(ids.size(), 8u); // a token for each byte
  script = [&](auto history) -> std::optional<TokenId> { return ids[(history.size() - 4) % ids.size()]; };

  expect_same_from_any_cut(request_of(1, 4, int32_t(ids.size())));
  expect_same_from_any_cut(request_of(1, 4, 2 * int32_t(ids.size())));
}

TEST_F(ResumeTest, AnEndOfGenerationIdEndsItAgain) {
  script = [&](auto history) -> std::optional<TokenId> {
    return history.size() == 9 ? std::optional(tokenizer->eos()) : std::nullopt;
  };
  Generate generate = request_of(1, 4, 20);
  generate.ignore_eos = false;

  expect_same_from_any_cut(generate);
}

TEST_F(ResumeTest, ToldLogprobsOfThePromptAreNotToldAgain) {
  options.prefill_chunk = 8;
  for (const int32_t max_tokens : {0, 3}) {
    Generate generate = request_of(1, 30, max_tokens);
    generate.prompt_logprobs = 1;
    generate.n = 2;
    const auto all = undisturbed(generate);
    for (int32_t scored = 0; scored <= 30; ++scored)
      expect_same_from(generate, all, {0, 0}, scored);
    for (int64_t cut = 0; cut <= max_tokens + 1; ++cut)
      expect_same_from(generate, all, {cut, 0}, 30);
  }
}

TEST_F(ResumeTest, AnEndThatIsReachedAlreadyNeedsNoPass) {
  const Generate generate = request_of(1, 4, 6);
  const auto all = undisturbed(generate);

  expect_same_from(generate, all, {6});
  EXPECT_EQ(passes, 0);
  expect_same_from(generate, all, {7});
  EXPECT_EQ(passes, 0);
  expect_same_from(generate, all, {5});
  EXPECT_GT(passes, 0);
}

TEST_F(ResumeTest, AStopStringInsideTheLastTokenNeedsNoPass) {
  const auto ids = tokenizer->encode("once upon", {.add_bos = false});
  script = [&](auto history) -> std::optional<TokenId> { return ids[(history.size() - 4) % ids.size()]; };
  Generate generate = request_of(1, 4, 50);
  const auto longest =
      std::ranges::max_element(ids, {}, [&](TokenId id) { return tokenizer->bytes(id).size(); });
  ASSERT_GT(tokenizer->bytes(*longest).size(), 1u);
  generate.stop = {std::string(tokenizer->bytes(*longest).substr(1))};
  const auto all = undisturbed(generate);
  const auto told = std::get<Finished>(all[all.size() - 2]).seq;
  ASSERT_EQ(std::get<Finished>(all[all.size() - 2]).reason, "stop");

  expect_same_from(generate, all, {told});

  EXPECT_EQ(passes, 0);
}

TEST_F(ResumeTest, SurvivesAnotherDeathInAnyPass) {
  Generate generate = request(1, "The fox said", 12);
  generate.n = 2;
  generate.prompt_logprobs = 0;
  options.prefill_chunk = 4;
  const auto all = undisturbed(generate);
  const Reader whole = reader_at(all, {100, 100}, 100);
  for (int fatal = 0; fatal < 10; ++fatal) {
    start();
    device->before_pass = [&](int pass, auto) {
      if (pass == fatal)
        throw std::runtime_error("injected fault");
    };
    reader = reader_at(all, {5, 2}, 100);

    resume(resumption(generate, reader, 3));
    run();

    EXPECT_EQ(reader.outputs, whole.outputs) << fatal;
    EXPECT_EQ(reader.highest_epoch, 4u);
    expect_idle();
    stop();
  }
}

TEST_F(ResumeTest, IsNotRefusedWhereOthersWouldBe) {
  options.max_batch_size = 1;
  options.max_queued_tokens = 30;
  options.max_queued_requests = 2;
  start();

  for (int id = 1; id <= 5; ++id) {
    Reader none;
    resume(resumption(request_of(id, 25), none));
  }
  submit(request_of(6, 25));
  run();

  EXPECT_EQ(reader.done.size(), 5u);
  EXPECT_EQ(reader.rejected[stream_id(6)].error, "busy");
  expect_idle();
}

TEST_F(ResumeTest, ACancellationEndsItInAnyPhase) {
  const Generate generate = request(1, "The fox said", 12);
  const auto all = undisturbed(generate);
  for (size_t messages = 0; messages < 40; ++messages) {
    start();
    reader = reader_at(all, {3}, 0);
    resume(resumption(generate, reader));
    run(messages);

    cancel(1);
    run();

    EXPECT_TRUE(reader.done.contains(stream_id(1)));
    expect_idle();
    stop();
  }
}

TEST_F(ResumeTest, APromptThatCannotBeEncodedAnyMoreEndsInAnError) {
  start();
  Generate generate = request(1);
  generate.prompt.reset();
  generate.messages = {
      ChatMessage{.role = "user", .content = "Hello", .name = {}, .tool_call_id = {}, .tool_calls = {}}};
  generate.n = 2;
  Reader told;
  told.outputs[{generate.request, 0}] = {
      .ids = {5, 6}, .logprobs = {0, 0}, .text = {}, .reason = {}, .error = {}};
  told.outputs[{generate.request, 1}] = {
      .ids = {7}, .logprobs = {0}, .text = {}, .reason = "stop", .error = {}};
  reader = told;

  resume(resumption(generate, reader));
  run();

  EXPECT_EQ(reader.output(1, 0).error, "unsupported");
  EXPECT_EQ(reader.output(1, 1).reason, "stop");
  EXPECT_TRUE(reader.done.contains(stream_id(1)));
  expect_idle();
}

TEST_F(ResumeTest, ADeviceThatIsLostEndsItInAnError) {
  start();
  device->before_pass = [](int, auto) { throw std::runtime_error("injected fault"); };
  submit(request_of(2, 4));
  run();
  Reader none;

  resume(resumption(request_of(1, 4), none));
  run();

  EXPECT_EQ(reader.output(1).error, "device_lost");
  expect_idle();
}

} // namespace
} // namespace millrace::testing
