// Launches the kernel of matmul_sm90.cuh: tensor maps of the operands (65 ns each), arguments,
// attributes.
#pragma once
#include <atomic>

#include "../../../primitives/pdl.cuh"
#include "matmul_sm90.cuh"
#include "matmul_sm90.h"

namespace shardwise::cuda {

// With at least this many work tiles per cluster, clusters take them from a counter
// (matmul_sm90_work.cuh).
constexpr int32_t kTakenWaves = 3;

// Returns false if the copy engine cannot take an operand. a: [m, k], b: [k, n] in the layout of
// the tile, y has contiguous rows.
template <class C>
bool sm90_launch(const MatmulProblem& p, const Sm90Use& use, Stream& stream, float4* partial) {
  constexpr bool kBf16 = std::is_same<typename C::T, bfloat16_t>::value;
  const TensorMapShape a =
      C::kMajorA ? operand_shape(p, p.a, p.m, p.k, true) : operand_shape(p, p.a, p.k, p.m, false);
  const TensorMapShape b =
      C::kMajorB ? operand_shape(p, p.b, p.n, p.k, false) : operand_shape(p, p.b, p.k, p.n, true);
  const TensorMapShape y = operand_shape(p, p.y, p.n, p.m, false);
  // Observed: the copy engine writes whole 16 bytes at the end of a row, including bytes outside of
  // it.
  const bool direct = !tensor_map_fits(y) || p.n % 8 != 0 || (p.batch > 1 && y.depth == 1);
  CUtensorMap map_a, map_b, map_y;
  constexpr int kHeightA = C::kMajorA ? (C::kClusterN > 1 ? 32 : 64) : C::BM / C::kClusterN;
  constexpr int kHeightB = C::kMajorB ? (C::kClusterM > 1 ? 32 : 64) : C::BN / C::kClusterM;
  if (!tensor_map_fits(a) || !tensor_map_fits(b) ||
      !make_tensor_map(a, 64, kHeightA, kBf16, &map_a) ||
      !make_tensor_map(b, 64, kHeightB, kBf16, &map_b))
    return false;
  if (direct)
    map_y = map_a;
  else if (!make_tensor_map(y, 64, 64, kBf16, &map_y))
    return false;

  Sm90Args args = {};
  args.m = static_cast<int32_t>(p.m);
  args.n = static_cast<int32_t>(p.n);
  args.k_blocks = static_cast<int32_t>(ceil_div(p.k, 64));
  args.tiles_m = static_cast<int32_t>(ceil_div(p.m, C::BM * C::kClusterM));
  args.tiles_n = static_cast<int32_t>(ceil_div(p.n, C::BN * C::kClusterN));
  args.split = use.split;
  args.work = static_cast<int32_t>(p.batch * args.tiles_m * args.tiles_n * use.split);
  args.group = use.group < args.tiles_m ? use.group : args.tiles_m;
  // With a shorter k the first consumer may be a tile ahead, so that its signals would be
  // ambiguous.
  args.lag = args.k_blocks / use.split < C::kStages ? 0
             : use.lag < C::kStages                 ? use.lag
                                                    : C::kStages - 1;
  args.batched_a = a.depth > 1;
  args.batched_b = b.depth > 1;
  args.alpha = static_cast<float>(p.alpha);
  args.beta = static_cast<float>(p.beta);
  args.c = p.c;
  args.y = p.y;
  args.direct = direct;
  args.partial = partial;
  args.arrived = stream.arrived;
  const int32_t clusters = stream.facts->num_sms / C::kSharers;
  // Few tiles are assigned statically: the first would wait for the counter's memory.
  const int32_t waves = sm90_forced().waves < 0 ? kTakenWaves : sm90_forced().waves;
  if (use.split == 1 && args.k_blocks >= C::kStages && args.work >= waves * clusters) {
    args.counter = {stream.arrived, stream.arrived + 1};
  }
  if (use.split > 1 && (C::kPingPong || args.k_blocks < use.split ||
                        args.work / use.split * C::kSharers > Stream::kArrived))
    return false;
  static std::atomic<uint64_t> allowed{0};  // a bit per device
  const uint64_t bit = uint64_t(1) << (stream.device & 63);
  if (!(allowed.load(std::memory_order_relaxed) & bit)) {
    cudaFuncSetAttribute(matmul_sm90_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         C::kSharedBytes);
    allowed.fetch_or(bit, std::memory_order_relaxed);
  }
  const LaunchShape shape{blocks_of((args.work < clusters ? args.work : clusters) * C::kSharers),
                          kSm90Threads, C::kSharedBytes, C::kSharers > 1 ? C::kSharers : 0};
  launch_pdl(matmul_sm90_kernel<C>, shape, stream, map_a, map_b, map_y, args);
  return true;
}

// Scratch memory for `split` splits of each tile.
template <class C>
int64_t sm90_partial_bytes(const MatmulProblem& p, int32_t split) {
  return split == 1
             ? 0
             : p.batch * ceil_div(p.m, C::BM * C::kClusterM) * ceil_div(p.n, C::BN * C::kClusterN) *
                   C::kSharers * split * C::BM * C::BN * 4;
}

// The tiles of one layout, in the order of `kSm90Tiles` (matmul_sm90.h).
template <class T, bool MajorA, bool MajorB>
Sm90Entry sm90_entry(int tile) {
  const auto of = [](auto config) {
    using C = decltype(config);
    return Sm90Entry{&sm90_launch<C>, &sm90_partial_bytes<C>};
  };
  switch (tile) {
    case 0:
      return of(Sm90Tile<T, MajorA, MajorB, 128, 256, 2, 1, false, 4, 2>{});
    case 1:
      return of(Sm90Tile<T, MajorA, MajorB, 128, 192, 2, 1, true, 4, 3>{});
    case 2:
      return of(Sm90Tile<T, MajorA, MajorB, 128, 208, 2, 1, true, 4, 2>{});
    case 3:
      return of(Sm90Tile<T, MajorA, MajorB, 128, 128, 2, 1, true, 6, 2>{});
    case 4:
      return of(Sm90Tile<T, MajorA, MajorB, 128, 192, 2, 1, false, 5, 1>{});
    case 5:
      return of(Sm90Tile<T, MajorA, MajorB, 128, 256, 1, 1, false, 4, 2>{});
    default:
      return of(Sm90Tile<T, MajorA, MajorB, 128, 128, 1, 1, false, 6, 2>{});
  }
}

}  // namespace shardwise::cuda
