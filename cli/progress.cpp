#include "cli/progress.hpp"

#include "cli/output.hpp"

#include <algorithm>
#include <cstdio>

namespace millrace {
namespace {

constexpr int kBarWidth = 32;
constexpr std::chrono::milliseconds kPatience{200};

} // namespace

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), enabled_(stderr_is_terminal()) {}

ProgressBar::~ProgressBar() {
  if (drawn_)
    std::fputs("\r\033[K", stderr);
}

void ProgressBar::update(double share) {
  const int percent = std::clamp(int(share * 100), 0, 100);
  if (!enabled_ || percent == percent_ || std::chrono::steady_clock::now() - begin_ < kPatience)
    return;
  percent_ = percent;
  drawn_ = true;
  const int filled = percent * kBarWidth / 100;
  std::fprintf(stderr, "\r\033[K%s [%s%s] %d %%", what_.c_str(), std::string(size_t(filled), '#').c_str(),
               std::string(size_t(kBarWidth - filled), ' ').c_str(), percent);
}

} // namespace millrace
