// Blocking, packing and partition of one matrix product over the worker pool.
//
// k is split into blocks of at most kDepthBytes, so that a panel of a (14 rows: 28 KiB) stays in
// the first-level cache while it is multiplied by a panel of b. Rows are split into blocks whose
// packed form fills a part of the second-level cache. All threads together pack b as a whole (or in
// slices of columns if it exceeds kSliceBytes), then the tasks of a 2-D grid run: each packs its
// own rows of a. Operands are read in place if packing would cost more than it saves: small or
// skinny products.
//
// Sums run over k in blocks in ascending order and each block is one chain of fused multiply-adds,
// so an element of y depends on k only, not on the grid. Types narrower than their sums keep a tile
// of sums in scratch over all blocks of k and round once.
#include "gemm.h"

#include "isa.h"
#include "parallel_for.h"

namespace shardwise::cpu {
namespace {

constexpr int64_t kDepthBytes = 2048;  // of one row of a packed block of a: 512 float32
constexpr int64_t kRowBlock = 224;     // rows of a packed at a time
constexpr int64_t kPanelGroup = 4;     // panels of b that a task packs at a time
// columns that a task computes between turns: a multiple of every nr
constexpr int64_t kTurnColumns = 192;
constexpr int64_t kSumColumns = 512;  // columns of a tile of sums kept in scratch
// bytes of packed b; shares the last-level cache with the rest
constexpr int64_t kSliceBytes = 24 << 20;
// bytes of b read in place: larger operands come from memory, which prefers longer runs
constexpr int64_t kDirectBytes = 8 << 20;
// multiply-adds below which planning costs more than it gains
constexpr double kTinyWork = 32 * 32 * 32;
// multiply-adds worth waking a thread: 2 microseconds of one thread
constexpr double kTaskWork = 256 * 1024;

enum class PackB { Never, PerTask, Shared };

struct Plan {
  bool direct_a;
  PackB b;
  bool sums;          // y cannot hold sums: tiles of sums in scratch
  int64_t depth;      // packed elements of k in a block
  int64_t depths;     // number of blocks
  int64_t row_block;  // a multiple of mr
};

struct Range {
  int64_t begin, end;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

const char* at(const void* p, int64_t elements, int64_t bytes) {
  return static_cast<const char*>(p) + elements * bytes;
}
char* at(void* p, int64_t elements, int64_t bytes) {
  return static_cast<char*>(p) + elements * bytes;
}

// Rows whose starts map to few cache sets evict each other: strides near a multiple of 2 KiB.
bool conflicting(int64_t stride_bytes) {
  const int64_t rest = stride_bytes & 2047;
  return stride_bytes >= 2048 && (rest < 64 || rest > 2048 - 64);
}

Plan make_plan(const Engine& e, const Product& p, int64_t threads) {
  Plan plan;
  const int64_t units = ceil_div(p.k, e.unit);
  plan.depths = max64(1, ceil_div(units, kDepthBytes / e.packed_bytes));
  plan.depth = ceil_div(units, plan.depths);
  const int64_t row_blocks = ceil_div(p.m, kRowBlock);
  plan.row_block = ceil_div(ceil_div(p.m, row_blocks), e.mr) * e.mr;
  plan.sums = e.sum_bytes != e.result_bytes || p.y_col != 1;
  const int64_t panels_n = ceil_div(p.n, e.nr), panels_m = ceil_div(p.m, e.mr);
  plan.direct_a =
      e.direct && panels_n <= 8 && !(conflicting(p.a.row * e.source_bytes) && panels_n > 1);
  const bool direct_b = e.direct && p.b.col == 1 && panels_m <= 16 &&
                        p.n * p.k * e.source_bytes <= kDirectBytes &&
                        !(conflicting(p.b.row * e.source_bytes) && panels_m > 2);
  const bool one_row_block = panels_m <= 4 || (row_blocks == 1 && panels_n >= 8 * threads);
  plan.b = direct_b ? PackB::Never : one_row_block ? PackB::PerTask : PackB::Shared;
  return plan;
}

struct SharedB {
  const char* data;
  int64_t first_column;
  int64_t columns;

  // Blocks are plan.depth deep, the last one may be shallower: k.
  const char* panel(const Engine& e, const Plan& plan, int64_t block, int64_t column,
                    int64_t k) const {
    const int64_t panels = ceil_div(columns, e.nr);
    return data + (block * panels * plan.depth + (column - first_column) / e.nr * k) * e.nr *
                      e.packed_bytes;
  }
};

bool accumulates_in_place(const Product& p, const Plan& plan) {
  return !plan.sums && p.c.data == p.y && p.beta == 1 && p.c.row == p.y_row && p.c.col == p.y_col;
}

// A slice of the inner dimension: `k` units from `first` on, which are `source_k` elements.
struct Depth {
  int64_t index, first, k, source_k;
};

// The rows of a from `row` on, packed into panels or in place.
void place_a(const Engine& e, const Product& p, const Plan& plan, int64_t row, const Depth& depth,
             Block& block) {
  const void* a = at(p.a.data, row * p.a.row + depth.first * e.unit * p.a.col, e.source_bytes);
  if (plan.direct_a) {
    block.a = a;
    block.a_row = p.a.row;
    block.a_col = p.a.col;
    block.a_panel = e.mr * p.a.row;
    return;
  }
  void* packed = scratch(1, ceil_div(block.m, e.mr) * e.mr * depth.k * e.packed_bytes + 64);
  e.pack(packed, e.mr, a, block.m, depth.source_k, p.a.row, p.a.col);
  block.a = packed;
  block.a_row = 1;
  block.a_col = e.mr;
  block.a_panel = e.mr * depth.k;
}

// The product with `columns` of b; packs a few panels of it at a time.
void multiply_packing(const Engine& e, const Product& p, const Depth& depth, Range columns,
                      void* sum, Block& block) {
  const int64_t n = columns.end - columns.begin, group = kPanelGroup * e.nr;
  void* packed = scratch(0, min64(group, ceil_div(n, e.nr) * e.nr) * depth.k * e.packed_bytes + 64);
  block.b_row = e.nr;
  block.b_panel = e.nr * depth.k;
  for (int64_t q = 0; q < n; q += group) {
    const int64_t width = min64(group, n - q);
    const void* b = at(p.b.data, depth.first * e.unit * p.b.row + (columns.begin + q) * p.b.col,
                       e.source_bytes);
    e.pack(packed, e.nr, b, width, depth.source_k, p.b.col, p.b.row);
    block.b = packed;
    block.n = width;
    block.y = at(sum, q, e.sum_bytes);
    e.block(block);
  }
}

// The product with `columns` of b in place, or packed by all threads.
void multiply_panels(const Engine& e, const Product& p, const Plan& plan, const Depth& depth,
                     Range columns, const SharedB* shared, void* sum, Block& block) {
  const int64_t n = columns.end - columns.begin;
  block.b_row = plan.b == PackB::Never ? p.b.row : e.nr;
  block.b_panel = plan.b == PackB::Never ? e.nr : e.nr * depth.k;
  for (int64_t q = 0; q < n; q += kTurnColumns) {
    block.b = shared ? shared->panel(e, plan, depth.index, columns.begin + q, depth.k)
                     : at(p.b.data, depth.first * p.b.row + columns.begin + q, e.source_bytes);
    block.n = min64(kTurnColumns, n - q);
    block.y = at(sum, q, e.sum_bytes);
    e.block(block);
    give_turn();
  }
}

// Computes y[rows, columns], all of k. `shared` is packed b or null.
void run_task(const Engine& e, const Product& p, const Plan& plan, Range rows, Range columns,
              const SharedB* shared) {
  const int64_t units = ceil_div(p.k, e.unit);
  const bool in_place = accumulates_in_place(p, plan);
  const int64_t column_step = plan.sums ? kSumColumns : columns.end - columns.begin;
  const int64_t sum_row = ceil_div(min64(column_step, columns.end - columns.begin), e.nr) * e.nr;
  for (int64_t i = rows.begin; i < rows.end; i += plan.row_block) {
    const int64_t m = min64(plan.row_block, rows.end - i);
    for (int64_t j = columns.begin; j < columns.end; j += column_step) {
      const int64_t n = min64(column_step, columns.end - j);
      void* y = at(p.y, i * p.y_row + j * p.y_col, e.result_bytes);
      void* sum = plan.sums ? scratch(2, m * sum_row * e.sum_bytes) : y;
      const int64_t row_of_sum = plan.sums ? sum_row : p.y_row;
      if (p.c.data && !in_place) {
        e.load_result(sum, row_of_sum, at(p.c.data, i * p.c.row + j * p.c.col, e.result_bytes),
                      p.c.row, p.c.col, p.beta, m, n);
      }
      for (int64_t d = 0; d < plan.depths; d++) {
        const int64_t first = d * plan.depth, k = min64(plan.depth, units - first);
        const Depth depth{d, first, k, min64(k * e.unit, p.k - first * e.unit)};
        Block block;
        block.m = m;
        block.k = k;
        block.y_row = row_of_sum;
        block.alpha = p.alpha;
        block.accumulate = d > 0 || p.c.data;
        place_a(e, p, plan, i, depth, block);
        if (plan.b == PackB::PerTask)
          multiply_packing(e, p, depth, {j, j + n}, sum, block);
        else
          multiply_panels(e, p, plan, depth, {j, j + n}, shared, sum, block);
      }
      if (plan.sums) e.store(y, p.y_row, p.y_col, sum, sum_row, m, n);
    }
  }
}

// Splits [0, m) x [0, n) into a grid and runs its tasks on the pool.
void run_grid(const Engine& e, const Product& p, const Plan& plan, Range columns,
              const SharedB* shared, int64_t threads) {
  const int64_t width = columns.end - columns.begin;
  const int64_t panels_m = ceil_div(p.m, e.mr), panels_n = ceil_div(width, e.nr);
  const double work =
      static_cast<double>(p.m) * static_cast<double>(width) * static_cast<double>(p.k);
  // Four tasks a thread even out interruptions; the best grid has the least work on the busiest
  // thread, packing included.
  const int64_t wanted =
      threads == 1
          ? 1
          : max64(1, static_cast<int64_t>(work / kTaskWork < 4.0 * threads ? work / kTaskWork
                                                                           : 4.0 * threads));
  int64_t grid_m = 1, grid_n = 1;
  double best = 0;
  for (int64_t tm = 1; tm <= min64(wanted, panels_m) && wanted > 1; tm++) {
    const int64_t tn = min64(panels_n, wanted / tm);
    const double rows = static_cast<double>(ceil_div(panels_m, tm)),
                 cols = static_cast<double>(ceil_div(panels_n, tn));
    const double rounds = static_cast<double>(ceil_div(tm * tn, threads));
    const double cost = rounds * (rows * cols + (plan.direct_a ? 0.05 : 0.5) * rows +
                                  (plan.b == PackB::PerTask ? 2.0 : 0.05) * cols);
    if (tm == 1 || cost < best) {
      best = cost;
      grid_m = tm;
      grid_n = tn;
    }
  }
  const int64_t step_m = ceil_div(panels_m, grid_m) * e.mr,
                step_n = ceil_div(panels_n, grid_n) * e.nr;
  grid_m = ceil_div(p.m, step_m);
  grid_n = ceil_div(width, step_n);
  auto body = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t i = t / grid_n * step_m, j = columns.begin + t % grid_n * step_n;
      run_task(e, p, plan, {i, min64(i + step_m, p.m)}, {j, min64(j + step_n, columns.end)},
               shared);
    }
  };
  if (grid_m * grid_n == 1)
    body(0, 1);
  else
    parallel_for(grid_m * grid_n, 1, [&](int64_t begin, int64_t end) { body(begin, end); });
}

void run_shared(const Engine& e, const Product& p, const Plan& plan, int64_t threads) {
  const int64_t units = plan.depth * plan.depths;
  const int64_t slice_panels = max64(4, kSliceBytes / (units * e.nr * e.packed_bytes));
  const int64_t slices = ceil_div(ceil_div(p.n, e.nr), slice_panels);
  const int64_t slice = ceil_div(ceil_div(p.n, slices), e.nr) * e.nr;
  for (int64_t j = 0; j < p.n; j += slice) {
    const int64_t columns = min64(slice, p.n - j), panels = ceil_div(columns, e.nr);
    char* packed = static_cast<char*>(scratch(0, panels * e.nr * units * e.packed_bytes + 64));
    const SharedB shared{packed, j, columns};
    constexpr int64_t kTogether = 8;
    const int64_t groups = ceil_div(panels, kTogether);
    auto body = [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++) {
        const int64_t d = t / groups, column = j + t % groups * kTogether * e.nr;
        const int64_t first = d * plan.depth * e.unit;
        const int64_t k = min64(plan.depth * e.unit, p.k - first);
        const int64_t width = min64(kTogether * e.nr, j + columns - column);
        char* to =
            packed + (d * panels * plan.depth + t % groups * kTogether * ceil_div(k, e.unit)) *
                         e.nr * e.packed_bytes;
        e.pack(to, e.nr, at(p.b.data, first * p.b.row + column * p.b.col, e.source_bytes), width, k,
               p.b.col, p.b.row);
      }
    };
    if (threads == 1)
      body(0, groups * plan.depths);
    else
      parallel_for(groups * plan.depths, 1, [&](int64_t begin, int64_t end) { body(begin, end); });
    run_grid(e, p, plan, {j, j + columns}, &shared, threads);
  }
}

Product transposed(const Product& p) {
  return {p.n,
          p.m,
          p.k,
          {p.b.data, p.b.col, p.b.row},
          {p.a.data, p.a.col, p.a.row},
          {p.c.data, p.c.col, p.c.row},
          p.y,
          p.y_col,
          p.y_row,
          p.alpha,
          p.beta};
}

bool can_be_skinny(const Engine& e, const Product& p) {
  if (p.m > kSkinnyRows) return false;
  return (p.b.row == 1 && p.k >= 4 * e.nr) || (p.b.col == 1 && p.n >= 2 * e.nr);
}

void run_skinny(const Engine& e, const Product& p, int64_t threads) {
  const bool along_k = p.b.row == 1 && p.k >= 4 * e.nr;
  const bool sums = e.sum_bytes != e.result_bytes || p.y_col != 1;
  const void* a = p.a.data;
  int64_t a_row = p.a.row;
  if (!e.direct || p.a.col != 1) {
    void* converted = scratch(1, p.m * p.k * e.sum_bytes);
    e.load(converted, p.k, p.a.data, p.a.row, p.a.col, 1.0, p.m, p.k);
    a = converted;
    a_row = p.k;
  }
  auto body = [&](int64_t begin, int64_t end) {
    const int64_t step = sums ? kSumColumns : end - begin;
    for (int64_t j = begin; j < end; j += step) {
      const int64_t n = min64(step, end - j);
      void* y = at(p.y, j * p.y_col, e.result_bytes);
      void* sum = sums ? scratch(2, p.m * n * e.sum_bytes) : y;
      const int64_t sum_row = sums ? n : p.y_row;
      if (p.c.data)
        e.load_result(sum, sum_row, at(p.c.data, j * p.c.col, e.result_bytes), p.c.row, p.c.col,
                      p.beta, p.m, n);
      const bool accumulate = p.c.data != nullptr;
      if (along_k) {
        e.dots(p.m, n, p.k, a, a_row, at(p.b.data, j * p.b.col, e.source_bytes), p.b.col, sum,
               sum_row, p.alpha, accumulate);
      } else {
        e.strip(p.m, n, p.k, a, a_row, at(p.b.data, j, e.source_bytes), p.b.row, sum, sum_row,
                p.alpha, accumulate);
      }
      if (sums) e.store(y, p.y_row, p.y_col, sum, sum_row, p.m, n);
    }
  };
  // Chunks of at least 64 KiB of b; `strip` needs long rows.
  const int64_t most = along_k ? 4 * threads : threads, granule = along_k ? 8 : 4 * e.nr;
  const int64_t chunks = threads == 1 ? 1 : max64(1, min64(most, p.n * p.k * e.source_bytes >> 16));
  const int64_t chunk = ceil_div(ceil_div(p.n, chunks), granule) * granule;
  if (chunk >= p.n) return body(0, p.n);
  parallel_for(ceil_div(p.n, chunk), 1,
               [&](int64_t begin, int64_t end) { body(begin * chunk, min64(end * chunk, p.n)); });
}

}  // namespace

void gemm(const Engine& e, const Product& p, bool parallel) {
  if (p.m == 0 || p.n == 0) return;
  if (p.y_col != 1 && p.y_row == 1) return gemm(e, transposed(p), parallel);
  const double work =
      static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  if (work > kTinyWork || p.m == 1 || p.n == 1) {
    const int64_t threads = parallel && work >= 2 * kTaskWork ? num_threads() : 1;
    if (can_be_skinny(e, p)) return run_skinny(e, p, threads);
    if (p.n <= kSkinnyRows) {
      const Product q = transposed(p);
      if (can_be_skinny(e, q)) return run_skinny(e, q, threads);
    }
  }
  if (work <= kTinyWork) {
    const bool direct_b = e.direct && p.b.col == 1;
    const int64_t units = max64(1, ceil_div(p.k, e.unit)),
                  depths = ceil_div(units, kDepthBytes / e.packed_bytes);
    const Plan plan{e.direct,
                    direct_b ? PackB::Never : PackB::PerTask,
                    e.sum_bytes != e.result_bytes || p.y_col != 1,
                    ceil_div(units, depths),
                    depths,
                    ceil_div(min64(p.m, kRowBlock), e.mr) * e.mr};
    return run_task(e, p, plan, {0, p.m}, {0, p.n}, nullptr);
  }
  const int64_t threads = parallel && work >= 2 * kTaskWork ? num_threads() : 1;
  const Plan plan = make_plan(e, p, threads);
  if (plan.b == PackB::Shared)
    run_shared(e, p, plan, threads);
  else
    run_grid(e, p, plan, {0, p.n}, nullptr, threads);
}

namespace {

struct Chosen : Engines {
  Engine wide_float16, wide_bfloat16;
};

// The engine of 16-bit operands with c and y of float32.
Engine widened(const Engine& narrow, const Engine& float32) {
  Engine e = narrow;
  e.result_bytes = float32.result_bytes;
  e.load_result = float32.load_result;
  e.store = float32.store;
  return e;
}

const Chosen& engines() {
  static const Chosen chosen = [] {
    Engines result = *engines_baseline();
#if defined(__x86_64__)
    const CpuFeatures& cpu = cpu_features();
    if (cpu.isa == Isa::Avx2) result = *engines_avx2();
    if (cpu.isa == Isa::Avx512) result = *engines_avx512();
    if (cpu.isa == Isa::Avx512 && cpu.avx512_bf16) use_avx512_bf16(result.bfloat16);
#endif
    return Chosen{result, widened(result.float16, result.float32),
                  widened(result.bfloat16, result.float32)};
  }();
  return chosen;
}

}  // namespace

const Engine& engine_for(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return engines().float64;
    case DType::Float16:
      return engines().float16;
    case DType::BFloat16:
      return engines().bfloat16;
    default:
      return engines().float32;
  }
}

const Engine& wide_engine_for(DType dtype) {
  return dtype == DType::Float16 ? engines().wide_float16 : engines().wide_bfloat16;
}

const SoftmaxRows<float>& softmax_rows(float) { return engines().softmax_float; }
const SoftmaxRows<double>& softmax_rows(double) { return engines().softmax_double; }

}  // namespace shardwise::cpu
