// Tests float32 products by three TF32 products (matmul_tf32x3.cu) against float64 on the CPU:
// layouts, every remainder of k, batches, padded rows, an addend. Needs cuBLASLt.
#include <algorithm>

#include "../cublaslt.h"
#include "../devices.h"
#include "../kernels/matmul/matmul_table.h"
#include "kernel_selftest_matmul.h"

namespace selftest::floats {
namespace {

using shardwise::cuda::Float32Precision;
using shardwise::cuda::matmul_route;
using shardwise::cuda::MatmulRoute;

// Bounds of the error relative to the root mean square (rms) of the result. kOfAll bounds the rms
// of all errors: the tensor cores truncate sums, which over at most 512 products costs 2.4e-9 a
// product, 1.2e-6 in all; roundings to nearest and the omitted low x low products cost less. One
// TF32 product has 3e-4, three without one of the low parts 2e-4, and one sum of 2053 products
// 5e-6. kOfOne bounds one element: among thousands the largest error is about 4 times the rms of
// all.
constexpr double kOfAll = 4e-6, kOfOne = 6 * kOfAll;
constexpr int64_t kSamples = 2000;

struct Case {
  int64_t batch, m, n, k;
  bool a_rows, b_rows, y_rows;  // contiguous rows; else contiguous columns
  int64_t gap, shift;           // elements between rows, and before the first
  int addend;                   // 0: none, 1: a full matrix, 2: one row
  double alpha, beta;
  bool one_b;  // one b for all batches
};

Tensor matrix(int64_t batch, int64_t rows, int64_t columns, bool by_rows, int64_t gap,
              int64_t shift, bool one = false) {
  const int64_t pitch = (by_rows ? columns : rows) + gap,
                whole = one ? 0 : (by_rows ? rows : columns) * pitch;
  return Tensor(DType::Float32, {batch, rows, columns},
                {whole, by_rows ? pitch : 1, by_rows ? 1 : pitch}, shift);
}

void check(const Case& q) {
  const std::string what = std::to_string(q.batch) + "x" + std::to_string(q.m) + "x" +
                           std::to_string(q.n) + "x" + std::to_string(q.k) + " rows " +
                           std::to_string(q.a_rows) + std::to_string(q.b_rows) +
                           std::to_string(q.y_rows) + " gap " + std::to_string(q.gap) + " c" +
                           std::to_string(q.addend) + (q.one_b ? " one b" : "");
  Tensor a = matrix(q.batch, q.m, q.k, q.a_rows, q.gap, q.shift),
         b = matrix(q.batch, q.k, q.n, q.b_rows, q.gap, q.shift, q.one_b),
         y = matrix(q.batch, q.m, q.n, q.y_rows, q.gap, q.shift), c;
  if (q.addend == 1) c = matrix(q.batch, q.m, q.n, true, 1, 1);
  if (q.addend == 2) c = Tensor(DType::Float32, {q.batch, q.m, q.n}, {0, 0, 1});
  a.normal();
  b.normal();
  if (c.present()) c.normal();
  const MatmulParams params{q.alpha, q.beta, static_cast<double>(Float32Precision::Tf32x3)};
  if (run(what, "matmul", {&a, &b, &c}, {&y}, params) != Code::Ok) return;
  char last[80];
  shardwise::cuda::last_matmul(0, last, sizeof last);
  if (std::strcmp(last, "tf32x3 rule") != 0) problem(what + ": tf32x3 was not taken but " + last);
  const int64_t all = q.batch * q.m * q.n;
  double squares = 0, squares_of_errors = 0, largest = 0;
  for (int64_t i = 0; i < kSamples; i++) {  // the first 8 elements, the last 8, and random ones
    const int64_t at = i < 8    ? i
                       : i < 16 ? all - 1 - (i - 8)
                                : int64_t(random_source().bits() % uint64_t(all));
    const int64_t z = at / q.n / q.m, r = at / q.n % q.m, s = at % q.n;
    const double want = q.alpha * product_at(a, b, z, r, s) +
                        (q.addend ? q.beta * c.at({z, r, s}) : 0),
                 got = y.at({z, r, s});
    const double error = std::isfinite(got) ? std::fabs(got - want) : 1e30;
    squares += want * want;
    squares_of_errors += error * error;
    largest = std::max(largest, error);
  }
  const double scale = std::sqrt(squares / kSamples),
               of_all = std::sqrt(squares_of_errors / kSamples) / scale / kOfAll;
  const double share = std::max(of_all, largest / scale / kOfOne);
  context().worst = std::max(context().worst, share);
  if (share <= 1) return;
  char text[120];
  snprintf(text, sizeof text, ": errors of %.3g, the largest %.3g, of results of %.3g",
           of_all * kOfAll * scale, largest, scale);
  problem(what + text);
}

}  // namespace

void test_tf32x3() {
  namespace lt = shardwise::cuda::lt;
  if (lt::state() != lt::State::Ready || shardwise::cuda::device_facts(0)->major < 8) {
    printf("SKIP  products of TF32: cuBLASLt: %s\n", lt::report());
    return;
  }
  const MatmulRoute route = matmul_route();
  matmul_route() = MatmulRoute::Measured;
  begin("matmul float32, three products of TF32");
  constexpr int64_t kRows[] = {515, 512, 577, 640}, kColumns[] = {541, 640, 512, 639, 600};
  int turn = 0;
  for (const int64_t k : {512, 513, 1001, 2053})
    for (const bool a_rows : {true, false})
      for (const bool b_rows : {true, false}) {
        turn++;
        if (options.quick && k > 513) continue;
        const int64_t m = kRows[turn / 3 % 4], n = kColumns[turn % 5],
                      gap = turn % 3 == 0   ? 3
                            : turn % 3 == 1 ? 0
                                            : 8;
        const int64_t batch = turn % 4 == 2 || turn % 7 == 0 ? 2 : 1;
        const int addend = turn % 5 == 1 ? 1 : turn % 5 == 3 ? 2 : 0;
        check({batch, m, n, k, a_rows, b_rows, turn % 6 != 4, gap, gap == 3, addend,
               turn % 3 == 1 ? 0.75 : 1, turn % 2 ? 0.5 : 1, false});
      }
  check({2, 512, 515, 513, false, true, true, 8, 0, 1, -2, 0.5, true});
  // one row as the library's bias
  check({1, 640, 640, 512, true, false, true, 0, 0, 2, 1, 1, false});
  end();
  matmul_route() = route;
}

}  // namespace selftest::floats
