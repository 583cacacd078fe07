#include "tools/load/report.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace millrace::load {

double Samples::quantile(double share) const {
  if (values_.empty())
    return 0;
  std::sort(values_.begin(), values_.end());
  const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(values_.size())));
  return values_[std::clamp<size_t>(rank, 1, values_.size()) - 1];
}

std::string Samples::milliseconds() const {
  char text[96];
  std::snprintf(text, sizeof text, "p50 %.1f, p99 %.1f, max %.1f ms", quantile(0.5), quantile(0.99), quantile(1));
  return text;
}

ProcessUsage usage_of(int pid) {
  ProcessUsage usage;
  const std::string folder = "/proc/" + std::to_string(pid);
  if (std::ifstream statm(folder + "/statm"); statm) {
    int64_t total = 0, resident = 0;
    statm >> total >> resident;
    usage.resident_bytes = resident * sysconf(_SC_PAGESIZE);
  }
  if (std::ifstream stat(folder + "/stat"); stat) {
    std::string text;
    std::getline(stat, text);
    text.erase(0, text.rfind(')') + 2); // the name may hold anything
    unsigned long user = 0, system = 0;
    // state ppid pgrp session tty tpgid flags minflt cminflt majflt cmajflt utime stime
    std::sscanf(text.c_str(), "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system);
    usage.cpu_seconds = static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder + "/fd", error), end; !error && entry != end; entry.increment(error))
    ++usage.descriptors;
  return usage;
}

void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(stdout);
}

} // namespace millrace::load
