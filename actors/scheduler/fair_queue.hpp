#pragma once

#include "messages/ids.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

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
///    Language Models", OSDI 2024, algorithm 1). A tenant that comes begins where the one that was served least stood, so nobody
///    saves up.
/// 3. Age: of those, the one admitted first, then the lower choice.
class FairQueue {
public:
  using Time = std::chrono::steady_clock::time_point;

  explicit FairQueue(std::chrono::milliseconds ageing) : ageing_(ageing) {}

  void push(WaitingChoice choice);
  /// The next one; nullptr/nullopt if nothing waits.
  const WaitingChoice* front(Time now) const;
  std::optional<WaitingChoice> pop(Time now);
  /// How urgent a choice is, waiting or not, beside those that wait: the lower, the more.
  int32_t level(int32_t priority, Time since, Time now) const;
  /// Drops the choices of a request.
  void erase(const StreamId& request, const std::string& tenant);
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  /// A choice of the tenant is on the device (1), or is there no more (-1).
  void add_in_device(const std::string& tenant, int32_t change);
  int32_t in_device(const std::string& tenant) const;
  /// Tenants with choices that wait or are on the device.
  size_t active_tenants() const { return tenants_.size(); }
  /// Counts service; a negative one takes it back.
  void charge(const std::string& tenant, int64_t tokens);
  int64_t service(const std::string& tenant) const;

private:
  struct Order {
    bool operator()(const WaitingChoice& a, const WaitingChoice& b) const {
      return a.number != b.number ? a.number < b.number : a.choice < b.choice;
    }
  };
  using Choices = std::set<WaitingChoice, Order>;
  struct Tenant {
    int64_t service = 0;
    int32_t in_device = 0;
    std::map<int32_t, Choices> waiting; // by priority; none is empty
    bool active() const { return in_device > 0 || !waiting.empty(); }
  };

  Tenant& activate(const std::string& tenant);
  void retire(const std::string& tenant);
  /// Something waits.
  void raise_start();
  /// The set that holds the next one.
  std::pair<const std::string*, const Choices*> best(Time now) const;

  std::chrono::milliseconds ageing_;
  std::unordered_map<std::string, Tenant> tenants_;    // the active ones
  std::unordered_map<std::string, int64_t> idle_;      // service of those that had more than newcomers when they left
  std::map<int32_t, size_t> priorities_;               // how many wait with each
  int64_t start_ = 0; // where newcomers begin: the least service of the tenants that waited when one was served
  size_t size_ = 0;
};

} // namespace millrace
