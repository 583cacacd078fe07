#include "messages/ids.hpp"

#include <sys/random.h>

#include <cerrno>
#include <system_error>

namespace millrace {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

std::optional<uint8_t> hex_value(char digit) {
  if (digit >= '0' && digit <= '9')
    return digit - '0';
  if (digit >= 'a' && digit <= 'f')
    return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F')
    return digit - 'A' + 10;
  return std::nullopt;
}

} // namespace

StreamId random_stream_id() {
  StreamId id;
  // A read of up to 256 bytes is never cut short once the kernel's pool is seeded; before that a signal may
  // interrupt the wait.
  while (getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size()))
    if (errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "getrandom");
  return id;
}

std::string to_hex(const StreamId& id) {
  std::string hex;
  hex.reserve(2 * id.bytes.size());
  for (const uint8_t byte : id.bytes) {
    hex += kHexDigits[byte >> 4];
    hex += kHexDigits[byte & 15];
  }
  return hex;
}

std::optional<StreamId> stream_id_from_hex(std::string_view hex) {
  StreamId id;
  if (hex.size() != 2 * id.bytes.size())
    return std::nullopt;
  for (size_t i = 0; i < id.bytes.size(); ++i) {
    const auto high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
    if (!high || !low)
      return std::nullopt;
    id.bytes[i] = static_cast<uint8_t>(*high << 4 | *low);
  }
  return id;
}

} // namespace millrace
