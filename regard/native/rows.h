// Everything that works on one row, or on each number, by itself.

INLINE F8 sigmoid(F8 x) { return 1.0f / (1.0f + exp8(-x)); }

// 1 − (a₁t + … + a₅t⁵) e^(−z²) with t = 1 / (1 + p z): Abramowitz and Stegun 7.1.26, within 1.5e-7.
INLINE F8 error_function(F8 x) {
  const F8 z = magnitude(x), t = 1.0f / multiply_add(z, all(0.3275911f), all(1.0f));
  F8 y = all(1.061405429f);
  for (float c : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) y = multiply_add(y, t, all(c));
  y = 1.0f - y * t * exp8(-z * z);
  return x < 0.0f ? -y : y;
}

INLINE F8 activated(F8 x, Activation kind) {
  switch (kind) {
    case RELU: return larger(x, F8{});
    case RELU2: return larger(x, F8{}) * larger(x, F8{});
    case SILU: return x * sigmoid(x);
    case GELU: return 0.5f * x * (1.0f + error_function(x * 0.70710678f));
    case GELU_TANH: return x * sigmoid(1.5957691216f * multiply_add(x * x * x, all(0.044715f), x));
  }
  return x;
}

// f(row, first, last) for this thread's share of all numbers of all rows, cut where rows end.
template <class Function>
INLINE void each_piece(int64_t rows, int64_t width, Part part, Function f) {
  const Range own = part.split(rows * width, 16);
  for (int64_t i = own.first; i < own.last;) {
    const int64_t r = i / width, last = std::min(own.last, (r + 1) * width);
    f(r, i - r * width, last - r * width);
    i = last;
  }
}

inline void run(const Activate& op, const Batch&, int64_t rows, Part part) {
  each_piece(rows, op.x.width, part, [&](int64_t r, int64_t first, int64_t last) {
    float* x = op.x.row(r) + first;
    each8(x, last - first, [&](int64_t i, F8 v) {
      store_some(x + i, activated(v, op.kind), std::min<int64_t>(8, last - first - i));
    });
  });
}

inline void run(const Gate& op, const Batch&, int64_t rows, Part part) {
  each_piece(rows, op.out.width, part, [&](int64_t r, int64_t first, int64_t last) {
    const float* x = op.x.row(r) + first;
    float* out = op.out.row(r) + first;
    each8(x, last - first, [&](int64_t i, F8 v) {
      const int64_t count = std::min<int64_t>(8, last - first - i);
      store_some(out + i, activated(v, op.kind) * load_some(x + op.out.width + i, count), count);
    });
  });
}

inline void run(const Norm& op, const Batch&, int64_t rows, Part part) {
  const int64_t width = op.x.width;
  const Range own = part.split(rows);
  for (int64_t r = own.first; r < own.last; r++) {
    const float* x = op.x.row(r);
    float* out = op.out.row(r);
    F8 sum = {}, squares = {};
    if (!op.rms) each8(x, width, [&](int64_t, F8 v) { sum += v; });
    const float mean = sum_of(sum) / float(width);
    each8(x, width, [&](int64_t i, F8 v) {
      const F8 centred = first_of(v - mean, width - i);
      squares = multiply_add(centred, centred, squares);
    });
    const float shrink = 1 / std::sqrt(sum_of(squares) / float(width) + op.eps);
    for (int64_t i = 0; i < width; i++) out[i] = (x[i] - mean) * shrink * op.weight[i] + (op.bias ? op.bias[i] : 0.0f);
  }
}

INLINE float weight_at(const Matrix& m, int64_t row, int64_t i) {
  const int64_t width = m.padded();
  if (m.format == FLOAT32) return static_cast<const float*>(m.values)[row * m.columns + i];
  if (m.format == INT8) return float(static_cast<const int8_t*>(m.values)[row * width + i]) * m.scales[row];
  const int both = static_cast<const uint8_t*>(m.values)[(row * width + i / 32 * 32) / 2 + i % 16];
  return float((i % 32 < 16 ? both & 15 : both >> 4) - 8) * m.scales[(row * width + i) / 32];
}

inline void run(const Embed& op, const Batch& batch, int64_t rows, Part part) {
  each_piece(rows, op.out.width, part, [&](int64_t r, int64_t first, int64_t last) {
    const float* added = op.positions ? op.positions + batch.positions[r] * op.out.width : nullptr;
    float* out = op.out.row(r);
    for (int64_t i = first; i < last; i++)
      out[i] = weight_at(op.weight, batch.ids[r], i) * op.scale + (added ? added[i] : 0.0f);
  });
}

inline void run(const Rotate& op, const Batch& batch, int64_t rows, Part part) {
  const int64_t width = op.head_dim, half = width / 2, heads = op.x.width / width;
  const Range own = part.split(rows * heads);
  for (int64_t item = own.first; item < own.last; item++) {
    const int64_t r = item / heads;
    const float* cosines = op.angles + batch.positions[r] * width;
    const float* sines = cosines + op.positions * width;
    float* x = op.x.row(r) + item % heads * width;
    for (int64_t i = 0; i < half; i++) {
      const float a = x[i], b = x[i + half];
      x[i] = a * cosines[i] + b * sines[i];
      x[i + half] = b * cosines[i + half] + a * sines[i + half];
    }
  }
}

inline void run(const Unit& op, const Batch&, int64_t rows, Part part) {
  const int64_t heads = op.x.width / op.head_dim;
  const Range own = part.split(rows * heads);
  for (int64_t item = own.first; item < own.last; item++) {
    float* x = op.x.row(item / heads) + item % heads * op.head_dim;
    F8 squares = {};
    each8(x, op.head_dim, [&](int64_t, F8 v) { squares = multiply_add(v, v, squares); });
    const float shrink = 1 / std::sqrt(sum_of(squares) / float(op.head_dim) + op.eps);
    for (int64_t i = 0; i < op.head_dim; i++) x[i] *= shrink;
  }
}

inline void run(const Store& op, const Batch& batch, int64_t rows, Part part) {
  const Pages& pages = op.pages;
  const Range own = part.split(rows * pages.kv_heads);
  for (int64_t item = own.first; item < own.last; item++) {
    const int64_t r = item / pages.kv_heads, head = item % pages.kv_heads;
    const int64_t position = batch.positions[r], sequence = batch.sequences[r];
    const int32_t* table = op.source ? batch.source_tables + sequence * batch.source_width
                                     : batch.tables + sequence * batch.table_width;
    const int64_t page = table[position / pages.size], at = position % pages.size * pages.head_dim;
    std::copy_n(op.k.row(r) + head * pages.head_dim, pages.head_dim, pages.keys(page, head) + at);
    std::copy_n(op.v.row(r) + head * pages.head_dim, pages.head_dim, pages.values(page, head) + at);
  }
}

inline void run(const Gather& op, const Batch& batch, int64_t rows, Part part) {
  const Range own = part.split(rows);
  for (int64_t r = own.first; r < own.last; r++) std::copy_n(op.x.row(batch.wanted[r]), op.x.width, op.out.row(r));
}

// The `count` highest of a row, best first, the lower id where two are equal; forbidden ones count in the sum alone.
inline void best_of(const float* scores, int64_t width, int64_t count, const int32_t* forbidden,
                    int64_t forbidden_count, int32_t* ids, float* log_probs) {
  constexpr float NOTHING = -INFINITY;
  F8 most = all(-3e38f), sum = {};
  for (int64_t i = 0; i + 8 <= width; i += 8) most = larger(load8(scores + i), most);
  float largest = largest_of(most);
  for (int64_t i = width / 8 * 8; i < width; i++) largest = scores[i] > largest ? scores[i] : largest;
  each8(scores, width, [&](int64_t i, F8 v) { sum += first_of(exp8(v - largest), width - i); });
  const float log_sum = largest + std::log(sum_of(sum));

  const auto score = [&](int32_t id) { return scores[id] == scores[id] ? scores[id] : NOTHING; };  // no number: last
  const auto better = [&](int32_t a, int32_t b) { return score(a) > score(b) || (score(a) == score(b) && a < b); };
  int64_t found = 0;  // ids[0 … found] is a heap with the worst on top
  float worst = NOTHING;
  for (int64_t i = 0; i < width; i++) {
    while (found == count && i + 8 <= width && !any_above(load8(scores + i), worst)) i += 8;
    if (i == width || (found == count && !(scores[i] > worst))) continue;
    const int32_t id = int32_t(i);
    if (std::find(forbidden, forbidden + forbidden_count, id) != forbidden + forbidden_count) continue;
    if (found == count) std::pop_heap(ids, ids + found--, better);
    ids[found++] = id;
    std::push_heap(ids, ids + found, better);
    worst = score(ids[0]);
  }
  std::sort_heap(ids, ids + found, better);
  for (int64_t i = 0; i < found; i++) log_probs[i] = score(ids[i]) - log_sum;
}
