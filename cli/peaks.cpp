#include "cli/peaks.hpp"

#include "cli/progress.hpp"
#include "kernels/probe.hpp"

namespace millrace {

int threads_of(int threads) { return threads > 0 ? threads : physical_cores(); }

Rates measure_peaks(int threads, size_t probe_bytes) {
  ProgressBar bar("probing the machine");
  ThreadPool pool(threads_of(threads));
  const Isa isa = active_isa();
  Rates rates;
  rates.read_gb_s = probe_read_bandwidth(pool, probe_bytes, isa) / 1e9;
  bar.update(1.0 / 3);
  rates.int8_gop_s = probe_int8_rate(pool, isa) / 1e9;
  bar.update(2.0 / 3);
  rates.f32_gop_s = probe_f32_rate(pool, isa) / 1e9;
  return rates;
}

} // namespace millrace
