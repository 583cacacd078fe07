#include "messages/report.hpp"

#include <cstdio>
#include <mutex>
#include <utility>

namespace millrace {
namespace {

std::mutex mutex; // held during calls, so that a reporter is not in use when it is replaced
std::function<void(std::string_view, std::string_view)> reporter;

} // namespace

void report(std::string_view part, std::string_view text) {
  const std::lock_guard lock(mutex);
  if (reporter)
    return reporter(part, text);
  std::fprintf(stderr, "%.*s: %.*s\n", static_cast<int>(part.size()), part.data(),
               static_cast<int>(text.size()), text.data());
}

void set_reporter(std::function<void(std::string_view, std::string_view)> next) {
  const std::lock_guard lock(mutex);
  reporter = std::move(next);
}

} // namespace millrace
