#pragma once

#include "messages/stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace millrace::testing {

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

} // namespace millrace::testing
