#pragma once

// The chain rule: ln P(x1 … xn) = sum over t of ln P(xt | x<t). Each pass of the model over the text yields
// all the factors.

#include "messages/sequence.hpp"
#include "model/device.hpp"

#include <functional>
#include <span>

namespace millrace {

/// ln P(id | everything before it).
struct ScoredToken {
  int64_t position = 0; // in the text
  TokenId id = 0;
  double logprob = 0;
  std::vector<std::pair<TokenId, double>>
      top; // the likeliest ids in its place, likeliest first (equal ones by id)
};

/// Scores ids[first …] given all before them; first >= 1, as nothing precedes ids[0]. The ids fit device's
/// context. Throws std::runtime_error if the device has no room for them or the logits are not finite.
void score(Device& device, std::span<const TokenId> ids, int64_t first, int top_n,
           const std::function<void(ScoredToken)>& each);

} // namespace millrace
