// AVX-512 F, BW, VL, DQ for tile_loops.inl. Included inside a target region; VNNI adds its own dot.
struct Vec512 {
  static constexpr int kLanes = 16;
  static constexpr int kManyRows = 16;
  using Float = __m512;
  using Int = __m512i;

  static Int load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static Int zero_int() { return _mm512_setzero_si512(); }
  static Int ints(int32_t v) { return _mm512_set1_epi32(v); }
  static Int bytes(int8_t v) { return _mm512_set1_epi8(v); }
  static Int four(const int8_t* p) {
    int32_t v;
    std::memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
  }
  static Int bit_and(Int a, Int b) { return _mm512_and_si512(a, b); }
  static Int or_masked(Int a, Int b, Int mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xf8); }
  template <int n> static Int left(Int a) { return _mm512_slli_epi16(a, n); }
  template <int n> static Int right(Int a) { return _mm512_srli_epi16(a, n); }
  static Int add_int(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int sub_int(Int a, Int b) { return _mm512_sub_epi32(a, b); }
  static Int mul_int(Int a, Int b) { return _mm512_mullo_epi32(a, b); }
  static Int byte_of(Int a, int i) { return _mm512_and_si512(_mm512_srl_epi32(a, _mm_cvtsi32_si128(8 * i)), ints(255)); }
  static Int load_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)p)); }
  static Int load_i8(const uint8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)); }
  static Int table128(const int8_t* values) {
    const __m128i table = _mm_xor_si128(_mm_loadu_si128((const __m128i*)values), _mm_set1_epi8(-128));
    return _mm512_broadcast_i32x4(table);
  }
  static Int lookup(Int table, Int index) { return _mm512_shuffle_epi8(table, index); }

  static Float zero() { return _mm512_setzero_ps(); }
  static Float floats(float v) { return _mm512_set1_ps(v); }
  static Float load_f32(const void* p) { return _mm512_loadu_ps(p); }
  static Float load_f16(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
  static Float load_bf16(const uint8_t* p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p)), 16));
  }
  static Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }
  static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static Float abs(Float a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
  static void store(float* p, Float a) { _mm512_storeu_ps(p, a); }
  static void store_rounded(int32_t* p, Float a) { _mm512_storeu_si512(p, _mm512_cvtps_epi32(a)); } // to nearest even
};
