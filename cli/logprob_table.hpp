#pragma once

#include "messages/sequence.hpp"

#include <string>
#include <string_view>

namespace millrace {

/// "position  id  logprob  probability  token  alternatives": the head of the columns below.
std::string logprob_head();
/// One row of what `generate --logprobs` and `score` print.
std::string logprob_row(int64_t position, TokenId id, std::string_view bytes, double logprob,
                        const std::vector<TokenLogprob>& top);

} // namespace millrace
