#include "model/text/stop_matcher.hpp"

#include <algorithm>
#include <cassert>

namespace millrace {

StopMatcher::Pattern::Pattern(std::string stop) : text(std::move(stop)), border(text.size() + 1) {
  for (size_t length = 1, candidate = 0; length < text.size(); ++length) {
    while (candidate > 0 && text[length] != text[candidate])
      candidate = border[candidate];
    if (text[length] == text[candidate])
      ++candidate;
    border[length + 1] = candidate;
  }
}

bool StopMatcher::Pattern::advance(char byte) {
  while (matched > 0 && text[matched] != byte)
    matched = border[matched];
  if (text[matched] == byte)
    ++matched;
  if (matched < text.size())
    return false;
  matched = border[matched];
  return true;
}

StopMatcher::StopMatcher(std::vector<std::string> stop) {
  for (std::string& text : stop)
    if (!text.empty())
      patterns_.emplace_back(std::move(text));
}

StopMatcher::Result StopMatcher::push(std::string_view bytes) {
  assert(!stopped_);
  held_.push_back({next_index_++, size_, std::string(bytes)});
  scan(bytes);
  if (stopped_)
    return {release_until(*match_, true), true};
  return {release_until(first_open_match(), false), false};
}

std::vector<ReleasedToken> StopMatcher::finish(std::string& tail) {
  stopped_ = match_.has_value();
  auto released = release_until(match_.value_or(size_), stopped_);
  tail = detokenizer_.finish();
  return released;
}

/// Byte by byte, so that the outcome does not depend on where tokens end.
void StopMatcher::scan(std::string_view bytes) {
  for (const char byte : bytes) {
    ++size_;
    for (Pattern& pattern : patterns_)
      if (pattern.advance(byte))
        match_ = std::min(match_.value_or(size_), size_ - pattern.text.size());
    if (match_ && first_open_match() >= *match_) {
      stopped_ = true;
      return;
    }
  }
}

/// Where the first match begins that is complete or may still become so; the end of the bytes if there is
/// none.
size_t StopMatcher::first_open_match() const {
  size_t first = match_.value_or(size_);
  for (const Pattern& pattern : patterns_)
    first = std::min(first, size_ - pattern.matched);
  return first;
}

/// Releases the tokens that end before offset and, if cut, the first part of the one that does not.
std::vector<ReleasedToken> StopMatcher::release_until(size_t offset, bool cut) {
  std::vector<ReleasedToken> released;
  const auto release = [&](Held& held) {
    std::string text = detokenizer_.push(held.bytes);
    released.push_back({held.index, std::move(held.bytes), std::move(text)});
  };
  while (!held_.empty() && held_.front().begin + held_.front().bytes.size() <= offset) {
    release(held_.front());
    held_.pop_front();
  }
  if (!cut)
    return released;
  if (!held_.empty() && held_.front().begin < offset) {
    held_.front().bytes.resize(offset - held_.front().begin);
    release(held_.front());
  }
  held_.clear();
  return released;
}

} // namespace millrace
