#pragma once

#include "messages/ids.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

namespace millrace {

/// A choice that waits for the device.
struct WaitingChoice {
  StreamId request;
  int32_t choice = 0;
  std::string tenant;
  int32_t priority = 0;  // lower is earlier
  uint64_t number = 0;   // in the order of admission; the same for all choices of a request
  std::chrono::steady_clock::time_point since{}; // its admission
};

/// The order in which choices go to the device.
///
/// 1. Urgency: the lowest level first. A choice's level is its priority, less one for each `ageing` that it has waited, but never
///    below the lowest priority that waits: age makes it equal to the most urgent, and then fairness decides.
/// 2. Fairness: of those, the tenant that has been served least (virtual token counters: Sheng et al., "Fairness in Serving Large
///    Language Models", OSDI 2024, algorithm 1). A tenant that comes back begins where the served ones stand, so nobody saves up.
/// 3. Age: of those, the one admitted first, then the lower choice.
class FairQueue {
public:
  using Time = std::chrono::steady_clock::time_point;

  explicit FairQueue(std::chrono::milliseconds ageing) : ageing_(ageing) {}

  void push(WaitingChoice choice);
  /// The next one, and its level; nullptr/nullopt if nothing waits.
  const WaitingChoice* front(Time now) const;
  std::optional<WaitingChoice> pop(Time now);
  int32_t level(const WaitingChoice& choice, Time now) const;
  void erase(const StreamId& request);
  size_t size() const;
  bool empty() const { return size() == 0; }
  bool waits(const std::string& tenant) const;

  /// A tenant has choices on the device (in_device > 0) or not any more: it is served, or begins anew when it comes back.
  void add_in_device(const std::string& tenant, int32_t change);
  int32_t in_device(const std::string& tenant) const;
  /// Counts service; a negative one takes it back.
  void charge(const std::string& tenant, int64_t tokens);
};

} // namespace millrace
