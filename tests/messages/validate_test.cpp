#include "messages/validate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace millrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

Limits limits() {
  Limits limits;
  limits.vocab_size = 1000;
  limits.context_length = 128;
  return limits;
}

Generate request() {
  Generate request;
  request.prompt = "Once";
  return request;
}

using Change = std::function<void(Generate&)>;

std::optional<Failure> verdict(const Change& change) {
  Generate changed = request();
  change(changed);
  return validate(changed, limits());
}

template <class T> Change set(T Generate::*field, std::type_identity_t<T> value) {
  return [=](Generate& request) { request.*field = value; };
}
template <class T> Change set(T SamplingParams::*field, std::type_identity_t<T> value) {
  return [=](Generate& request) { request.sampling.*field = value; };
}
Change ids(std::vector<TokenId> ids) {
  return [=](Generate& request) {
    request.prompt.reset();
    request.prompt_ids = ids;
  };
}

Change turns(std::vector<ChatMessage> turns, std::optional<std::string> tools = {}) {
  return [=](Generate& request) {
    request.prompt.reset();
    request.messages = turns;
    request.tools = tools;
  };
}

std::map<TokenId, float> many_biases(int count) {
  std::map<TokenId, float> bias;
  for (int i = 0; i < count; ++i)
    bias[i] = 1;
  return bias;
}

TEST(Validate, AcceptsTheDefaults) {
  EXPECT_FALSE(validate(request(), limits()));
}

TEST(Validate, AcceptsBothEndsOfEachRange) {
  using S = SamplingParams;
  const std::vector<Change> changes = {
      set(&S::temperature, 0.0f),
      set(&S::temperature, 100.0f),
      set(&S::temperature, 1e-38f),
      set(&S::top_k, 0),
      set(&S::top_k, kMost),
      set(&S::top_p, 1e-30f),
      set(&S::top_p, 1.0f),
      set(&S::min_p, 0.0f),
      set(&S::min_p, 1.0f),
      set(&S::repetition_penalty, 1e-30f),
      set(&S::repetition_penalty, 1e30f),
      set(&S::frequency_penalty, -100.0f),
      set(&S::frequency_penalty, 100.0f),
      set(&S::presence_penalty, -100.0f),
      set(&S::presence_penalty, 100.0f),
      set(&S::logit_bias, {{0, -100.0f}, {999, 100.0f}}),
      set(&S::logit_bias, many_biases(1000)),
      set(&S::seed, 0),
      set(&S::seed, std::numeric_limits<uint64_t>::max()),
      set(&Generate::n, 1),
      set(&Generate::n, 16),
      set(&Generate::max_tokens, 0),
      set(&Generate::max_tokens, 1),
      set(&Generate::max_tokens, 1 << 24),
      set(&Generate::stop, std::vector<std::string>(16, "x")),
      set(&Generate::stop, {std::string(1024, 'x')}),
      set(&Generate::stop_ids, {0, 999}),
      set(&Generate::logprobs, 0),
      set(&Generate::logprobs, 20),
      set(&Generate::prompt, ""),
      set(&Generate::prompt, std::string("nul \0 and noncharacter \xEF\xBF\xBF", 27)),
      ids({}),
      ids({0, 999}),
      ids(std::vector<TokenId>(127, 5)),
      set(&Generate::prompt_logprobs, 0),
      set(&Generate::prompt_logprobs, 20),
      set(&Generate::idempotency_key, std::string(256, 'k')),
      set(&Generate::readers, std::vector<std::string>(64, std::string(40, 'z'))),
      set(&Generate::time, 0),
      set(&Generate::time, 253'402'300'799),
      set(&Generate::priority, -100),
      set(&Generate::priority, 100),
      set(&Generate::deadline_ms, 1),
      set(&Generate::deadline_ms, 86'400'000),
      set(&Generate::expires_at, 0),
      set(&Generate::expires_at, 253'402'300'799'999),
      set(&Generate::tenant, ""),
      set(&Generate::tenant, std::string(64, 't')),
      set(&Generate::tenant, "gr\xC3\xBC\xC3\x9F \xC2\xA0 e"),
      set(&Generate::cache_salt, ""),
      set(&Generate::cache_salt, std::string(256, 's')),
      turns({{.role = "user", .content = std::string((4u << 20) - 2, 'x')}}, "[]"),
      turns(std::vector<ChatMessage>(4096, {.role = std::string(64, 'r')})),
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    const auto failure = verdict(changes[i]);
    EXPECT_FALSE(failure) << i << " " << failure->field << " " << failure->message;
  }
}

TEST(Validate, RefusesWhatIsOutsideAndNamesFieldAndLimit) {
  using S = SamplingParams;
  struct Case {
    Change change;
    std::string field, limit;
  };
  const std::vector<Case> cases = {
      {set(&S::temperature, -1e-9f), "sampling.temperature", "from 0 to 100"},
      {set(&S::temperature, 100.1f), "sampling.temperature", "from 0 to 100"},
      {set(&S::temperature, kNan), "sampling.temperature", "from 0 to 100"},
      {set(&S::temperature, kInfinity), "sampling.temperature", "from 0 to 100"},
      {set(&S::top_k, -1), "sampling.top_k", "from 0 to 2147483647"},
      {set(&S::top_p, 0.0f), "sampling.top_p", "above 0 and at most 1"},
      {set(&S::top_p, 1.0001f), "sampling.top_p", "above 0 and at most 1"},
      {set(&S::top_p, kNan), "sampling.top_p", "above 0 and at most 1"},
      {set(&S::min_p, -0.1f), "sampling.min_p", "from 0 to 1"},
      {set(&S::min_p, 1.1f), "sampling.min_p", "from 0 to 1"},
      {set(&S::min_p, kNan), "sampling.min_p", "from 0 to 1"},
      {set(&S::repetition_penalty, 0.0f), "sampling.repetition_penalty", "above 0 and finite"},
      {set(&S::repetition_penalty, -1.0f), "sampling.repetition_penalty", "above 0 and finite"},
      {set(&S::repetition_penalty, kInfinity), "sampling.repetition_penalty", "above 0 and finite"},
      {set(&S::repetition_penalty, kNan), "sampling.repetition_penalty", "above 0 and finite"},
      {set(&S::frequency_penalty, 100.1f), "sampling.frequency_penalty", "from -100 to 100"},
      {set(&S::frequency_penalty, kNan), "sampling.frequency_penalty", "from -100 to 100"},
      {set(&S::presence_penalty, -kInfinity), "sampling.presence_penalty", "from -100 to 100"},
      {set(&S::logit_bias, {{-1, 1.0f}}), "sampling.logit_bias[-1]", "from 0 to 999"},
      {set(&S::logit_bias, {{1000, 1.0f}}), "sampling.logit_bias[1000]", "from 0 to 999"},
      {set(&S::logit_bias, {{5, 100.5f}}), "sampling.logit_bias[5]", "from -100 to 100"},
      {set(&S::logit_bias, {{5, -kInfinity}}), "sampling.logit_bias[5]", "from -100 to 100"},
      {set(&S::logit_bias, {{5, kNan}}), "sampling.logit_bias[5]", "from -100 to 100"},
      {set(&S::logit_bias, many_biases(1025)), "sampling.logit_bias", "at most 1024"},
      {set(&Generate::n, 0), "n", "from 1 to 16"},
      {set(&Generate::n, -1), "n", "from 1 to 16"},
      {set(&Generate::n, 17), "n", "from 1 to 16"},
      {set(&Generate::n, kMost), "n", "from 1 to 16"},
      {set(&Generate::max_tokens, -1), "max_tokens", "from 0 to 16777216"},
      {set(&Generate::max_tokens, kMost), "max_tokens", "from 0 to 16777216"},
      {set(&Generate::stop, {""}), "stop[0]", "not be empty"},
      {set(&Generate::stop, {"a", std::string(1025, 'x')}), "stop[1]", "at most 1024"},
      {set(&Generate::stop, {std::string("\xED\xA0\x80")}), "stop[0]", "UTF-8"},
      {set(&Generate::stop, std::vector<std::string>(100'000, "x")), "stop", "at most 16"},
      {set(&Generate::stop_ids, {-1}), "stop_ids[0]", "from 0 to 999"},
      {set(&Generate::stop_ids, {1, 1000}), "stop_ids[1]", "from 0 to 999"},
      {set(&Generate::stop_ids, std::vector<TokenId>(17, 1)), "stop_ids", "at most 16"},
      {set(&Generate::logprobs, -1), "logprobs", "from 0 to 20"},
      {set(&Generate::logprobs, 21), "logprobs", "from 0 to 20"},
      {set(&Generate::prompt, std::string((4u << 20) + 1, 'x')), "prompt", "at most 4194304"},
      {set(&Generate::prompt, std::string("\xC4\xE3")), "prompt", "UTF-8"},
      {set(&Generate::prompt, std::nullopt), "prompt", "exactly one"},
      {set(&Generate::prompt_ids, std::vector<TokenId>{1}), "prompt", "exactly one"},
      {set(&Generate::messages, std::vector<ChatMessage>{{.role = "user"}}), "prompt", "exactly one"},
      {set(&Generate::tools, "[]"), "tools", "belongs to messages"},
      {set(&Generate::template_arguments, "{}"), "template_arguments", "belong to messages"},
      {set(&Generate::add_generation_prompt, false), "add_generation_prompt", "belongs to messages"},
      {set(&Generate::time, -1), "time", "from 0"},
      {set(&Generate::time, int64_t{1} << 40), "time", "to 253402300799"},
      {set(&Generate::prompt_logprobs, -1), "prompt_logprobs", "from 0 to 20"},
      {set(&Generate::prompt_logprobs, 21), "prompt_logprobs", "from 0 to 20"},
      {set(&Generate::idempotency_key, ""), "idempotency_key", "not be empty"},
      {set(&Generate::idempotency_key, std::string(257, 'k')), "idempotency_key", "at most 256"},
      {set(&Generate::idempotency_key, "\xFF"), "idempotency_key", "UTF-8"},
      {set(&Generate::readers, {"short"}), "readers[0]", "40 characters"},
      {set(&Generate::readers, std::vector<std::string>(65, std::string(40, 'z'))), "readers", "at most 64"},
      {set(&Generate::priority, -101), "priority", "from -100 to 100"},
      {set(&Generate::priority, 101), "priority", "from -100 to 100"},
      {set(&Generate::priority, kMost), "priority", "from -100 to 100"},
      {set(&Generate::deadline_ms, 0), "deadline_ms", "from 1 to 86400000"},
      {set(&Generate::deadline_ms, -1), "deadline_ms", "from 1 to 86400000"},
      {set(&Generate::deadline_ms, 86'400'001), "deadline_ms", "from 1 to 86400000"},
      {set(&Generate::deadline_ms, std::numeric_limits<int64_t>::max()), "deadline_ms", "from 1 to 86400000"},
      {set(&Generate::expires_at, -1), "expires_at", "from 0 to 253402300799999"},
      {set(&Generate::expires_at, 253'402'300'800'000), "expires_at", "from 0 to 253402300799999"},
      {set(&Generate::tenant, std::string(65, 't')), "tenant", "has 65 bytes, at most 64"},
      {set(&Generate::tenant, "\xC4\xE3"), "tenant", "UTF-8"},
      {set(&Generate::tenant, "a\nb"), "tenant", "control characters"},
      {set(&Generate::tenant, std::string(1, '\0')), "tenant", "control characters"},
      {set(&Generate::tenant, "\xC2\x9B"), "tenant", "control characters"},
      {set(&Generate::cache_salt, std::string(257, 's')), "cache_salt", "has 257 bytes, at most 256"},
      {set(&Generate::cache_salt, "\xED\xA0\x80"), "cache_salt", "UTF-8"},
      {set(&Generate::cache_salt, "\x7F"), "cache_salt", "control characters"},
      {turns({}), "messages", "not be empty"},
      {turns(std::vector<ChatMessage>(4097, {.role = "user"})), "messages", "at most 4096"},
      {turns({{.role = ""}}), "messages[0].role", "not be empty"},
      {turns({{.role = "user"}, {.role = std::string(65, 'r')}}), "messages[1].role", "at most 64"},
      {turns({{.role = "\xFF"}}), "messages[0].role", "UTF-8"},
      {turns({{.role = "user", .content = "\xC4\xE3"}}), "messages[0].content", "UTF-8"},
      {turns({{.role = "user", .name = "\xFF"}}), "messages[0].name", "UTF-8"},
      {turns({{.role = "user", .tool_call_id = "\xFF"}}), "messages[0].tool_call_id", "UTF-8"},
      {turns({{.role = "user", .tool_calls = "\xFF"}}), "messages[0].tool_calls", "UTF-8"},
      {turns({{.role = "user"}}, "\xFF"), "tools", "UTF-8"},
      {turns({{.role = "user", .content = std::string((4u << 20) - 1, 'x')}}, "[]"), "messages", "at most 4194304"},
      {ids({1, -1}), "prompt_ids[1]", "from 0 to 999"},
      {ids({1000}), "prompt_ids[0]", "from 0 to 999"},
  };
  for (const Case& c : cases) {
    const auto failure = verdict(c.change);
    ASSERT_TRUE(failure) << c.field << " " << c.limit;
    EXPECT_EQ(failure->code, Error::invalid_field);
    EXPECT_EQ(failure->field, c.field);
    EXPECT_NE(failure->message.find(c.limit), std::string::npos) << failure->message;
  }
}

TEST(Validate, RefusesPromptIdsThatLeaveNoRoomAndSaysBothNumbers) {
  for (const size_t length : {128u, 129u, 100'000u}) {
    const auto failure = verdict(ids(std::vector<TokenId>(length, 5)));
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, Error::prompt_too_long);
    EXPECT_NE(failure->message.find(std::to_string(length)), std::string::npos);
    EXPECT_NE(failure->message.find("128"), std::string::npos);
  }
}

TEST(Validate, ChecksEveryFieldOfARequest) {
  // Whoever adds a field decides its range above, then counts it here.
  int generate = 0, sampling = 0;
  Generate{}.visit_fields([&](std::string_view, auto&) { ++generate; });
  SamplingParams{}.visit_fields([&](std::string_view, auto&) { ++sampling; });

  EXPECT_EQ(generate, 25);
  EXPECT_EQ(sampling, 9);
}

} // namespace
} // namespace millrace
