#include "cli/errors.hpp"

#include <string_view>

namespace millrace {
namespace {

constexpr std::pair<std::string_view, std::string_view> kFlags[] = {
    {"prompt", "the prompt"},
    {"prompt_ids", "--ids"},
    {"max_tokens", "--max-tokens"},
    {"sampling.temperature", "--temp"},
    {"sampling.top_k", "--top-k"},
    {"sampling.top_p", "--top-p"},
    {"sampling.min_p", "--min-p"},
    {"sampling.repetition_penalty", "--repeat-penalty"},
    {"sampling.frequency_penalty", "--frequency-penalty"},
    {"sampling.presence_penalty", "--presence-penalty"},
    {"sampling.logit_bias", "--logit-bias"},
    {"sampling.seed", "--seed"},
    {"stop", "--stop"},
    {"logprobs", "--logprobs"},
};

/// The flag that sets a field; an element ("stop[2]") belongs to the flag of the whole.
std::string flag_of(std::string_view field) {
  const auto whole = field.substr(0, field.find('['));
  for (const auto& [name, flag] : kFlags)
    if (name == whole)
      return std::string(flag);
  return std::string(field);
}

} // namespace

void throw_refusal(const Failure& failure) {
  std::string text = failure.field.empty() ? "" : flag_of(failure.field) + ": ";
  text += failure.message.empty() ? std::string(to_string(failure.code)) : failure.message;
  if (failure.code == Error::invalid_field)
    throw UsageError(text);
  throw std::runtime_error(text);
}

} // namespace millrace
