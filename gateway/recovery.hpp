#pragma once

// What a journal says about one stream: what its readers have, and what is left to do.

#include "gateway/backend.hpp"
#include "gateway/stream_log.hpp"
#include "messages/stream.hpp"

#include <string>
#include <vector>

namespace millrace {

/// Follows the events of a stream in the order of its journal. Events that the journal lost leave a gap; what
/// it has beyond a gap is not taken, since it will be drawn again.
class Recovery {
public:
  Recovery(Generate generate, std::string owner);

  /// Whether readers may be told of the event again.
  bool take(const Event& event);

  const std::string& owner() const { return owner_; }
  bool ended() const { return ended_; }
  int32_t prompt_tokens() const { return prompt_tokens_; }
  const Resumption& resumption() const { return resumption_; }
  /// What ends the stream if nobody goes on with it: each open choice with this error, then the request.
  std::vector<Event> ending(Error error) const;

private:
  Resumption::Choice* choice(int32_t number);

  std::string owner_;
  Resumption resumption_;
  int32_t prompt_tokens_ = 0;
  bool ended_ = false;
};

} // namespace millrace
