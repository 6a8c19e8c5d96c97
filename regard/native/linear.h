// out = x weightᵀ + bias. Tiles of a few weights' rows × a few rows of x stay in registers; a strip of weights in the
// first cache, a block of x in the second. The order of every sum depends on the number of columns alone, never on the
// tile: a row's result is the same whatever rows are beside it. With few rows the memory sets the pace, so every step
// asks for weights that come later; how far ahead is measured.

constexpr int ACROSS = 4, DOWN = 3, ROWS = 48;  // rows of weights and of x in a tile, rows of x in a block
using Sums = float (*)[ACROSS];

template <int N, int R, class V>
INLINE void add_sums(V (&acc)[R][N], Sums sums) {
  for (int r = 0; r < R; r++) {
    if (N == 4) {
      store(sums[r], load<F4>(sums[r]) + sums_of(acc[r][0], acc[r][1 % N], acc[r][2 % N], acc[r][3 % N]));
    } else {
      for (int n = 0; n < N; n++) sums[r][n] += sum_of(acc[r][n]);
    }
  }
}

struct Float32 {
  using Input = float;
  static constexpr int64_t BLOCK = 1024;

  template <int N, int R>
  static void tile(const Matrix& m, int64_t n0, Range k, const float* x, int64_t stride, Sums sums) {
    const float* w = static_cast<const float*>(m.values) + n0 * m.columns;
    F8 acc[R][N] = {};
    int64_t i = k.first;
    for (; i + 8 <= k.last; i += 8) {
      F8 in[R];
      for (int r = 0; r < R; r++) in[r] = load8(x + r * stride + i);
      for (int n = 0; n + 1 < N; n += 2) __builtin_prefetch(w + (N + n + i / 8 % 2) * m.columns + i, 0, 2);
      for (int n = 0; n < N; n++) {
        F8 weight = load8(w + n * m.columns + i);
        for (int r = 0; r < R; r++) acc[r][n] = multiply_add(weight, in[r], acc[r][n]);
      }
    }
    if (i < k.last) {
      for (int n = 0; n < N; n++) {
        F8 weight = load_some(w + n * m.columns + i, k.last - i);
        for (int r = 0; r < R; r++)
          acc[r][n] = multiply_add(weight, load_some(x + r * stride + i, k.last - i), acc[r][n]);
      }
    }
    add_sums<N, R>(acc, sums);
  }
};

struct Int8 {
  using Input = int16_t;
  static constexpr int64_t BLOCK = 2048;  // 127 · 2047 · 2048 < 2³¹

  template <int N, int R>
  static void tile(const Matrix& m, int64_t n0, Range k, const int16_t* x, int64_t stride, Sums sums) {
    const int64_t width = m.padded();
    const int8_t* w = static_cast<const int8_t*>(m.values) + n0 * width;
    I8 acc[R][N] = {};
    for (int64_t i = k.first; i < k.last; i += 16) {
      H16 in[R];
      for (int r = 0; r < R; r++) in[r] = load<H16>(x + r * stride + i);
      if (N == 4) __builtin_prefetch(w + 16384 + N * i, 0, 2);
      for (int n = 0; n < N; n++) {
        H16 weight = widen(w + n * width + i);
        for (int r = 0; r < R; r++) acc[r][n] += pair_products(weight, in[r]);
      }
    }
    add_sums<N, R>(acc, sums);
  }
};

struct Int4 {
  using Input = int16_t;
  static constexpr int64_t BLOCK = 4096;

  template <int N, int R>
  static void tile(const Matrix& m, int64_t n0, Range k, const int16_t* x, int64_t stride, Sums sums) {
    const int64_t width = m.padded();
    const uint8_t* w = static_cast<const uint8_t*>(m.values) + n0 * width / 2;
    const float* scales = m.scales + n0 * width / 32;
    F8 acc[R][N] = {};
    for (int64_t i = k.first; i < k.last; i += 32) {
      if (N == 4) __builtin_prefetch(w + 4096 + N * i / 2);
      for (int n = 0; n < N; n++) {
        H16 both = widen(w + (n * width + i) / 2);
        H16 low = (both & 15) - 8, high = (both >> 4) - 8;
        F8 scale = all(scales[(n * width + i) / 32]);
        for (int r = 0; r < R; r++) {
          const int16_t* in = x + r * stride + i;
          I8 found = pair_products(low, load<H16>(in)) + pair_products(high, load<H16>(in + 16));
          acc[r][n] = multiply_add(to_float(found), scale, acc[r][n]);
        }
      }
    }
    add_sums<N, R>(acc, sums);
  }
};

// N rows of the weights from `n`, with all rows of x in a block.
template <class Kind, int N>
INLINE void strip(const Matrix& m, int64_t n, Range k, const typename Kind::Input* x, int64_t stride, int64_t rows,
                  Sums sums) {
  int64_t r = 0;
  for (; r + DOWN <= rows; r += DOWN) Kind::template tile<N, DOWN>(m, n, k, x + r * stride, stride, sums + r);
  if (rows - r == 2) Kind::template tile<N, 2>(m, n, k, x + r * stride, stride, sums + r);
  if (rows - r == 1) Kind::template tile<N, 1>(m, n, k, x + r * stride, stride, sums + r);
}

// Scales, bias and what stands there already, for the sums of one row: four of them, or one.
template <class V>
INLINE void finish(const Linear& op, int64_t row, int64_t n, const float* sums) {
  V y = load<V>(sums);
  if (op.weight.format != FLOAT32) y *= op.quantized->scales[row];
  if (op.weight.format == INT8) y *= load<V>(op.weight.scales + n);
  if (op.bias) y += load<V>(op.bias + n);
  float* out = op.out.row(row) + n;
  store(out, op.add ? load<V>(out) + y : y);
}

template <class Kind>
void multiply(const Linear& op, const typename Kind::Input* x, int64_t stride, int64_t rows, Range columns) {
  const Matrix& m = op.weight;
  const int64_t inner = m.format == FLOAT32 ? m.columns : m.padded();
  for (int64_t row = 0; row < rows; row += ROWS, x += ROWS * stride) {
    const int64_t height = std::min<int64_t>(ROWS, rows - row);
    for (int64_t n = columns.first, width; n < columns.last; n += width) {
      width = columns.last - n >= ACROSS ? ACROSS : 1;
      float sums[ROWS][ACROSS];
      memset(sums, 0, size_t(height) * sizeof sums[0]);
      for (int64_t first = 0; first < inner; first += Kind::BLOCK) {
        const Range k = {first, std::min(first + Kind::BLOCK, inner)};
        if (width == ACROSS) strip<Kind, ACROSS>(m, n, k, x, stride, height, sums);
        else strip<Kind, 1>(m, n, k, x, stride, height, sums);
      }
      for (int64_t r = 0; r < height; r++)
        width == ACROSS ? finish<F4>(op, row + r, n, sums[r]) : finish<float>(op, row + r, n, sums[r]);
    }
  }
}

// x ≈ q · scale with q in −2047 … 2047.
inline float quantize(const float* x, int64_t count, int16_t* q, int64_t padded) {
  F8 most = {};
  each8(x, count, [&](int64_t, F8 v) { most = larger(magnitude(v), most); });
  const float scale = largest_of(most) / 2047.0f;
  const F8 steps = all(scale > 0 ? scale : 1.0f);
  each8(x, count, [&](int64_t i, F8 v) { store(q + i, __builtin_convertvector(rounded(v / steps), H8)); });
  for (int64_t i = (count + 7) / 8 * 8; i < padded; i += 8) store(q + i, H8{});
  return scale;
}

inline void run(const Quantize& op, const Batch&, int64_t rows, Part part) {
  const int64_t stride = Quantized::stride(op.weight);
  const Range own = part.split(rows);
  for (int64_t r = own.first; r < own.last; r++) {
    const float* x = op.x.row(r);
    const int64_t count = op.weight.columns, padded = op.weight.padded();
    if (op.weight.format == BYTES)
      quantize_bytes(x, count, op.out->bytes() + r * stride, padded, &op.out->scales[r], &op.out->zeros[r]);
    else
      op.out->scales[r] = quantize(x, count, op.out->values() + r * stride, padded);
  }
}

inline void run(const Linear& op, const Batch&, int64_t rows, Part part) {
  if (op.weight.format == BYTES) {  // in parts by what there is more of
    const bool tall = rows * STRIP > op.weight.rows * TALL;
    multiply_bytes(op, tall ? part.split(rows, TALL) : Range{0, rows},
                   tall ? Range{0, op.weight.rows} : part.split(op.weight.rows, STRIP));
    return;
  }
  const Range columns = part.split(op.weight.rows, 8);
  const int64_t stride = Quantized::stride(op.weight);
  if (op.weight.format == FLOAT32) multiply<Float32>(op, op.x.first, op.x.stride, rows, columns);
  if (op.weight.format == INT8) multiply<Int8>(op, op.quantized->values(), stride, rows, columns);
  if (op.weight.format == INT4) multiply<Int4>(op, op.quantized->values(), stride, rows, columns);
}
