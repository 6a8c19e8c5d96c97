// What a program is made of: operations as plain structs, the rows of one run, and the threads that run it.
// The docstrings of program.py say what each operation computes.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <vector>

struct Columns {
  float* first;
  int64_t stride, width;
  float* row(int64_t r) const { return first + r * stride; }
};

enum Format : int { FLOAT32, INT8, INT4, BYTES };
enum Activation : int { RELU, GELU, GELU_TANH, SILU, RELU2 };

struct Matrix {
  const void* values;
  const float* scales;
  int64_t rows, columns;
  int64_t format;
  int64_t padded() const { return (columns + 31) / 32 * 32; }
};

// Pages 2 G P K of one layer: k of page p and head g are P × K numbers in one piece.
struct Pages {
  float* first;
  int64_t kv_heads, size, head_dim;
  float* keys(int64_t page, int64_t head) const { return first + (page * 2 * kv_heads + head) * size * head_dim; }
  float* values(int64_t page, int64_t head) const { return keys(page, head + kv_heads); }
};

struct Heads {
  int64_t heads, kv_heads, head_dim;
  float scale;
  const float* bias;
  int64_t bias_stride, zero;
};

struct Batch {
  const int32_t *ids, *positions, *sequences, *wanted, *tables, *source_tables, *source_lengths, *begins, *ends;
  int64_t rows, wanted_rows, table_width, source_width;
};

// The rows that a quantised layer reads, as whole numbers with a scale each; all layers of a program share them.
struct Quantized {
  struct alignas(64) Line { int16_t values[32]; };  // loads that cross a line of the cache take twice as long
  std::vector<Line> lines;
  std::vector<float> scales;
  std::vector<int32_t> zeros;
  int16_t* values() { return lines.data()->values; }
  uint8_t* bytes() { return reinterpret_cast<uint8_t*>(values()); }
  static int64_t stride(const Matrix& m) { return m.padded() + 32; }  // rows that are 4096 apart push each other out
};

struct Embed { Columns out; Matrix weight; float scale; const float* positions; };
struct Norm { Columns x, out; bool rms; const float *weight, *bias; float eps; };
struct Quantize { Columns x; Matrix weight; Quantized* out; };
struct Linear { Columns x, out; Matrix weight; const float* bias; bool add; Quantized* quantized; };
struct Activate { Columns x; Activation kind; };
struct Gate { Columns x, out; Activation kind; };
struct Rotate { Columns x; int64_t head_dim; const float* angles; int64_t positions; };
struct Unit { Columns x; int64_t head_dim; float eps; };
struct Store { Columns k, v; Pages pages; bool source; };
struct Attend { Columns q, out; Heads how; Pages pages; bool source; };
struct AttendRows { Columns q, k, v, out; Heads how; };
struct Gather { Columns x, out; };

struct Range { int64_t first, last; };

// One of `count` equal parts of an operation.
struct Part {
  int64_t index, count;
  Range split(int64_t items, int64_t unit = 1) const {  // in whole units
    const int64_t units = (items + unit - 1) / unit;
    return {units * index / count * unit, std::min(items, units * (index + 1) / count * unit)};
  }
};
