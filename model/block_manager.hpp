#pragma once

// Which KV block belongs to which sequence. Pure bookkeeping: no memory of the device is touched here.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace millrace {

using BlockId = int32_t;

class BlockManager;

/// The blocks of one sequence, in order of position. Whoever holds it owns them; they are free again when it
/// is destroyed, on whatever thread: an actor that dies with its mailbox leaks nothing.
class BlockTable {
public:
  /// Takes over blocks that manager has handed out; BlockManager::allocate() does both.
  BlockTable(std::shared_ptr<BlockManager> manager, std::vector<BlockId> blocks);
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  std::span<const BlockId> blocks() const { return blocks_; }

private:
  friend class BlockManager;
  std::shared_ptr<BlockManager> manager_;
  std::vector<BlockId> blocks_;
};

/// The pool of one device. Thread-safe. Must be held by a shared_ptr: tables keep it alive.
class BlockManager : public std::enable_shared_from_this<BlockManager> {
public:
  explicit BlockManager(int32_t n_blocks);
  ~BlockManager();

  int32_t total() const;
  int32_t used() const;
  /// Blocks that `positions` positions need.
  static int32_t blocks_for(int64_t positions);
  /// All of them or nullptr: a sequence never waits while it holds blocks.
  std::shared_ptr<BlockTable> allocate(int64_t positions);
  /// Throws std::logic_error unless free and used blocks together are all blocks, each once.
  void check_integrity() const;

private:
  friend class BlockTable;
  void release(std::span<const BlockId> blocks);
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace millrace
