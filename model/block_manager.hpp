#pragma once

// Which KV block belongs to which sequence, and which blocks are worth keeping for others. Pure bookkeeping: no memory of the
// device is touched here.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace millrace {

using BlockId = int32_t;
using TokenId = int32_t;

class BlockManager;
struct CachedBlock; // a block whose tokens are known: a node of the prefix tree

/// Positions at the front of one block that have to be copied into another before they can be read.
struct BlockCopy {
  BlockId from = 0, to = 0;
  int32_t positions = 0;
};

/// The blocks of one sequence, in order of position. Whoever holds it owns them; they are free again, or kept by the cache, when
/// it is destroyed, on whatever thread: an actor that dies with its mailbox leaks nothing. A block that several tables hold is
/// full and never written again.
class BlockTable {
public:
  explicit BlockTable(std::shared_ptr<BlockManager> manager);
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  /// Valid until grow() or publish().
  std::span<const BlockId> blocks() const { return blocks_; }
  /// Positions at the front that the cache had when the table was made, those to be copied included.
  int32_t cached() const { return cached_; }
  /// What is to be copied before the first pass. Its source is kept until publish(), or for as long as this table.
  const std::optional<BlockCopy>& copy() const { return copy_; }

private:
  friend class BlockManager;
  std::shared_ptr<BlockManager> manager_;
  std::vector<BlockId> blocks_;
  std::vector<CachedBlock*> path_; // the first blocks, as far as they are published
  CachedBlock* source_ = nullptr;  // of copy_
  CachedBlock* root_ = nullptr;    // of the salt
  int32_t cached_ = 0;
  std::optional<BlockCopy> copy_;
};

/// What a table is made for.
struct BlockRequest {
  int64_t positions = 0;              // that it has to cover
  std::span<const TokenId> tokens{};  // of its first positions, as many as may come from the cache
  std::string_view salt{};            // only tables of the same salt share blocks
  int32_t spare = 0;                  // blocks that must be left for others
};

struct CacheCounters {
  int64_t queries = 0, hits = 0; // tokens that were looked up by tables that were made; that were found
  int64_t evictions = 0;         // blocks
};

/// The pool of one device. Thread-safe. Must be held by a shared_ptr: tables keep it alive.
///
/// Every block is either free, in use (by one table, or shared by several), or cached: full, published, in use by none, and
/// evicted when it is the one that was used longest ago and blocks are needed. The published blocks of a salt form a tree: the
/// children of a block are those that follow it, ordered by their tokens. A block is found by its tokens themselves: there is
/// no hash that two of them could share.
class BlockManager : public std::enable_shared_from_this<BlockManager> {
public:
  /// caching: whether publish() keeps anything.
  explicit BlockManager(int32_t n_blocks, bool caching = true);
  ~BlockManager();

  /// false also frees what is cached, and from then on what was published when its last user ends.
  void set_caching(bool caching);
  bool caching() const;
  int32_t total() const;
  int32_t used() const;   // by tables, also to copy from; a shared one counts once
  int32_t cached() const; // in use by none
  int32_t tables() const; // that hold blocks
  CacheCounters counters() const;
  /// Blocks that `positions` positions need.
  static int32_t blocks_for(int64_t positions);

  /// All of the blocks or nullptr: a sequence never waits while it holds blocks. The table begins with the longest published
  /// prefix of request.tokens; where a published block begins like what follows, its front is to be copied (BlockTable::copy()).
  std::shared_ptr<BlockTable> allocate(const BlockRequest& request);
  std::shared_ptr<BlockTable> allocate(int64_t positions) { return allocate(BlockRequest{.positions = positions}); }
  /// Tokens that a table for this request would find in the cache now, without the copied ones. Counts nothing.
  int32_t lookup(std::span<const TokenId> tokens, std::string_view salt) const;
  /// Lets a table cover so many positions; false, and nothing is changed, if there are not enough blocks.
  bool grow(BlockTable& table, int64_t positions);
  /// The first tokens.size() positions of the table hold these tokens, the copied ones included, and their numbers are finite: its
  /// full blocks may serve others, from now on. `tokens` begins with what was published of it before. Where another table was faster, this one takes
  /// that block in exchange for its own: their bits are equal.
  void publish(BlockTable& table, std::span<const TokenId> tokens);

  /// Throws std::logic_error unless free, used and cached blocks together are all blocks, each once, and the tree's counts of
  /// users are those of the tables.
  void check_integrity() const;

private:
  friend class BlockTable;
  void release(BlockTable& table);
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
