// The wire itself: a change of it is a change of these files.

#include "messages/codec.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace millrace {
namespace {

const std::filesystem::path kFolder = MILLRACE_TEST_DATA "/frames";

std::string frame_in(const std::filesystem::path& folder, std::string_view type) {
  std::ifstream file(folder / (std::string(type) + ".hex"));
  std::string bytes, line;
  while (std::getline(file, line))
    for (size_t i = 0; i + 1 < line.size(); i += 2)
      bytes += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string golden_frame(std::string_view type) {
  return frame_in(kFolder, type);
}

StreamId request() {
  return *stream_id_from_hex("000102030405060708090a0b0c0d0e0f");
}

SamplingParams sampling() {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_k = 40;
  params.top_p = 0.9f;
  params.min_p = 0.05f;
  params.repetition_penalty = 1.1f;
  params.frequency_penalty = -0.5f;
  params.logit_bias = {{7, -100.0f}, {151935, 2.5f}};
  params.seed = ~uint64_t{0};
  return params;
}

std::vector<TokenLogprob> top() {
  return {{262, {" the"}, -0.25f}, {-1, {"\xF0\x9F"}, -9999.0f}};
}

template <class M> M golden();
template <> Generate golden() {
  Generate message;
  message.request = request();
  message.prompt = "Once upon a time, gr\u00FC\u00DF \U0001F600";
  message.messages = {{"user", "gr\u00FC\u00DF", "ann", std::nullopt, std::nullopt},
                      {"assistant", "", std::nullopt, std::nullopt, "[]"}};
  message.tools = "[]";
  message.template_arguments = "{}";
  message.add_generation_prompt = false;
  message.time = 1'700'000'000;
  message.n = 2;
  message.max_tokens = 300;
  message.sampling = sampling();
  message.stop = {"\n\n", "END"};
  message.stop_ids = {2, 128009};
  message.logprobs = 5;
  message.prompt_logprobs = 2;
  message.idempotency_key = "order 66";
  message.readers = {std::string(40, '0')};
  message.priority = -7;
  message.deadline_ms = 60'000;
  message.expires_at = 1'700'000'060'000;
  message.tenant = "gr\u00FCn";
  message.cache_salt = "salt";
  return message;
}
template <> Cancel golden() {
  return {request()};
}
template <> Replay golden() {
  return {request(), 1, 70000};
}
template <> Ack golden() {
  return {request(), "replay", false, 70000, 70010};
}
template <> Follow golden() {
  return {request(), {0, 5'000'000'000}, 64};
}
template <> Read golden() {
  return {request(), {12, 0}};
}
template <> Look golden() {
  return {request()};
}
template <> Stats golden() {
  return {8};
}
template <> PromptLogprobs golden() {
  return {request(), 1, 3, 512, {{1, {}, std::nullopt, {}}, {262, {" the"}, -0.25f, top()}}};
}
template <> Lagging golden() {
  return {request(), 1, 12, 70000};
}
template <> Snapshot golden() {
  return {request(), true, 1000, {{0, 131, "gr\u00FC\u00DF", "length"}, {12, 70000, "", ""}}};
}
template <> ServerStats golden() {
  const SchedulerStats scheduler{.preempted = 1,
                                 .yielded = 2,
                                 .cancelled = 3,
                                 .expired = 4,
                                 .cache_queries = 5'000'000'000,
                                 .cache_hits = 128,
                                 .cache_evictions = 5,
                                 .kv_blocks_cached = 6,
                                 .prefill_passes = 7,
                                 .prefill_rows = 1000,
                                 .prefill_seconds = 0.1,
                                 .decode_passes = 8,
                                 .decode_rows = 300,
                                 .decode_seconds = 12.5,
                                 .loop_seconds = 0.25,
                                 .decode_bytes = 1e12,
                                 .prefill_operations = 2.5e15,
                                 .peak_bytes_per_second = 4e10,
                                 .peak_operations_per_second = 0,
                                 .cancel_passes = {9, 70000, 0}};
  return {"0.1.0", "tales", "cpu:0 avx2", 12.5, "serving", 1,     2,  300, 4,  5,  6,
          7,       8,       9,            10,   11,        0.1,   scheduler, 12, 70000, 13, 14, 15,
          16,      {{"00010203", "decode", 2, 1000, 1000, 129, 12.5, 0.1}}};
}
template <> Welcome golden() {
  return {request(), 1, true, {0, 5'000'000'000}};
}
template <> Started golden() {
  return {request(), 1, 3, 1000, 128, 42};
}
template <> Progress golden() {
  return {request(), 1, 3, 512, 1000};
}
template <> Token golden() {
  return {request(), 1, 3, 129, 262, {" \xF0\x9F"}, " ", -0.25f, top()};
}
template <> Finished golden() {
  return {request(), 1, 3, 130, "error", "\uFFFD", "device_lost"};
}
template <> Done golden() {
  return {request(), 1000, 300, 0.1, 12.5, -0.0};
}
template <> Rejected golden() {
  return {request(), "busy", "", "the queue is full", 500};
}
template <> Heartbeat golden() {
  return {request(), {12, 0}};
}
template <> Prompt golden() {
  Prompt message{golden<Generate>(), {1, 300, 70000}};
  message.generate.prompt.reset();
  return message;
}
template <> Sequence golden() {
  return {{request(), 1, 3}, {1, 300},     {70000}, 300, sampling(), {"\n\n"}, {2}, true,
          std::nullopt,      2,            129,     (uint64_t{1} << 40) + 1, "5:gr\u00FCnsalt", true};
}
template <> SampledToken golden() {
  return {{request(), 1, 3}, 129, 262, {" \xF0\x9F"}, " ", -0.25f, top()};
}

template <class M> class GoldenFrame : public testing::Test {};
template <class T> struct AsTypes;
template <class... M> struct AsTypes<std::tuple<M...>> { using type = testing::Types<M...>; };
TYPED_TEST_SUITE(GoldenFrame, AsTypes<Messages>::type);

TYPED_TEST(GoldenFrame, IsWhatTheMessageEncodesTo) {
  EXPECT_EQ(encode(golden<TypeParam>()), golden_frame(TypeParam::kType));
}

TYPED_TEST(GoldenFrame, DecodesAndEncodesToItself) {
  const std::string frame = golden_frame(TypeParam::kType);

  const auto message = decode<TypeParam>(frame);

  ASSERT_TRUE(std::holds_alternative<TypeParam>(message)) << std::get<Failure>(message).message;
  EXPECT_EQ(encode(std::get<TypeParam>(message)), frame);
}

// What senders wrote before there were the fields of scheduling: frames/earlier is never written again.

template <class M> M without_scheduling();
template <> Generate without_scheduling() {
  Generate message = golden<Generate>();
  const Generate defaults;
  message.priority = defaults.priority;
  message.deadline_ms = defaults.deadline_ms;
  message.expires_at = defaults.expires_at;
  message.tenant = defaults.tenant;
  message.cache_salt = defaults.cache_salt;
  return message;
}
template <> Prompt without_scheduling() {
  Prompt message{without_scheduling<Generate>(), golden<Prompt>().token_ids};
  message.generate.prompt.reset();
  return message;
}
template <> Sequence without_scheduling() {
  Sequence message = golden<Sequence>();
  const Sequence defaults;
  message.rank = defaults.rank;
  message.salt = defaults.salt;
  message.ahead = defaults.ahead;
  return message;
}
template <> ServerStats without_scheduling() {
  ServerStats message = golden<ServerStats>();
  message.scheduler = {};
  return message;
}

template <class M> class EarlierFrame : public testing::Test {};
using MessagesThatHaveGrown = testing::Types<Generate, Prompt, Sequence, ServerStats>;
TYPED_TEST_SUITE(EarlierFrame, MessagesThatHaveGrown);

TYPED_TEST(EarlierFrame, DecodesWithTheDefaultsOfLaterFields) {
  const auto message = decode<TypeParam>(frame_in(kFolder / "earlier", TypeParam::kType));

  ASSERT_TRUE(std::holds_alternative<TypeParam>(message)) << std::get<Failure>(message).message;
  EXPECT_EQ(encode(std::get<TypeParam>(message)), encode(without_scheduling<TypeParam>()));
  EXPECT_NE(encode(std::get<TypeParam>(message)), encode(golden<TypeParam>()));
}

TEST(GoldenFrames, AreThereForEveryMessageAndNoOther) {
  std::set<std::string> types, files;
  std::apply([&](const auto&... messages) { (types.emplace(messages.kType), ...); }, Messages{});
  for (const auto& entry : std::filesystem::directory_iterator(kFolder))
    if (entry.path().extension() == ".hex")
      files.insert(entry.path().stem());

  EXPECT_EQ(files, types);
}

TEST(GoldenFrames, ReachTheDoorsTheyAreMeantFor) {
  for (const std::string type : {"generate", "cancel", "replay", "follow", "read", "look", "stats"})
    EXPECT_TRUE(std::holds_alternative<ClientMessage>(decode_client_message(golden_frame(type)))) << type;
  for (const std::string type : {"started", "progress", "prompt_logprobs", "token", "finished", "done", "rejected"}) {
    const auto event = decode_event(golden_frame(type));
    ASSERT_TRUE(std::holds_alternative<Event>(event)) << type;
    EXPECT_EQ(encode(std::get<Event>(event)), golden_frame(type));
  }
}

} // namespace
} // namespace millrace
