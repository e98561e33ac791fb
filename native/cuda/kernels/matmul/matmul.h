// The problem that matmul.cu passes to its kernels, and the kernels.
#pragma once
#include "../../cublaslt.h"
#include "../../tensor_map.h"
#if defined(__CUDACC__)
#include "../../primitives/dtype.cuh"
#endif

namespace shardwise::cuda {

// The precision of float32 products: lib/ops/float32-precision.ts.
enum class Float32Precision : int32_t { Highest, Tf32, Tf32x3 };

// One operand: element (batch, row, column) is at data[batch * batch_stride + row * row_stride +
// column * column_stride].
struct MatrixView {
  void* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, column_stride = 0;

  MatrixView transposed() const { return {data, batch_stride, column_stride, row_stride}; }
};

// y[B, m, n] = alpha a[B, m, k] b[B, k, n] + beta c[B, m, n]; c.data is null if there is no c or
// beta is 0.
struct MatmulProblem {
  DType dtype = DType::Float32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  MatrixView a, b, c, y;
  double alpha = 1, beta = 0;
  Float32Precision precision = Float32Precision::Highest;
  bool wide = false;  // y and c are float32, a and b of 16 bits; only cuBLASLt takes it

  // The same product as y^T = alpha b^T a^T + beta c^T.
  MatmulProblem transposed() const {
    MatmulProblem p = *this;
    p.a = b.transposed();
    p.b = a.transposed();
    p.c = c.transposed();
    p.y = y.transposed();
    p.m = n;
    p.n = m;
    return p;
  }
};

// The batch is in y and z of the grid, which are limited to 65535 each.
inline dim3 batch_grid(int64_t blocks, int64_t batch) {
  const int64_t y = batch < 65535 ? batch : 65535;
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(y),
              static_cast<unsigned>(ceil_div(batch, y)));
}

// The tensor map shape of an operand: `width` along its contiguous dim, which is that of its
// columns, or `across` them.
inline TensorMapShape operand_shape(const MatmulProblem& p, const MatrixView& v, int64_t width,
                                    int64_t height, bool across) {
  TensorMapShape s;
  s.data = v.data;
  s.width = width;
  s.height = height;
  s.row_stride = across ? v.column_stride : v.row_stride;
  s.depth = p.batch > 1 && v.batch_stride != 0 ? p.batch : 1;
  s.depth_stride = v.batch_stride;
  return s;
}

#if defined(__CUDACC__)
__device__ __forceinline__ int64_t batch_of_block() {
  return int64_t(blockIdx.z) * gridDim.y + blockIdx.y;
}

// The epilogue of kernels that end with one sum per thread: y = alpha sum + beta c, rounded once.
template <class T>
__device__ __forceinline__ void finish_element(const MatmulProblem& p, int64_t batch, int64_t row,
                                               int64_t column, float sum) {
  sum *= static_cast<float>(p.alpha);
  if (p.c.data)
    sum += static_cast<float>(p.beta) *
           to_compute<float>(
               static_cast<const T*>(p.c.data)[batch * p.c.batch_stride + row * p.c.row_stride +
                                               column * p.c.column_stride]);
  static_cast<T*>(
      p.y.data)[batch * p.y.batch_stride + row * p.y.row_stride + column * p.y.column_stride] =
      from_compute<T>(sum);
}
#endif

// Our kernels: any strides, any sizes (k = 0 included). The caller checks launched(). Floating
// dtypes; large_tile: float32 only.
void matmul_simt(const MatmulProblem& p, bool large_tile, cudaStream_t stream);
// integers and bool
void matmul_integer(const MatmulProblem& p, cudaStream_t stream);
// float16, bfloat16
void matmul_sm80(const MatmulProblem& p, cudaStream_t stream);
// Floating dtypes, a few elements with a short k. Returns false for other products.
bool matmul_small(const MatmulProblem& p, cudaStream_t stream);
// A few rows times a matrix with columns contiguous along k: reads b once at memory speed. Returns
// false for other products.
bool matmul_few_rows(const MatmulProblem& p, const Stream& stream);

// sm_90 only, float16 and bfloat16 (matmul_sm90.cu, matmul_stream.cu, matmul_cluster.cu). Return
// false for other products.
struct MatmulConfig;
// Uses the tile that `config` names, or chooses one and writes it there.
bool matmul_sm90(const MatmulProblem& p, MatmulConfig* config, Stream& stream,
                 const KernelCall& call);
// at most 128 rows, b contiguous along k
bool matmul_cluster(const MatmulProblem& p, MatmulConfig* config, Stream& stream);
bool matmul_cluster_wins(const MatmulProblem& p);
bool matmul_sm90_wins(const MatmulProblem& p);  // faster than the library, if both take it
// at most 32 rows, b contiguous along k
bool matmul_stream(const MatmulProblem& p, Stream& stream);
bool matmul_stream_wins(const MatmulProblem& p);

// By cuBLASLt. Declined: the library is missing, or does not take these strides. `suggestion` and
// `scratch`: lt::Product.
lt::Outcome matmul_library(const MatmulProblem& p, int32_t suggestion, void* scratch,
                           Stream& stream, const KernelCall& call, Status* status);
// Large products of float32 as three of TF32 by cuBLASLt (matmul_tf32x3.cu).
lt::Outcome matmul_tf32x3(const MatmulProblem& p, Stream& stream, const KernelCall& call,
                          Status* status);

// A product by the kernel that matmul.cu chooses.
Status run_matmul(MatmulProblem p, Stream& stream, const KernelCall& call);
MatrixView view_of(const TensorView& t);

// The choice between our kernels and cuBLASLt for products that both take. SHARDWISE_MATMUL=own or
// cublaslt forces one.
enum class MatmulRoute { Measured, Own, Library };
MatmulRoute& matmul_route();

}  // namespace shardwise::cuda
