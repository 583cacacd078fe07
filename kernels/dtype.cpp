#include "kernels/dtype.hpp"

#include <cassert>

namespace millrace {

std::optional<DType> dtype_from_id(uint32_t ggml_type) {
  switch (const auto type = static_cast<DType>(ggml_type)) {
  case DType::f32: case DType::f16: case DType::q4_0: case DType::q4_1: case DType::q5_0: case DType::q5_1:
  case DType::q8_0: case DType::q2_k: case DType::q3_k: case DType::q4_k: case DType::q5_k: case DType::q6_k:
  case DType::iq4_nl: case DType::iq4_xs: case DType::bf16:
    return type;
  }
  return std::nullopt;
}

const DTypeTraits& traits(DType type) {
  static constexpr DTypeTraits f32{"F32", 1, 4}, f16{"F16", 1, 2}, bf16{"BF16", 1, 2}, q4_0{"Q4_0", 32, 18},
    q4_1{"Q4_1", 32, 20}, q5_0{"Q5_0", 32, 22}, q5_1{"Q5_1", 32, 24}, q8_0{"Q8_0", 32, 34},
    q2_k{"Q2_K", 256, 84}, q3_k{"Q3_K", 256, 110}, q4_k{"Q4_K", 256, 144}, q5_k{"Q5_K", 256, 176},
    q6_k{"Q6_K", 256, 210}, iq4_nl{"IQ4_NL", 32, 18}, iq4_xs{"IQ4_XS", 256, 136};
  switch (type) {
  case DType::f32: return f32;
  case DType::f16: return f16;
  case DType::bf16: return bf16;
  case DType::q4_0: return q4_0;
  case DType::q4_1: return q4_1;
  case DType::q5_0: return q5_0;
  case DType::q5_1: return q5_1;
  case DType::q8_0: return q8_0;
  case DType::q2_k: return q2_k;
  case DType::q3_k: return q3_k;
  case DType::q4_k: return q4_k;
  case DType::q5_k: return q5_k;
  case DType::q6_k: return q6_k;
  case DType::iq4_nl: return iq4_nl;
  case DType::iq4_xs: return iq4_xs;
  }
  assert(false && "a DType comes from dtype_from_id");
  return f32;
}

} // namespace millrace
