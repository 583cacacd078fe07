#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

namespace millrace::http {

/// What all answers together may take that are kept whole until their peers have them. Any thread: a connection
/// that holds the last of an answer may outlive the API.
class AnswerMemory {
public:
  explicit AnswerMemory(size_t limit) : limit_(limit) {}

  /// What one answer takes; given back with it.
  class Part {
  public:
    explicit Part(std::shared_ptr<AnswerMemory> memory) : memory_(std::move(memory)) {}
    ~Part() { memory_->used_ -= bytes_; }
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    /// False, and nothing changed, if all together would take too much.
    bool resize(size_t bytes) {
      if (bytes > bytes_ && memory_->used_ + (bytes - bytes_) > memory_->limit_)
        return false;
      memory_->used_ += bytes - bytes_; // modulo 2^64 where it shrinks
      bytes_ = bytes;
      return true;
    }

  private:
    std::shared_ptr<AnswerMemory> memory_;
    size_t bytes_ = 0;
  };

  size_t used() const { return used_; }

private:
  const size_t limit_;
  std::atomic<size_t> used_ = 0; // parts grow on one thread: between look and growth they can only shrink
};

} // namespace millrace::http
