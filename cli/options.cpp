#include "cli/options.hpp"

#include "cli/errors.hpp"
#include "cli/output.hpp"

#include <charconv>
#include <limits>

namespace millrace {
namespace {

/// The whole word as a number, or an error that says what was expected.
template <class T> T parse(const std::string& word, const std::string& flag, const std::string& expected) {
  T value{};
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || stop != end)
    throw UsageError(flag + ": " + quote(word) + " is not " + expected);
  return value;
}

std::string whole_number(int32_t min, int32_t max) {
  return format("a whole number between %d and %d", min, max);
}

int32_t parse_int(const std::string& word, const std::string& flag, int32_t min, int32_t max) {
  const std::string expected = whole_number(min, max);
  const auto value = parse<int32_t>(word, flag, expected);
  if (value < min || value > max)
    throw UsageError(flag + ": " + quote(word) + " is not " + expected);
  return value;
}

/// "--top-k" of "-k,--top-k".
std::string long_name(const std::string& flag) {
  return flag.substr(flag.rfind("--"));
}

void add_float(CLI::App& command, const std::string& flag, float& target, const std::string& help) {
  command
      .add_option_function<std::string>(
          flag, [&target, flag](const std::string& word) { target = parse<float>(word, flag, "a number"); },
          help)
      ->option_text("X");
}

/// A request's field of this range: told where the word is no number; a number is left to validate().
template <class Field>
CLI::Option* add_field(CLI::App& command, const std::string& flag, Field& target, int32_t min, int32_t max,
                       const std::string& help) {
  const auto read = [&target, name = long_name(flag), min, max](const std::string& word) {
    target = parse<int32_t>(word, name, whole_number(min, max));
  };
  return command.add_option_function<std::string>(flag, read, help)->option_text("N");
}

void add_logit_bias(CLI::App& command, std::map<TokenId, float>& bias) {
  const auto read = [&bias](const std::vector<std::string>& words) {
    for (const auto& word : words) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos)
        throw UsageError("--logit-bias: " + quote(word) + " is not ID=BIAS, e.g. 42=-5");
      const auto id =
          parse_int(word.substr(0, equals), "--logit-bias", 0, std::numeric_limits<int32_t>::max());
      bias[id] = parse<float>(word.substr(equals + 1), "--logit-bias", "a number");
    }
  };
  command
      .add_option_function<std::vector<std::string>>("--logit-bias", read,
                                                     "Add BIAS to the logit of token ID; may be repeated")
      ->allow_extra_args(false)
      ->option_text("ID=BIAS");
}

} // namespace

CLI::Option* add_int(CLI::App& command, const std::string& flag, int32_t& target, int32_t min, int32_t max,
                     const std::string& help) {
  const auto read = [&target, name = long_name(flag), min, max](const std::string& word) {
    target = parse_int(word, name, min, max);
  };
  return command.add_option_function<std::string>(flag, read, help)->option_text("N");
}

CLI::Option* add_share(CLI::App& command, const std::string& flag, double& target, double max,
                       const std::string& help) {
  const auto read = [&target, flag, max](const std::string& word) {
    const std::string expected = format("a number above 0 and at most %g", max);
    const auto value = parse<double>(word, flag, expected);
    if (!(value > 0 && value <= max)) // a NaN is neither
      throw UsageError(flag + ": " + quote(word) + " is not " + expected);
    target = value;
  };
  return command.add_option_function<std::string>(flag, read, help)->option_text("X");
}

Limits widest_limits() {
  Limits limits;
  limits.vocab_size = limits.context_length = std::numeric_limits<int32_t>::max();
  return limits;
}

void add_model_path(CLI::App& command, ModelOptions& options) {
  command.add_option("-m,--model", options.path, "A GGUF file [the built-in story model]")
      ->option_text("FILE")
      ->group("Model");
}

void add_model_options(CLI::App& command, ModelOptions& options) {
  add_model_path(command, options);
  command.add_option("--device", options.device, "What runs the model [cpu:0, the only one of this build]")
      ->option_text("NAME")
      ->group("Model");
  add_int(command, "--threads", options.threads, 1, 1024, "Threads that compute [all physical cores]")
      ->group("Model");
  add_int(command, "--ctx", options.context_length, 1, 1 << 24,
          "Positions that a text may have [the model's, at most 4096]")
      ->group("Model");
  const auto read = [&options](const std::string& word) {
    if (word != "q8" && word != "f32")
      throw UsageError("--activations: " + quote(word) + " is neither q8 nor f32");
    options.activations = word == "q8" ? Activations::q8 : Activations::f32;
  };
  command
      .add_option_function<std::string>(
          "--activations", read,
          "8-bit activations (fast) or exact ones, as the scalar path always has: q8 or f32 [q8]")
      ->option_text("TYPE")
      ->group("Model");
}

void add_generation_options(CLI::App& command, Generate& request) {
  auto& sampling = request.sampling;
  const Limits limits;

  command.option_defaults()->group("Sampling");
  add_float(command, "--temp", sampling.temperature, "Temperature; 0 always takes the likeliest token [0.8]");
  add_field(command, "--top-k", sampling.top_k, 0, std::numeric_limits<int32_t>::max(),
            "Draw among the N likeliest tokens; 0: off [0]");
  add_float(command, "--top-p", sampling.top_p,
            "Draw from the smallest set with probability X; 1: off [0.95]");
  add_float(command, "--min-p", sampling.min_p, "Drop tokens below X times the likeliest; 0: off [0]");
  add_float(command, "--repeat-penalty", sampling.repetition_penalty,
            "Make what was said less likely; 1: off [1]");
  add_float(command, "--frequency-penalty", sampling.frequency_penalty,
            "Lower a token's logit by X for each time it was generated; 0: off [0]");
  add_float(command, "--presence-penalty", sampling.presence_penalty,
            "Lower a token's logit by X if it was generated at all; 0: off [0]");
  add_logit_bias(command, sampling.logit_bias);
  command
      .add_option_function<std::string>(
          "--seed",
          [&sampling](const std::string& word) {
            sampling.seed =
                parse<uint64_t>(word, "--seed", "a whole number between 0 and 18446744073709551615");
          },
          "The same seed gives the same text [a random one]")
      ->option_text("N");

  command.option_defaults()->group("Length and end");
  request.max_tokens = kDefaultMaxTokens;
  add_field(command, "-n,--max-tokens", request.max_tokens, 0, limits.max_tokens,
            "Tokens to generate at most [256]");
  command.add_option("--stop", request.stop, "End before this text; may be repeated")
      ->allow_extra_args(false)
      ->option_text("TEXT");
  command.add_flag("--ignore-eos", request.ignore_eos, "Go on when the model says that the text is complete");

  command.option_defaults()->group("Output");
  add_field(command, "--logprobs", request.logprobs, 0, limits.max_logprobs,
            "Show each token's log-probability and the N likeliest ones in its place");
  command.option_defaults()->group("Options");
}

} // namespace millrace
