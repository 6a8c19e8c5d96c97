// Eight numbers at a time. Included once for each kind of processor, in a namespace of its own: vectors of the compiler
// everywhere, and instructions by name where it would not find them.

typedef float F8 __attribute__((vector_size(32)));
typedef float F4 __attribute__((vector_size(16)));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef int32_t I4 __attribute__((vector_size(16)));
typedef uint32_t U8 __attribute__((vector_size(32)));
typedef int16_t H16 __attribute__((vector_size(32)));
typedef int16_t H8 __attribute__((vector_size(16)));
typedef int8_t B16 __attribute__((vector_size(16)));
typedef uint8_t N16 __attribute__((vector_size(16)));
typedef uint8_t N8 __attribute__((vector_size(8)));

template <class V, class T>
INLINE V load(const T* from) {  // memory of any alignment
  V v;
  memcpy(&v, from, sizeof v);
  return v;
}
template <class V, class T>
INLINE void store(T* to, V v) {
  memcpy(to, &v, sizeof v);
}
INLINE F8 load8(const float* from) { return load<F8>(from); }
INLINE F8 load_some(const float* from, int64_t count) {  // fewer than eight, then zeros
  F8 v = {};
  memcpy(&v, from, size_t(count) * sizeof(float));
  return v;
}
INLINE void store_some(float* to, F8 v, int64_t count) { memcpy(to, &v, size_t(count) * sizeof(float)); }
INLINE F8 all(float x) { return F8{x, x, x, x, x, x, x, x}; }
INLINE F8 larger(F8 a, F8 b) { return a > b ? a : b; }
INLINE F8 smaller(F8 a, F8 b) { return a < b ? a : b; }
INLINE F8 magnitude(F8 a) { return (F8)((I8)a & 0x7fffffff); }

INLINE F8 first_of(F8 v, int64_t count) {  // zeros behind so many
  for (int64_t i = count; i < 8; i++) v[i] = 0;
  return v;
}

// f(i, v) for every eight of `count` numbers, the last ones filled with zeros.
template <class Function>
INLINE void each8(const float* x, int64_t count, Function f) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) f(i, load8(x + i));
  if (i < count) f(i, load_some(x + i, count - i));
}

#ifdef WIDE
INLINE F8 multiply_add(F8 a, F8 b, F8 c) { return _mm256_fmadd_ps(a, b, c); }
INLINE bool any_above(F8 a, float least) { return _mm256_movemask_ps((F8)(a > least)); }
INLINE I8 pair_products(H16 a, H16 b) { return (I8)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
// In each place, the sum of four bytes of x times four of w; two neighbouring products must fit into 16 bits.
INLINE I8 four_products(const uint8_t* x, I8 w) {
  const __m256i two = _mm256_maddubs_epi16(_mm256_set1_epi32(load<int32_t>(x)), (__m256i)w);
  return (I8)_mm256_madd_epi16(two, _mm256_set1_epi16(1));
}
INLINE H16 widen(const int8_t* from) { return (H16)_mm256_cvtepi8_epi16(load<__m128i>(from)); }
INLINE H16 widen(const uint8_t* from) { return (H16)_mm256_cvtepu8_epi16(load<__m128i>(from)); }
INLINE F8 to_float(I8 a) { return _mm256_cvtepi32_ps((__m256i)a); }
INLINE N8 bytes_of(I8 a) {  // the nearest of 0 … 255
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
  return (N8)_mm_cvtsi128_si64(_mm_packus_epi16(words, words));
}
INLINE F4 sums_of(F8 a, F8 b, F8 c, F8 d) {
  F8 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm256_castps256_ps128(s) + _mm256_extractf128_ps(s, 1);
}
INLINE F4 sums_of(I8 a, I8 b, I8 c, I8 d) {
  __m256i ab = _mm256_hadd_epi32((__m256i)a, (__m256i)b), cd = _mm256_hadd_epi32((__m256i)c, (__m256i)d);
  __m256i s = _mm256_hadd_epi32(ab, cd);
  return _mm_cvtepi32_ps(_mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1)));
}
#else
INLINE F8 multiply_add(F8 a, F8 b, F8 c) { return a * b + c; }
INLINE bool any_above(F8 a, float least) {
  bool any = false;
  for (int i = 0; i < 8; i++) any |= a[i] > least;
  return any;
}
INLINE I8 pair_products(H16 a, H16 b) {
  I8 sums;
  for (int i = 0; i < 8; i++) sums[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  return sums;
}
INLINE I8 four_products(const uint8_t* x, I8 w) {
  I8 sums = {};
  for (int i = 0; i < 4; i++) sums += ((I8)((U8)w << (24 - 8 * i)) >> 24) * int32_t(x[i]);
  return sums;
}
INLINE H16 widen(const int8_t* from) { return __builtin_convertvector(load<B16>(from), H16); }
INLINE H16 widen(const uint8_t* from) { return __builtin_convertvector(load<N16>(from), H16); }
INLINE F8 to_float(I8 a) { return __builtin_convertvector(a, F8); }
INLINE N8 bytes_of(I8 a) { return __builtin_convertvector(a < 0 ? I8{} : a > 255 ? I8{} + 255 : a, N8); }
template <class V>
INLINE F4 sums_of(V a, V b, V c, V d) {
  V in[4] = {a, b, c, d};
  F4 sums;
  for (int i = 0; i < 4; i++) {
    V v = in[i];
    sums[i] = float(((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7])));
  }
  return sums;
}
#endif

// Each of the four sums has the order ((0+1)+(2+3)) + ((4+5)+(6+7)), so that one alone is the same as among others.
template <class V>
INLINE float sum_of(V a) {
  return sums_of(a, V{}, V{}, V{})[0];
}
INLINE float largest_of(F8 a) {
  float most = a[0];
  for (int i = 1; i < 8; i++) most = a[i] > most ? a[i] : most;
  return most;
}

// The nearest whole number stands in the low bits of x + 1.5 · 2²³.
constexpr float ROUNDING = 12582912.0f;
INLINE I8 rounded(F8 x) { return (I8)(x + ROUNDING) - (I8)all(ROUNDING); }

// 2ⁿ · eʳ with n = round(x / ln 2) and |r| ≤ ln 2 / 2; for x from −87 to 88, and the value at the end beyond.
INLINE F8 exp8(F8 x) {
  x = x < -87.0f ? all(-87.0f) : x > 88.0f ? all(88.0f) : x;
  F8 shifted = multiply_add(x, all(1.44269504f), all(ROUNDING));
  F8 n = shifted - ROUNDING;
  F8 r = multiply_add(n, all(-0.693359375f), x);  // ln 2 in two parts, the first of few bits
  r = multiply_add(n, all(2.12194440e-4f), r);
  F8 y = all(1.9875691500e-4f);  // the minimax polynomial of Cephes' expf
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    y = multiply_add(y, r, all(c));
  y = multiply_add(y, r * r, r + 1.0f);
  return y * (F8)(((U8)shifted + 127u) << 23);
}
