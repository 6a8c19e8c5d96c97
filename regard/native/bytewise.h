// out = x weightᵀ + bias where many rows are multiplied: bytes on both sides, activations of 0 … 255 around a zero of
// their row's own. The instruction for two products keeps 16 bits; bytewise.py packs weights so that two neighbours,
// times 255, never need more. All sums are whole numbers: a row's result is the same whatever rows are beside it.

constexpr int STRIP = 32, TALL = 3;  // outputs and rows of a tile
constexpr int64_t STAY = 48;  // rows that stay in the cache while the weights pass by

// A strip is 32 rows of weights: their sums as 32 bits, then for every four columns the four weights of each row.
inline const int8_t* strip_of(const Matrix& m, int64_t n) {
  return static_cast<const int8_t*>(m.values) + n * (m.padded() + 4);
}

// Scales, bias and what stands there already, for eight outputs of one row; fewer behind the last whole strip.
template <bool WHOLE>
INLINE void finish_bytes(const Linear& op, int64_t row, int64_t n, I8 sums) {
  const int64_t count = op.weight.rows - n;
  const auto some = [=](const float* from) { return WHOLE || count >= 8 ? load8(from) : load_some(from, count); };
  if (!WHOLE && count <= 0) return;
  F8 y = to_float(sums) * op.quantized->scales[size_t(row)] * some(op.weight.scales + n);
  if (op.bias) y += some(op.bias + n);
  float* out = op.out.row(row) + n;
  if (op.add) y = some(out) + y;
  WHOLE || count >= 8 ? store(out, y) : store_some(out, y, count);
}

template <int R, bool WHOLE>
INLINE void tile_bytes(const Linear& op, const uint8_t* x, int64_t stride, int64_t row, int64_t n) {
  const int8_t *sums = strip_of(op.weight, n), *w = sums + 4 * STRIP;
  I8 acc[R][STRIP / 8] = {};
  for (int64_t i = 0; i < op.weight.columns; i += 4, w += 4 * STRIP)
    for (int r = 0; r < R; r++)
      for (int part = 0; part < STRIP / 8; part++)
        acc[r][part] += four_products(x + r * stride + i, load<I8>(w + 32 * part));
  for (int r = 0; r < R; r++)
    for (int part = 0; part < STRIP / 8; part++) {
      const I8 shift = op.quantized->zeros[size_t(row + r)] * load<I8>(sums + 32 * part);
      finish_bytes<WHOLE>(op, row + r, n + 8 * part, acc[r][part] - shift);
    }
}

// All rows of a block with one strip.
template <bool WHOLE>
void strip_bytes(const Linear& op, Range rows, int64_t n) {
  const int64_t stride = Quantized::stride(op.weight);
  int64_t r = rows.first;
  const auto x = [&] { return op.quantized->bytes() + r * stride; };
  for (; r + TALL <= rows.last; r += TALL) tile_bytes<TALL, WHOLE>(op, x(), stride, r, n);
  if (rows.last - r == 2) tile_bytes<2, WHOLE>(op, x(), stride, r, n);
  if (rows.last - r == 1) tile_bytes<1, WHOLE>(op, x(), stride, r, n);
}

inline void multiply_bytes(const Linear& op, Range rows, Range columns) {
  for (int64_t r = rows.first; r < rows.last; r += STAY)
    for (int64_t n = columns.first; n < columns.last; n += STRIP) {
      const Range block = {r, std::min(r + STAY, rows.last)};
      n + STRIP <= op.weight.rows ? strip_bytes<true>(op, block, n) : strip_bytes<false>(op, block, n);
    }
}

// x ≈ (q − zero) · scale with q in 0 … 255; the range of a row reaches to 0, which stays exact.
inline void quantize_bytes(const float* x, int64_t count, uint8_t* q, int64_t padded, float* scale, int32_t* zero) {
  F8 most = {}, least = {};
  I8 broken = {};
  each8(x, count, [&](int64_t, F8 v) {
    most = larger(v, most);
    least = smaller(v, least);
    broken |= (I8)(v - v);  // what is no number, or has no end, spoils its row
  });
  float low = 0, high = 0;
  bool whole = true;
  for (int i = 0; i < 8; i++) {
    low = std::min(low, least[i]);
    high = std::max(high, most[i]);
    whole &= broken[i] == 0;
  }
  const float span = high - low, inverse = span > 1e-35f ? 255.0f / span : 0.0f;
  const int32_t start = rounded(all(-low * inverse))[0];
  each8(x, count, [&](int64_t i, F8 v) { store(q + i, bytes_of(rounded(v * inverse) + start)); });
  for (int64_t i = (count + 7) / 8 * 8; i < padded; i++) q[i] = 0;
  *scale = whole ? span / 255.0f : NAN;
  *zero = whole ? start : 0;
}
