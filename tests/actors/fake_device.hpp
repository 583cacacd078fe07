#pragma once

// A device whose logits are a function of the tokens that a row can see, read through its blocks: a wrong position, a block of
// somebody else or a token fed twice changes everything that follows.

#include "kernels/attention.hpp"
#include "model/device.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace millrace::testing {

class FakeDevice : public Device {
public:
  struct Shape {
    int32_t vocab_size = 512;
    int32_t context_length = 128;
    int32_t n_blocks = 256;
  };

  FakeDevice() : FakeDevice(Shape{}) {}
  explicit FakeDevice(Shape shape) : Device(shape.n_blocks, shape.context_length), cache_(size_t(shape.n_blocks) * kBlockSize) {
    config_.vocab_size = shape.vocab_size;
    config_.context_length = shape.context_length;
  }

  const ModelConfig& config() const override { return config_; }
  const DeviceKey& key() const override { return key_; }
  std::string name() const override { return "fake:0"; }
  bool one_path() const override { return true; } // a token is all that a position keeps

  /// Called before each pass with its number and rows; may throw.
  std::function<void(int pass, std::span<const Row> rows)> before_pass;
  /// Chooses the token after a history; without it, or where it chooses nothing, logits are noise.
  std::function<std::optional<TokenId>(std::span<const TokenId> history)> script;
  /// After these histories the logits are NaN.
  std::function<bool(std::span<const TokenId> history)> poison;

  int passes() const { return passes_; }
  /// Rows of each pass.
  const std::vector<size_t>& sizes() const { return sizes_; }

protected:
  void run_pass(std::span<const Row> rows, std::span<float> logits) override {
    sizes_.push_back(rows.size());
    if (before_pass)
      before_pass(passes_++, rows);
    else
      ++passes_;
    for (const Row& row : rows) {
      cell(row, row.position) = row.token;
      if (!row.wants_logits)
        continue;
      std::vector<TokenId> history;
      for (int32_t position = 0; position <= row.position; ++position)
        history.push_back(cell(row, position));
      write(history, logits.first(size_t(config_.vocab_size)));
      logits = logits.subspan(size_t(config_.vocab_size));
    }
  }

  void copy_block(const BlockCopy& copy) override {
    std::copy_n(cache_.begin() + int64_t{copy.from} * kBlockSize, copy.positions, cache_.begin() + int64_t{copy.to} * kBlockSize);
  }

private:
  TokenId& cell(const Row& row, int32_t position) {
    return cache_.at(size_t(row.blocks[position / kBlockSize]) * kBlockSize + position % kBlockSize);
  }

  static uint64_t mix(uint64_t x) { // splitmix64
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  void write(std::span<const TokenId> history, std::span<float> logits) const {
    uint64_t hash = 0;
    for (TokenId token : history)
      hash = mix(hash ^ uint64_t(token));
    for (size_t id = 0; id < logits.size(); ++id)
      logits[id] = float(mix(hash + id) >> 40) * 0x1p-22f; // 0 … 4
    if (script)
      if (const auto chosen = script(history))
        logits[size_t(*chosen)] = 60;
    if (poison && poison(history))
      logits[0] = std::numeric_limits<float>::quiet_NaN();
  }

  ModelConfig config_;
  DeviceKey key_;
  std::vector<TokenId> cache_;
  std::vector<size_t> sizes_;
  int passes_ = 0;
};

} // namespace millrace::testing
