// matmul of float16 and bfloat16 with 33 to 128 rows in a (also fewer) and b contiguous along k, on
// sm_90: a linear layer's weight at the batch of a server. The limits are reading b once, and the
// traffic from L2 to the SMs: every block needs the rows of a.
//
// A cluster of S blocks (1, 2, 4 or 8) computes N columns of y, each block from a split of k. The
// copy engine loads N x 64 of b and the rows of a into a ring of stages; two warpgroups multiply
// with wgmma m64nNk16. More than 64 rows: each warpgroup has 64 of them; else each has half of
// every step along k. Then the blocks store their float32 sums in shared memory, and each adds up
// and writes a share of the rows, reading those of its cluster. A cluster is scheduled as a whole,
// so waiting for its blocks cannot deadlock.
// Grid: (columns / N x batch x S). N and S are chosen so that nearly all SMs have one block: of
// H200's, 132 for S up to 2, 120 for 4.
// Bytes: k n + m k + m n elements of memory; from L2 k n + (columns / N) m k. FLOPs 2 m n k. Shared
// memory up to 200 KiB: with more, clusters may fail to launch.
// Numerics: float32 along a split of k in order, the splits in order, alpha, beta and c in float32,
// one rounding. The same bits in every run.
// Technique: split along k with sums through distributed shared memory, as in DeepGEMM for few
// rows.
// Times, us on an H200 over weights that L2 does not hold; cuBLASLt 13.1, and matmul_sm90.cu, which
// computed these before and adds splits through memory:
//                        this  cuBLASLt  matmul_sm90
//   128 x 4096 x 4096    14.6  15.0      22.5
//   128 x 4096 x 14336   37.0  37.9      47.2
//   128 x 6144 x 4096    20.3  17.5      23.9
//   64 x 4096 x 4096     13.3  12.3      22.8
//   64 x 4096 x 14336    34.0  36.4      48.8
//   64 x 6144 x 4096     18.2  17.1      25.2
//   33 x 4096 x 4096     14.5  14.3      22.4
//   64 x 14336 x 4096    36.8  34.5      43.5
//   64 x 2048 x 8192     16.4  14.9      25.7
// Most often the best: 64 columns, two splits. The first of b prefetched to L2 while the previous
// kernel ends: 0.2 to 0.5 us less, except at 128 rows.
#include <cmath>

#include "../../primitives/pdl.cuh"
#include "../../primitives/wgmma.cuh"
#include "matmul.h"
#include "matmul_config.h"

namespace shardwise::cuda {
namespace {

constexpr int kConsumers = 256, kThreads = kConsumers + 32, kSharedLimit = 200 * 1024;

template <class Element, int Rows, int Columns>
struct ClusterTile {
  using T = Element;
  static constexpr int BM = Rows, BN = Columns;
  static constexpr int kBytesA = BM * 128, kStageBytes = kBytesA + BN * 128;
  static constexpr int kStages = kSharedLimit / kStageBytes;
  // floats of a row of sums, which reuse the memory of the stages
  static constexpr int kPitch = BN + 4;
  static constexpr int kSharedBytes = kStages * kStageBytes + 2 * kStages * 8;
  static_assert(128 * kPitch * 4 <= kStages * kStageBytes && kStageBytes % 1024 == 0,
                "sums fit; tiles are swizzled");
};

struct ClusterArgs {
  int32_t k_blocks, tiles_n, splits;  // k in steps of 64; tiles along n; blocks of a cluster
  int32_t batched_a, batched_b;
};

#if SW_SM90A

// Prefetches the first of b to L2 (see matmul_stream.cu). Reads nothing, so it runs before the
// previous kernels are complete.
template <class C>
__device__ __forceinline__ void prefetch_first(const ClusterArgs& s, const CUtensorMap* map_b,
                                               int32_t tile, int32_t first) {
  constexpr int kAhead = 32 * 1024 / (C::BN * 128);
#pragma unroll
  for (int i = 0; i < kAhead; i++)
    tensor_prefetch(map_b, (first + i) * 64, tile % s.tiles_n * C::BN,
                    tile / s.tiles_n * s.batched_b);
}

template <class C>
__device__ __forceinline__ void cluster_produce(const ClusterArgs& s, const CUtensorMap* map_a,
                                                const CUtensorMap* map_b, uint32_t stages,
                                                uint32_t full, uint32_t empty, int32_t tile,
                                                int32_t first, int32_t blocks) {
  const int32_t batch = tile / s.tiles_n, row = tile % s.tiles_n * C::BN;
  int32_t stage = 0;
  uint32_t phase = 0;
  for (int32_t i = 0; i < blocks; i++) {
    const uint32_t to = stages + stage * C::kStageBytes, ready = full + stage * 8;
    barrier_wait(empty + stage * 8, phase ^ 1);
    barrier_expect(ready, C::kStageBytes);
    tensor_load(to + C::kBytesA, map_b, ready, (first + i) * 64, row, batch * s.batched_b);
    tensor_load(to, map_a, ready, (first + i) * 64, 0, batch * s.batched_a);
    if (++stage == C::kStages) stage = 0, phase ^= 1;
  }
}

// Multiplies all steps, and stores the sums in shared memory: two times 64 rows.
template <class C>
__device__ __forceinline__ void cluster_consume(uint32_t stages, uint32_t full, uint32_t empty,
                                                int32_t blocks, float* out) {
  const int consumer = threadIdx.x >> 7, lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
  constexpr bool kByRows = C::BM == 128;
  constexpr int kSteps = kByRows ? 4 : 2, kStepStage = C::kStageBytes >> 4;
  const uint64_t first_a =
      matrix_descriptor(stages + (kByRows ? consumer * kGroupBytes : consumer * 64), false);
  const uint64_t first_b =
      matrix_descriptor(stages + C::kBytesA + (kByRows ? 0 : consumer * 64), false);
  float sums[C::BN / 2];
  int32_t stage = 0, last = 0;
  uint32_t phase = 0;
#pragma unroll 1
  for (int32_t i = 0; i < blocks; i++) {
    barrier_wait(full + stage * 8, phase);
    const uint64_t a = first_a + static_cast<uint32_t>(stage * kStepStage),
                   b = first_b + static_cast<uint32_t>(stage * kStepStage);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kSteps; k++)
      wgmma<typename C::T, C::BN, false, false>(sums, a + k * 2, b + k * 2, k == 0 ? i : 1);
    wgmma_commit();
    wgmma_wait<1>();
    if (i > 0 && lane == 0) barrier_arrive(empty + last * 8);
    last = stage;
    if (++stage == C::kStages) stage = 0, phase ^= 1;
  }
  wgmma_wait<0>();
  sync_threads_of(1, kConsumers);  // all warps have read the stages
  float* const row = out + (consumer * 64 + warp * 16 + (lane >> 2)) * C::kPitch + (lane & 3) * 2;
#pragma unroll
  for (int j = 0; j < C::BN / 8; j++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      *reinterpret_cast<float2*>(row + half * 8 * C::kPitch + j * 8) =
          make_float2(sums[j * 4 + half * 2], sums[j * 4 + half * 2 + 1]);
}

// Adds up this block's share of the rows: the splits of all blocks, in order.
template <class C, int Splits>
__device__ __forceinline__ void cluster_sum(const MatmulProblem& p, uint32_t sums, int32_t rank,
                                            int32_t batch, int32_t first_column) {
  constexpr int kFours = C::BN / 4, kHalves = C::BM == 128 ? 1 : 2;
  const int32_t rows = static_cast<int32_t>(p.m), share = (rows + Splits - 1) / Splits,
                first = rank * share;
  const int32_t mine = rows - first < share ? rows - first : share;
#pragma unroll 2
  for (int32_t at = threadIdx.x; at < mine * kFours; at += kConsumers) {
    const int32_t row = first + at / kFours, column = at % kFours * 4;
    float4 v[Splits * kHalves];
#pragma unroll
    for (int q = 0; q < Splits; q++)
#pragma unroll
      for (int h = 0; h < kHalves; h++)
        v[q * kHalves + h] = load_from_cluster(sums + ((row + h * 64) * C::kPitch + column) * 4, q);
    float4 total = v[0];
#pragma unroll
    for (int q = 1; q < Splits * kHalves; q++)
      total.x += v[q].x, total.y += v[q].y, total.z += v[q].z, total.w += v[q].w;
    const float each[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (first_column + column + e < p.n)
        finish_element<typename C::T>(p, batch, row, first_column + column + e, each[e]);
  }
}

#endif

template <class C>
__global__ void __launch_bounds__(kThreads, 1)
    cluster_kernel(const __grid_constant__ CUtensorMap map_a,
                   const __grid_constant__ CUtensorMap map_b, const MatmulProblem p,
                   const ClusterArgs s) {
#if SW_SM90A
  extern __shared__ __align__(1024) uint8_t cluster_shared[];
  const uint32_t stages = shared_address(cluster_shared),
                 full = stages + C::kStages * C::kStageBytes, empty = full + C::kStages * 8;
  if (threadIdx.x == 0) {
    tensor_map_prefetch(&map_a);
    tensor_map_prefetch(&map_b);
#pragma unroll
    for (int i = 0; i < C::kStages; i++) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8, kConsumers / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();
  pdl_launch_dependents();
  const int32_t rank = static_cast<int32_t>(cluster_rank()), tile = blockIdx.x / s.splits;
  const int32_t first = rank * s.k_blocks / s.splits,
                blocks = (rank + 1) * s.k_blocks / s.splits - first;
  if (threadIdx.x == kConsumers) prefetch_first<C>(s, &map_b, tile, first);
  pdl_wait();

  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers)
      cluster_produce<C>(s, &map_a, &map_b, stages, full, empty, tile, first, blocks);
    __syncwarp();
  } else {
    cluster_consume<C>(stages, full, empty, blocks, reinterpret_cast<float*>(cluster_shared));
  }
  cluster_sync();
  if (threadIdx.x < kConsumers) {
    const int32_t batch = tile / s.tiles_n, column = tile % s.tiles_n * C::BN;
    if (s.splits == 1) cluster_sum<C, 1>(p, stages, rank, batch, column);
    if (s.splits == 2) cluster_sum<C, 2>(p, stages, rank, batch, column);
    if (s.splits == 4) cluster_sum<C, 4>(p, stages, rank, batch, column);
    if (s.splits == 8) cluster_sum<C, 8>(p, stages, rank, batch, column);
    __syncwarp();
  }
  cluster_sync();  // the other blocks may still read the sums
#endif
}

template <class C>
bool launch(const MatmulProblem& p, int32_t splits, Stream& stream) {
  ClusterArgs args = {};
  args.k_blocks = static_cast<int32_t>(ceil_div(p.k, 64));
  args.tiles_n = static_cast<int32_t>(ceil_div(p.n, C::BN));
  args.splits = splits;
  if (args.k_blocks < splits) return false;
  const TensorMapShape a = operand_shape(p, p.a, p.k, p.m, false),
                       b = operand_shape(p, p.b, p.k, p.n, true);
  args.batched_a = a.depth > 1;
  args.batched_b = b.depth > 1;
  constexpr bool kBf16 = std::is_same<typename C::T, bfloat16_t>::value;
  CUtensorMap map_a, map_b;
  if (!tensor_map_fits(a) || !tensor_map_fits(b) || !make_tensor_map(a, 64, C::BM, kBf16, &map_a) ||
      !make_tensor_map(b, 64, C::BN, kBf16, &map_b))
    return false;
  allow_shared(&cluster_kernel<C>, C::kSharedBytes);
  const LaunchShape shape{blocks_of(args.tiles_n * p.batch * splits), kThreads, C::kSharedBytes,
                          splits};
  launch_pdl(&cluster_kernel<C>, shape, stream, map_a, map_b, p, args);
  return true;
}

template <class T, int Rows>
bool launch_width(const MatmulProblem& p, int32_t width, int32_t splits, Stream& stream) {
  switch (width) {
    case 64:
      return launch<ClusterTile<T, Rows, 64>>(p, splits, stream);
    case 96:
      return launch<ClusterTile<T, Rows, 96>>(p, splits, stream);
    case 128:
      return launch<ClusterTile<T, Rows, 128>>(p, splits, stream);
    case 160:
      return launch<ClusterTile<T, Rows, 160>>(p, splits, stream);
    default:
      return launch<ClusterTile<T, Rows, 224>>(p, splits, stream);
  }
}

template <class T>
bool launch_for(const MatmulProblem& p, int32_t width, int32_t splits, Stream& stream) {
  return p.m <= 64 ? launch_width<T, 64>(p, width, splits, stream)
                   : launch_width<T, 128>(p, width, splits, stream);
}

// Minimises the bytes that an SM loads, weighted by the number of busy SMs; fitted to the times
// above.
void choose(const MatmulProblem& p, int32_t num_sms, MatmulConfig* config) {
  const int64_t steps = ceil_div(p.k, 64), rows = p.m <= 64 ? 64 : 128;
  double least = 1e300;
  for (int width = 0; width < kNumClusterWidths; width++)
    for (const int splits : {1, 2, 4, 8}) {
      // Clusters of four and eight do not fit the last SMs of some GPCs.
      const int64_t at_once = splits <= 2 ? num_sms / splits : num_sms * 9 / 10 / splits;
      const int64_t tiles = ceil_div(p.n, kClusterWidths[width]) * p.batch,
                    waves = ceil_div(tiles, at_once);
      const double busy = double(tiles * splits) / (double(waves) * num_sms);
      const double work =
          double(waves) *
          (double(ceil_div(steps, splits) * (rows + kClusterWidths[width])) + 600.0 * splits) /
          std::sqrt(busy);
      if (steps < splits || work >= least) continue;
      least = work;
      config->tile = static_cast<uint8_t>(width);
      config->split = static_cast<uint8_t>(splits);
    }
}

}  // namespace

bool matmul_cluster(const MatmulProblem& problem, MatmulConfig* config, Stream& stream) {
  MatmulProblem p = problem;
  if ((p.dtype != DType::Float16 && p.dtype != DType::BFloat16) || !is_sm90(*stream.facts))
    return false;
  for (int attempt = 0; attempt < 2; attempt++) {
    const bool contiguous =
        (p.a.column_stride == 1 || p.k == 1) && (p.b.row_stride == 1 || p.k == 1);
    const bool fits =
        p.m <= 128 && double(p.n) * double(p.batch) < double(1 << 27) && p.k < (int64_t(1) << 30);
    MatmulConfig used = *config;
    if (contiguous && fits) {
      if (used.tile >= kNumClusterWidths) choose(p, stream.facts->num_sms, &used);
      const int32_t width = kClusterWidths[used.tile], splits = used.split;
      if (p.dtype == DType::Float16 ? launch_for<half_t>(p, width, splits, stream)
                                    : launch_for<bfloat16_t>(p, width, splits, stream)) {
        *config = used;
        return true;
      }
    }
    p = problem.transposed();
  }
  return false;
}

// By the times above, and because a launch of the library costs the host as much as these take.
bool matmul_cluster_wins(const MatmulProblem& p) {
  const int64_t few = p.m < p.n ? p.m : p.n, many = p.m < p.n ? p.n : p.m;
  return few > 32 && few <= 128 && double(many) * double(p.k) * double(p.batch) <= double(1 << 22);
}

}  // namespace shardwise::cuda
