// softmax(q·kᵀ · scale + bias) · v, some keys at a time: what was added up so far shrinks when a larger score comes.

constexpr int KEYS = 16;

struct Softmax {
  float largest = -1e30f, total = 0;
};

// Keys and values, `stride` numbers from one to the next.
struct Keys {
  const float *k, *v;
  int64_t stride, count;
};

// N · 8 columns of out = out · shrink + Σ weights[j] · v[j].
template <int N>
INLINE void add_values(const float* weights, const Keys& now, const Keys& next, int64_t at, F8 shrink, float* out) {
  F8 acc[N];
  for (int n = 0; n < N; n++) acc[n] = load8(out + at + 8 * n) * shrink;
  for (int64_t j = 0; j < now.count; j++) {
    const float* v = now.v + j * now.stride + at;
    for (int n = 0; n < N; n += 2) __builtin_prefetch(next.v + j * now.stride + at + 8 * n, 0, 2);
    for (int n = 0; n < N; n++) acc[n] = multiply_add(all(weights[j]), load8(v + 8 * n), acc[n]);
  }
  for (int n = 0; n < N; n++) store(out + at + 8 * n, acc[n]);
}

// One query and at most KEYS keys; those that come next are asked for meanwhile.
inline void meet_keys(const float* q, int64_t width, const Keys& now, const Keys& next, float scale, const float* bias,
                      Softmax& so_far, float* out) {
  float scores[KEYS];
  const int64_t count = now.count;
  for (int64_t j = 0; j < count; j += 4) {
    const float* key[4];  // past the end, the last one again
    for (int i = 0; i < 4; i++) key[i] = now.k + std::min(j + i, count - 1) * now.stride;
    const float* ahead = next.k + j * now.stride;
    F8 acc[4] = {};
    each8(q, width, [&](int64_t i, F8 query) {
      for (int n = int(i / 8 % 2); n < 4; n += 2) __builtin_prefetch(ahead + n * now.stride + i, 0, 2);
      for (int n = 0; n < 4; n++)
        acc[n] = multiply_add(query, i + 8 <= width ? load8(key[n] + i) : load_some(key[n] + i, width - i), acc[n]);
    });
    store(scores + j, sums_of(acc[0], acc[1], acc[2], acc[3]) * scale);
  }
  if (bias)
    for (int64_t j = 0; j < count; j++) scores[j] += bias[j];
  for (int64_t j = count; j < KEYS; j++) scores[j] = -1e30f;

  const F8 low = load8(scores), high = load8(scores + 8);
  const float largest = std::max(so_far.largest, largest_of(larger(low, high)));
  const F8 shrink = exp8(all(so_far.largest - largest));
  store(scores, exp8(low - largest));
  store(scores + 8, exp8(high - largest));
  for (int64_t j = count; j < KEYS; j++) scores[j] = 0;
  so_far.total = so_far.total * shrink[0] + sum_of(load8(scores) + load8(scores + 8));
  so_far.largest = largest;

  int64_t i = 0;
  for (; i + 64 <= width; i += 64) add_values<8>(scores, now, next, i, shrink, out);
  for (; i + 8 <= width; i += 8) add_values<1>(scores, now, next, i, shrink, out);
  for (; i < width; i++) {
    out[i] *= shrink[0];
    for (int64_t j = 0; j < count; j++) out[i] += scores[j] * now.v[j * now.stride + i];
  }
}

INLINE void finish(const Softmax& so_far, float* out, int64_t width) {
  const float share = so_far.total > 0 ? 1 / so_far.total : 0;
  for (int64_t i = 0; i < width; i++) out[i] *= share;
}

// Head by head, so that a thread reads the same keys for all rows of a sequence.
inline void run(const Attend& op, const Batch& batch, int64_t rows, Part part) {
  const Heads& how = op.how;
  const int64_t width = how.head_dim, size = op.pages.size;
  const int32_t* tables = op.source ? batch.source_tables : batch.tables;
  const int64_t table_width = op.source ? batch.source_width : batch.table_width;
  const auto keys = [&](int64_t item, int64_t start) {  // up to KEYS of them, all of one page
    const int64_t head = item / rows, r = item % rows, sequence = batch.sequences[r];
    const int64_t length = op.source ? batch.source_lengths[sequence] : batch.positions[r] + 1;
    if (start >= length) return Keys{nullptr, nullptr, width, 0};
    const int64_t page = tables[sequence * table_width + start / size], from = head * how.kv_heads / how.heads;
    const int64_t at = start % size, count = std::min({length - start, size - at, int64_t(KEYS)});
    return Keys{op.pages.keys(page, from) + at * width, op.pages.values(page, from) + at * width, width, count};
  };
  const Range own = part.split(rows * how.heads);
  for (int64_t item = own.first; item < own.last; item++) {
    const int64_t head = item / rows, r = item % rows;
    const float* bias = how.bias ? how.bias + head * how.bias_stride + how.zero - batch.positions[r] : nullptr;
    float* out = op.out.row(r) + head * width;
    std::fill_n(out, width, 0.0f);
    Softmax so_far;
    int64_t start = 0;
    for (Keys now = keys(item, 0), next; now.count > 0; now = next) {
      next = keys(item, start + now.count);
      const Keys ahead = next.count || item + 1 == own.last ? next : keys(item + 1, 0);
      meet_keys(op.q.row(r) + head * width, width, now, ahead, how.scale, bias ? bias + start : nullptr, so_far, out);
      start += now.count;
    }
    finish(so_far, out, width);
  }
}

inline void run(const AttendRows& op, const Batch& batch, int64_t rows, Part part) {
  const Heads& how = op.how;
  const int64_t width = how.head_dim;
  const Range own = part.split(rows * how.heads);
  for (int64_t item = own.first; item < own.last; item++) {
    const int64_t head = item / rows, r = item % rows, from = head * how.kv_heads / how.heads * width;
    const float* bias = how.bias ? how.bias + head * how.bias_stride + how.zero - r : nullptr;
    float* out = op.out.row(r) + head * width;
    std::fill_n(out, width, 0.0f);
    Softmax so_far;
    for (int64_t j = batch.begins[r]; j < batch.ends[r]; j += KEYS) {
      const int64_t count = std::min<int64_t>(KEYS, batch.ends[r] - j);
      const Keys now = {op.k.row(j) + from, op.v.row(j) + from, op.k.stride, count};
      const Keys next = {now.k + KEYS * now.stride, now.v + KEYS * now.stride, now.stride, 0};
      meet_keys(op.q.row(r) + head * width, width, now, next, how.scale, bias ? bias + j : nullptr, so_far, out);
    }
    finish(so_far, out, width);
  }
}
