#include "gateway/zeromq/curve_key.hpp"

#include <zmq.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace millrace {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kKeyText = 40;
constexpr size_t kMaxKeyFile = 16u << 10;
using KeyText = std::array<char, kKeyText + 1>; // libzmq ends it with a zero

constexpr const char* kSecretNote = "# A secret CURVE key: whoever has this file is its owner.\n";
constexpr const char* kPublicNote = "# A public CURVE key.\n";

[[noreturn]] void fail(int error, const std::filesystem::path& file, const std::string& why) {
  throw std::system_error(error, std::generic_category(), "\"" + file.string() + "\" " + why);
}

/// Removes the file unless it is kept.
class NewFile {
public:
  NewFile(const std::filesystem::path& path, mode_t mode)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode)) {
    if (fd_ < 0)
      fail(errno, path_, "can't be made");
  }
  ~NewFile() {
    ::close(fd_);
    if (!kept_)
      ::unlink(path_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const std::string& text) {
    if (::write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size()) || ::fsync(fd_) != 0)
      fail(errno, path_, "can't be written");
  }
  void keep() { kept_ = true; }

private:
  const std::filesystem::path path_;
  const int fd_;
  bool kept_ = false;
};

std::string key_line(const char* name, const std::string& key) {
  return std::string("    ") + name + " = \"" + key + "\"\n";
}

/// What stands behind `name =`, without quotes; empty if no line has it.
std::string value_of(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    if (!line.starts_with(name))
      continue;
    line.remove_prefix(name.size());
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
    if (!line.starts_with('='))
      continue;
    line.remove_prefix(1); // this one alone: a key may begin with another
    const size_t begin = line.find_first_not_of(" \t\"'");
    const size_t end = line.find_last_not_of(" \t\r\"'");
    return begin == line.npos ? "" : std::string(line.substr(begin, end - begin + 1));
  }
  return "";
}

} // namespace

CurveKeyPair make_curve_key_pair() {
  KeyText public_key, secret_key;
  if (::zmq_curve_keypair(public_key.data(), secret_key.data()) != 0)
    throw std::runtime_error("this libzmq has no CURVE");
  return {public_key.data(), secret_key.data()};
}

bool is_curve_key(std::string_view text) {
  uint8_t key[kKeyBytes];
  // Zero bytes would end the text early; spaces and what else Z85 doesn't know is for libzmq to refuse.
  return text.size() == kKeyText && text.find('\0') == text.npos &&
         ::zmq_z85_decode(key, std::string(text).c_str()) != nullptr;
}

std::string to_z85(std::string_view key) {
  if (key.size() != kKeyBytes)
    throw std::invalid_argument("a CURVE key has 32 bytes");
  KeyText text;
  ::zmq_z85_encode(text.data(), reinterpret_cast<const uint8_t*>(key.data()), key.size());
  return text.data();
}

void write_curve_key_pair(const CurveKeyPair& keys, const std::filesystem::path& secret_file,
                          const std::filesystem::path& public_file) {
  NewFile secret(secret_file, 0600);
  NewFile open(public_file, 0644);
  const std::string head = "metadata\ncurve\n" + key_line("public-key", keys.public_key);
  secret.write(kSecretNote + head + key_line("secret-key", keys.secret_key));
  open.write(kPublicNote + head);
  secret.keep();
  open.keep();
}

CurveKeyPair read_curve_key_pair(const std::filesystem::path& secret_file) {
  CurveKeyPair keys;
  keys.secret_key = value_of(read_trusted_file(secret_file, kMaxKeyFile, 077), "secret-key");
  KeyText public_key;
  if (!is_curve_key(keys.secret_key) || ::zmq_curve_public(public_key.data(), keys.secret_key.c_str()) != 0)
    throw std::runtime_error("\"" + secret_file.string() +
                             "\" holds no secret CURVE key (`millrace keygen` makes one)");
  keys.public_key = public_key.data();
  return keys;
}

std::string read_trusted_file(const std::filesystem::path& file, size_t max_bytes, unsigned forbidden) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a FIFO is no reason to wait
  if (fd < 0)
    fail(errno, file, "can't be opened");
  struct Closed {
    int fd;
    ~Closed() { ::close(fd); }
  } const closed{fd};

  struct stat status;
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    fail(EINVAL, file, "is not a file");
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    fail(EPERM, file, "belongs to somebody else");
  if (status.st_mode & (forbidden | 022))
    fail(EPERM, file,
         forbidden & 044 ? "must be for its owner alone (chmod 600)"
                         : "must be writable for its owner alone (chmod go-w)");
  std::string bytes(max_bytes + 1, '\0');
  size_t filled = 0;
  for (ssize_t got; filled < bytes.size(); filled += static_cast<size_t>(got)) {
    got = ::read(fd, bytes.data() + filled, bytes.size() - filled);
    if (got < 0)
      fail(errno, file, "can't be read");
    if (got == 0)
      break;
  }
  if (filled > max_bytes)
    fail(EFBIG, file, "is larger than " + std::to_string(max_bytes) + " bytes");
  bytes.resize(filled);
  return bytes;
}

} // namespace millrace
