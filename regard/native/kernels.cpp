// Programs of program.py, compiled: a plain C interface, which compiled.py calls. One parallel region runs a program.
#include "operations.h"

#include <sched.h>

#include <atomic>

#ifdef _OPENMP
#include <omp.h>
#endif

#define INLINE static inline __attribute__((always_inline))

namespace portable {
#include "simd.h"
#include "bytewise.h"
#include "linear.h"
#include "attend.h"
#include "rows.h"
}  // namespace portable

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace wide {
#define WIDE
#include "simd.h"
#include "bytewise.h"
#include "linear.h"
#include "attend.h"
#include "rows.h"
}  // namespace wide
#pragma GCC pop_options

static void relax() { _mm_pause(); }
// Asked whenever something is built, so that tests can have both kinds in one process.
static bool is_wide() {
  const char* portable = getenv("REGARD_PORTABLE");
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && !(portable && *portable == '1');
}
#else
namespace wide = portable;
static void relax() {}
static bool is_wide() { return false; }
#endif

// An operation in parts. Each thread has so many of its own, and helps the others when it is done with them.
struct Step {
  int64_t parts;
  std::function<void(const Batch&, Part)> run;
};

struct Program {
  std::vector<Step> steps;
  Quantized quantized;
  int64_t max_rows;
  bool gathered = false;  // from here on, rows are those that are wanted
};

template <class Operation>
static void add(Program* program, const Operation& op, int64_t parts = 1) {
  const auto run = [=, gathered = program->gathered, is_wide = is_wide()](const Batch& batch, Part part) {
    const int64_t rows = gathered ? batch.wanted_rows : batch.rows;
    is_wide ? wide::run(op, batch, rows, part) : portable::run(op, batch, rows, part);
  };
  program->steps.push_back({parts, run});
}

struct alignas(64) Counter {
  std::atomic<int64_t> value{0};
};

// Runs steps one after the other. Nobody waits for a thread that the system has sent away, unless it was in the middle
// of a part: the others do its parts, and it finds them done when it comes back.
static void run_steps(const std::vector<Step>& steps, const Batch& batch, int64_t most) {
  std::vector<Counter> taken(steps.size() * size_t(most)), done(steps.size());
  const auto work = [&](int64_t thread, int64_t threads) {
    for (size_t s = 0; s < steps.size(); s++) {
      const int64_t parts = steps[s].parts, all = parts * threads;
      for (int64_t i = 0; i < threads; i++) {
        const int64_t owner = (thread + i) % threads;
        std::atomic<int64_t>& next = taken[s * size_t(most) + size_t(owner)].value;
        for (int64_t part; (part = next.fetch_add(1)) < parts; done[s].value.fetch_add(1))
          steps[s].run(batch, {owner * parts + part, all});
      }
      for (int spins = 0; done[s].value.load() < all; spins++) spins < 2000 ? relax() : (void)sched_yield();
    }
  };
#ifdef _OPENMP
#pragma omp parallel num_threads(int(most))
  work(omp_get_thread_num(), omp_get_num_threads());
#else
  work(0, 1);
#endif
}

static void make_room(Quantized& quantized, const Matrix& weight, int64_t rows) {
  if (weight.format == FLOAT32) return;
  const int64_t width = Quantized::stride(weight) / (weight.format == BYTES ? 2 : 1);
  quantized.lines.resize(std::max(quantized.lines.size(), size_t((rows * width + 31) / 32)));
  quantized.scales.resize(std::max(quantized.scales.size(), size_t(rows)));
  quantized.zeros.resize(quantized.scales.size());
}

extern "C" {
int64_t version() { return 2; }  // as in compiled.py

Program* program_new(int64_t max_rows) { return new Program{{}, {}, max_rows}; }
void program_free(Program* program) { delete program; }

void program_run(const Program* program, const Batch* batch, int64_t threads) {
  run_steps(program->steps, *batch, threads);
}

void add_embed(Program* program, Columns out, Matrix weight, float scale, const float* positions) {
  add(program, Embed{out, weight, scale, positions});
}
void add_norm(Program* program, Columns x, Columns out, bool rms, const float* weight, const float* bias, float eps) {
  add(program, Norm{x, out, rms, weight, bias, eps});
}
void add_linear(Program* program, Columns x, Columns out, Matrix weight, const float* bias, bool add_to) {
  make_room(program->quantized, weight, program->max_rows);
  if (weight.format != FLOAT32) add(program, Quantize{x, weight, &program->quantized});
  add(program, Linear{x, out, weight, bias, add_to, &program->quantized}, 4);
}
void add_activate(Program* program, Columns x, int64_t kind) { add(program, Activate{x, Activation(kind)}); }
void add_gate(Program* program, Columns x, Columns out, int64_t kind) {
  add(program, Gate{x, out, Activation(kind)});
}
void add_rotate(Program* program, Columns x, int64_t head_dim, const float* angles, int64_t positions) {
  add(program, Rotate{x, head_dim, angles, positions});
}
void add_unit(Program* program, Columns x, int64_t head_dim, float eps) { add(program, Unit{x, head_dim, eps}); }
void add_store(Program* program, Columns k, Columns v, Pages pages, bool source) {
  add(program, Store{k, v, pages, source});
}
void add_attend(Program* program, Columns q, Columns out, Heads how, Pages pages, bool source) {
  add(program, Attend{q, out, how, pages, source}, 4);
}
void add_attend_rows(Program* program, Columns q, Columns k, Columns v, Columns out, Heads how) {
  add(program, AttendRows{q, k, v, out, how}, 4);
}
void add_gather(Program* program, Columns x, Columns out) {
  program->gathered = true;
  add(program, Gather{x, out});
}

void linear(Columns x, Columns out, int64_t rows, Matrix weight, const float* bias, int64_t threads) {
  static thread_local Quantized kept;  // memory that is new from the system takes up to a tenth of a product's time
  Program program{{}, std::move(kept), rows};
  Batch batch{};
  batch.rows = rows;
  add_linear(&program, x, out, weight, bias, false);
  run_steps(program.steps, batch, threads);
  kept = program.quantized.lines.size() < 1 << 18 ? std::move(program.quantized) : Quantized{};  // 16 MB at most
}

void best(const float* scores, int64_t rows, int64_t stride, int64_t width, int64_t count, const int32_t* forbidden,
          int64_t forbidden_count, int32_t* ids, float* log_probs, int64_t threads) {
  const auto of = is_wide() ? wide::best_of : portable::best_of;
  const auto each = [=](const Batch&, Part part) {
    const Range own = part.split(rows);
    for (int64_t r = own.first; r < own.last; r++)
      of(scores + r * stride, width, count, forbidden, forbidden_count, ids + r * count, log_probs + r * count);
  };
  run_steps({{1, each}}, Batch{}, std::min(threads, std::max<int64_t>(rows, 1)));
}
}
