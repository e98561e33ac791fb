// y[B, m, n] = alpha * a[B, m, k] b[B, k, n] + beta * c[B, m, n].
//
// gemm/ computes floats: float32 and float64 sum in their own type, bfloat16 and float16 in
// float32, rounded once. The order of summation depends only on the shape, so results do not change
// with the number of threads, and NaN and infinities propagate as in the formula; c is not read if
// beta is 0. Many or small batches run in parallel; otherwise they run one after the other, each
// over all threads. A batch that shares b is one tall product. Integers and bool multiply and add
// modulo 2^64 in blocks; alpha and beta are truncated to integers.
//
// Measured (bench/native/README.md): two cores of Zen 5, float32 2048 cubed 486 GFLOP/s (OpenBLAS
// 488), bfloat16 977.
#include "convert.h"
#include "gemm/gemm.h"
#include "generated/op_params.h"
#include "kernel_call.h"
#include "parallel_for.h"

namespace shardwise::cpu {
namespace {

struct Batched {
  Product product;
  int64_t batch;
  int64_t a, b, c, y;  // batch strides in elements
};

int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

Batched describe(const KernelCall& call) {
  const TensorView &a = call.input(0), &b = call.input(1), &c = call.input(2), &y = call.output(0);
  const auto& params = call.params_as<MatmulParams>();
  Batched d{};
  d.batch = y.sizes[0];
  Product& p = d.product;
  p.m = y.sizes[1];
  p.n = y.sizes[2];
  p.k = a.sizes[2];
  p.alpha = params.alpha;
  p.beta = params.beta;
  p.a = {a.data, a.strides[1], a.strides[2]};
  p.b = {b.data, b.strides[1], b.strides[2]};
  p.y = y.data;
  p.y_row = y.strides[1];
  p.y_col = p.n == 1 ? 1 : y.strides[2];
  d.a = a.strides[0];
  d.b = b.strides[0];
  d.y = y.strides[0];
  if (!c.is_immediate && params.beta != 0) {
    p.c = {c.data, c.strides[1], c.strides[2]};
    d.c = c.strides[0];
  }
  // The stride of a dim of size 1 is arbitrary: set it to 1, which the readers prefer.
  if (p.k == 1) p.a.col = 1;
  if (p.n == 1) p.b.col = 1;
  return d;
}

// A batch over one b with rows evenly spaced across its items is a single product with batch * m
// rows.
void fold_batch(Batched& d) {
  Product& p = d.product;
  if (d.batch <= 1 || d.b != 0) return;
  const auto even = [&](int64_t batch, int64_t row) { return p.m == 1 || batch == p.m * row; };
  if (!even(d.a, p.a.row) || !even(d.y, p.y_row) || (p.c.data && !even(d.c, p.c.row))) return;
  if (p.m == 1) {
    p.a.row = d.a;
    p.y_row = d.y;
    p.c.row = d.c;
  }
  p.m *= d.batch;
  d.batch = 1;
}

Product item(const Batched& d, int64_t index, DType dtype) {
  Product p = d.product;
  p.a.data = element_at(p.a.data, dtype, index * d.a);
  p.b.data = element_at(p.b.data, dtype, index * d.b);
  if (p.c.data) p.c.data = element_at(p.c.data, dtype, index * d.c);
  p.y = element_at(p.y, dtype, index * d.y);
  return p;
}

void run_floats(const Batched& d, DType dtype) {
  const Engine& engine = engine_for(dtype);
  if (d.batch == 1) return gemm(engine, d.product, true);
  const Product& p = d.product;
  const double work =
      static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const double large = 2e6;  // multiply-adds that keep several threads busy
  if (work > large && d.batch < 4 * num_threads() && d.batch % num_threads() != 0) {
    for (int64_t i = 0; i < d.batch; i++) gemm(engine, item(d, i, dtype), true);
    return;
  }
  const int64_t grain = static_cast<int64_t>(256 * 1024 / (work + 1024)) + 1;
  parallel_for(d.batch, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) gemm(engine, item(d, i, dtype), false);
  });
}

constexpr int64_t kTile = 64;
constexpr int64_t kDepth = 512;

// One kTile x kTile tile of y. The operands are widened to int64 in blocks, which also straightens
// their strides.
void integer_tile(const Product& p, DType dtype, int64_t i0, int64_t j0) {
  const int64_t rows = min64(kTile, p.m - i0), columns = min64(kTile, p.n - j0);
  uint64_t* sum = static_cast<uint64_t*>(scratch(2, kTile * kTile * 8));
  int64_t* right = static_cast<int64_t*>(scratch(0, kDepth * kTile * 8));
  int64_t* left = static_cast<int64_t*>(scratch(1, kDepth * 8));
  for (int64_t i = 0; i < rows * kTile; i++) sum[i] = 0;
  for (int64_t first = 0; first < p.k; first += kDepth) {
    const int64_t depth = min64(kDepth, p.k - first);
    for (int64_t q = 0; q < depth; q++) {
      const int64_t offset = (first + q) * p.b.row + j0 * p.b.col;
      gather(dtype, element_at(p.b.data, dtype, offset), p.b.col, right + q * kTile, columns);
    }
    for (int64_t i = 0; i < rows; i++) {
      const int64_t offset = (i0 + i) * p.a.row + first * p.a.col;
      gather(dtype, element_at(p.a.data, dtype, offset), p.a.col, left, depth);
      uint64_t* into = sum + i * kTile;
      for (int64_t q = 0; q < depth; q++) {
        const uint64_t factor = static_cast<uint64_t>(left[q]);
        const int64_t* row = right + q * kTile;
        for (int64_t j = 0; j < columns; j++) into[j] += factor * static_cast<uint64_t>(row[j]);
      }
    }
  }
  const uint64_t alpha = static_cast<uint64_t>(static_cast<int64_t>(p.alpha)),
                 beta = static_cast<uint64_t>(static_cast<int64_t>(p.beta));
  for (int64_t i = 0; i < rows; i++) {
    uint64_t* row = sum + i * kTile;
    for (int64_t j = 0; j < columns; j++) row[j] *= alpha;
    if (p.c.data) {
      gather(dtype, element_at(p.c.data, dtype, (i0 + i) * p.c.row + j0 * p.c.col), p.c.col, left,
             columns);
      for (int64_t j = 0; j < columns; j++) row[j] += beta * static_cast<uint64_t>(left[j]);
    }
    scatter(dtype, reinterpret_cast<const int64_t*>(row),
            element_at(p.y, dtype, (i0 + i) * p.y_row + j0 * p.y_col), p.y_col, columns);
  }
}

void run_integers(const Batched& d, DType dtype) {
  const Product& p = d.product;
  const int64_t tiles_m = (p.m + kTile - 1) / kTile, tiles_n = (p.n + kTile - 1) / kTile,
                tiles = tiles_m * tiles_n;
  const int64_t grain = 65536 / (min64(p.m, kTile) * min64(p.n, kTile) * (p.k + 8)) + 1;
  parallel_for(d.batch * tiles, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      const int64_t tile = t % tiles;
      integer_tile(item(d, t / tiles, dtype), dtype, tile / tiles_n * kTile,
                   tile % tiles_n * kTile);
    }
  });
}

}  // namespace

Status matmul(const KernelCall& call) {
  Batched d = describe(call);
  if (d.batch == 0 || d.product.m == 0 || d.product.n == 0) return kOk;
  const DType dtype = call.output(0).dtype;
  if (d.batch > 1) fold_batch(d);
  if (is_floating(dtype))
    run_floats(d, dtype);
  else
    run_integers(d, dtype);
  return kOk;
}

}  // namespace shardwise::cpu
