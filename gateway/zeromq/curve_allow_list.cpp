#include "gateway/zeromq/curve_allow_list.hpp"

#include "gateway/zeromq/curve_key.hpp"
#include "messages/report.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <utility>

namespace millrace {
namespace {

constexpr size_t kMaxFileBytes = 4u << 20;
constexpr unsigned kWritableByOthers = 022;

} // namespace

std::variant<CurveKeys, std::string> parse_curve_keys(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  CurveKeys keys;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(kSpace)));
    const std::string_view key = line.substr(0, line.find_first_of(kSpace));
    // '#' is the highest digit of Z85, but five digits that begin with it exceed 32 bits: no key does.
    if (key.empty() || key.starts_with('#'))
      continue;
    if (is_curve_key(key))
      keys.emplace(key);
    else
      return "line " + std::to_string(number) + " is no key (40 characters of Z85) and no comment";
  }
  return keys;
}

CurveAllowList::CurveAllowList(std::filesystem::path file)
    : file_(std::move(file)), stamp_(stamp()), keys_(read()) {
  if (keys_.empty())
    throw std::runtime_error("\"" + file_.string() + "\" holds no key, so nobody could connect");
}

bool CurveAllowList::allows(std::string_view public_key) {
  try {
    if (const Stamp now = stamp(); now != stamp_) {
      keys_.clear();
      stamp_ = now; // before it is read: a change in between is seen next time
      keys_ = read();
    }
  } catch (const std::exception& error) {
    report("gateway", std::string("nobody may connect: ") + error.what());
  }
  return keys_.contains(public_key);
}

CurveAllowList::Stamp CurveAllowList::stamp() const {
  struct stat status;
  if (::stat(file_.c_str(), &status) != 0)
    return {};
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = static_cast<uint64_t>(status.st_size),
          .seconds = status.st_mtim.tv_sec,
          .nanoseconds = status.st_mtim.tv_nsec,
          .change_seconds = status.st_ctim.tv_sec,
          .change_nanoseconds = status.st_ctim.tv_nsec};
}

CurveKeys CurveAllowList::read() const {
  auto keys = parse_curve_keys(read_trusted_file(file_, kMaxFileBytes, kWritableByOthers));
  if (const auto* wrong = std::get_if<std::string>(&keys))
    throw std::runtime_error("\"" + file_.string() + "\": " + *wrong);
  return std::get<CurveKeys>(std::move(keys));
}

} // namespace millrace
