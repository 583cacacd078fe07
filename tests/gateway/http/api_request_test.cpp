#include "gateway/http/api/completion_request.hpp"

#include <gtest/gtest.h>

namespace millrace::http {
namespace {

RequestRules rules() {
  RequestRules rules;
  rules.model = "tales";
  rules.limits.vocab_size = 1000;
  rules.limits.context_length = 64;
  return rules;
}

std::variant<CompletionRequest, ApiError> read(Style style, const std::string& fields) {
  const std::string base = style == Style::chat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("prompt":"hi")";
  return read_completion_request(style, "{" + base + (fields.empty() ? "" : "," + fields) + "}", rules());
}

std::variant<CompletionRequest, ApiError> read_raw(Style style, const std::string& body) {
  return read_completion_request(style, body, rules());
}

CompletionRequest taken(const std::variant<CompletionRequest, ApiError>& result) {
  if (const auto* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << to_json(*error);
    return {};
  }
  return std::get<CompletionRequest>(result);
}
Generate completion(const std::string& fields) {
  const CompletionRequest request = taken(read(Style::completion, fields));
  return request.prompts.empty() ? Generate{} : request.prompts[0];
}
Generate chat(const std::string& fields) {
  const CompletionRequest request = taken(read(Style::chat, fields));
  return request.prompts.empty() ? Generate{} : request.prompts[0];
}
/// Status and field: "400 top_k".
std::string refusal(const std::variant<CompletionRequest, ApiError>& result) {
  if (const auto* error = std::get_if<ApiError>(&result))
    return std::to_string(error->status) + ' ' + error->param;
  return "taken";
}

TEST(CompletionRequest, HasTheDefaultsOfTheApi) {
  const Generate completed = completion("");
  EXPECT_EQ(completed.prompt, "hi");
  EXPECT_EQ(completed.max_tokens, 16);
  EXPECT_EQ(completed.sampling.temperature, 1.0f);
  EXPECT_EQ(completed.sampling.top_p, 1.0f);
  EXPECT_FALSE(completed.sampling.seed);
  EXPECT_FALSE(completed.logprobs);
  EXPECT_TRUE(completed.add_bos);

  EXPECT_EQ(chat("").max_tokens, std::nullopt);
}

TEST(CompletionRequest, ReadsWhatTheSchedulerIsTold) {
  for (const auto& read_one : {completion, chat}) {
    const Generate request = read_one(R"("priority":-5,"deadline_ms":86400000,"user":"ann","cache_salt":"s")");
    EXPECT_EQ(request.priority, -5);
    EXPECT_EQ(request.deadline_ms, 86'400'000);
    EXPECT_EQ(request.tenant, "ann");
    EXPECT_EQ(request.cache_salt, "s");
    EXPECT_EQ(read_one("").deadline_ms, std::nullopt);
  }
}

TEST(CompletionRequest, RefusesSchedulingOutOfRangeUnderTheNamesOfTheApi) {
  const std::string long_user(65, 'u');
  for (const Style style : {Style::completion, Style::chat}) {
    EXPECT_EQ(refusal(read(style, R"("user":")" + long_user + '"')), "400 user");
    EXPECT_EQ(refusal(read(style, R"("user":"a\nb")")), "400 user");
    EXPECT_EQ(refusal(read(style, R"("cache_salt":")" + std::string(257, 's') + '"')), "400 cache_salt");
    for (const std::string value : {"101", "-101", "1.5", "\"1\"", "true", "2147483648"})
      EXPECT_EQ(refusal(read(style, "\"priority\":" + value)), "400 priority") << value;
    for (const std::string value : {"0", "-1", "86400001", "1.5", "\"1\"", "9223372036854775808", "1e400"})
      EXPECT_EQ(refusal(read(style, "\"deadline_ms\":" + value)), "400 deadline_ms") << value;
  }
}

TEST(CompletionRequest, ReadsEverySamplingParameter) {
  const Generate request = completion(
      R"("temperature":0.5,"top_k":7,"top_p":0.25,"min_p":0.125,"repetition_penalty":1.5,"frequency_penalty":-2,
         "presence_penalty":2,"logit_bias":{"5":-100,"999":1.5},"seed":18446744073709551615,"max_tokens":3,"n":2,
         "stop":["a","b"],"stop_token_ids":[1,2],"ignore_eos":true,"logprobs":4)");

  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request.sampling.frequency_penalty, -2.0f);
  EXPECT_EQ(request.sampling.presence_penalty, 2.0f);
  EXPECT_EQ(request.sampling.logit_bias, (std::map<TokenId, float>{{5, -100.0f}, {999, 1.5f}}));
  EXPECT_EQ(request.sampling.seed, 18446744073709551615u);
  EXPECT_EQ(request.max_tokens, 3);
  EXPECT_EQ(request.n, 2);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.stop_ids, (std::vector<TokenId>{1, 2}));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.logprobs, 4);
}

// P26
TEST(CompletionRequest, ASeedLeavesTheTemperatureAlone) {
  EXPECT_EQ(completion(R"("seed":1)").sampling.temperature, 1.0f);
  EXPECT_EQ(completion(R"("seed":1)").sampling.seed, 1u);
}

TEST(CompletionRequest, TakesNullForAbsent) {
  const Generate request =
      completion(R"("temperature":null,"max_tokens":null,"stop":null,"seed":null,"logit_bias":null,"n":null,"stream":null,
                    "logprobs":null,"suffix":null,"response_format":null,"tools":null,"stream_options":null)");

  EXPECT_EQ(request.sampling.temperature, 1.0f);
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.n, 1);
}

// P23: every field with every wrong type is refused under its own name.
TEST(CompletionRequest, RefusesWrongTypesByName) {
  const std::map<std::string, std::vector<std::string>> wrong = {
      {"integer", {"0.01", "5.0", "1e2", "\"5\"", "true", "[]", "{}", "1e400", "9223372036854775808", "-2147483649"}},
      {"number", {"\"1\"", "false", "[1]", "{}", "1e400", "1e39"}},
      {"boolean", {"1", "0", "\"true\"", "[]", "{}", "1e400"}}};
  const std::pair<const char*, const char*> fields[] = {
      {"top_k", "integer"},       {"n", "integer"},
      {"max_tokens", "integer"},  {"max_completion_tokens", "integer"},
      {"logprobs", "integer"},    {"best_of", "integer"},
      {"min_tokens", "integer"},  {"temperature", "number"},
      {"top_p", "number"},        {"min_p", "number"},
      {"presence_penalty", "number"}, {"frequency_penalty", "number"},
      {"repetition_penalty", "number"}, {"stream", "boolean"},
      {"echo", "boolean"},        {"ignore_eos", "boolean"},
      {"survive_disconnect", "boolean"}, {"parse_special", "boolean"},
      {"add_special_tokens", "boolean"}};
  for (const auto& [field, kind] : fields)
    for (const std::string& value : wrong.at(kind))
      EXPECT_EQ(refusal(read(Style::completion, '"' + std::string(field) + "\":" + value)), "400 " + std::string(field))
          << value;
}

TEST(CompletionRequest, SaysThatASwitchIsNoNumberOfAlternatives) {
  for (const char* value : {"true", "false"}) {
    const auto result = read(Style::completion, R"("logprobs":)" + std::string(value));
    ASSERT_EQ(refusal(result), "400 logprobs");
    EXPECT_EQ(std::get<ApiError>(result).message,
              "logprobs must be how many alternatives to tell, an integer, not a boolean as for chats");
  }
}

TEST(CompletionRequest, RefusesWrongTypesOfOtherFieldsByName) {
  for (const std::string value : {"1", "true", "{}", "[1]", "[[]]", "1e400"})
    EXPECT_EQ(refusal(read(Style::completion, "\"stop\":" + value)).substr(0, 8), "400 stop") << value;
  for (const std::string value : {"1", "true", "\"x\"", "[]", "1e400"})
    EXPECT_EQ(refusal(read(Style::completion, "\"logit_bias\":" + value)), "400 logit_bias") << value;
  for (const std::string value : {"\"1\"", "true", "[]", "{}", "0.5", "1e400", "-1", "36893488147419103232"})
    EXPECT_EQ(refusal(read(Style::completion, "\"seed\":" + value)), "400 seed") << value;
  for (const std::string value : {"1", "true", "[]", "{}", "1e400"}) {
    EXPECT_EQ(refusal(read(Style::completion, "\"user\":" + value)), "400 user") << value;
    EXPECT_EQ(refusal(read(Style::completion, "\"model\":" + value)), "400 model") << value;
  }
  EXPECT_EQ(refusal(read(Style::completion, R"("stop_token_ids":[1,"2"])")), "400 stop_token_ids[1]");
  EXPECT_EQ(refusal(read(Style::completion, R"("stream":true,"stream_options":{"include_usage":1})")),
            "400 stream_options.include_usage");
  EXPECT_EQ(refusal(read(Style::completion, R"("stream_options":{"include_usage":true})")), "400 stream_options");
}

TEST(CompletionRequest, RefusesValuesBeyondTheirRangeByName) {
  const std::pair<const char*, const char*> bad[] = {
      {"temperature", "-0.1"},       {"top_p", "0"},       {"top_p", "1.1"},
      {"min_p", "2"},                {"top_k", "-2"},      {"repetition_penalty", "0"}, // P21
      {"repetition_penalty", "-1"},  {"n", "0"},           {"n", "512"},                // P32
      {"n", "1000000"},              {"max_tokens", "-1"}, {"logprobs", "21"},
      {"frequency_penalty", "1000"}, {"stop_token_ids[0]", ""}};
  for (const auto& [field, value] : bad) {
    if (std::string_view(value).empty())
      continue;
    EXPECT_EQ(refusal(read(Style::completion, '"' + std::string(field) + "\":" + value)), "400 " + std::string(field))
        << value;
  }
  EXPECT_EQ(refusal(read(Style::completion, R"("stop_token_ids":[1000])")), "400 stop_token_ids[0]");
  EXPECT_EQ(refusal(read(Style::completion, R"("max_completion_tokens":-1)")), "400 max_completion_tokens");
  EXPECT_EQ(refusal(read(Style::chat, R"("logprobs":true,"top_logprobs":21)")), "400 top_logprobs");
}

// P18
TEST(CompletionRequest, RefusesAnEmptyStopStringAndTakesNone) {
  EXPECT_EQ(refusal(read(Style::completion, R"("stop":"")")), "400 stop[0]");
  EXPECT_EQ(refusal(read(Style::completion, R"("stop":["a",""])")), "400 stop[1]");
  EXPECT_TRUE(completion(R"("stop":[])").stop.empty());
  EXPECT_EQ(completion(R"("stop":"x")").stop, std::vector<std::string>{"x"});
}

// P20
TEST(CompletionRequest, NamesTheKeyOfABadBias) {
  EXPECT_EQ(refusal(read(Style::completion, R"("logit_bias":{"191222":-100})")), "400 logit_bias[191222]");
  EXPECT_EQ(refusal(read(Style::completion, R"("logit_bias":{"-1":5})")), "400 logit_bias[-1]");
  EXPECT_EQ(refusal(read(Style::completion, R"("logit_bias":{"5":1e39})")), "400 logit_bias[5]");
  EXPECT_EQ(refusal(read(Style::completion, R"("logit_bias":{"5":"x"})")), "400 logit_bias[5]");
  for (const std::string key : {"AI", "1e3", "05", "+5", " 5", "5 ", "", "99999999999"})
    EXPECT_EQ(refusal(read(Style::completion, "\"logit_bias\":{\"" + key + "\":1}")), "400 logit_bias") << key;
}

TEST(CompletionRequest, KnowsItsModel) {
  EXPECT_EQ(refusal(read(Style::completion, R"("model":"tales")")), "taken");
  EXPECT_EQ(refusal(read(Style::completion, R"("model":"gpt-4")")), "404 model");
  EXPECT_EQ(refusal(read(Style::chat, R"("model":"gpt-4")")), "404 model");
  RequestRules any = rules();
  any.require_known_model = false;
  EXPECT_EQ(refusal(read_completion_request(Style::completion, R"({"prompt":"x","model":"gpt-4"})", any)), "taken");
}

TEST(CompletionRequest, IgnoresWhatItDoesNotKnow) {
  EXPECT_EQ(refusal(read(Style::completion, R"("request_id":"a","metadata":{"x":[1,{}]},"store":true)")), "taken");
}

// P31
TEST(CompletionRequest, RefusesDeepFieldsKnownOrNot) {
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  EXPECT_EQ(refusal(read(Style::chat, "\"tools\":" + deep)), "400 tools");
  EXPECT_EQ(refusal(read(Style::chat, "\"whatever\":" + deep)), "400 ");
}

TEST(CompletionRequest, RefusesWhatItCannotDoRatherThanIgnoreIt) {
  for (const std::string field : {R"("suffix":"x")", R"("functions":[])", R"("grammar":"root ::= x")", R"("echo":true)",
                                  R"("response_format":{"type":"json_object"})", R"("tool_choice":"required")",
                                  R"("tool_choice":{"type":"function"})", R"("prompt_logprobs":1)", R"("min_tokens":2)",
                                  R"("best_of":3)", R"("use_beam_search":true)"}) {
    const auto result = read(Style::chat, field);
    ASSERT_TRUE(std::holds_alternative<ApiError>(result)) << field;
    EXPECT_EQ(std::get<ApiError>(result).code, "unsupported") << field;
  }
  EXPECT_EQ(refusal(read(Style::chat, R"("response_format":{"type":"text"},"tool_choice":"auto","n":2,"best_of":2)")),
            "taken");
}

// P24
TEST(CompletionRequest, TakesEmptyPromptsAsTheyAre) {
  EXPECT_EQ(taken(read_raw(Style::completion, R"({"prompt":""})")).prompts.at(0).prompt, "");
  EXPECT_EQ(taken(read_raw(Style::completion, R"({"prompt":[""]})")).prompts.at(0).prompt, "");
  EXPECT_EQ(taken(read_raw(Style::completion, R"({"prompt":[]})")).prompts.at(0).prompt_ids, std::vector<TokenId>{});
  EXPECT_EQ(taken(read_raw(Style::completion, R"({"prompt":[[]]})")).prompts.at(0).prompt_ids, std::vector<TokenId>{});
  EXPECT_EQ(refusal(read_raw(Style::completion, "{}")), "400 prompt");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":null})")), "400 prompt");
  EXPECT_EQ(refusal(read_raw(Style::chat, "{}")), "400 messages");
  EXPECT_EQ(refusal(read_raw(Style::chat, R"({"messages":[]})")), "400 messages");
}

TEST(CompletionRequest, TakesPromptsInAllFourForms) {
  EXPECT_EQ(taken(read_raw(Style::completion, R"({"prompt":[1,2]})")).prompts.at(0).prompt_ids,
            (std::vector<TokenId>{1, 2}));
  const CompletionRequest texts = taken(read_raw(Style::completion, R"({"prompt":["a","b"],"n":2})"));
  ASSERT_EQ(texts.prompts.size(), 2u);
  EXPECT_EQ(texts.prompts[1].prompt, "b");
  EXPECT_EQ(texts.prompts[1].n, 2);
  const CompletionRequest ids = taken(read_raw(Style::completion, R"({"prompt":[[1],[2,3]]})"));
  ASSERT_EQ(ids.prompts.size(), 2u);
  EXPECT_EQ(ids.prompts[1].prompt_ids, (std::vector<TokenId>{2, 3}));
}

TEST(CompletionRequest, RefusesMixedAndBadPromptsByTheirPlace) {
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":["a",1]})")), "400 prompt[1]");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":[1,"a"]})")), "400 prompt[1]");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":[[1],[1.5]]})")), "400 prompt[1][0]");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":[[1],[2,1000]]})")), "400 prompt[1][1]");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":[1000]})")), "400 prompt[0]");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":{"a":1}})")), "400 prompt");
}

TEST(CompletionRequest, BoundsThePromptsAndTheirChoices) {
  std::string many = R"({"prompt":["a")";
  for (int i = 0; i < 128; ++i)
    many += R"(,"a")";
  EXPECT_EQ(refusal(read_raw(Style::completion, many + "]}")), "400 prompt");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"n":16,"prompt":["a","a","a","a","a","a","a","a","a"]})")), "400 n");
}

/// Else a body of 8 MiB would become a GiB and more, since each prompt gets a copy.
TEST(CompletionRequest, LooksAtWhatPromptsShareBeforeItReadsThem) {
  const std::string stop = '"' + std::string(2000, 'x') + '"';
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":["a",1],"stop":)" + stop + "}")), "400 stop[0]");
  EXPECT_EQ(refusal(read_raw(Style::completion, R"({"prompt":["a",1],"max_completion_tokens":-1})")),
            "400 max_completion_tokens");
}

// P29
TEST(CompletionRequest, TellsBothNumbersOfAPromptThatIsTooLong) {
  std::string ids = "0";
  for (int i = 1; i < 64; ++i)
    ids += ",0";
  const auto result = read_raw(Style::completion, "{\"prompt\":[" + ids + "]}");

  const auto& error = std::get<ApiError>(result);
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_NE(error.message.find("has 64 tokens"), std::string::npos) << error.message;
  EXPECT_NE(error.message.find("context of 64"), std::string::npos) << error.message;
}

TEST(CompletionRequest, AsksForThePromptsLogprobsWhenItEchoes) {
  const auto request = taken(read(Style::completion, R"("echo":true,"logprobs":2,"max_tokens":0)"));

  EXPECT_EQ(request.echo.at(0).text, "hi");
  EXPECT_EQ(request.prompts[0].prompt_logprobs, 2);
  EXPECT_EQ(request.prompts[0].max_tokens, 0);
  EXPECT_FALSE(taken(read(Style::completion, R"("echo":true)")).prompts[0].prompt_logprobs);
}

TEST(ChatRequest, ReadsMessages) {
  const auto request = taken(read_raw(Style::chat, R"({"messages":[
      {"role":"system","content":"be brief"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"Ann"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"add","arguments":"{\"z\":1,\"a\":2}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"3"}],
      "tools":[{"type":"function","function":{"name":"add"}}]})"));

  const Generate& generate = request.prompts.at(0);
  ASSERT_EQ(generate.messages->size(), 4u);
  const auto& messages = *generate.messages;
  EXPECT_EQ(messages[1].content, "a\nb");
  EXPECT_EQ(messages[1].name, "Ann");
  EXPECT_EQ(messages[2].tool_calls,
            R"([{"id":"c1","type":"function","function":{"name":"add","arguments":"{\"z\":1,\"a\":2}"}}])");
  EXPECT_EQ(messages[3].tool_call_id, "c1");
  EXPECT_EQ(generate.tools, R"([{"type":"function","function":{"name":"add"}}])");
}

TEST(ChatRequest, HidesTheToolsThatMayNotBeCalled) {
  EXPECT_FALSE(chat(R"("tools":[{"type":"function"}],"tool_choice":"none")").tools);
  EXPECT_FALSE(chat(R"("tools":[])").tools);
}

TEST(ChatRequest, NamesThePlaceOfABadMessage) {
  const auto messages = [](const std::string& json) {
    return refusal(read_raw(Style::chat, "{\"messages\":" + json + "}"));
  };
  EXPECT_EQ(messages("{}"), "400 messages");
  EXPECT_EQ(messages(R"([1])"), "400 messages[0]");
  EXPECT_EQ(messages(R"([{"content":"x"}])"), "400 messages[0].role");
  EXPECT_EQ(messages(R"([{"role":"user"}])"), "400 messages[0].content");
  EXPECT_EQ(messages(R"([{"role":"user","content":1}])"), "400 messages[0].content");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"image_url"}]}])"), "400 messages[0].content[0].type");
  EXPECT_EQ(messages(R"([{"role":"user","content":[{"type":"text"}]}])"), "400 messages[0].content[0].text");
  EXPECT_EQ(messages(R"([{"role":"user","content":"x","name":1}])"), "400 messages[0].name");
  EXPECT_EQ(messages(R"([{"role":"user","content":"x","tool_calls":{}}])"), "400 messages[0].tool_calls");
  EXPECT_EQ(refusal(read(Style::chat, R"("tools":{})")), "400 tools");
  EXPECT_EQ(refusal(read(Style::chat, R"("tools":["x"])")), "400 tools[0]");
}

TEST(ChatRequest, PassesArgumentsToTheTemplate) {
  EXPECT_EQ(chat(R"("chat_template_kwargs":{"enable_thinking":false,"level":[1,{"a":"b"}]})").template_arguments,
            R"({"enable_thinking":false,"level":[1,{"a":"b"}]})");
  EXPECT_FALSE(chat(R"("chat_template_kwargs":{})").template_arguments);
  for (const std::string name : {"", "a b", "1a", "é"})
    EXPECT_EQ(refusal(read(Style::chat, "\"chat_template_kwargs\":{\"" + name + "\":1}")), "400 chat_template_kwargs");
  EXPECT_EQ(refusal(read(Style::chat, R"("chat_template_kwargs":{"a":")" + std::string(70'000, 'x') + "\"}")),
            "400 chat_template_kwargs");
}

TEST(ChatRequest, LeavesOutTheAnswersTurnIfAsked) {
  EXPECT_TRUE(chat(R"("n":1)").add_generation_prompt);
  EXPECT_FALSE(chat(R"("add_generation_prompt":false)").add_generation_prompt);
  EXPECT_EQ(refusal(read(Style::chat, R"("add_generation_prompt":1)")), "400 add_generation_prompt");
}

TEST(ChatRequest, AsksForLogprobsByASwitchAndANumber) {
  EXPECT_FALSE(chat(R"("logprobs":false)").logprobs);
  EXPECT_EQ(chat(R"("logprobs":true)").logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs":true,"top_logprobs":5)").logprobs, 5);
  EXPECT_EQ(refusal(read(Style::chat, R"("top_logprobs":5)")), "400 top_logprobs");
  EXPECT_EQ(refusal(read(Style::chat, R"("logprobs":1)")), "400 logprobs");
}

TEST(ChatRequest, TheNewerNameOfMaxTokensWins) {
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":7)").max_tokens, 7);
  EXPECT_EQ(chat(R"("max_tokens":5)").max_tokens, 5);
}

} // namespace
} // namespace millrace::http
