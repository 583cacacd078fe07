#pragma once

#include "messages/generation.hpp"

#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// What was said, in pairs of question and answer.
class Conversation {
public:
  struct Exchange {
    std::string question, answer;
  };

  void set_system(std::string text) { system_ = std::move(text); }
  void add(std::string question, std::string answer);
  /// The last pair; nullopt if there is none.
  std::optional<Exchange> undo();
  /// Forgets all pairs; the system message stays.
  void reset() { exchanges_.clear(); }
  size_t size() const { return exchanges_.size(); }

  /// As a chat template takes them, with a question that waits for its answer.
  std::vector<ChatMessage> turns(const std::string& question) const;

  /// One turn a line, {"role":…,"content":…}, readable by load. Mode 0600. Throws std::system_error that names
  /// the path, also if the file exists and may not be replaced; one that is replaced is whole at any time.
  void save(const std::string& path, bool replace) const;
  /// Throws std::runtime_error naming path and line: perhaps a system turn, then pairs of user and assistant.
  static Conversation load(const std::string& path);

private:
  std::vector<ChatMessage> turns() const;

  std::string system_; // empty: none
  std::vector<Exchange> exchanges_;
};

} // namespace millrace
