// Whatever a journal file holds: it is read within its bounds, and what is read is written again to the same
// bytes. Since a fuzzer can't guess checksums, the input is also taken as bodies of records, each behind a
// byte of length, that are given good ones.

#include "gateway/journal_format.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace {

using namespace millrace;

void require(bool condition) {
  if (!condition)
    std::abort();
}

void read(std::string_view bytes) {
  auto contents = read_journal(bytes);
  if (!contents)
    return;
  require(contents->good_bytes <= bytes.size());
  std::string again = encode_journal_head(contents->head);
  const auto once = read_journal(again);
  require(once && encode_journal_head(once->head) == again);
  for (const std::string_view event : contents->events)
    append_record(again, again.size(), event);
  const auto twice = read_journal(again);
  require(twice && twice->events == contents->events && twice->good_bytes == again.size());
}

void read_with_good_checksums(std::string_view bodies) {
  std::string file(kJournalMagic);
  while (!bodies.empty()) {
    const size_t size = std::min<size_t>(static_cast<uint8_t>(bodies[0]), bodies.size() - 1);
    const bool rest = bodies[0] == '\xFF'; // a body may be longer than a byte tells
    append_record(file, file.size(), bodies.substr(1, rest ? std::string_view::npos : size));
    bodies.remove_prefix(rest ? bodies.size() : 1 + size);
  }
  read(file);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  read(bytes);
  read_with_good_checksums(bytes);
  return 0;
}
