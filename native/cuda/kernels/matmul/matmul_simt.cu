// matmul on the CUDA cores: any floating dtype or integers, any strides, any sizes; also the
// low-latency path of tiny products. Math: matmul.cu.
//
// A block of 256 threads (16 x 16) computes a tile of 64 R x 64 R elements of y, each thread R x R
// groups of 4 x 4. The tiles of a and b pass through shared memory as [k][row] in the accumulation
// type, two stages deep, so that the loads of the next tile overlap with the arithmetic. Each
// thread loads four elements per operand and tile, as one vector if the operand has unit stride and
// is aligned, along k or along the other dim, whichever is contiguous.
// Grid: (tiles of n x tiles of m, batch). R = 1: 64 x 64 tiles, 16 deep; R = 2 (float32): 128 x
// 128, 8 deep. FLOPs 2 m n k per batch; a is read n / tile times, b m / tile times (mostly from
// L2).
// Numerics: float32 sums in order of k (float64 for float64; int64 wrapping for integers), so the
// same bits in every run; alpha, beta and c before the one rounding.
// Technique: tiles in shared memory and registers, as in the public worklog "How to Optimize a CUDA
// Matmul Kernel". float32 4096 cubed on an H200: 40 TFLOP/s of 67 (cuBLASLt 51). No other version
// was timed.
#include "../../primitives/dtype.cuh"
#include "../../primitives/vector.cuh"
#include "matmul.h"

namespace shardwise::cuda {
namespace {

// Integers of any width, read and written through their dtype.
struct AnyInteger {};
template <class T>
struct SimtTypes {
  using Accumulator = compute_t<T>;
};
template <>
struct SimtTypes<AnyInteger> {
  using Accumulator = int64_t;
};

template <class T, class C>
__device__ __forceinline__ C load_at(const void* data, int64_t index, DType dtype) {
  if constexpr (std::is_same<T, AnyInteger>::value)
    return load_any<C>(data, index, dtype);
  else
    return to_compute<C>(static_cast<const T*>(data)[index]);
}

template <class T, class C>
__device__ __forceinline__ void store_at(void* data, int64_t index, DType dtype, C value) {
  if constexpr (std::is_same<T, AnyInteger>::value)
    store_any<C>(data, index, dtype, value);
  else
    static_cast<T*>(data)[index] = from_compute<T>(value);
}

// One operand of the tile loader: `outer` is m or n.
struct TileSource {
  const void* data;
  int64_t outer_stride, k_stride, outer_size;
  bool along_k;  // a thread's four elements are neighbours along k, else along outer
  bool vectors;  // and are one aligned vector
};

template <class T, class C, int Tile, int Depth>
struct TileLoader {
  C held[4];

  // Loads the four elements of this thread in the tile at (outer0, k0); zeros outside the operand.
  __device__ __forceinline__ void fetch(const TileSource& s, int64_t base, int64_t outer0,
                                        int64_t k0, int64_t k_size, DType dtype) {
    int outer, k;
    place(s.along_k, &outer, &k);
    const int64_t o = outer0 + outer, kk = k0 + k;
    const int64_t index = base + o * s.outer_stride + kk * s.k_stride;
    if constexpr (!std::is_same<T, AnyInteger>::value) {
      const bool inside =
          s.along_k ? o < s.outer_size && kk + 4 <= k_size : o + 4 <= s.outer_size && kk < k_size;
      if (s.vectors && inside) {
        const Vec<T, 4> raw = load_vec<4>(static_cast<const T*>(s.data) + index);
#pragma unroll
        for (int i = 0; i < 4; i++) held[i] = to_compute<C>(raw[i]);
        return;
      }
    }
    const int64_t step = s.along_k ? s.k_stride : s.outer_stride;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const bool inside =
          s.along_k ? o < s.outer_size && kk + i < k_size : o + i < s.outer_size && kk < k_size;
      held[i] = inside ? load_at<T, C>(s.data, index + i * step, dtype) : C(0);
    }
  }

  __device__ __forceinline__ void keep(bool along_k, C (&tile)[Depth][Tile + 4]) const {
    int outer, k;
    place(along_k, &outer, &k);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (along_k)
        tile[k + i][outer] = held[i];
      else
        tile[k][outer + i] = held[i];
    }
  }

 private:
  static __device__ __forceinline__ void place(bool along_k, int* outer, int* k) {
    const int t = threadIdx.x;
    *outer = along_k ? t / (Depth / 4) : t % (Tile / 4) * 4;
    *k = along_k ? t % (Depth / 4) * 4 : t / (Tile / 4);
  }
};

template <class T, int R>
__global__ void __launch_bounds__(256, R == 2 ? 2 : 1)
    simt_kernel(MatmulProblem p, TileSource a, TileSource b, int64_t tiles_n) {
  using C = typename SimtTypes<T>::Accumulator;
  constexpr int kTile = 64 * R, kDepth = 16 / R;
  __shared__ alignas(16) C a_tile[2][kDepth][kTile + 4];
  __shared__ alignas(16) C b_tile[2][kDepth][kTile + 4];
  const int64_t batch = batch_of_block();
  if (batch >= p.batch) return;
  const int64_t row0 = blockIdx.x / tiles_n * kTile, column0 = blockIdx.x % tiles_n * kTile;
  const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;

  C sums[R][4][R][4];
#pragma unroll
  for (int i = 0; i < R * 4; i++)
#pragma unroll
    for (int j = 0; j < R * 4; j++) sums[i / 4][i % 4][j / 4][j % 4] = C(0);

  TileLoader<T, C, kTile, kDepth> a_load, b_load;
  const int64_t a_base = batch * p.a.batch_stride, b_base = batch * p.b.batch_stride;
  a_load.fetch(a, a_base, row0, 0, p.k, p.dtype);
  b_load.fetch(b, b_base, column0, 0, p.k, p.dtype);
  int stage = 0;
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth, stage ^= 1) {
    a_load.keep(a.along_k, a_tile[stage]);
    b_load.keep(b.along_k, b_tile[stage]);
    // this stage is written; after the next round's barrier all threads have read the other one
    __syncthreads();
    if (k0 + kDepth < p.k) {
      a_load.fetch(a, a_base, row0, k0 + kDepth, p.k, p.dtype);
      b_load.fetch(b, b_base, column0, k0 + kDepth, p.k, p.dtype);
    }
#pragma unroll
    for (int k = 0; k < kDepth; k++) {
      Vec<C, 4> av[R], bv[R];
#pragma unroll
      for (int r = 0; r < R; r++) {
        av[r] = load_vec<4>(&a_tile[stage][k][r * 64 + ty * 4]);
        bv[r] = load_vec<4>(&b_tile[stage][k][r * 64 + tx * 4]);
      }
#pragma unroll
      for (int i = 0; i < R * 4; i++)
#pragma unroll
        for (int j = 0; j < R * 4; j++)
          sums[i / 4][i % 4][j / 4][j % 4] += av[i / 4][i % 4] * bv[j / 4][j % 4];
    }
  }

#pragma unroll
  for (int i = 0; i < R * 4; i++) {
    const int64_t row = row0 + i / 4 * 64 + ty * 4 + i % 4;
    if (row >= p.m) continue;
#pragma unroll
    for (int j = 0; j < R * 4; j++) {
      const int64_t column = column0 + j / 4 * 64 + tx * 4 + j % 4;
      if (column >= p.n) continue;
      C value = sums[i / 4][i % 4][j / 4][j % 4] * static_cast<C>(p.alpha);
      if (p.c.data)
        value +=
            static_cast<C>(p.beta) * load_at<T, C>(p.c.data,
                                                   batch * p.c.batch_stride + row * p.c.row_stride +
                                                       column * p.c.column_stride,
                                                   p.dtype);
      store_at<T, C>(p.y.data,
                     batch * p.y.batch_stride + row * p.y.row_stride + column * p.y.column_stride,
                     p.dtype, value);
    }
  }
}

TileSource source_of(const MatrixView& v, int64_t outer_stride, int64_t k_stride,
                     int64_t outer_size, DType dtype) {
  TileSource s{v.data, outer_stride, k_stride, outer_size, false, false};
  s.along_k = k_stride == 1 || (outer_stride != 1 && k_stride < outer_stride);
  const int64_t other = s.along_k ? outer_stride : k_stride;
  s.vectors = (s.along_k ? k_stride : outer_stride) == 1 && other % 4 == 0 &&
              v.batch_stride % 4 == 0 &&
              reinterpret_cast<uintptr_t>(v.data) % (4 * item_size(dtype)) == 0;
  return s;
}

template <class T, int R>
void start(const MatmulProblem& p, cudaStream_t stream) {
  const TileSource a = source_of(p.a, p.a.row_stride, p.a.column_stride, p.m, p.dtype);
  const TileSource b = source_of(p.b, p.b.column_stride, p.b.row_stride, p.n, p.dtype);
  const int64_t tiles_n = ceil_div(p.n, 64 * R), tiles_m = ceil_div(p.m, 64 * R);
  const dim3 grid = batch_grid(tiles_m * tiles_n, p.batch);
  simt_kernel<T, R><<<grid, 256, 0, stream>>>(p, a, b, tiles_n);
}

}  // namespace

void matmul_simt(const MatmulProblem& p, bool large_tile, cudaStream_t stream) {
  if (large_tile && p.dtype == DType::Float32) {
    start<float, 2>(p, stream);
    return;
  }
  dispatch_floating(p.dtype, [&](auto tag) { start<tag_t<decltype(tag)>, 1>(p, stream); });
}

void matmul_integer(const MatmulProblem& p, cudaStream_t stream) {
  start<AnyInteger, 1>(p, stream);
}

}  // namespace shardwise::cuda
