#include "cli/input.hpp"

#include "cli/errors.hpp"
#include "cli/output.hpp"

#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace millrace {
namespace {

constexpr size_t kMaxInputBytes = 64u << 20;

std::string read_all(int fd, const std::string& name) {
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n == 0)
      return out;
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      throw std::system_error(errno, std::generic_category(), name);
    out.append(buffer, size_t(n));
    if (out.size() > kMaxInputBytes)
      throw std::runtime_error(name + ": more than 64 MiB of text");
  }
}

std::string read_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    throw std::system_error(errno, std::generic_category(), path);
  try {
    auto out = read_all(fd, path);
    ::close(fd);
    return out;
  } catch (...) {
    ::close(fd);
    throw;
  }
}

} // namespace

std::string read_text(const TextSource& source) {
  if (source.text && source.file)
    throw UsageError("--file: the text is given twice, as an argument and as a file");
  if (source.file)
    return read_file(*source.file);
  if (source.text == "-")
    return read_all(STDIN_FILENO, "stdin");
  return source.text.value_or("");
}

std::vector<TokenId> parse_ids(std::string_view text, int32_t vocab_size, std::string_view flag) {
  constexpr std::string_view kSeparators = ", \t\r\n[]";
  std::vector<TokenId> ids;
  while ((text.remove_prefix(std::min(text.find_first_not_of(kSeparators), text.size())), !text.empty())) {
    const auto word = text.substr(0, text.find_first_of(kSeparators));
    TokenId id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= vocab_size)
      throw UsageError(std::string(flag) + ": " + quote(word) + " is not a token id between 0 and " +
                       std::to_string(vocab_size - 1));
    ids.push_back(id);
    text.remove_prefix(word.size());
  }
  return ids;
}

} // namespace millrace
