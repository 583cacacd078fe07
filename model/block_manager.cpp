#include "model/block_manager.hpp"

#include "kernels/attention.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace millrace {
namespace {

using Tokens = std::span<const TokenId>;

/// Orders the blocks that follow the same one: an equal block, and the one that begins most alike, are found by comparisons.
struct ByTokens {
  using is_transparent = void;
  static Tokens tokens(const CachedBlock* block);
  static Tokens tokens(Tokens tokens) { return tokens; }
  bool operator()(const auto& a, const auto& b) const { return std::ranges::lexicographical_compare(tokens(a), tokens(b)); }
};

size_t common_prefix(Tokens a, Tokens b) {
  return size_t(std::ranges::mismatch(a, b).in1 - a.begin());
}

} // namespace

/// A node of the prefix tree, or the root of a salt, which has no block and no tokens.
struct CachedBlock {
  CachedBlock* parent = nullptr; // of a root: none
  BlockId id = -1;
  std::array<TokenId, kBlockSize> tokens{};
  std::string_view salt{}; // of a root: its key
  int32_t users = 0;       // tables that hold it, and those that copy from it; of a root: tables of its salt
  std::set<CachedBlock*, ByTokens> children{};
  std::list<std::unique_ptr<CachedBlock>>::iterator place{}; // in the list that owns it
};

namespace {

Tokens ByTokens::tokens(const CachedBlock* block) {
  return block->tokens;
}

} // namespace

// Nothing here scans the tree: a block goes from list to list in constant time, and those side by side are found by bisection.
//
// The order in which blocks are evicted is that of the list `cached`. A table that ends puts its blocks at the end, the last one
// first. Whoever uses a block uses all before it, so in the list every block comes after those that follow it in the tree: the
// first of the list is always a leaf, and a sequence is evicted from its end.
struct BlockManager::State {
  using Blocks = std::list<std::unique_ptr<CachedBlock>>;

  mutable std::mutex mutex;
  int32_t total = 0;
  bool caching = true;
  std::vector<BlockId> free; // a stack: what was used last is used next, and blocks never needed stay untouched
  Blocks in_use;             // published blocks with users
  Blocks cached;             // those without
  std::map<std::string, std::unique_ptr<CachedBlock>, std::less<>> roots; // by salt; those with users or children
  std::unordered_set<const BlockTable*> tables;
  int32_t tables_with_blocks = 0;
  CacheCounters counters;

  size_t available() const { return free.size() + cached.size(); }

  /// The longest published prefix of `tokens`.
  std::vector<CachedBlock*> find(Tokens tokens, std::string_view salt) const {
    std::vector<CachedBlock*> path;
    const auto root = roots.find(salt);
    if (!caching || root == roots.end())
      return path;
    for (const CachedBlock* last = root->second.get(); tokens.size() >= kBlockSize; tokens = tokens.subspan(kBlockSize)) {
      const auto child = last->children.find(tokens.first(kBlockSize));
      if (child == last->children.end())
        break;
      last = path.emplace_back(*child);
    }
    return path;
  }

  /// Of the blocks after `last`, the one that begins most like `tokens`, if any begins like them.
  CachedBlock* most_alike(const CachedBlock& last, Tokens tokens) const {
    CachedBlock* best = nullptr;
    size_t most = 0;
    const auto consider = [&](CachedBlock* child) {
      if (const size_t common = common_prefix(child->tokens, tokens); common > most) {
        best = child;
        most = common;
      }
    };
    const auto next = last.children.lower_bound(tokens); // in this order it is one of the two neighbours
    if (next != last.children.end())
      consider(*next);
    if (next != last.children.begin())
      consider(*std::prev(next));
    return best;
  }

  CachedBlock* root(std::string_view salt) {
    if (const auto known = roots.find(salt); known != roots.end())
      return known->second.get();
    const auto made = roots.emplace(salt, std::make_unique<CachedBlock>()).first;
    made->second->salt = made->first;
    return made->second.get();
  }

  // What follows does not throw: blocks are given back in destructors, and a table gets all of its blocks or none.

  void use(CachedBlock& block) {
    if (block.users++ == 0)
      in_use.splice(in_use.end(), cached, block.place);
  }

  void leave(CachedBlock& block) {
    if (--block.users > 0)
      return;
    cached.splice(cached.end(), in_use, block.place);
    if (!caching)
      free.push_back(forget(block));
  }

  /// A sequence that needs the last blocks of the pool must not be kept from them by what it has copied.
  void let_source_go(BlockTable& table) {
    if (CachedBlock* source = std::exchange(table.source_, nullptr))
      leave(*source);
    table.copy_.reset();
  }

  /// Takes a cached leaf out of the tree; returns its block.
  BlockId forget(CachedBlock& block) {
    assert(block.users == 0 && block.children.empty());
    const BlockId id = block.id;
    CachedBlock& parent = *block.parent;
    parent.children.erase(&block);
    cached.erase(block.place);
    drop_if_unused(parent);
    return id;
  }

  /// Salts are made by clients: no root is kept without need.
  void drop_if_unused(CachedBlock& block) {
    if (!block.parent && block.users == 0 && block.children.empty())
      roots.erase(roots.find(block.salt));
  }

  BlockId take() {
    if (free.empty()) {
      ++counters.evictions;
      return forget(*cached.front());
    }
    const BlockId id = free.back();
    free.pop_back();
    return id;
  }
};

BlockTable::BlockTable(std::shared_ptr<BlockManager> manager) : manager_{std::move(manager)} {}

BlockTable::~BlockTable() {
  manager_->release(*this);
}

BlockManager::BlockManager(int32_t n_blocks, bool caching) : state_{std::make_unique<State>()} {
  assert(n_blocks >= 0);
  state_->total = n_blocks;
  state_->caching = caching;
  state_->free.reserve(size_t(n_blocks)); // release() must not throw
  for (BlockId id = n_blocks; id-- > 0;)
    state_->free.push_back(id);
}

BlockManager::~BlockManager() = default;

void BlockManager::set_caching(bool caching) {
  std::lock_guard lock{state_->mutex};
  state_->caching = caching;
  while (!caching && !state_->cached.empty())
    state_->free.push_back(state_->forget(*state_->cached.front()));
}

bool BlockManager::caching() const {
  std::lock_guard lock{state_->mutex};
  return state_->caching;
}

int32_t BlockManager::total() const {
  return state_->total;
}

int32_t BlockManager::used() const {
  std::lock_guard lock{state_->mutex};
  return state_->total - int32_t(state_->available());
}

int32_t BlockManager::cached() const {
  std::lock_guard lock{state_->mutex};
  return int32_t(state_->cached.size());
}

int32_t BlockManager::tables() const {
  std::lock_guard lock{state_->mutex};
  return state_->tables_with_blocks;
}

CacheCounters BlockManager::counters() const {
  std::lock_guard lock{state_->mutex};
  return state_->counters;
}

int32_t BlockManager::blocks_for(int64_t positions) {
  assert(positions >= 0);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return int32_t(std::min(positions / kBlockSize + (positions % kBlockSize != 0), kMost));
}

std::shared_ptr<BlockTable> BlockManager::allocate(const BlockRequest& request) {
  assert(int64_t(request.tokens.size()) <= request.positions && request.spare >= 0);
  const auto n = size_t(blocks_for(request.positions));
  if (n > size_t(total()))
    return nullptr;
  auto table = std::make_shared<BlockTable>(shared_from_this());
  std::vector<BlockId> blocks;
  blocks.reserve(n);

  std::lock_guard lock{state_->mutex};
  State& state = *state_;
  std::vector<CachedBlock*> path = state.find(request.tokens, request.salt);
  const Tokens rest = request.tokens.subspan(path.size() * kBlockSize);
  const size_t own = n - path.size();
  // What this table uses can't be evicted for it.
  size_t available = state.available();
  for (const CachedBlock* block : path)
    available -= block->users == 0;
  if (own + size_t(request.spare) > available)
    return nullptr;

  const auto root = state.roots.find(request.salt);
  const CachedBlock* last = !path.empty() ? path.back() : root != state.roots.end() ? root->second.get() : nullptr;
  CachedBlock* source = state.caching && last ? state.most_alike(*last, rest) : nullptr;
  if (source && source->users == 0 && own + size_t(request.spare) == available)
    source = nullptr; // there is no room for the table besides it
  state.tables.insert(table.get());
  table->root_ = state.root(request.salt);

  // From here on nothing throws.
  ++table->root_->users;
  for (CachedBlock* block : path) {
    state.use(*block);
    blocks.push_back(block->id);
  }
  if (source)
    state.use(*source);
  while (blocks.size() < n)
    blocks.push_back(state.take());
  table->cached_ = int32_t(path.size()) * kBlockSize;
  if (source) {
    const auto positions = int32_t(common_prefix(source->tokens, rest));
    table->source_ = source;
    table->copy_ = {.from = source->id, .to = blocks[path.size()], .positions = positions};
    table->cached_ += positions;
  }
  table->path_ = std::move(path);
  table->blocks_ = std::move(blocks);
  state.tables_with_blocks += n > 0;
  if (state.caching) {
    state.counters.queries += int64_t(request.tokens.size());
    state.counters.hits += table->cached_;
  }
  return table;
}

int32_t BlockManager::lookup(std::span<const TokenId> tokens, std::string_view salt) const {
  std::lock_guard lock{state_->mutex};
  return int32_t(state_->find(tokens, salt).size()) * kBlockSize;
}

bool BlockManager::grow(BlockTable& table, int64_t positions) {
  const auto n = size_t(blocks_for(positions));
  std::lock_guard lock{state_->mutex};
  assert(table.root_ && table.manager_.get() == this);
  const size_t before = table.blocks_.size();
  if (n <= before)
    return true;
  if (n - before > state_->available())
    return false;
  table.blocks_.resize(n);
  for (size_t i = before; i < n; ++i)
    table.blocks_[i] = state_->take();
  state_->tables_with_blocks += before == 0;
  return true;
}

void BlockManager::publish(BlockTable& table, std::span<const TokenId> tokens) {
  std::lock_guard lock{state_->mutex};
  State& state = *state_;
  std::vector<CachedBlock*>& path = table.path_;
  assert(table.root_ && table.manager_.get() == this && tokens.size() <= table.blocks_.size() * kBlockSize);
  state.let_source_go(table);
  if (!state.caching)
    return;
  path.reserve(table.blocks_.capacity()); // seldom, as that grows by factors
  for (size_t i = path.size(); (i + 1) * kBlockSize <= tokens.size(); ++i) {
    CachedBlock* parent = path.empty() ? table.root_ : path.back();
    const Tokens full = tokens.subspan(i * kBlockSize, kBlockSize);
    if (const auto known = parent->children.find(full); known != parent->children.end()) {
      state.use(**known);
      state.free.push_back(std::exchange(table.blocks_[i], (*known)->id));
      path.push_back(*known);
      continue;
    }
    State::Blocks one;
    one.emplace_back(new CachedBlock{.parent = parent, .id = table.blocks_[i], .users = 1});
    CachedBlock* block = one.back().get();
    std::ranges::copy(full, block->tokens.begin());
    block->place = one.begin();
    parent->children.insert(block);
    state.in_use.splice(state.in_use.end(), one);
    path.push_back(block);
  }
}

void BlockManager::release(BlockTable& table) {
  std::lock_guard lock{state_->mutex};
  State& state = *state_;
  // Backwards, so that the next sequence gets the blocks in the same order, and the cache loses the last ones first.
  for (size_t i = table.blocks_.size(); i-- > table.path_.size();)
    state.free.push_back(table.blocks_[i]);
  state.let_source_go(table);
  for (size_t i = table.path_.size(); i-- > 0;)
    state.leave(*table.path_[i]);
  if (table.root_) {
    --table.root_->users;
    state.drop_if_unused(*table.root_);
  }
  state.tables.erase(&table);
  state.tables_with_blocks -= !table.blocks_.empty();
}

void BlockManager::check_integrity() const {
  std::lock_guard lock{state_->mutex};
  const State& state = *state_;
  const auto check = [](bool holds, const std::string& what) {
    if (!holds)
      throw std::logic_error{"KV blocks: " + what};
  };

  // Each block has one owner: the free list, the tree or a table.
  std::vector<int> owners(size_t(state.total));
  const auto own = [&](BlockId id) {
    check(id >= 0 && id < state.total, "no block has the number " + std::to_string(id));
    ++owners[size_t(id)];
  };
  for (BlockId id : state.free)
    own(id);
  for (const State::Blocks* list : {&state.in_use, &state.cached})
    for (const auto& block : *list)
      own(block->id);
  for (const BlockTable* table : state.tables)
    for (size_t i = table->path_.size(); i < table->blocks_.size(); ++i)
      own(table->blocks_[i]);
  for (size_t id = 0; id < owners.size(); ++id)
    check(owners[id] == 1, "block " + std::to_string(id) + (owners[id] == 0 ? " is lost" : " is owned twice"));

  // The tree: every block is a child of one that is there, and is found by its tokens.
  std::unordered_map<const CachedBlock*, int32_t> users; // as the tables tell
  size_t children = 0;
  for (const auto& [salt, root] : state.roots) {
    users[root.get()] = 0;
    children += root->children.size();
    check(!root->parent && root->salt == salt, "the root of a salt is misplaced");
    check(root->users > 0 || !root->children.empty(), "the root of a salt is kept without need");
  }
  for (const State::Blocks* list : {&state.in_use, &state.cached})
    for (auto place = list->begin(); place != list->end(); ++place) {
      users[place->get()] = 0;
      children += (*place)->children.size();
      check((*place)->place == place, "a published block is misplaced");
    }
  check(users.size() == state.roots.size() + children, "the tree has more children than blocks, or fewer");
  std::unordered_set<const CachedBlock*> listed; // cached ones so far
  for (const State::Blocks* list : {&state.in_use, &state.cached})
    for (const auto& block : *list) {
      check(users.contains(block->parent), "a published block follows one that is gone");
      const auto found = block->parent->children.find(block.get());
      check(found != block->parent->children.end() && *found == block.get(), "a published block is not found");
      check((block->users > 0) == (list == &state.in_use), "a published block is in the wrong list");
      if (list == &state.cached) {
        listed.insert(block.get());
        check(std::ranges::all_of(block->children, [&](const CachedBlock* child) { return listed.contains(child); }),
              "a cached block would be evicted before one that follows it");
      }
    }

  // The tables: what they hold of the tree is a path, and they are all the users that there are.
  int32_t with_blocks = 0;
  for (const BlockTable* table : state.tables) {
    with_blocks += !table->blocks_.empty();
    const auto& path = table->path_;
    check(users.contains(table->root_) && !table->root_->parent, "a table has no root");
    ++users[table->root_];
    check(path.size() <= table->blocks_.size(), "a table's path is longer than the table");
    for (size_t i = 0; i < path.size(); ++i) {
      check(users.contains(path[i]), "a table holds a block that is gone");
      check(path[i]->parent == (i == 0 ? table->root_ : path[i - 1]), "a table's path leaves the tree");
      check(path[i]->id == table->blocks_[i], "a table's block is not that of its path");
      ++users[path[i]];
    }
    check(bool(table->source_) == table->copy_.has_value(), "a table's copy has no source");
    if (const CachedBlock* source = table->source_) {
      const size_t full = size_t(table->cached_) / kBlockSize;
      check(users.contains(source) && source->id == table->copy_->from, "the source of a copy is gone");
      check(source->parent == (full == 0 ? table->root_ : path.at(full - 1)), "the source of a copy is from elsewhere");
      ++users[source];
    }
  }
  for (const auto& [block, count] : users)
    check(block->users == count, "a published block has " + std::to_string(block->users) + " users, but " +
                                     std::to_string(count) + " tables hold it");
  check(state.tables_with_blocks == with_blocks, "the tables are miscounted");
}

} // namespace millrace
