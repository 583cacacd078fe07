#include "cli/conversation.hpp"

#include "cli/input.hpp"
#include "gateway/json.hpp"
#include "messages/codec.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace millrace {
namespace {

[[noreturn]] void throw_errno(const std::string& path) {
  throw std::system_error(errno, std::generic_category(), path);
}

/// A file that nobody else may read, which must not exist yet.
void write_new(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    throw_errno(path);
  int error = 0;
  while (!text.empty() && error == 0) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0)
      text.remove_prefix(size_t(written));
    else if (errno != EINTR)
      error = errno;
  }
  if (::close(fd) < 0 && error == 0)
    error = errno;
  if (error != 0) {
    ::unlink(path.c_str());
    throw std::system_error(error, std::generic_category(), path);
  }
}

void append_turn(std::string& out, const ChatMessage& turn) {
  out += "{\"role\":";
  append_json(out, std::string_view{turn.role});
  out += ",\"content\":";
  append_json(out, std::string_view{turn.content});
  out += "}\n";
}

/// nullopt unless it is an object with exactly these two strings.
std::optional<ChatMessage> parse_turn(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || json.size() != 2 || !json.contains("role") || !json.contains("content"))
    return std::nullopt;
  const auto &role = json["role"], &content = json["content"];
  if (!role.is_string() || !content.is_string())
    return std::nullopt;
  ChatMessage turn;
  turn.role = role;
  turn.content = content;
  return turn;
}

} // namespace

void Conversation::add(std::string question, std::string answer) {
  exchanges_.push_back({std::move(question), std::move(answer)});
}

std::optional<Conversation::Exchange> Conversation::undo() {
  if (exchanges_.empty())
    return std::nullopt;
  auto last = std::move(exchanges_.back());
  exchanges_.pop_back();
  return last;
}

std::vector<ChatMessage> Conversation::turns() const {
  std::vector<ChatMessage> turns;
  const auto add = [&turns](const char* role, const std::string& content) {
    turns.emplace_back();
    turns.back().role = role;
    turns.back().content = content;
  };
  if (!system_.empty())
    add("system", system_);
  for (const auto& [question, answer] : exchanges_) {
    add("user", question);
    add("assistant", answer);
  }
  return turns;
}

std::vector<ChatMessage> Conversation::turns(const std::string& question) const {
  auto all = turns();
  all.emplace_back();
  all.back().role = "user";
  all.back().content = question;
  return all;
}

void Conversation::save(const std::string& path, bool replace) const {
  std::string text;
  for (const auto& turn : turns())
    append_turn(text, turn);
  if (!replace)
    return write_new(path, text);
  const std::string beside = path + ".new";
  if (::unlink(beside.c_str()) < 0 && errno != ENOENT)
    throw_errno(beside);
  write_new(beside, text);
  if (::rename(beside.c_str(), path.c_str()) < 0) {
    const int error = errno;
    ::unlink(beside.c_str());
    throw std::system_error(error, std::generic_category(), path);
  }
}

Conversation Conversation::load(const std::string& path) {
  const std::string text = read_text({.text = {}, .file = path});
  Conversation loaded;
  std::optional<std::string> question;
  int number = 0;
  const auto refuse = [&](const char* why) {
    throw std::runtime_error(path + ", line " + std::to_string(number) + ": " + why);
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const auto line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    const auto turn = parse_turn(line);
    if (!turn)
      refuse("not {\"role\":…,\"content\":…} with two strings");
    if (turn->role == "system" && number == 1)
      loaded.system_ = turn->content;
    else if (turn->role == "user" && !question)
      question = turn->content;
    else if (turn->role == "assistant" && question)
      loaded.add(*std::exchange(question, std::nullopt), turn->content);
    else
      refuse("turns are a system's, if any, and then a user's and an assistant's by turns");
  }
  if (question)
    refuse("the last question has no answer");
  return loaded;
}

} // namespace millrace
