// matmul of float16 and bfloat16 with at most 32 rows in a and b contiguous along k (a linear
// layer's weight at small batch), on sm_90: reading b once is the limit, so one block an SM keeps
// all of its shared memory filled with loads of b in flight.
//
// y^T[R, m] = b^T[R, k] a^T[k, m] for R columns of y, R a multiple of 16 such that every SM has the
// same number of them (14336 columns on 132 SMs: 128 blocks of 112). A producer warp has the copy
// engine load R x 256 (512) of b and the same k of a into a ring of stages, 150 to 200 KiB in all:
// six times the product of latency and bandwidth. Of the 8 consumer warps 4 divide k and 2 the
// columns; ldmatrix reads the swizzled rows without bank conflicts, mma.sync multiplies (16 columns
// x 8 rows x 16), and at the end the four partials are added in shared memory.
// Grid: one block an SM. Bytes: k n + m k + m n elements (a comes from L2 for each block); FLOPs 2
// m n k. Also serves y with at most 32 columns, by transposing the problem.
// Numerics: float32 within a warp, then the four partials of k in order; alpha, beta and c in
// float32; one rounding. The same bits in every run.
// Technique: a ring of stages that the copy engine fills, as CUTLASS's documentation describes it
// for Hopper (matmul_sm90.cu), with as many loads in flight as memory needs.
//
// Versions, us on an H200, in a graph over weights that L2 does not hold:
//                                            16 x 4096  32 x 4096  16 x 4096  16 x 14336
//                                            x 4096     x 4096     x 14336    x 4096
//   cuBLAS                                   13.5       13.8       33.0       31.1
//   this (3.7 TB/s at 16 x 4096 x 14336)     11.4       11.9       31.7       32.7
//   fragments straight into registers        12.8       15.7                  38.9
//   stages of 128 along k                    11.6       12.5       33.1       33.0
//   half the shared memory, two blocks fit   12.4       13.7       34.5       34.4
// Fragments from memory into mma.sync by small blocks of 8 columns whose warps divide k, with 256
// bytes of each column prefetched to L2: 16 x 4096 x 4096 12.6 to 13.0, 16 x 14336 x 4096 38.0
// (cuBLAS 31.2). One after the other on a stream, 16 x 4096 x 4096: without PDL 13.85, with it
// 12.22, and with the first step (32 KiB an SM) prefetched to L2 while the previous kernel ends
// 12.01. More does not help: two steps 12.22, three 12.9, all 16.3, by the copy engine or by
// prefetch instructions alike; two blocks of 16 columns an SM 12.06 to 16. The increments run at
// 4.26 TB/s, so 4 us are start and end, not bytes.
#include "../../primitives/hopper.cuh"
#include "../../primitives/mma.cuh"
#include "../../primitives/pdl.cuh"
#include "matmul.h"

namespace shardwise::cuda {
namespace {

constexpr int kConsumers = 8, kThreads = (kConsumers + 1) * 32, kMaxRows = 112, kMaxStages = 24;
constexpr int kSharedLimit = 224 * 1024;

struct StreamArgs {
  // rows of b^T in a tile; tiles along n; tiles in all; steps along k; stages of shared memory
  int32_t rows, tiles_n, tiles, steps, stages;
  int32_t batched_a, batched_b;
};

template <int Eights>
constexpr int pitch() {
  return Eights * 8 + 1;
}
template <int Eights, int Boxes>
int stage_bytes(int rows) {
  return Boxes * (rows + Eights * 8) * 128;
}
template <int Eights>
int partials_bytes(int rows) {
  return 4 * rows * pitch<Eights>() * 4;
}

#if SW_SM90A
// Prefetches the block's first step of b to L2. Reads nothing, so it runs before the previous
// kernels are complete.
template <int Boxes>
__device__ __forceinline__ void prefetch_first(const CUtensorMap* map_b, const StreamArgs& s) {
  const int32_t batch = blockIdx.x / s.tiles_n, row = blockIdx.x % s.tiles_n * s.rows;
#pragma unroll
  for (int half = 0; half < Boxes; half++)
    tensor_prefetch(map_b, half * 64, row, batch * s.batched_b);
}
#endif

// Boxes: boxes of 64 along k in a stage.
template <class T, int Eights, int Boxes>
__global__ void __launch_bounds__(kThreads, 1)
    stream_kernel(const __grid_constant__ CUtensorMap map_a,
                  const __grid_constant__ CUtensorMap map_b, const MatmulProblem p,
                  const StreamArgs s) {
#if SW_SM90A
  extern __shared__ __align__(1024) uint8_t stream_shared[];
  __shared__ uint64_t barriers[2 * kMaxStages];
  const uint32_t stages = shared_address(stream_shared), full = shared_address(barriers),
                 empty = full + kMaxStages * 8;
  const int32_t bytes = Boxes * (s.rows + Eights * 8) * 128;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (threadIdx.x == 0) {
    tensor_map_prefetch(&map_a);
    tensor_map_prefetch(&map_b);
    for (int i = 0; i < s.stages; i++) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8, kConsumers);
    }
    barrier_init_fence();
  }
  __syncthreads();
  pdl_launch_dependents();
  if (threadIdx.x == kConsumers * 32) prefetch_first<Boxes>(&map_b, s);
  pdl_wait();

  int32_t stage = 0;
  uint32_t phase = 0;
  if (warp == kConsumers) {
    if (lane != 0) return;
    for (int32_t tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
      const int32_t batch = tile / s.tiles_n, row = tile % s.tiles_n * s.rows;
      for (int32_t i = 0; i < s.steps; i++) {
        const uint32_t to = stages + stage * bytes, ready = full + stage * 8;
        barrier_wait(empty + stage * 8, phase ^ 1);
        barrier_expect(ready, bytes);
#pragma unroll
        for (int half = 0; half < Boxes; half++) {
          tensor_load(to + half * s.rows * 128, &map_b, ready, i * (Boxes * 64) + half * 64, row,
                      batch * s.batched_b);
          tensor_load(to + s.rows * Boxes * 128 + half * Eights * 1024, &map_a, ready,
                      i * (Boxes * 64) + half * 64, 0, batch * s.batched_a);
        }
        if (++stage == s.stages) stage = 0, phase ^= 1;
      }
    }
    return;
  }

  // Each consumer warp has a `quarter` of k and a `side` of the 16-row groups (the even or the odd
  // ones).
  const int quarter = warp & 3, side = warp >> 2, groups = s.rows / 16;
  // rows of a: fragments of 8 columns
  const int row_a = (lane & 7) + (lane >> 4 & 1) * 8, unit_a = quarter * 2 + (lane >> 3 & 1);
  // of b^T: fragments of 16 rows
  const int row_b = (lane & 7) + (lane >> 3 & 1) * 8, unit_b = quarter * 2 + (lane >> 4);
  const uint32_t lane_a = (Eights == 1 ? lane & 7 : row_a) * 128 + ((unit_a ^ (lane & 7)) << 4);
  const uint32_t lane_b = row_b * 128 + ((unit_b ^ (lane & 7)) << 4);
  constexpr int kGroups = (kMaxRows / 16 + 1) / 2;
  float* const partials = reinterpret_cast<float*>(stream_shared + s.stages * bytes);
  for (int32_t tile = blockIdx.x; tile < s.tiles; tile += gridDim.x) {
    float sums[kGroups][Eights][4] = {};
    for (int32_t i = 0; i < s.steps; i++) {
      barrier_wait(full + stage * 8, phase);
#pragma unroll
      for (int half = 0; half < Boxes; half++) {
        const uint32_t at_b = stages + stage * bytes + half * s.rows * 128 + lane_b;
        const uint32_t at_a =
            stages + stage * bytes + s.rows * Boxes * 128 + half * Eights * 1024 + lane_a;
        uint32_t a[(Eights + 1) / 2][4];
#pragma unroll
        for (int e = 0; e < (Eights + 1) / 2; e++) load_matrices(a[e], at_a + e * 2048);
#pragma unroll
        for (int g = 0; g < kGroups; g++) {
          if (g * 2 + side >= groups) break;
          uint32_t b[4];
          load_matrices(b, at_b + (g * 2 + side) * 2048);
#pragma unroll
          for (int e = 0; e < Eights; e++)
            mma_16816<T>(sums[g][e], b, a[e / 2][e % 2 * 2], a[e / 2][e % 2 * 2 + 1]);
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + stage * 8);
      if (++stage == s.stages) stage = 0, phase ^= 1;
    }
#pragma unroll
    for (int g = 0; g < kGroups; g++) {
      if (g * 2 + side >= groups) break;
#pragma unroll
      for (int e = 0; e < Eights; e++)
#pragma unroll
        for (int v = 0; v < 4; v++)
          partials[(quarter * s.rows + (g * 2 + side) * 16 + (lane >> 2) + v / 2 * 8) *
                       pitch<Eights>() +
                   e * 8 + (lane & 3) * 2 + v % 2] = sums[g][e][v];
    }
    sync_threads_of(1, kConsumers * 32);
    const int32_t batch = tile / s.tiles_n, first = tile % s.tiles_n * s.rows;
    for (int at = threadIdx.x; at < s.rows * static_cast<int>(p.m); at += kConsumers * 32) {
      const int column = at % s.rows, row = at / s.rows;
      if (first + column >= p.n) continue;
      float total = 0.0f;
#pragma unroll
      for (int q = 0; q < 4; q++) total += partials[(q * s.rows + column) * pitch<Eights>() + row];
      finish_element<T>(p, batch, row, first + column, total);
    }
    sync_threads_of(1, kConsumers * 32);
  }
#endif
}

template <class T, int Eights, int Boxes>
bool launch(const MatmulProblem& p, int rows, Stream& stream) {
  const int64_t sms = stream.facts->num_sms;
  StreamArgs args = {};
  args.rows = rows;
  args.tiles_n = static_cast<int32_t>(ceil_div(p.n, rows));
  args.tiles = static_cast<int32_t>(args.tiles_n * p.batch);
  args.steps = static_cast<int32_t>(ceil_div(p.k, (Boxes * 64)));
  const int possible =
      (kSharedLimit - partials_bytes<Eights>(rows)) / stage_bytes<Eights, Boxes>(rows);
  if (possible < 2) return false;
  args.stages = possible < kMaxStages ? possible : kMaxStages;
  const TensorMapShape a = operand_shape(p, p.a, p.k, p.m, false),
                       b = operand_shape(p, p.b, p.k, p.n, true);
  args.batched_a = a.depth > 1;
  args.batched_b = b.depth > 1;
  constexpr bool kBf16 = std::is_same<T, bfloat16_t>::value;
  CUtensorMap map_a, map_b;
  if (!tensor_map_fits(a) || !tensor_map_fits(b) ||
      !make_tensor_map(a, 64, Eights * 8, kBf16, &map_a) ||
      !make_tensor_map(b, 64, rows, kBf16, &map_b))
    return false;
  const size_t shared = static_cast<size_t>(args.stages * stage_bytes<Eights, Boxes>(rows) +
                                            partials_bytes<Eights>(rows));
  allow_shared(&stream_kernel<T, Eights, Boxes>, kSharedLimit);
  const LaunchShape shape{blocks_of(args.tiles < sms ? args.tiles : sms), kThreads, shared};
  launch_pdl(&stream_kernel<T, Eights, Boxes>, shape, stream, map_a, map_b, p, args);
  return true;
}

// 16 to 112 columns of y a block, the same for every SM.
int fair_rows(const MatmulProblem& p, int64_t sms) {
  const int64_t all = p.n * p.batch, waves = ceil_div(all, sms * kMaxRows),
                fair = round_up(ceil_div(all, sms * waves), 16);
  return static_cast<int>(fair < 16 ? 16 : fair > kMaxRows ? kMaxRows : fair);
}

// Short columns take stages of twice the depth.
template <class T, int Eights>
bool launch_depth(const MatmulProblem& p, Stream& stream) {
  const int rows = fair_rows(p, stream.facts->num_sms);
  return rows <= 48 ? launch<T, Eights, 8>(p, rows, stream) : launch<T, Eights, 4>(p, rows, stream);
}

template <class T>
bool launch_for(const MatmulProblem& p, Stream& stream) {
  return p.m <= 8    ? launch_depth<T, 1>(p, stream)
         : p.m <= 16 ? launch_depth<T, 2>(p, stream)
                     : launch_depth<T, 4>(p, stream);
}

}  // namespace

bool matmul_stream(const MatmulProblem& problem, Stream& stream) {
  MatmulProblem p = problem;
  if ((p.dtype != DType::Float16 && p.dtype != DType::BFloat16) || !is_sm90(*stream.facts))
    return false;
  for (int attempt = 0; attempt < 2; attempt++) {
    const bool contiguous =
        (p.a.column_stride == 1 || p.k == 1) && (p.b.row_stride == 1 || p.k == 1);
    const bool fits = p.m <= 32 && p.n * p.batch < (int64_t(1) << 30) && p.k < (int64_t(1) << 30);
    if (contiguous && fits &&
        (p.dtype == DType::Float16 ? launch_for<half_t>(p, stream)
                                   : launch_for<bfloat16_t>(p, stream)))
      return true;
    p = problem.transposed();
  }
  return false;
}

// By the times above; matmul_few_rows takes one row.
bool matmul_stream_wins(const MatmulProblem& p) {
  const int64_t few = p.m < p.n ? p.m : p.n, many = (p.m < p.n ? p.n : p.m) * p.batch;
  return few <= 32 && many <= 132 * 48;
}

}  // namespace shardwise::cuda
