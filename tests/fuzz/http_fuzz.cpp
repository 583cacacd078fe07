// What a stranger may send to the HTTP port, down to the requests that it becomes; and files of API keys.
// However the bytes are cut into pieces, they must make the same requests.

#include "gateway/http/transport/api_keys.hpp"
#include "gateway/http/transport/guard.hpp"
#include "gateway/http/transport/request_reader.hpp"
#include "gateway/http/transport/target.hpp"

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

namespace {

using namespace millrace::http;
using Progress = RequestReader::Progress;

void require(bool holds) {
  if (!holds)
    std::abort();
}

/// What the requests say, each in a line. A refusal ends them; it may come earlier when more is there to see.
std::string read_all(std::string_view bytes, size_t piece, const ReaderLimits& limits) {
  static const Guard guard(std::nullopt, {});
  std::string told;
  RequestReader reader(limits);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.append(bytes.substr(at, piece));
    for (Progress progress; (progress = reader.advance()) != Progress::need_more;) {
      if (progress == Progress::refused) {
        require(reader.refusal().status >= 400);
        return told;
      }
      const Request& request = reader.request();
      require(request.path == "*" || request.path.starts_with('/'));
      require(request.body.size() <= limits.max_body_bytes);
      if (progress == Progress::head) {
        static_cast<void>(guard.admit(request));
      } else {
        told += request.method + ' ' + request.path + ' ' + request.body + '\n';
        reader.next();
      }
    }
    require(reader.buffered() <= limits.max_header_bytes + piece);
  }
  return told;
}

void read_keys(std::string_view text) {
  try {
    static_cast<void>(ApiKeys::parse(text).find("sk-0123456789abcdef"));
  } catch (const std::invalid_argument&) {
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0)
    return 0;
  const size_t piece = 1 + data[0] % 64;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);

  const ReaderLimits roomy{size + 1, size + 1}; // where a limit is met depends on the pieces
  require(read_all(bytes, piece, roomy) == read_all(bytes, size, roomy));
  read_all(bytes, piece, {64, 16});
  parse_target(bytes);
  names_loopback(bytes);
  read_keys(bytes);
  return 0;
}
