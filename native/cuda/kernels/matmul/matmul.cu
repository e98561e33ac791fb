// matmul: y[B, m, n] = alpha a[B, m, k] b[B, k, n] + beta c[B, m, n], all of one dtype, any
// strides. This file chooses the kernel; the kernels are in matmul_small.cu, matmul_simt.cu (CUDA
// cores), matmul_sm80.cu, matmul_sm90.cu, matmul_stream.cu, matmul_cluster.cu (tensor cores) and
// cuBLASLt.
//
//   1. A batch that only continues the rows of a (b is the same for all) becomes more rows.
//   2. integers, bool: own kernel
//   3. m, n, k <= 64: own kernels, one thread an element, or one block a product (unless the batch
//      is large)
//   4. products measured on this GPU, or near one (matmul_table.h): the configuration of the table
//   5. 1 row (or column), and up to 8 that 6 does not take, with a matrix contiguous along k: own
//      kernel that streams the matrix
//   6. float16, bfloat16 on sm_90, if measured to be faster or without the library: own kernels, up
//      to 32 rows (matmul_stream.cu), up to 128 (matmul_cluster.cu) and large products
//      (matmul_sm90.cu)
//   7. floats: cuBLASLt if the machine has it and each operand has unit stride along one dim; with
//      TF32 if the program allows it, or large float32 products as three of TF32
//      (matmul_tf32x3.cu)
//   8. else float16, bfloat16: tensor cores; float32: 128 x 128 tiles; float64 and small products:
//      64 x 64 tiles
// A kernel that declines a product, because of strides or lack of memory, leaves it to the next.
// SHARDWISE_MATMUL=own skips 7; SHARDWISE_MATMUL=cublaslt skips 4 to 6 if 7 applies;
// SHARDWISE_DEBUG=matmul prints the choices.
// This file also has the kernel of y = beta c, or 0, for k = 0 or alpha = 0, and for a c that
// cuBLASLt cannot read; a thread an element.
//
// FLOPs 2 B m n k. Numerics: float16 and bfloat16 accumulate in float32 and round once (alpha, beta
// and c are applied in float32), float32 in float32 (TF32 if allowed), float64 in float64, integers
// wrap as int64. c is not read if beta is 0, nor a and b if alpha is 0. Each kernel's file has its
// order of sums.
// Source: PyTorch's addmm and baddbmm. On one H200, beside PyTorch's best mode:
// docs/performance.md; small and odd sizes take 0.973 of its time (geometric mean). The table saves
// 2.9 % against the rule, over 256 products.
#include <cstdlib>
#include <cstring>

#include "../../../generated/op_params.h"
#include "../../cublaslt.h"
#include "../../primitives/dtype.cuh"
#include "matmul_table.h"
#include "sm90/matmul_sm90.h"

namespace shardwise::cuda {
namespace {

// y = beta c, or 0 without c; one thread per element, neighbouring threads along the innermost dim
// of y.
__global__ void __launch_bounds__(256) scale_kernel(MatmulProblem p) {
  const int64_t total = p.batch * p.m * p.n;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < total;
       i += int64_t(gridDim.x) * blockDim.x) {
    const int64_t column = i % p.n, row = i / p.n % p.m, batch = i / p.n / p.m;
    const int64_t to = batch * p.y.batch_stride + row * p.y.row_stride + column * p.y.column_stride;
    const int64_t from =
        batch * p.c.batch_stride + row * p.c.row_stride + column * p.c.column_stride;
    if (!p.c.data)
      store_any<int64_t>(p.y.data, to, p.dtype, 0);
    else if (!is_floating(p.dtype))
      store_any<int64_t>(p.y.data, to, p.dtype,
                         load_any<int64_t>(p.c.data, from, p.dtype) * static_cast<int64_t>(p.beta));
    else if (p.dtype == DType::Float64)
      store_any<double>(p.y.data, to, p.dtype, load_any<double>(p.c.data, from, p.dtype) * p.beta);
    else
      store_any<float>(p.y.data, to, p.dtype,
                       load_any<float>(p.c.data, from, p.dtype) * static_cast<float>(p.beta));
  }
}

void scale(const MatmulProblem& p, Stream& stream) {
  const int64_t blocks = ceil_div(p.batch * p.m * p.n, 256),
                limit = int64_t(stream.facts->num_sms) * 32;
  const int64_t grid = blocks < limit ? blocks : limit;
  scale_kernel<<<grid, 256, 0, stream.handle>>>(p);
}

// [B, m, k] [k, n] is [B m, k] [k, n] if the batches of a, c and y continue their rows.
void fold_batch(MatmulProblem* p) {
  const auto follows = [&](const MatrixView& v) {
    return !v.data || v.batch_stride == p->m * v.row_stride || (p->m == 1);
  };
  if (p->batch == 1 || p->b.batch_stride != 0 || !follows(p->a) || !follows(p->c) || !follows(p->y))
    return;
  if (p->m == 1)
    p->a.row_stride = p->a.batch_stride, p->c.row_stride = p->c.batch_stride,
    p->y.row_stride = p->y.batch_stride;
  p->m *= p->batch;
  p->batch = 1;
  p->a.batch_stride = p->c.batch_stride = p->y.batch_stride = 0;
}

// Describes `v` (rows x columns, row-major names) to cuBLASLt, which is column-major: as its
// transpose (columns x rows) if the columns are contiguous. False if neither dim is, or if lines
// overlap.
bool describe(const MatrixView& v, int64_t rows, int64_t columns, lt::Product::Matrix* out,
              bool* as_transpose) {
  out->data = v.data;
  out->batch_stride = v.batch_stride;
  if ((v.column_stride == 1 || columns == 1) && (rows == 1 || v.row_stride >= columns)) {
    *as_transpose = true;
    out->leading = rows == 1 ? columns : v.row_stride;
    return true;
  }
  if ((v.row_stride == 1 || rows == 1) && (columns == 1 || v.column_stride >= rows)) {
    *as_transpose = false;
    out->leading = columns == 1 ? rows : v.column_stride;
    return true;
  }
  return false;
}

// Observed in version 13.1: if c shares the memory of y, or rows do not start at 16 bytes, the
// library rounds a 16-bit product before it adds c.
bool exact_addend(const lt::Product& p) {
  return p.a.leading % 8 == 0 && p.b.leading % 8 == 0 && p.d.leading % 8 == 0;
}

}  // namespace

lt::Outcome matmul_library(const MatmulProblem& problem, int32_t suggestion, void* scratch,
                           Stream& stream, const KernelCall& call, Status* status) {
  MatmulProblem p = problem;
  if (lt::state() != lt::State::Ready) return lt::Outcome::Declined;
  lt::Product product;
  bool transposed = false;
  if (!describe(p.y, p.m, p.n, &product.d, &transposed)) return lt::Outcome::Declined;
  if (!transposed) {  // y has contiguous columns: compute y^T = b^T a^T
    p = p.transposed();
    describe(p.y, p.m, p.n, &product.d, &transposed);
  }
  // In column-major order D = y^T (n x m), A = b^T (n x k), B = a^T (k x m).
  product.dtype = p.dtype;
  product.rows = p.n;
  product.columns = p.m;
  product.inner = p.k;
  product.batch = p.batch;
  product.alpha = p.alpha;
  product.suggestion = suggestion;
  product.wide = p.wide;
  product.tf32 = p.precision == Float32Precision::Tf32 && p.dtype == DType::Float32;
  product.scratch = scratch;
  bool as_is = false;
  if (!describe(p.b, p.k, p.n, &product.a, &as_is)) return lt::Outcome::Declined;
  product.a.transposed = !as_is;
  if (!describe(p.a, p.m, p.k, &product.b, &as_is)) return lt::Outcome::Declined;
  product.b.transposed = !as_is;
  bool copied = false;
  if (p.c.data) {
    if (item_size(p.dtype) == 2 && !p.wide && !exact_addend(product)) return lt::Outcome::Declined;
    const bool one_row = p.c.row_stride == 0 || p.m == 1;
    if (!p.wide && p.batch == 1 && p.beta == 1 && one_row && (p.c.column_stride == 1 || p.n == 1)) {
      product.bias = p.c.data;
    } else if (describe(p.c, p.m, p.n, &product.c, &as_is) && as_is) {
      product.beta = p.beta;
    } else if (item_size(p.dtype) == 2) {
      return lt::Outcome::Declined;  // c shares the memory of y: see exact_addend
    } else {
      // another broadcast or layout: y becomes a copy of c, which is then scaled and added to
      copied = true;
      product.c = product.d;
      product.beta = p.beta;
    }
  }
  if (copied) {
    p.beta = 1;
    scale(p, stream);
  }
  return lt::product(product, stream, call, status);
}

namespace {

// lib/cuda/variables.ts refuses other words before the first use of a GPU.
MatmulRoute route_from_environment() {
  const char* asked = std::getenv("SHARDWISE_MATMUL");
  if (!asked) return MatmulRoute::Measured;
  return std::strcmp(asked, "own") == 0        ? MatmulRoute::Own
         : std::strcmp(asked, "cublaslt") == 0 ? MatmulRoute::Library
                                               : MatmulRoute::Measured;
}

// Configurations to try, in order.
struct Candidates {
  static constexpr int kMost = 15;
  MatmulConfig list[kMost];
  MatmulSource sources[kMost] = {};
  int count = 0;

  void add(const MatmulConfig& config, MatmulSource source) {
    list[count] = config;
    sources[count++] = source;
  }
  void add(MatmulKernel kernel, bool large_tile = false) {
    MatmulConfig config;
    config.kernel = kernel;
    if (kernel == MatmulKernel::Simt) config.tile = large_tile;
    if (kernel == MatmulKernel::Library) config.tile = 0;
    add(config, MatmulSource::Rule);
  }
};

bool library_is_there() { return lt::state() == lt::State::Ready; }

// The last candidate takes every product.
Candidates candidates_for(const MatmulProblem& p, const MatmulShape* shape, MatmulRoute route,
                          const Stream& stream) {
  Candidates out;
  const bool measured = route == MatmulRoute::Measured,
             library = route != MatmulRoute::Own && library_is_there();
  if (library && p.precision == Float32Precision::Tf32x3) out.add(MatmulKernel::Tf32x3);
  if (shape && route != MatmulRoute::Library) {
    const MatmulChoice choice = choose_matmul(*shape, stream);
    if (choice.source != MatmulSource::Rule)
      out.add(choice.best.kernel == MatmulKernel::Library && !library ? choice.own : choice.best,
              choice.source);
  }
  if (measured) {
    const bool sm90_16_bits = is_sm90(*stream.facts) && item_size(p.dtype) == 2;
    if (p.m == 1 || p.n == 1) out.add(MatmulKernel::FewRows);
    if (matmul_stream_wins(p)) out.add(MatmulKernel::Stream);
    if (matmul_cluster_wins(p)) out.add(MatmulKernel::Cluster);
    if (matmul_sm90_wins(p)) out.add(MatmulKernel::Wgmma);
    if (!sm90_16_bits || !library) out.add(MatmulKernel::FewRows);
  }
  if (library) out.add(MatmulKernel::Library);
  if (p.m == 1 || p.n == 1) out.add(MatmulKernel::FewRows);
  out.add(MatmulKernel::Stream);
  if (sm90_forced().tile < 0) out.add(MatmulKernel::Cluster);
  out.add(MatmulKernel::Wgmma);
  out.add(MatmulKernel::FewRows);
  constexpr int64_t kMax = int64_t(1) << 30;
  const bool sixteen = p.dtype == DType::Float16 || p.dtype == DType::BFloat16;
  if (sixteen && p.m < kMax && p.n < kMax && p.k < kMax) out.add(MatmulKernel::TensorCore);
  out.add(MatmulKernel::Simt, p.dtype == DType::Float32 && p.m > 64 && p.n > 64);
  return out;
}

lt::Outcome run(const MatmulProblem& p, MatmulConfig* config, Stream& stream,
                const KernelCall& call, Status* status) {
  const auto done = [](bool is) { return is ? lt::Outcome::Done : lt::Outcome::Declined; };
  const bool sixteen = p.dtype == DType::Float16 || p.dtype == DType::BFloat16;
  switch (config->kernel) {
    case MatmulKernel::Library:
      return matmul_library(p, config->tile, nullptr, stream, call, status);
    case MatmulKernel::Tf32x3:
      return matmul_tf32x3(p, stream, call, status);
    case MatmulKernel::FewRows:
      return done(matmul_few_rows(p, stream));
    case MatmulKernel::Stream:
      return done(matmul_stream(p, stream));
    case MatmulKernel::Cluster:
      return done(matmul_cluster(p, config, stream));
    case MatmulKernel::Wgmma:
      return done(matmul_sm90(p, config, stream, call));
    case MatmulKernel::TensorCore:
      if (sixteen) matmul_sm80(p, stream.handle);
      return done(sixteen);
    case MatmulKernel::Simt:
      matmul_simt(p, config->tile == 1 && p.dtype == DType::Float32, stream.handle);
      return lt::Outcome::Done;
    case MatmulKernel::None:
      break;
  }
  return lt::Outcome::Declined;
}

// Products of floats that are not small: by the table, the rule, or SHARDWISE_MATMUL.
Status large(const MatmulProblem& p, Stream& stream, const KernelCall& call) {
  if (lt::state() == lt::State::Misconfigured)
    return fail(call.error, Code::Invalid,
                "SHARDWISE_CUBLASLT_PATH does not name a usable cuBLASLt (unset it, or set it to "
                "off to do without): %s",
                lt::report());
  MatmulShape known;
  const MatmulShape* const shape = shape_of(p, &known) ? &known : nullptr;
  Candidates candidates = candidates_for(p, shape, matmul_route(), stream);
  for (int i = 0; i < candidates.count; i++) {
    Status status = kOk;
    switch (run(p, &candidates.list[i], stream, call, &status)) {
      case lt::Outcome::Done:
        record_matmul(p, candidates.list[i], candidates.sources[i], stream.device);
        return launched(call);
      case lt::Outcome::Failed:
        return status;
      case lt::Outcome::Declined:
        break;
    }
  }
  return fail(call.error, Code::Unsupported, "no kernel takes this product");
}

}  // namespace

MatmulRoute& matmul_route() {
  static MatmulRoute route = route_from_environment();
  return route;
}

MatrixView view_of(const TensorView& t) {
  MatrixView out;
  out.data = t.data;
  if (t.ndim == 3) out.batch_stride = t.sizes[0] == 1 ? 0 : t.strides[0];
  out.row_stride = t.strides[t.ndim - 2];
  out.column_stride = t.strides[t.ndim - 1];
  return out;
}

Status matmul(const KernelCall& call) {
  const auto& params = call.params_as<MatmulParams>();
  const TensorView &a = call.input(0), &b = call.input(1), &c = call.input(2), &y = call.output(0);
  if (y.numel == 0) return kOk;
  if (y.ndim < 2 || y.ndim > 3)
    return fail(call.error, Code::Invalid, "matmul takes [m, n] or [B, m, n], not %d dims", y.ndim);
  Stream& stream = stream_of(call);
  MatmulProblem p;
  p.dtype = y.dtype;
  p.batch = y.ndim == 3 ? y.sizes[0] : 1;
  p.m = y.sizes[y.ndim - 2];
  p.n = y.sizes[y.ndim - 1];
  p.k = a.sizes[a.ndim - 1];
  p.alpha = params.alpha;
  p.beta = params.beta;
  p.precision = static_cast<Float32Precision>(params.float32_precision);
  p.a = view_of(a);
  p.b = view_of(b);
  p.y = view_of(y);
  if (!c.is_immediate && c.data && params.beta != 0) p.c = view_of(c);
  return run_matmul(p, stream, call);
}

Status run_matmul(MatmulProblem p, Stream& stream, const KernelCall& call) {
  if (p.k == 0 || p.alpha == 0) {
    scale(p, stream);
    return launched(call);
  }
  fold_batch(&p);
  if (!is_floating(p.dtype)) {
    matmul_integer(p, stream.handle);
    record_matmul(p, "integer");
    return launched(call);
  }
  const double work = double(p.batch) * p.m * p.n * p.k;
  if (matmul_small(p, stream.handle)) {
    record_matmul(p, "small");
    return launched(call);
  }
  const bool tiny = p.m <= 64 && p.n <= 64 && p.k <= 64 && work <= double(1 << 24);
  if (!tiny) return large(p, stream, call);
  matmul_simt(p, false, stream.handle);
  record_matmul(p, "simt");
  return launched(call);
}

}  // namespace shardwise::cuda
