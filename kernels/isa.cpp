#include "kernels/isa.hpp"

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

const char* to_string(Isa isa) {
  switch (isa) {
  case Isa::scalar: return "scalar";
  case Isa::avx2: return "avx2";
  case Isa::avx512: return "avx512";
  case Isa::avx512vnni: return "avx512vnni";
  }
  return "unknown";
}

std::span<const Isa> available_isas() {
  static const std::vector<Isa> isas = [] {
    std::vector<Isa> found;
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                      && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    if (avx512 && __builtin_cpu_supports("avx512vnni")) found.push_back(Isa::avx512vnni);
    if (avx512) found.push_back(Isa::avx512);
    if (avx2) found.push_back(Isa::avx2);
    found.push_back(Isa::scalar);
    return found;
  }();
  return isas;
}

Isa active_isa() {
  static const Isa active = [] {
    const char* wanted = std::getenv("MILLRACE_ISA");
    if (!wanted || !*wanted) return available_isas().front();
    std::string known;
    for (Isa isa : available_isas()) {
      if (std::string_view{wanted} == to_string(isa)) return isa;
      known += (known.empty() ? "" : ", ") + std::string(to_string(isa));
    }
    throw std::runtime_error("MILLRACE_ISA names no path of this machine; it has: " + known);
  }();
  return active;
}

} // namespace millrace
