// A row in the registers of a thread group: how the row kernels (softmax, norms, cross entropy)
// find, load, reduce and store rows of any length and alignment.
//
// A group is `lanes` threads of one warp (a power of two), a whole block, or a cluster of blocks
// (sm_90). Each thread holds kRowChunks vectors of 16 bytes; vector v of the row belongs to thread
// v % group size. Rows need not start on a 16-byte boundary: a row that starts `shift` elements
// after one is treated as if it began `shift` elements earlier, and the vectors at its two ends are
// accessed element by element. Operands of one kernel must share the shift of each row (see
// RowAlignment).
#pragma once
#include "../stream.h"
#include "dtype.cuh"
#include "offsets.cuh"
#include "online_sum.cuh"
#include "reduce.cuh"
#include "vector.cuh"

namespace shardwise::cuda {

constexpr int kRowChunks = 4;

// load_any for floating dtypes only: fewer branches to compile.
template <class C>
__device__ __forceinline__ C load_floating(const void* base, int64_t index, DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return static_cast<C>(static_cast<const double*>(base)[index]);
    case DType::Float16:
      return to_compute<C>(static_cast<const half_t*>(base)[index]);
    case DType::BFloat16:
      return to_compute<C>(static_cast<const bfloat16_t*>(base)[index]);
    default:
      return static_cast<C>(static_cast<const float*>(base)[index]);
  }
}

// ---- offsets of rows --------------------------------------------------------------------------

// Offsets of row `index` in N operands: the dims before the last, collapsed, innermost first.
template <int N>
struct RowMap {
  int32_t ndim = 0;
  FastDivide sizes[kMaxDims];
  int64_t strides[kMaxDims][N];

  __device__ __forceinline__ void offsets(uint32_t index, int64_t (&out)[N]) const {
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = 0;
#pragma unroll 1
    for (int32_t d = 0; d < ndim; d++) {
      const bool last = d + 1 == ndim;
      const uint32_t next = last ? 0u : sizes[d].quotient(index);
      const uint32_t coordinate = index - next * sizes[d].divisor;
      index = next;
#pragma unroll
      for (int i = 0; i < N; i++) out[i] += int64_t(coordinate) * strides[d][i];
    }
  }
};

// Whether rows can be accessed in 16-byte vectors, and the largest number of elements between a
// boundary and the start of a row.
struct RowAlignment {
  bool vectors = false;
  int32_t max_shift = 0;
};

template <int N>
struct RowSet {
  RowMap<N> map;
  int64_t rows = 1, n = 1;
  int64_t step[N];  // stride of the last dim
  RowAlignment alignment;
};

// Describes rows of N views of equal sizes. False if there are 2^31 rows or more.
template <int N>
inline bool describe_rows(const TensorView* const (&views)[N], RowSet<N>* out) {
  const int32_t ndim = views[0]->ndim;
  Dims<N> dims;
  for (int32_t d = 0; d + 1 < ndim; d++) {
    int64_t stride[N];
    for (int i = 0; i < N; i++) stride[i] = views[i]->strides[d];
    dims.push(views[0]->sizes[d], stride);
    out->rows *= views[0]->sizes[d];
  }
  if (out->rows >= (int64_t(1) << 31)) return false;
  dims.collapse();
  out->n = ndim > 0 ? views[0]->sizes[ndim - 1] : 1;
  out->map.ndim = dims.ndim;
  bool aligned = true, same = true;
  const int64_t width = vec16(views[0]->dtype);
  for (int32_t d = 0; d < dims.ndim; d++) {
    const int32_t from = dims.ndim - 1 - d;
    out->map.sizes[d] =
        FastDivide(static_cast<uint32_t>(dims.sizes[from] > 0 ? dims.sizes[from] : 1));
    for (int i = 0; i < N; i++) {
      const int64_t stride = dims.strides[i][from];
      out->map.strides[d][i] = stride;
      aligned = aligned && stride % width == 0;
      same = same && (stride - dims.strides[0][from]) % width == 0;
    }
  }
  bool unit = true;
  const uintptr_t base = reinterpret_cast<uintptr_t>(views[0]->data);
  for (int i = 0; i < N; i++) {
    out->step[i] = ndim > 0 ? views[i]->strides[ndim - 1] : 1;
    unit = unit && (out->step[i] == 1 || out->n <= 1);
    aligned = aligned && reinterpret_cast<uintptr_t>(views[i]->data) % 16 == 0;
    same = same && (reinterpret_cast<uintptr_t>(views[i]->data) - base) % 16 == 0;
  }
  out->alignment.vectors = unit && same;
  out->alignment.max_shift = aligned ? 0 : static_cast<int32_t>(width) - 1;
  return true;
}

// Elements between the 16-byte boundary before `row` and `row`.
template <class T>
__device__ __forceinline__ int row_shift(const T* row) {
  return static_cast<int>((reinterpret_cast<uintptr_t>(row) & 15) / sizeof(T));
}

// Loads elements [first, first + V) of a row of n; those outside it are `fill`. row + first is
// 16-byte aligned.
template <int V, class T, class Index>
__device__ __forceinline__ Vec<T, V> load_masked(const T* row, Index first, Index n, T fill) {
  if (first >= 0 && first + V <= n) return load_vec<V>(row + first);
  Vec<T, V> out;
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = first + i >= 0 && first + i < n ? row[first + i] : fill;
  return out;
}

// `vectors` false: row + first is not aligned.
template <int V, class T, class Index>
__device__ __forceinline__ void store_masked(T* row, Index first, Index n, const Vec<T, V>& values,
                                             bool vectors = true) {
  if (vectors && first >= 0 && first + V <= n) {
    store_global<V>(row + first, values);
    return;
  }
#pragma unroll
  for (int i = 0; i < V; i++)
    if (first + i >= 0 && first + i < n) row[first + i] = values[i];
}

// ---- thread groups ----------------------------------------------------------------------------

struct RowGroup {
  int32_t lanes = 32;   // threads of a warp per row; more than 32: the whole block
  int32_t cluster = 1;  // blocks per row
};

struct RowPlan {
  bool fits = false;  // the row fits into registers
  RowGroup group;
  int32_t threads = 128;
  int64_t blocks = 0;
};

// `width` elements per vector; `max_threads` is the launch bound of the kernel, 512 or 1024.
inline RowPlan plan_rows(int64_t rows, int64_t n, int32_t width, int32_t max_shift,
                         int32_t max_threads, const DeviceFacts& facts) {
  RowPlan plan;
  const int64_t vectors = ceil_div(n + max_shift, width);
  auto set_blocks = [&](int32_t cluster) {
    plan.fits = true;
    plan.group.cluster = cluster;
    plan.threads = static_cast<int32_t>(round_up(ceil_div(vectors, kRowChunks * cluster), 32));
    plan.group.lanes = plan.threads;  // 64 at least: more than 32 means the block
    plan.blocks = rows * cluster;
  };
  if (vectors <= 32 * kRowChunks) {
    int32_t lanes = 1;
    while (lanes < 32 && lanes * 2 < vectors) lanes *= 2;
    plan.fits = true;
    plan.group.lanes = lanes;
    plan.blocks = ceil_div(rows, plan.threads / lanes);
  } else if (vectors <= 512 * kRowChunks) {
    set_blocks(1);
  } else if (facts.major >= 9 && vectors <= int64_t(8) * max_threads * kRowChunks) {
    int32_t cluster = 2;
    while (cluster < 8 && vectors > int64_t(cluster) * 512 * kRowChunks) cluster *= 2;
    set_blocks(cluster);
  } else if (vectors <= int64_t(max_threads) * kRowChunks) {
    set_blocks(1);
  }
  return plan;
}

// The row of this thread, and its vectors of it.
struct RowPlace {
  uint32_t row;
  int32_t slot, stride;  // vector c of the thread is vector slot + c * stride of the row

  __device__ __forceinline__ explicit RowPlace(const RowGroup& group) {
    if (group.lanes <= 32) {
      row = blockIdx.x * (blockDim.x / group.lanes) + threadIdx.x / group.lanes;
      slot = threadIdx.x & (group.lanes - 1);
      stride = group.lanes;
    } else {
      row = blockIdx.x / group.cluster;
      slot = (blockIdx.x - row * group.cluster) * blockDim.x + threadIdx.x;
      stride = group.cluster * blockDim.x;
    }
  }
};

// The shared memory of row_reduce: one value per warp, and the block's result for the cluster.
template <class A>
struct RowScratch {
  A warps[32];
  A block;
};

// Reduces over the group; every thread of it receives the result. All threads of the block
// (cluster) must call it.
template <class A, class Op>
__device__ __forceinline__ A row_reduce(A value, Op op, A identity, const RowGroup& group,
                                        RowScratch<A>& shared) {
  for (int mask = (group.lanes < 32 ? group.lanes : 32) >> 1; mask > 0; mask >>= 1)
    value = op(value, shuffle_xor(value, mask));
  if (group.lanes <= 32) return value;
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  if (lane == 0) shared.warps[threadIdx.x >> 5] = value;
  __syncthreads();
  value = lane < warps ? shared.warps[lane] : identity;
  value = warp_reduce(value, op);
  if (group.cluster == 1) {
    __syncthreads();
    return value;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) shared.block = value;
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
  value = identity;
  for (int rank = 0; rank < group.cluster; rank++) {
    uint64_t address;
    asm volatile("mapa.u64 %0, %1, %2;"
                 : "=l"(address)
                 : "l"(reinterpret_cast<uint64_t>(&shared.block)), "r"(rank));
    value = op(value, *reinterpret_cast<const A*>(address));
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
  return value;
}

// Launches a row kernel by its plan, with a cluster if the plan has one. launched() reports an
// error.
template <class... Params, class... Args>
inline void launch_rows(void (*kernel)(Params...), const RowPlan& plan, cudaStream_t stream,
                        Args&&... args) {
  const dim3 grid(static_cast<unsigned>(plan.blocks)), block(plan.threads);
  if (plan.group.cluster == 1) {
    kernel<<<grid, block, 0, stream>>>(static_cast<Params>(args)...);
    return;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = plan.group.cluster;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
}

}  // namespace shardwise::cuda
