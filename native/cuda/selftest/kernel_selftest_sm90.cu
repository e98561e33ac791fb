// Tests the sm_90 matmul kernels against float64 on the CPU: every tile, layout and epilogue, on
// sizes that no tile divides.
#include "../devices.h"
#include "../kernels/matmul/matmul_table.h"
#include "../kernels/matmul/sm90/matmul_sm90.h"
#include "kernel_selftest_matmul.h"

namespace selftest::floats {
namespace {

using shardwise::cuda::kNumSm90Tiles;
using shardwise::cuda::kSm90Tiles;
using shardwise::cuda::matmul_route;
using shardwise::cuda::MatmulRoute;
using shardwise::cuda::sm90_forced;

// Rows, Columns: the pitch is a multiple of 16 bytes, whatever the length. Off: rows start at any
// address.
enum class Lie { Rows, Columns, Off };

Tensor matrix(DType dtype, int64_t batch, int64_t rows, int64_t columns, Lie lie) {
  const auto up = [](int64_t n) { return (n + 7) / 8 * 8 + 8; };
  if (lie == Lie::Rows)
    return Tensor(dtype, {batch, rows, columns}, {rows * up(columns), up(columns), 1}, 8);
  if (lie == Lie::Columns)
    return Tensor(dtype, {batch, rows, columns}, {columns * up(rows), 1, up(rows)}, 16);
  return Tensor(dtype, {batch, rows, columns}, {rows * (columns + 3) + 1, columns + 3, 1}, 1);
}

struct Case {
  DType dtype;
  int64_t batch, m, n, k;
  Lie a, b, y;
  int addend;  // 0: none, 1: a full matrix, 2: one row
  double alpha, beta;
};

// Compares `samples` elements (all if 0) with float64.
void check(const Case& q, int64_t samples) {
  const std::string what =
      std::to_string(q.batch) + "x" + std::to_string(q.m) + "x" + std::to_string(q.n) + "x" +
      std::to_string(q.k) + " lie " + std::to_string(int(q.a)) + std::to_string(int(q.b)) +
      std::to_string(int(q.y)) + " c" + std::to_string(q.addend) + " tile " +
      std::to_string(sm90_forced().tile) + " split " + std::to_string(sm90_forced().split);
  Tensor a = matrix(q.dtype, q.batch, q.m, q.k, q.a), b = matrix(q.dtype, q.batch, q.k, q.n, q.b),
         y = matrix(q.dtype, q.batch, q.m, q.n, q.y), c;
  if (q.addend == 1) c = matrix(q.dtype, q.batch, q.m, q.n, Lie::Off);
  if (q.addend == 2) c = Tensor(q.dtype, {q.batch, q.m, q.n}, {0, 0, 1});
  a.normal();
  b.normal();
  if (c.present()) c.normal();
  run(what, "matmul", {&a, &b, &c}, {&y}, MatmulParams{q.alpha, q.beta});
  const double rtol = relative_tolerance(q.dtype),
               atol = (30 + double(q.k) * 2) * 1e-7 * std::fabs(q.alpha) + 1e-6;
  const int64_t all = q.batch * q.m * q.n, count = samples ? samples : all;
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = samples ? int64_t(random_source().bits() % uint64_t(all)) : i;
    const int64_t z = at / q.n / q.m, r = at / q.n % q.m, s = at % q.n;
    const double want = q.alpha * product_at(a, b, z, r, s) +
                        (q.addend ? q.beta * c.at({z, r, s}) : 0),
                 got = y.at({z, r, s});
    const double share =
        std::isfinite(got) ? std::fabs(got - want) / (rtol * std::fabs(want) + atol) : 1e30;
    if (share > context().worst) context().worst = share;
    if (share <= 1) continue;
    problem(what + " " + dtype_name(q.dtype) + ": element " + std::to_string(at) + " is " +
            std::to_string(got) + ", should be " + std::to_string(want));
    break;
  }
}

void tiles(DType dtype, int tile, int split) {
  sm90_forced().tile = tile;
  sm90_forced().split = split;
  const int before = sm90_forced().taken, joined = sm90_forced().joined;
  const Sizes shapes[] = {{1, 67, 127, 129}, {2, 131, 257, 67},   {1, 259, 389, 200},
                          {3, 40, 72, 520},  {1, 129, 385, 1031}, {1, 513, 70, 257}};
  int turn = 0;
  for (const Sizes& s : shapes) {
    if (options.quick && s[1] > 131) continue;
    for (const Lie a : {Lie::Rows, Lie::Columns})
      for (const Lie b : {Lie::Rows, Lie::Columns}) {
        turn++;
        const Lie y = turn % 5 == 0 ? Lie::Columns : turn % 3 == 0 ? Lie::Off : Lie::Rows;
        const int addend = turn % 7 == 1 ? 1 : turn % 7 == 4 ? 2 : 0;
        check({dtype, s[0], s[1], s[2], s[3], a, b, y, addend, turn % 4 == 1 ? 0.75 : 1,
               addend == 1 ? 0.5 : 1},
              0);
      }
  }
  if (!options.quick && split == 1)
    check({dtype, 1, 2311, 2999, 456, Lie::Rows, Lie::Columns, Lie::Rows, 0, 1, 1}, 4000);
  if (sm90_forced().taken == before) problem("no product was computed by the kernel");
  if (split > 1 && sm90_forced().joined == joined) problem("no product was computed in parts");
}

// Tiles taken from a counter, fewer than clusters and several per cluster; every k around the
// length of the ring of stages, where the producer is furthest ahead.
void from_counter(DType dtype, int tile) {
  sm90_forced().tile = tile;
  sm90_forced().waves = 0;
  const int before = sm90_forced().taken;
  for (const int64_t k : {256, 257, 320, 384, 385, 768})
    for (const Sizes& s : {Sizes{67, 127}, Sizes{2311, 2999}})
      check({dtype, 1, s[0], s[1], k, Lie::Rows, k == 320 ? Lie::Rows : Lie::Columns, Lie::Rows, 0,
             1, 1},
            2000);
  check({dtype, 3, 700, 1500, 384, Lie::Columns, Lie::Rows, Lie::Rows, 0, 1, 1}, 2000);
  if (sm90_forced().taken == before) problem("no product was computed by the kernel");
  sm90_forced().waves = -1;
}

void few_rows(DType dtype) {
  for (const int64_t m : {2, 5, 8, 9, 16, 17, 31, 32, 33, 64, 100, 128})
    for (const Sizes& s : {Sizes{33, 136}, Sizes{500, 1000}, Sizes{7001, 264}, Sizes{15000, 72}}) {
      if (options.quick && s[0] > 500) continue;
      const int64_t batch = s[0] == 500 ? 3 : 1;
      check({dtype, batch, m, s[0], s[1], Lie::Rows, Lie::Columns, Lie::Rows, int(m % 3), 1, 1},
            2000);
      check({dtype, batch, s[0], m, s[1], Lie::Rows, Lie::Columns, Lie::Off, 0, 0.5, 1}, 2000);
    }
}

// Every width and split, chosen by a table.
void clusters(DType dtype) {
  constexpr int64_t n = 333, k = 1096;
  for (const int32_t width : shardwise::cuda::kClusterWidths)
    for (const int parts : {1, 2, 4, 8})
      for (const int64_t m : {20, 64, 65, 128}) {
        const int64_t batch = m == 20 ? 3 : 1;
        const std::string config = "cluster:" + std::to_string(width) +
                                   (parts > 1 ? ",split=" + std::to_string(parts) : "");
        std::string line = std::string(dtype_name(dtype)) + " nt";
        for (const int64_t size : {batch, m, n, k}) line += " " + std::to_string(size);
        line += " " + config + " " + config;
        ErrorText error;
        if (!shardwise::cuda::load_matmul_table(0, line.c_str(), &error).ok()) problem(error.text);
        const int addend = width == 96 ? parts == 2 ? 1 : 2 : 0;
        check({dtype, batch, m, n, k, Lie::Rows, Lie::Columns, parts == 4 ? Lie::Off : Lie::Rows,
               addend, parts == 8 ? 0.75 : 1, 0.5},
              3000);
        char last[80];
        shardwise::cuda::last_matmul(0, last, sizeof last);
        if (config + " table" != last) problem(config + " was not taken but " + last);
      }
  shardwise::cuda::load_matmul_table(0, "", nullptr);
}

}  // namespace

void test_sm90() {
  if (!shardwise::cuda::is_sm90(*shardwise::cuda::device_facts(0))) return;
  const MatmulRoute route = matmul_route();
  matmul_route() = MatmulRoute::Own;
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    begin((std::string("matmul of sm_90 ") + dtype_name(dtype)).c_str());
    for (int tile = -1; tile < kNumSm90Tiles; tile++) {
      if (dtype == DType::Float16 && tile > 2) continue;
      tiles(dtype, tile, 1);
      if (tile >= 0) from_counter(dtype, tile);
      if (tile >= 0 && !kSm90Tiles[tile].ping_pong) tiles(dtype, tile, 3);
    }
    sm90_forced().tile = -1;
    sm90_forced().split = 0;
    few_rows(dtype);
    clusters(dtype);
    end();
  }
  matmul_route() = route;
}

}  // namespace selftest::floats
