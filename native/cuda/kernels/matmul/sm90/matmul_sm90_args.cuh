// Template configuration and arguments of the kernel of matmul_sm90.cuh.
#pragma once
#include "../../../primitives/dtype.cuh"
#include "../../../primitives/work_counter.cuh"
#include "../matmul.h"

namespace shardwise::cuda {

// One block: a producer warpgroup, of which one thread works, and two consumer warpgroups.
constexpr int kSm90Threads = 384;
// The queue in shared memory: the numbers of the last work tiles, and for each a barrier by which
// the first block of a cluster passes it to the second.
constexpr int kWorkSlots = 8, kWorkBytes = kWorkSlots * (4 + 8);

// Tile: BM x BN of y a block. ClusterM (ClusterN) = 2: two blocks, neighbours along m (n), share
// the tiles of b (a). PingPong: each consumer has tiles of its own, in turn; else both have halves
// of one. Stages of shared memory along k; Buffers of 64 x 64 for the output of each consumer.
template <class Element, bool MnMajorA, bool MnMajorB, int TileM, int TileN, int SharersM,
          int SharersN, bool InTurn, int NumStages, int NumBuffers>
struct Sm90Tile {
  using T = Element;
  static constexpr bool kMajorA = MnMajorA, kMajorB = MnMajorB, kPingPong = InTurn;
  static constexpr int BM = TileM, BN = TileN, kClusterM = SharersM, kClusterN = SharersN,
                       kSharers = kClusterM * kClusterN;
  static constexpr int kStages = NumStages, kBuffers = NumBuffers;
  static constexpr int MI = BM / (kPingPong ? 64 : 128);  // 64-row products of one consumer
  // output chunks of 64 columns; the last may overlap the one before
  static constexpr int kPerRow = (BN + 63) / 64;
  static constexpr int kChunks = MI * kPerRow;    // of a consumer
  static constexpr int kFragments = MI * BN / 8;  // of 4 accumulators of a thread
  static constexpr int kBytesA = BM * 128;
  static constexpr int kBytesB = (kMajorB ? (BN + 63) / 64 * 64 : BN) * 128;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kChunkBytes = 64 * 128;
  static constexpr int kOutput = kStages * kStageBytes;  // offset of the output buffers
  static constexpr int kBarriers = kOutput + 2 * kBuffers * kChunkBytes;
  static constexpr int kFlag = kBarriers + (2 * kStages + 2) * 8;
  // the queue of work tiles (matmul_sm90_work.cuh)
  static constexpr int kQueue = kFlag + 16;
  static constexpr int kSharedBytes = kQueue + kWorkBytes;
  // work tiles that the producer takes ahead
  static constexpr int kAhead = kPingPong ? 2 : 1;
  // 65536 registers in all; the producer uses 24 if the accumulators need all others.
  static constexpr bool kTight = MI * BN / 2 > 192;
  static constexpr int kProducerRegisters = kTight ? 24 : 40,
                       kConsumerRegisters = kTight ? 240 : 232;
  static constexpr int kReleases = (kPingPong ? 4 : 8) * kSharers;  // warps that free a stage
  static_assert(kSharers <= 2, "clusters of more lose");
  static_assert(kChunks % kBuffers == 0 && kSharedBytes <= 232448,
                "buffers are used in turn; what a block may have");
  static_assert(kStageBytes % 1024 == 0, "swizzled tiles start at multiples of 1024 bytes");
};

struct Sm90Args {
  int32_t m, n, k_blocks;          // k in steps of 64
  int32_t tiles_m, tiles_n, work;  // of clusters; all tiles times `split`
  int32_t split;                   // splits of k, each a cluster's work
  int32_t group;                   // tile rows computed together
  // steps along k by which the second consumer of a tile lags
  int32_t lag;
  int32_t batched_a, batched_b;  // 0: all batches share one operand
  float alpha, beta;
  MatrixView c, y;
  bool direct;      // the copy engine cannot store y
  float4* partial;  // with splits: the accumulators of each tile and split
  // and the number of splits that have written theirs; zeros between kernels
  int32_t* arrived;
  WorkCounter counter;  // null: static assignment
};

}  // namespace shardwise::cuda
