#include "cli/logprob_table.hpp"

#include "cli/output.hpp"

#include <cmath>

namespace millrace {
namespace {

std::string percent(double logprob) {
  return format("%.1f %%", 100 * std::exp(logprob));
}

} // namespace

std::string logprob_head() {
  return "    at      id   log-prob  probability  token";
}

std::string logprob_row(int64_t position, TokenId id, std::string_view bytes, double logprob,
                        const std::vector<TokenLogprob>& top) {
  std::string row = format("%6lld  %6d  %9.4f  %11s  %s", static_cast<long long>(position), id, logprob,
                           percent(logprob).c_str(), quote(bytes).c_str());
  for (size_t i = 0; i < top.size(); ++i)
    row += (i == 0 ? "   of " : ", ") + quote(top[i].bytes.data) + ' ' + percent(top[i].logprob);
  return row;
}

} // namespace millrace
