#pragma once

#include "messages/sequence.hpp"

#include <deque>
#include <map>
#include <optional>

namespace millrace {

/// Cancellations that have overtaken their sequence, each with the pass of the device when it was known. Only those matter whose
/// sequence is in a mailbox, so the latest ones are enough.
class CancelledAhead {
public:
  void add(const SequenceId& id, int64_t pass) {
    if (!passes_.try_emplace(id, pass).second)
      return;
    order_.push_back(id);
    if (order_.size() <= kMost)
      return;
    passes_.erase(order_.front());
    order_.pop_front();
  }
  /// Whether this sequence is cancelled: since which pass.
  std::optional<int64_t> find(const SequenceId& id) const {
    const auto found = passes_.find(id);
    return found == passes_.end() ? std::nullopt : std::optional(found->second);
  }

private:
  static constexpr size_t kMost = 1024;
  std::map<SequenceId, int64_t> passes_;
  std::deque<SequenceId> order_;
};

} // namespace millrace
