#include "gateway/http/api/completion_request.hpp"

#include "gateway/http/api/body.hpp"
#include "gateway/http/api/chat_messages.hpp"
#include "gateway/http/api/field_reader.hpp"

#include <algorithm>
#include <charconv>

namespace millrace::http {
namespace {

/// Named in errors about JSON itself; whatever else a body has is ignored, as OpenAI's servers do.
constexpr std::string_view kFields[] = {
    "model", "prompt", "messages", "suffix", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k",
    "min_p", "n", "best_of", "stream", "stream_options", "logprobs", "top_logprobs", "echo", "stop", "stop_token_ids",
    "presence_penalty", "frequency_penalty", "repetition_penalty", "logit_bias", "seed", "ignore_eos", "user",
    "priority", "deadline_ms", "cache_salt",
    "response_format", "tools", "tool_choice", "chat_template_kwargs", "add_generation_prompt", "add_special_tokens",
    "parse_special", "survive_disconnect", "functions", "function_call", "grammar", "json_schema", "guided_json",
    "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "prompt_logprobs", "min_tokens",
    "use_beam_search", "continue_final_message", "documents", "chat_template", "audio", "modalities"};

/// Fields that would change the answer in a way that this server cannot: better refused than ignored.
constexpr std::pair<std::string_view, std::string_view> kUnsupported[] = {
    {"suffix", "is not supported"},
    {"functions", "is not supported; use tools"},
    {"function_call", "is not supported; use tool_choice"},
    {"grammar", "is not supported: outputs cannot be constrained yet"},
    {"json_schema", "is not supported: outputs cannot be constrained yet"},
    {"guided_json", "is not supported: outputs cannot be constrained yet"},
    {"guided_regex", "is not supported: outputs cannot be constrained yet"},
    {"guided_choice", "is not supported: outputs cannot be constrained yet"},
    {"guided_grammar", "is not supported: outputs cannot be constrained yet"},
    {"structured_outputs", "is not supported: outputs cannot be constrained yet"},
    {"prompt_logprobs", "is not supported; use /v1/completions with echo and logprobs"},
    {"documents", "is not supported"},
    {"chat_template", "is not supported: the model's own template is used"},
    {"audio", "is not supported"}};

void refuse_unsupported(FieldReader& fields) {
  for (const auto& [name, message] : kUnsupported)
    if (fields.find(name))
      fields.fail(unsupported(std::string(name), std::string(message)));
  for (const std::string_view name : {"use_beam_search", "continue_final_message"}) {
    bool wanted = false;
    fields.read(name, wanted);
    if (wanted)
      fields.fail(unsupported(std::string(name), "is not supported"));
  }
  int32_t min_tokens = 0;
  fields.read("min_tokens", min_tokens);
  if (min_tokens != 0)
    fields.fail(unsupported("min_tokens", "is not supported; use ignore_eos"));
}

void read_model(FieldReader& fields, const RequestRules& rules) {
  std::optional<std::string> model;
  fields.read("model", model);
  if (!fields.failed() && model && rules.require_known_model && *model != rules.model)
    fields.fail({404, "model_not_found", "model", "there is no such model here; GET /v1/models names those there are", 0});
}

void read_response_format(FieldReader& fields) {
  const Json* format = fields.failed() ? nullptr : fields.find("response_format");
  if (!format)
    return;
  if (!format->is_object())
    return fields.fail("response_format", "must be an object, not " + std::string(kind_of(*format)));
  FieldReader inner(*format, "response_format");
  std::string type;
  inner.read("type", type);
  if (inner.failed())
    return fields.fail(*inner.error());
  if (type != "text")
    fields.fail(unsupported("response_format.type", "must be \"text\": outputs cannot be constrained yet"));
}

/// Canonical decimal, so that one id has one spelling and cannot be given twice.
std::optional<TokenId> id_from_key(std::string_view key) {
  TokenId id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc{} || end != key.data() + key.size() || std::to_string(id) != key)
    return std::nullopt;
  return id;
}

void read_logit_bias(FieldReader& fields, std::map<TokenId, float>& out) {
  const Json* bias = fields.failed() ? nullptr : fields.find("logit_bias");
  if (!bias)
    return;
  if (!bias->is_object())
    return fields.fail("logit_bias", "must be an object from token ids to numbers, not " + std::string(kind_of(*bias)));
  for (const auto& [key, value] : bias->get_ref<const Json::object_t&>()) {
    const auto id = id_from_key(key);
    if (!id)
      return fields.fail("logit_bias", "must have token ids as keys: decimal integers of 32 bits");
    const std::string path = "logit_bias[" + std::to_string(*id) + ']';
    if (!value.is_number())
      return fields.fail(path, "must be a number, not " + std::string(kind_of(value)));
    const double number = value.get<double>();
    if (!(number >= -100 && number <= 100)) // before it is narrowed
      return fields.fail(path, "must be from -100 to 100");
    out[*id] = static_cast<float>(number);
  }
}

void read_sampling(FieldReader& fields, SamplingParams& out) {
  out.temperature = 1; // the defaults of OpenAI's API, not the ones of the protocol
  out.top_p = 1;
  fields.read("temperature", out.temperature);
  fields.read("top_k", out.top_k);
  if (out.top_k == -1)
    out.top_k = 0; // as others spell "off"
  fields.read("top_p", out.top_p);
  fields.read("min_p", out.min_p);
  fields.read("repetition_penalty", out.repetition_penalty);
  fields.read("frequency_penalty", out.frequency_penalty);
  fields.read("presence_penalty", out.presence_penalty);
  fields.read("seed", out.seed);
  read_logit_bias(fields, out.logit_bias);
}

void read_stop(FieldReader& fields, Generate& out) {
  fields.read("stop_token_ids", out.stop_ids);
  fields.read("ignore_eos", out.ignore_eos);
  const Json* stop = fields.failed() ? nullptr : fields.find("stop");
  if (!stop)
    return;
  if (stop->is_string()) {
    out.stop.push_back(stop->get_ref<const std::string&>());
    return;
  }
  if (!stop->is_array())
    return fields.fail("stop", "must be a string or an array of strings, not " + std::string(kind_of(*stop)));
  for (size_t i = 0; i < stop->size(); ++i) {
    const Json& word = (*stop)[i];
    if (!word.is_string())
      return fields.fail("stop[" + std::to_string(i) + ']', "must be a string, not " + std::string(kind_of(word)));
    out.stop.push_back(word.get_ref<const std::string&>());
  }
}

void read_max_tokens(FieldReader& fields, Style style, Generate& out) {
  if (style == Style::completion)
    out.max_tokens = 16;
  fields.read("max_tokens", out.max_tokens);
  fields.read("max_completion_tokens", out.max_tokens); // the newer name wins
}

/// Completions: a number of alternatives. Chat: a switch, and the number apart.
void read_logprobs(FieldReader& fields, Style style, CompletionRequest& request, Generate& out) {
  if (style == Style::completion) {
    if (const Json* value = fields.find("logprobs"); value && value->is_boolean())
      return fields.fail("logprobs", "must be how many alternatives to tell, an integer, not a boolean as for chats");
    fields.read("logprobs", out.logprobs);
    request.logprobs = out.logprobs.has_value();
    return;
  }
  std::optional<int32_t> top;
  fields.read("logprobs", request.logprobs);
  fields.read("top_logprobs", top);
  if (top && !request.logprobs)
    fields.fail("top_logprobs", "needs logprobs to be true");
  if (request.logprobs)
    out.logprobs = top.value_or(0);
}

/// For the scheduler. Of `user` only a door without keys makes a tenant.
void read_scheduling(FieldReader& fields, Generate& out) {
  fields.read("priority", out.priority);
  fields.read("deadline_ms", out.deadline_ms);
  fields.read("cache_salt", out.cache_salt);
  fields.read("user", out.tenant);
}

void read_choices(FieldReader& fields, CompletionRequest& request, Generate& out) {
  fields.read("n", out.n);
  request.n = out.n;
  std::optional<int32_t> best_of;
  fields.read("best_of", best_of);
  if (best_of && *best_of != out.n && *best_of != 1)
    fields.fail(unsupported("best_of", "must be n or 1"));
}

void read_stream(FieldReader& fields, CompletionRequest& request) {
  fields.read("stream", request.stream);
  fields.read("survive_disconnect", request.survive_disconnect);
  const Json* options = fields.failed() ? nullptr : fields.find("stream_options");
  if (!options)
    return;
  if (!request.stream)
    return fields.fail("stream_options", "needs stream to be true");
  if (!options->is_object())
    return fields.fail("stream_options", "must be an object, not " + std::string(kind_of(*options)));
  FieldReader inner(*options, "stream_options");
  inner.read("include_usage", request.include_usage);
  if (inner.failed())
    fields.fail(*inner.error());
}

bool read_echo(FieldReader& fields, Style style, Generate& out) {
  bool echo = false;
  fields.read("echo", echo);
  if (echo && style == Style::chat)
    fields.fail(unsupported("echo", "is not supported for chats; use /v1/completions"));
  if (echo)
    out.prompt_logprobs = out.logprobs;
  return echo;
}

Echo echo_of(const Generate& prompt, const Tokenizer* tokenizer) {
  if (prompt.prompt)
    return {*prompt.prompt, tokenizer && tokenizer->adds_space_prefix()};
  return {tokenizer ? tokenizer->decode(*prompt.prompt_ids, false) : std::string{}, false};
}

/// One prompt is text or ids; a list of one of these is several prompts.
void read_prompts(FieldReader& fields, const Generate& common, const RequestRules& rules, std::vector<Generate>& out) {
  const Json* prompt = fields.failed() ? nullptr : fields.find("prompt");
  if (!prompt)
    return fields.fail("prompt", "is required");
  if (prompt->is_string()) {
    out.emplace_back(common).prompt = prompt->get_ref<const std::string&>();
    return;
  }
  if (!prompt->is_array())
    return fields.fail("prompt", "must be a string, an array of token ids, or an array of one of these, not " +
                                     std::string(kind_of(*prompt)));
  const bool several = !prompt->empty() && ((*prompt)[0].is_string() || (*prompt)[0].is_array());
  if (!several)
    return fields.read("prompt", out.emplace_back(common).prompt_ids);
  if (prompt->size() > rules.max_prompts)
    return fields.fail("prompt", "has " + std::to_string(prompt->size()) + " prompts, at most " +
                                     std::to_string(rules.max_prompts) + " are allowed");
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& each = (*prompt)[i];
    const std::string path = "prompt[" + std::to_string(i) + ']';
    if (each.type() != (*prompt)[0].type())
      return fields.fail(path, "must be of the same kind as the first prompt");
    if (each.is_string())
      out.emplace_back(common).prompt = each.get_ref<const std::string&>();
    else if (auto error = read_ids(path, each, out.emplace_back(common).prompt_ids.emplace()))
      return fields.fail(std::move(*error));
  }
}

/// A failure of the validator under the name that this body uses.
ApiError rename(const Failure& failure, const FieldReader& fields, const CompletionRequest& request, size_t prompt) {
  Failure renamed = failure;
  if (request.style == Style::chat && failure.field == "logprobs")
    renamed.field = "top_logprobs";
  else if (failure.field == "max_tokens" && fields.find("max_completion_tokens"))
    renamed.field = "max_completion_tokens";
  else if (request.prompts.size() > 1 && (failure.field == "prompt" || failure.field.starts_with("prompt_ids")))
    renamed.field = "prompt[" + std::to_string(prompt) + ']' + http_field(failure.field).substr(6);
  return api_error(renamed);
}

/// What all prompts share is looked at before each gets a copy of it: unchecked, it may be as large as the body.
void check_common(FieldReader& fields, Generate common, const CompletionRequest& request, const RequestRules& rules) {
  if (fields.failed())
    return;
  common.prompt.emplace(); // an empty one is valid
  if (const auto failure = validate(common, rules.limits))
    fields.fail(rename(*failure, fields, request, 0));
}

std::optional<ApiError> validate_all(const CompletionRequest& request, const FieldReader& fields,
                                     const RequestRules& rules) {
  for (size_t i = 0; i < request.prompts.size(); ++i)
    if (const auto failure = validate(request.prompts[i], rules.limits))
      return rename(*failure, fields, request, i);
  if (request.prompts.size() * static_cast<size_t>(request.n) > rules.max_prompts)
    return bad_field("n", "times the number of prompts must be at most " + std::to_string(rules.max_prompts));
  return std::nullopt;
}

} // namespace

std::variant<CompletionRequest, ApiError> read_completion_request(Style style, std::string_view body,
                                                                  const RequestRules& rules) {
  auto document = read_body(body, rules.json, kFields);
  if (auto* error = std::get_if<ApiError>(&document))
    return std::move(*error);

  FieldReader fields(std::get<Json>(document));
  CompletionRequest request;
  request.style = style;
  Generate common;
  read_model(fields, rules);
  refuse_unsupported(fields);
  read_response_format(fields);
  read_choices(fields, request, common);
  read_max_tokens(fields, style, common);
  read_sampling(fields, common.sampling);
  read_stop(fields, common);
  read_logprobs(fields, style, request, common);
  const bool echo = read_echo(fields, style, common);
  read_stream(fields, request);
  read_scheduling(fields, common);

  if (style == Style::chat) {
    fields.read("add_generation_prompt", common.add_generation_prompt);
    read_conversation(fields, request.prompts.emplace_back(std::move(common)));
  } else {
    fields.read("add_special_tokens", common.add_bos);
    fields.read("parse_special", common.parse_special);
    check_common(fields, common, request, rules);
    read_prompts(fields, common, rules, request.prompts);
  }
  if (!fields.failed())
    if (auto error = validate_all(request, fields, rules))
      fields.fail(std::move(*error));
  if (fields.failed())
    return *fields.error();
  if (echo)
    for (const Generate& prompt : request.prompts)
      request.echo.push_back(echo_of(prompt, rules.tokenizer.get()));
  return request;
}

} // namespace millrace::http
