#include "actors/scheduler/fair_queue.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <tuple>

namespace millrace {
namespace {

/// Tenants' names are the clients' text: so many are remembered while they are idle, then all are forgotten.
constexpr size_t kMaxIdle = 10'000;

} // namespace

// ---- tenants ----

FairQueue::Tenant& FairQueue::activate(const std::string& name) {
  const auto [entry, fresh] = tenants_.try_emplace(name);
  if (fresh) {
    const auto idle = idle_.find(name);
    entry->second.service = std::max(start_, idle == idle_.end() ? 0 : idle->second);
    if (idle != idle_.end())
      idle_.erase(idle);
  }
  return entry->second;
}

void FairQueue::retire(const std::string& name) {
  const auto entry = tenants_.find(name);
  if (entry == tenants_.end() || entry->second.active())
    return;
  if (idle_.size() >= kMaxIdle)
    std::erase_if(idle_, [&](const auto& idle) { return idle.second <= start_; });
  if (idle_.size() >= kMaxIdle)
    idle_.clear();
  if (entry->second.service > start_)
    idle_[name] = entry->second.service;
  tenants_.erase(entry);
}

void FairQueue::add_in_device(const std::string& name, int32_t change) {
  Tenant& tenant = activate(name);
  tenant.in_device += change;
  assert(tenant.in_device >= 0);
  retire(name);
}

int32_t FairQueue::in_device(const std::string& name) const {
  const auto tenant = tenants_.find(name);
  return tenant == tenants_.end() ? 0 : tenant->second.in_device;
}

void FairQueue::charge(const std::string& name, int64_t tokens) {
  if (const auto tenant = tenants_.find(name); tenant != tenants_.end())
    tenant->second.service += tokens;
}

int64_t FairQueue::service(const std::string& name) const {
  const auto tenant = tenants_.find(name);
  return tenant == tenants_.end() ? 0 : tenant->second.service;
}

/// Not to the service of whose turn it is: that one may be urgent, whatever it has had.
void FairQueue::raise_start() {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const auto& [name, tenant] : tenants_)
    if (!tenant.waiting.empty())
      least = std::min(least, tenant.service);
  start_ = std::max(start_, least);
}

// ---- choices ----

void FairQueue::push(WaitingChoice choice) {
  Tenant& tenant = activate(choice.tenant);
  ++priorities_[choice.priority];
  ++size_;
  tenant.waiting[choice.priority].insert(std::move(choice));
}

int32_t FairQueue::level(int32_t priority, Time since, Time now) const {
  if (priorities_.empty())
    return priority;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now - since);
  const int64_t age = ageing_.count() > 0 ? std::max<int64_t>(waited / ageing_, 0) : 0;
  return int32_t(std::max<int64_t>(priority - age, std::min(priority, priorities_.begin()->first)));
}

std::pair<const std::string*, const FairQueue::Choices*> FairQueue::best(Time now) const {
  const std::string* best_name = nullptr;
  const Choices* best_choices = nullptr;
  std::tuple<int32_t, int64_t, uint64_t> least;
  for (const auto& [name, tenant] : tenants_) {
    for (const auto& [priority, choices] : tenant.waiting) {
      const WaitingChoice& first = *choices.begin();
      const std::tuple order(level(priority, first.since, now), tenant.service, first.number);
      if (best_choices && order >= least)
        continue;
      least = order;
      best_name = &name;
      best_choices = &choices;
    }
  }
  return {best_name, best_choices};
}

const WaitingChoice* FairQueue::front(Time now) const {
  const Choices* choices = best(now).second;
  return choices ? &*choices->begin() : nullptr;
}

std::optional<WaitingChoice> FairQueue::pop(Time now) {
  const auto [name, choices] = best(now);
  if (!choices)
    return std::nullopt;
  raise_start();
  Tenant& tenant = tenants_.at(*name);
  const auto in_priority = tenant.waiting.find(choices->begin()->priority);
  WaitingChoice choice = std::move(in_priority->second.extract(in_priority->second.begin()).value());
  if (in_priority->second.empty())
    tenant.waiting.erase(in_priority);
  if (--priorities_[choice.priority] == 0)
    priorities_.erase(choice.priority);
  --size_;
  retire(choice.tenant);
  return choice;
}

void FairQueue::erase(const StreamId& request, const std::string& name) {
  const auto tenant = tenants_.find(name);
  if (tenant == tenants_.end())
    return;
  for (auto entry = tenant->second.waiting.begin(); entry != tenant->second.waiting.end();) {
    auto& [priority, choices] = *entry;
    const size_t erased =
        std::erase_if(choices, [&](const WaitingChoice& choice) { return choice.request == request; });
    size_ -= erased;
    if (erased > 0 && (priorities_[priority] -= erased) == 0)
      priorities_.erase(priority);
    entry = choices.empty() ? tenant->second.waiting.erase(entry) : std::next(entry);
  }
  retire(name);
}

} // namespace millrace
