// The whole pipeline: what a request gives depends on the request alone. Built twice, for the built-in model
// and, with MILLRACE_REAL_WEIGHTS, for Qwen2.5-0.5B.

#include "actors/pipeline.hpp"
#include "kernels/attention.hpp"
#include "model/model.hpp"
#include "model/softmax.hpp"
#include "tests/real_models.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <condition_variable>
#include <map>
#include <mutex>

namespace millrace {
namespace {

/// What a reader of one choice ends up with. Log-probs are compared by their bits.
struct Output {
  std::vector<TokenId> ids;
  std::vector<uint32_t> logprob_bits;
  std::string text;
  std::string reason;
  bool operator==(const Output&) const = default;
};

using Outputs = std::map<std::pair<StreamId, int32_t>, Output>;

/// How requests are served; nothing of it may show in what they give.
struct Setting {
  PipelineOptions options = {};
  int threads = 2;
  int64_t kv_positions = 16 * 256;
  bool prefix_cache = true;
};

/// Collects the events of many requests and waits for their ends.
class Collector {
public:
  void operator()(const Event& event) {
    std::lock_guard lock{mutex_};
    if (auto* started = std::get_if<Started>(&event)) {
      starts_[{started->request, started->choice}].push_back(started->cached_tokens);
    } else if (auto* token = std::get_if<Token>(&event)) {
      auto& output = outputs_[{token->request, token->choice}];
      EXPECT_EQ(token->seq, int64_t(output.ids.size()));
      output.ids.push_back(token->id);
      output.logprob_bits.push_back(std::bit_cast<uint32_t>(token->logprob));
      output.text += token->text;
    } else if (auto* finished = std::get_if<Finished>(&event)) {
      auto& output = outputs_[{finished->request, finished->choice}];
      EXPECT_EQ(finished->seq, int64_t(output.ids.size()));
      output.text += finished->text;
      output.reason = finished->reason;
    } else if (auto* piece = std::get_if<PromptLogprobs>(&event)) {
      auto& tokens = scored_[piece->request];
      EXPECT_EQ(piece->position, int32_t(tokens.size()));
      tokens.insert(tokens.end(), piece->tokens.begin(), piece->tokens.end());
    } else if (std::holds_alternative<Done>(event) || std::holds_alternative<Rejected>(event)) {
      ++ended_;
      changed_.notify_all();
    }
  }

  Outputs wait(int requests) {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return ended_ == requests; });
    return outputs_;
  }

  /// Once it has ended: the log-probs of its prompt.
  const std::vector<PromptToken>& scored(const StreamId& request) { return scored_[request]; }

  /// Once they have ended: for each time that a choice came to the device, the prompt tokens that the cache had.
  const std::map<std::pair<StreamId, int32_t>, std::vector<int32_t>>& starts() const { return starts_; }

  /// A reader that has the first tokens of a choice already. Its text begins with what comes now.
  void begin_at(const std::pair<StreamId, int32_t>& choice, const Output& whole, size_t told) {
    std::lock_guard lock{mutex_};
    Output& output = outputs_[choice];
    output.ids.assign(whole.ids.begin(), whole.ids.begin() + ptrdiff_t(told));
    output.logprob_bits.assign(whole.logprob_bits.begin(), whole.logprob_bits.begin() + ptrdiff_t(told));
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  Outputs outputs_;
  std::map<StreamId, std::vector<PromptToken>> scored_;
  std::map<std::pair<StreamId, int32_t>, std::vector<int32_t>> starts_;
};

StreamId numbered(int i) {
  StreamId id;
  id.bytes[0] = uint8_t(i + 1);
  return id;
}

/// Requests of unlike length and settings, as they meet in a busy server.
std::vector<Generate> mixed_requests(int count, float temperature) {
  const char* openings[] = {"Once upon a time", "The dragon was", "\"Where are you going?\" asked the wolf",
                            "In a little house by the wood there lived an old woman who had three sons, and"};
  std::vector<Generate> requests;
  for (int i = 0; i < count; ++i) {
    Generate request;
    request.request = numbered(i);
    std::string prompt;
    for (int k = 0; k <= i % 5; ++k)
      prompt += std::string(openings[(i + k) % 4]) + " ";
    request.prompt = prompt;
    request.max_tokens = 12 + i % 7;
    request.ignore_eos = true;
    request.logprobs = i % 3;
    request.sampling.temperature = temperature;
    request.sampling.top_p = i % 2 ? 0.9f : 1.0f;
    request.sampling.repetition_penalty = i % 4 == 3 ? 1.2f : 1.0f;
    request.sampling.seed = 1000 + i;
    requests.push_back(request);
  }
  return requests;
}

class Exactness : public testing::TestWithParam<Isa> {
protected:
  void SetUp() override {
#ifdef MILLRACE_REAL_WEIGHTS
    auto path = real_model("qwen2.5-0.5b-q4_k_m.gguf");
    if (!std::filesystem::exists(path))
      GTEST_SKIP() << path << " is absent: run tools/fetch_models";
    model = Model::open(path.string());
#else
    model = Model::built_in();
#endif
    tokenizer = std::make_shared<Tokenizer>(model->file());
  }

  std::shared_ptr<const Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;

  std::shared_ptr<Device> device(const Setting& setting) {
    CpuDeviceOptions options;
    options.isa = GetParam();
    options.threads = setting.threads;
    options.context_length = 256;
    options.kv_positions = setting.kv_positions;
    options.prefix_cache = setting.prefix_cache;
    return make_cpu_device(model, options);
  }
  std::shared_ptr<Device> device(int threads) { return device(Setting{.threads = threads}); }

  Outputs together(const std::vector<Generate>& requests, const Setting& setting) {
    Collector collector;
    return together(requests, setting, collector);
  }
  Outputs together(const std::vector<Generate>& requests, const Setting& setting, Collector& collector) {
    return together(requests, setting.options, device(setting), collector);
  }
  Outputs together(const std::vector<Generate>& requests, const PipelineOptions& options,
                   const std::shared_ptr<Device>& shared, Collector& collector) {
    Outputs outputs;
    {
      Pipeline pipeline{tokenizer, shared, options, std::ref(collector)};
      for (auto& request : requests)
        EXPECT_FALSE(pipeline.submit(request));
      outputs = collector.wait(int(requests.size()));
    }
    EXPECT_EQ(shared->blocks().used(), 0);
    EXPECT_EQ(shared->blocks().tables(), 0);
    shared->blocks().check_integrity();
    return outputs;
  }

  Outputs one_at_a_time(const std::vector<Generate>& requests) {
    Outputs all;
    Collector collector;
    Pipeline pipeline{tokenizer, device(1), {}, std::ref(collector)};
    for (int i = 0; auto& request : requests) {
      EXPECT_FALSE(pipeline.submit(request));
      all = collector.wait(++i);
    }
    return all;
  }

  void expect_same_however_they_meet(float temperature) {
    auto requests = mixed_requests(GetParam() == Isa::scalar ? 6 : 16, temperature);

    auto alone = one_at_a_time(requests);

    Setting small_chunks;
    small_chunks.options.prefill_chunk = 7;
    Setting small_batches{.threads = 1};
    small_batches.options.max_batch_size = 3;
    EXPECT_EQ(together(requests, {}), alone);
    EXPECT_EQ(together(requests, small_chunks), alone);
    EXPECT_EQ(together(requests, small_batches), alone);
    EXPECT_EQ(together(requests, {.prefix_cache = false}), alone);
    for (auto& request : requests)
      EXPECT_EQ(int32_t((alone.at({request.request, 0}).ids.size())), *request.max_tokens);
  }
};

TEST_P(Exactness, GreedyRequestsGiveTheSameBitsAloneAndTogether) {
  expect_same_however_they_meet(0);
}

TEST_P(Exactness, SampledRequestsGiveTheSameBitsAloneAndTogether) {
  expect_same_however_they_meet(1);
}

TEST_P(Exactness, ChoicesOfOneRequestDifferAndRepeat) {
  auto requests = mixed_requests(1, 1);
  requests[0].n = 3;

  auto first = together(requests, {});
  auto second = together(requests, {.threads = 1});

  EXPECT_EQ(first, second);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_NE(first.at({numbered(0), 0}).ids, first.at({numbered(0), 1}).ids);
  EXPECT_NE(first.at({numbered(0), 1}).ids, first.at({numbered(0), 2}).ids);
}

TEST_P(Exactness, ResumedRequestsGiveTheSameBits) {
  auto requests = mixed_requests(GetParam() == Isa::scalar ? 2 : 4, 1);
  requests[0].stop = {"the"};
  requests[1].n = 2;
  const auto whole = together(requests, {});
  auto shared = device(2);
  for (size_t cut : {0, 5, 11, 30}) {
    Collector collector;
    Pipeline pipeline{tokenizer, shared, {}, std::ref(collector)};
    for (const Generate& request : requests) {
      ResumedRequest resumed{.generate = request, .choices = {}, .scored = 0};
      for (int32_t choice = 0; choice < request.n; ++choice) {
        const Output& output = whole.at({request.request, choice});
        const auto told = std::min(cut, output.ids.size());
        resumed.choices.push_back({.emitted_ids = {output.ids.begin(), output.ids.begin() + ptrdiff_t(told)},
                                   .next_epoch = 1,
                                   .finished = false});
        collector.begin_at({request.request, choice}, output, told);
      }
      EXPECT_FALSE(pipeline.resume(resumed));
    }
    for (const auto& [key, output] : collector.wait(int(requests.size()))) {
      EXPECT_EQ(output.ids, whole.at(key).ids) << cut;
      EXPECT_EQ(output.logprob_bits, whole.at(key).logprob_bits) << cut;
      EXPECT_EQ(output.reason, whole.at(key).reason) << cut;
      EXPECT_TRUE(whole.at(key).text.ends_with(output.text)) << cut;
    }
  }
}

TEST_P(Exactness, RequestsThatGaveWayTwiceGiveTheSameBits) {
  // The first two grow until one has to go; it comes back beside the third, and one of these has to go again.
  auto requests = mixed_requests(4, 1);
  for (Generate& request : requests) {
    request.prompt = "Once upon a time";
    request.max_tokens = 90;
  }
  requests[1].prompt_logprobs = 2;
  const auto alone = together(requests, {.options = {{.max_batch_size = 1}}, .prefix_cache = false});

  for (const bool prefix_cache : {false, true}) {
    if (!prefix_cache && GetParam() == Isa::scalar)
      continue; // it takes long
    const Setting crowded{.kv_positions = 8 * kBlockSize, .prefix_cache = prefix_cache};
    Collector collector;
    EXPECT_EQ(together(requests, crowded, collector), alone) << prefix_cache;
    size_t most = 0;
    for (const auto& [choice, starts] : collector.starts())
      most = std::max(most, starts.size());
    EXPECT_GE(most, 3u) << "nobody gave way twice";
  }
}

TEST_P(Exactness, CachedPromptsGiveTheSameBits) {
  auto requests = mixed_requests(4, 1);
  for (Generate& request : requests)
    request.prompt = "There was a castle in the land of the north, and in it lived a king. " + *request.prompt;
  requests[3].n = 2;
  const auto whole = together(requests, {.prefix_cache = false});

  const auto shared = device(Setting{});
  for (int round = 0; round < 2; ++round) {
    Collector collector;
    EXPECT_EQ(together(requests, {}, shared, collector), whole);
    for (const auto& [choice, starts] : collector.starts())
      EXPECT_TRUE(round == 0 || starts.at(0) > 0);
  }
}

// A conversation: what was said before, the answers, too, is not read again.
TEST_P(Exactness, TurnsOfAConversationGiveTheSameBits) {
  const auto shared = device(Setting{});
  int32_t known = 0;
  std::vector<TokenId> history = tokenizer->encode("Once upon a time there was a little", {});
  for (int turn = 0; turn < 3; ++turn) {
    Generate request;
    request.request = numbered(turn);
    request.prompt_ids = history;
    request.max_tokens = 20;
    request.ignore_eos = true;
    request.sampling.temperature = 1;
    request.sampling.seed = 7;
    Collector collector;
    const auto outputs = together({request}, {}, shared, collector);
    EXPECT_EQ(outputs, together({request}, {.prefix_cache = false}));
    const Output& output = outputs.at({request.request, 0});
    EXPECT_EQ(collector.starts().at({request.request, 0}).at(0), known) << turn;
    const auto fed = int32_t(history.size() + output.ids.size()) - 1;
    known = fed / kBlockSize * kBlockSize;
    history.insert(history.end(), output.ids.begin(), output.ids.end());
    for (const TokenId id : tokenizer->encode(" and then", {.add_bos = false}))
      history.push_back(id);
  }
}

// As `millrace score` has them: one pass, a row of logits for each token.
TEST_P(Exactness, ScoredPromptsGiveTheBitsOfTheDefinition) {
  auto requests = mixed_requests(GetParam() == Isa::scalar ? 2 : 5, 1);
  for (Generate& request : requests) {
    request.prompt_logprobs = 3;
    request.max_tokens = 2 * int32_t(request.request.bytes[0] % 2);
  }
  PipelineOptions small_chunks;
  small_chunks.prefill_chunk = 7;
  for (const PipelineOptions& options : {PipelineOptions{}, small_chunks}) {
    Collector collector;
    Pipeline pipeline{tokenizer, device(2), options, std::ref(collector)};
    for (const Generate& request : requests)
      EXPECT_FALSE(pipeline.submit(request));
    collector.wait(int(requests.size()));

    const auto reference = device(1);
    const auto vocab = size_t(reference->config().vocab_size);
    for (const Generate& request : requests) {
      const auto ids = tokenizer->encode(*request.prompt, {});
      const auto& scored = collector.scored(request.request);
      ASSERT_EQ(scored.size(), ids.size());
      EXPECT_FALSE(scored[0].logprob);
      const auto table = reference->blocks().allocate(int64_t(ids.size()));
      std::vector<Row> rows;
      for (size_t i = 0; i < ids.size(); ++i)
        rows.push_back({ids[i], int32_t(i), table->blocks(), true});
      std::vector<float> logits(rows.size() * vocab);
      reference->forward(rows, logits);
      for (size_t i = 1; i < ids.size(); ++i) {
        const auto row = std::span<const float>(logits).subspan((i - 1) * vocab, vocab);
        EXPECT_EQ(scored[i].id, ids[i]);
        EXPECT_EQ(std::bit_cast<uint32_t>(*scored[i].logprob),
                  std::bit_cast<uint32_t>(float(row[size_t(ids[i])] - log_sum_exp(row))));
        ASSERT_EQ(scored[i].top.size(), 3u);
        EXPECT_EQ(scored[i].top[0].id, TokenId(index_of(row, extent(row).max)));
      }
    }
  }
}

#ifdef MILLRACE_REAL_WEIGHTS
INSTANTIATE_TEST_SUITE_P(BestIsa, Exactness, testing::Values(available_isas().front()),
                         [](auto& info) { return to_string(info.param); });
#else
INSTANTIATE_TEST_SUITE_P(EveryIsa, Exactness,
                         testing::ValuesIn(available_isas().begin(), available_isas().end()),
                         [](auto& info) { return to_string(info.param); });
#endif

} // namespace
} // namespace millrace
