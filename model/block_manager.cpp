#include "model/block_manager.hpp"

#include "kernels/attention.hpp"

#include <algorithm>
#include <cassert>
#include <limits>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace millrace {

BlockTable::BlockTable(std::shared_ptr<BlockManager> manager, std::vector<BlockId> blocks)
    : manager_{std::move(manager)}, blocks_{std::move(blocks)} {}

BlockTable::~BlockTable() {
  manager_->release(blocks_);
}

struct BlockManager::State {
  mutable std::mutex mutex;
  std::vector<BlockId>
      free;               // a stack: what was used last is used next, and blocks never needed stay untouched
  std::vector<bool> used; // by id
};

BlockManager::BlockManager(int32_t n_blocks) : state_{std::make_unique<State>()} {
  assert(n_blocks >= 0);
  state_->used.resize(size_t(n_blocks));
  state_->free.reserve(size_t(n_blocks)); // release() must not throw
  for (BlockId id = n_blocks; id-- > 0;)
    state_->free.push_back(id);
}

BlockManager::~BlockManager() = default;

int32_t BlockManager::total() const {
  return int32_t(state_->used.size());
}

int32_t BlockManager::used() const {
  std::lock_guard lock{state_->mutex};
  return int32_t(state_->used.size() - state_->free.size());
}

int32_t BlockManager::blocks_for(int64_t positions) {
  assert(positions >= 0);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return int32_t(std::min(positions / kBlockSize + (positions % kBlockSize != 0), kMost));
}

std::shared_ptr<BlockTable> BlockManager::allocate(int64_t positions) {
  auto n = size_t(blocks_for(positions));
  if (n > state_->used.size())
    return nullptr;
  // Made before blocks are taken: if memory runs out, no block is lost.
  auto table = std::make_shared<BlockTable>(shared_from_this(), std::vector<BlockId>{});
  std::vector<BlockId> blocks(n);

  std::lock_guard lock{state_->mutex};
  auto& [mutex, free, used] = *state_;
  if (n > free.size())
    return nullptr;
  std::copy_n(free.rbegin(), n, blocks.begin());
  free.resize(free.size() - n);
  for (BlockId id : blocks)
    used[size_t(id)] = true;
  table->blocks_ = std::move(blocks);
  return table;
}

void BlockManager::release(std::span<const BlockId> blocks) {
  std::lock_guard lock{state_->mutex};
  for (size_t i = blocks.size(); i-- > 0;) { // so that the next sequence gets them in the same order
    assert(state_->used.at(size_t(blocks[i])) && "a block is freed once");
    state_->used[size_t(blocks[i])] = false;
    state_->free.push_back(blocks[i]);
  }
}

void BlockManager::check_integrity() const {
  std::lock_guard lock{state_->mutex};
  std::vector<int> owners(state_->used.begin(), state_->used.end());
  for (BlockId id : state_->free)
    ++owners.at(size_t(id));
  for (size_t id = 0; id < owners.size(); ++id)
    if (owners[id] != 1)
      throw std::logic_error{"KV block " + std::to_string(id) + " is " +
                             (owners[id] == 0 ? "lost" : "owned twice")};
}

} // namespace millrace
