#pragma once

#include "messages/stats.hpp"
#include "messages/stream.hpp"
#include "messages/validate.hpp"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// A request that an earlier process had begun, from its journal: what readers were told must come out again,
/// and goes on from there.
struct Resumption {
  struct Choice {
    std::vector<TokenId> emitted_ids; // readers have their tokens already
    uint32_t next_epoch = 0;          // above all that readers have seen
    bool finished = false;            // readers have its Finished: it is only counted
  };
  Generate generate;                  // as admitted, seed present
  std::vector<Choice> choices;        // generate.n of them
  int32_t scored = 0;                 // prompt tokens whose log-probs readers have
};

/// What the gateway needs of a pipeline; a test may stand in for it. Called on threads of the gateway; must not
/// block. What is left empty is answered with "unsupported".
struct Backend {
  std::function<std::optional<Failure>(Generate)> submit;
  std::function<void(const StreamId&)> cancel;
  /// What submit would refuse whenever it comes, such as what breaks a limit of the model: asked before a request
  /// is written to disk. May be empty.
  std::function<std::optional<Failure>(const Generate&)> check = {};
  std::function<std::optional<Failure>(Resumption)> resume = {};
  /// The pipeline's part of the answer to Stats, with at most so many requests.
  std::function<ServerStats(int32_t max_requests)> stats = {};
};

} // namespace millrace
