#include "gateway/http/transport/api_keys.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdexcept>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace millrace::http {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == text.npos)
    return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

std::string hex(const unsigned char* bytes, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) {
    text += "0123456789abcdef"[bytes[i] >> 4];
    text += "0123456789abcdef"[bytes[i] & 15];
  }
  return text;
}

[[noreturn]] void throw_file_error(const std::filesystem::path& path, int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), path.string() + ": " + what);
}

std::string read_private_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not hold up the start
  if (fd < 0)
    throw_file_error(path, errno, "can't read the API keys");
  const std::shared_ptr<void> closer(nullptr, [fd](void*) { ::close(fd); });
  struct stat about {};
  if (::fstat(fd, &about) != 0)
    throw_file_error(path, errno, "can't read the API keys");
  if (!S_ISREG(about.st_mode))
    throw_file_error(path, EINVAL, "the API keys are not in a regular file");
  if (about.st_mode & (S_IRWXG | S_IRWXO))
    throw_file_error(path, EACCES, "others may use this file of API keys; chmod 600 it");
  std::string text(kMaxFileBytes + 1, '\0');
  size_t size = 0;
  for (ssize_t n; size < text.size() && (n = ::read(fd, text.data() + size, text.size() - size)) != 0;) {
    if (n < 0)
      throw_file_error(path, errno, "can't read the API keys");
    size += static_cast<size_t>(n);
  }
  if (size > kMaxFileBytes)
    throw_file_error(path, EFBIG, "too many API keys");
  text.resize(size);
  return text;
}

} // namespace

ApiKeys::Digest ApiKeys::digest(std::string_view key) {
  Digest result;
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), result.data());
  return result;
}

ApiKeys ApiKeys::parse(std::string_view text) {
  ApiKeys keys;
  for (int number = 1; !text.empty(); ++number) {
    const auto whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(whole.size() + 1, text.size()));
    const auto line = trimmed(whole);
    if (line.empty() || line.starts_with('#'))
      continue;
    const auto fail = [number](const std::string& why) {
      throw std::invalid_argument("API keys, line " + std::to_string(number) + ": " + why);
    };
    const size_t gap = line.find_first_of(" \t");
    const auto name = gap == line.npos ? std::string_view() : line.substr(0, gap);
    const auto key = gap == line.npos ? line : trimmed(line.substr(gap));
    if (!printable(name) || !printable(key))
      fail("not \"name key\" or \"key\" in printable ASCII");
    if (name.size() > kMaxNameBytes)
      fail("the name has more than " + std::to_string(kMaxNameBytes) + " characters");
    if (key.size() < kMinKeyBytes)
      fail("the key has less than " + std::to_string(kMinKeyBytes) + " characters");
    const Digest digest = ApiKeys::digest(key);
    if (std::any_of(keys.entries_.begin(), keys.entries_.end(),
                    [&](const Entry& entry) { return entry.digest == digest; }))
      fail("the same key again");
    keys.entries_.push_back({digest, name.empty() ? "key-" + hex(digest.data(), 4) : std::string(name)});
  }
  if (keys.entries_.empty())
    throw std::invalid_argument("API keys: there is none");
  return keys;
}

ApiKeys ApiKeys::load(const std::filesystem::path& path) {
  std::string text = read_private_file(path);
  const std::shared_ptr<void> wiper(nullptr, [&text](void*) { OPENSSL_cleanse(text.data(), text.size()); });
  try {
    return parse(text);
  } catch (const std::invalid_argument& e) {
    throw std::invalid_argument(path.string() + ": " + e.what());
  }
}

std::optional<Principal> ApiKeys::find(std::string_view key) const {
  const Digest wanted = digest(key);
  const Entry* found = nullptr;
  for (const auto& entry : entries_) // all of them, whichever it is
    if (CRYPTO_memcmp(entry.digest.data(), wanted.data(), wanted.size()) == 0)
      found = &entry;
  if (!found)
    return std::nullopt;
  return Principal{"http:" + found->name};
}

} // namespace millrace::http
