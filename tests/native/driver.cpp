// Every operation on odd sizes, zero rows and odd addresses, against plain loops. Run by test_sanitized.py, so that a
// read or write outside of what there is stops it.
#include "kernels.cpp"

#include <atomic>
#include <cstdio>
#include <random>
#include <thread>

static thread_local std::mt19937 source(1);
static std::atomic<int> failures{0};

static float number() { return std::normal_distribution<float>()(source); }
static int64_t below(int64_t end) { return int64_t(source() % uint64_t(end)); }

// Numbers in a piece of memory of exactly their size, which starts one behind an aligned address.
template <class T>
struct Odd {
  std::vector<T> memory;
  explicit Odd(int64_t count) : memory(size_t(count) + 1) {
    for (T& x : memory) x = std::is_same<T, float>::value ? T(number()) : T(below(255));
  }
  T* data() { return memory.data() + 1; }
  T& operator[](int64_t i) { return memory[size_t(i) + 1]; }
};
using Numbers = Odd<float>;

static void expect(const char* what, double got, double wanted, double tolerance) {
  if (std::abs(got - wanted) <= tolerance * (1 + std::abs(wanted))) return;
  if (failures++ < 20) printf("%s: got %g, wanted %g\n", what, got, wanted);
}

struct Buffer {
  int64_t rows, width;
  Numbers values;
  Buffer(int64_t rows, int64_t width) : rows(rows), width(width), values(rows * width) {}
  Columns columns(int64_t first, int64_t count) { return {values.data() + first, width, count}; }
  Columns all() { return columns(0, width); }
  float at(int64_t r, int64_t i) { return values[r * width + i]; }
};

static void run(Program* program, const Batch& batch, int64_t threads) {
  program_run(program, &batch, threads);
  program_free(program);
}

// Of a strip of 32 rows in bytewise.h: its sums, then the four weights of each row for every four columns.
static int64_t byte_at(int64_t n, int64_t i, int64_t padded) {
  return n / 32 * 32 * (padded + 4) + 128 + i / 4 * 128 + n % 32 * 4 + i % 4;
}

static void try_linear(int64_t format, int64_t rows, int64_t columns, int64_t outputs, bool add) {
  const int64_t padded = (columns + 31) / 32 * 32, groups = padded / 32;
  Buffer x(rows, columns), out(rows, outputs);
  const std::vector<float> before = out.values.memory;
  Numbers floats(outputs * columns), scales(outputs * (format == INT4 ? groups : 1)), bias(outputs);
  const int64_t strips = (outputs + 31) / 32;
  Odd<uint8_t> bytes(format == BYTES ? strips * 32 * (padded + 4) : outputs * (format == INT8 ? padded : padded / 2));
  if (format == BYTES)
    for (int64_t n = 0; n < strips * 32; n++) {
      int32_t sum = 0;
      for (int64_t i = 0; i < padded; i++) {
        const int64_t weight = i >= columns ? 0 : 64 * (2 * below(2) - 1);  // two of the largest fill 16 bits
        bytes[byte_at(n, i, padded)] = uint8_t(weight);
        sum += int32_t(weight);
      }
      memcpy(&bytes[n / 32 * 32 * (padded + 4) + n % 32 * 4], &sum, sizeof sum);
    }
  const void* values = format == FLOAT32 ? static_cast<const void*>(floats.data()) : bytes.data();
  const Matrix weight{values, scales.data(), outputs, columns, format};
  Batch batch{};
  batch.rows = rows;
  Program* program = program_new(std::max<int64_t>(rows, 1));
  add_linear(program, x.all(), out.all(), weight, bias.data(), add);
  run(program, batch, 1 + below(3));
  for (int64_t r = 0; r < rows; r++) {
    float most = 0, low = 0, high = 0;
    for (int64_t i = 0; i < columns; i++) {
      most = std::max(most, std::abs(x.at(r, i)));
      low = std::min(low, x.at(r, i));
      high = std::max(high, x.at(r, i));
    }
    const float step = format == BYTES ? (high - low) / 255 : most / 2047, inverse = 255 / (high - low);
    const float zero = std::nearbyint(-low * inverse);
    const auto byte = [=](float v) { return std::min(255.0f, std::max(0.0f, std::nearbyint(v * inverse) + zero)); };
    for (int64_t n = 0; n < outputs; n++) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < columns; i++) {
        double w = 0, in = format == FLOAT32 ? x.at(r, i) : std::nearbyint(x.at(r, i) / step) * step;
        if (format == BYTES) {
          in = double(byte(x.at(r, i)) - zero) * step;
          w = double(int8_t(bytes[byte_at(n, i, padded)])) * scales[n];
        }
        if (format == FLOAT32) w = floats[n * columns + i];
        if (format == INT8) w = double(int8_t(bytes[n * padded + i])) * scales[n];
        if (format == INT4) {
          const int both = bytes[(n * padded + i / 32 * 32) / 2 + i % 16];
          w = double((i % 32 < 16 ? both & 15 : both >> 4) - 8) * scales[n * groups + i / 32];
        }
        sum += w * in;
        size += std::abs(w * in);
      }
      sum += bias[n] + (add ? before[size_t(r * outputs + n) + 1] : 0);
      expect("linear", out.at(r, n), sum, 1e-5 * (1 + size));
    }
  }
}

static double activation(double x, Activation kind) {
  switch (kind) {
    case RELU: return std::max(x, 0.0);
    case RELU2: return std::max(x, 0.0) * std::max(x, 0.0);
    case SILU: return x / (1 + std::exp(-x));
    case GELU: return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case GELU_TANH: return x * 0.5 * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
  }
  return x;
}

static void try_rows(int64_t rows, int64_t heads, int64_t head_dim) {
  const int64_t width = heads * head_dim, places = 7;
  Buffer x(rows, width), normed(rows, width), active(rows, width), gated(rows, width / 2), turned(rows, width),
      last(rows, width), embedded(rows, width);
  Numbers weight(width), bias(width), angles(2 * places * head_dim), tokens(5 * width), table(places * width);
  std::vector<int32_t> ids, positions, wanted;
  for (int64_t r = 0; r < rows; r++) {
    ids.push_back(int32_t(below(5)));
    positions.push_back(int32_t(below(places)));
    wanted.push_back(int32_t(below(rows)));
  }
  Batch batch{};
  batch.ids = ids.data(), batch.positions = positions.data(), batch.wanted = wanted.data();
  batch.rows = batch.wanted_rows = rows;
  const Activation kind = Activation(below(5));
  std::copy(x.values.memory.begin(), x.values.memory.end(), active.values.memory.begin());
  std::copy(x.values.memory.begin(), x.values.memory.end(), turned.values.memory.begin());
  Program* program = program_new(std::max<int64_t>(rows, 1));
  add_embed(program, embedded.all(), Matrix{tokens.data(), nullptr, 5, width, FLOAT32}, 2.0f, table.data());
  add_norm(program, x.all(), normed.all(), false, weight.data(), bias.data(), 1e-5f);
  add_activate(program, active.all(), kind);
  if (width % 2 == 0) add_gate(program, x.all(), gated.all(), kind);
  add_unit(program, turned.all(), head_dim, 1e-5f);
  if (head_dim % 2 == 0) add_rotate(program, turned.all(), head_dim, angles.data(), places);
  add_gather(program, x.all(), last.all());
  run(program, batch, 1 + below(3));
  for (int64_t r = 0; r < rows; r++) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; i++) mean += x.at(r, i) / double(width);
    for (int64_t i = 0; i < width; i++) variance += (x.at(r, i) - mean) * (x.at(r, i) - mean) / double(width);
    for (int64_t i = 0; i < width; i++) {
      expect("embed", embedded.at(r, i), tokens[ids[r] * width + i] * 2 + table[positions[r] * width + i], 1e-6);
      expect("norm", normed.at(r, i), (x.at(r, i) - mean) / std::sqrt(variance + 1e-5) * weight[i] + bias[i], 1e-4);
      expect("activate", active.at(r, i), activation(x.at(r, i), kind), 2e-6);
      expect("gather", last.at(r, i), x.at(wanted[r], i), 0);
      double squares = 0;
      const int64_t start = i / head_dim * head_dim, other = (i - start + head_dim / 2) % head_dim;
      for (int64_t j = 0; j < head_dim; j++) squares += x.at(r, start + j) * x.at(r, start + j) / double(head_dim);
      const double shrink = 1 / std::sqrt(squares + 1e-5);
      const float* cosines = angles.data() + positions[r] * head_dim;
      const double y = head_dim % 2 ? x.at(r, i) * shrink
                                    : (x.at(r, i) * cosines[i - start] +
                                       x.at(r, start + other) * cosines[places * head_dim + i - start]) * shrink;
      expect("turn", turned.at(r, i), y, 1e-5);
    }
    for (int64_t i = 0; width % 2 == 0 && i < width / 2; i++)
      expect("gate", gated.at(r, i), activation(x.at(r, i), kind) * x.at(r, width / 2 + i), 1e-5);
  }
}

// Two sequences, one of them read as a source too; keys come through Store.
static void try_attention(int64_t length, int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t size) {
  const int64_t rows = 2 * length, width = heads * head_dim, kv_width = kv_heads * head_dim;
  const int64_t room = (length + size - 1) / size, pages = 2 * room;
  Buffer q(rows, width), kv(rows, 2 * kv_width), own(rows, width), read(rows, width), beside(rows, width);
  Numbers pool(pages * 2 * kv_width * size), bias(heads * (2 * length + 1));
  const Pages layer{pool.data(), kv_heads, size, head_dim};
  std::vector<int32_t> positions, sequences, tables, begins, ends, lengths(2, int32_t(length));
  for (int64_t r = 0; r < rows; r++) {
    positions.push_back(int32_t(r % length));
    sequences.push_back(int32_t(r / length));
    begins.push_back(int32_t(r / length * length));
    ends.push_back(int32_t((r / length + 1) * length));
  }
  for (int64_t page = 0; page < pages; page++) tables.push_back(int32_t(pages - 1 - page));
  Batch batch{};
  batch.positions = positions.data(), batch.sequences = sequences.data(), batch.rows = rows;
  batch.tables = batch.source_tables = tables.data(), batch.table_width = batch.source_width = room;
  batch.source_lengths = lengths.data(), batch.begins = begins.data(), batch.ends = ends.data();
  const Heads plain{heads, kv_heads, head_dim, 0.3f, nullptr, 0, 0};
  const Heads biased{heads, kv_heads, head_dim, 0.3f, bias.data(), 2 * length + 1, length};
  Program* program = program_new(std::max<int64_t>(rows, 1));
  const Columns k = kv.columns(0, kv_width), v = kv.columns(kv_width, kv_width);
  add_store(program, k, v, layer, below(2));
  add_attend(program, q.all(), own.all(), biased, layer, false);
  add_attend(program, q.all(), read.all(), plain, layer, true);
  add_attend_rows(program, q.all(), k, v, beside.all(), biased);
  run(program, batch, 1 + below(3));
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t head = 0; head < heads; head++) {
      const int64_t from = head * kv_heads / heads * head_dim, first = begins[r];
      const auto check = [&](const char* what, Buffer& got, int64_t count, bool with_bias) {
        std::vector<double> weights;
        double total = 0;
        for (int64_t j = 0; j < count; j++) {
          double score = 0;
          for (int64_t i = 0; i < head_dim; i++) score += q.at(r, head * head_dim + i) * kv.at(first + j, from + i);
          score = score * 0.3 + (with_bias ? bias[head * (2 * length + 1) + length + j - positions[r]] : 0);
          weights.push_back(std::exp(score));
          total += weights.back();
        }
        for (int64_t i = 0; i < head_dim; i++) {
          double sum = 0;
          for (int64_t j = 0; j < count; j++) sum += weights[j] / total * kv.at(first + j, kv_width + from + i);
          expect(what, got.at(r, head * head_dim + i), sum, 2e-5);
        }
      };
      check("attend", own, positions[r] + 1, true);
      check("attend to a source", read, length, false);
      check("attend to rows", beside, length, true);
    }
  }
}

static void try_best(int64_t rows, int64_t width, int64_t count) {
  Numbers scores(rows * width);
  Odd<int32_t> ids(rows * count);
  Numbers log_probs(rows * count);
  const std::vector<int32_t> forbidden = {0, 2};
  best(scores.data(), rows, width, width, count, forbidden.data(), 2, ids.data(), log_probs.data(), 2);
  for (int64_t r = 0; r < rows; r++) {
    double total = 0;
    std::vector<int32_t> order;
    for (int32_t i = 0; i < width; i++) {
      total += std::exp(double(scores[r * width + i]));
      if (i != 0 && i != 2) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) { return scores[r * width + a] > scores[r * width + b]; });
    for (int64_t i = 0; i < count; i++) {
      expect("best id", ids[r * count + i], order[size_t(i)], 0);
      expect("best", log_probs[r * count + i], scores[r * width + order[size_t(i)]] - std::log(total), 1e-5);
    }
  }
}

static void try_all() {
  for (int64_t format : {FLOAT32, INT8, INT4, BYTES})
    for (int64_t rows : {0, 1, 2, 5, 49})
      for (int64_t columns : {1, 9, 32, 67})
        for (int64_t outputs : {1, 6, 19, 33}) try_linear(format, rows, columns, outputs, below(2));
  for (int64_t format : {FLOAT32, INT8, INT4, BYTES}) try_linear(format, 2, 4131, 3, true);
  for (int64_t rows : {0, 1, 3, 11})
    for (int64_t head_dim : {1, 2, 7, 8, 30})
      for (int repeat = 0; repeat < 3; repeat++) try_rows(rows, 3, head_dim);
  for (int64_t length : {1, 6, 35})
    for (int64_t head_dim : {1, 6, 8, 71})
      for (int64_t size : {1, 5, 16, 33}) try_attention(length, 4, 2, head_dim, size);
  for (int64_t rows : {0, 1, 3}) try_best(rows, 29, 27), try_best(rows, 8, 1), try_best(rows, 301, 6);
  Program* empty = program_new(1);
  run(empty, Batch{}, 2);
}

// As a server does: several engines at a time, each with a program of its own.
int main(int count, char**) {
  std::vector<std::thread> others;
  for (int i = 1; i < count; i++) others.emplace_back(try_all);
  try_all();
  for (std::thread& other : others) other.join();
  if (failures) printf("%d numbers are wrong\n", failures.load());
  return failures > 0;
}
