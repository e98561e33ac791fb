// matmul of float16 and bfloat16 on Hopper's warpgroup tensor cores (sm_90a): choice of the tile,
// and the description of the kernel (matmul_sm90.cuh).
//
// y[m, n] = alpha a[m, k] b[k, n] + beta c. A block of three warpgroups owns an SM. One thread of
// the first, the producer, has the copy engine (TMA) load tiles of a and b, 64 deep along k, into a
// ring of 4 to 6 stages of shared memory, swizzled by 128 bytes. The other two multiply with wgmma
// m64nNk16 straight from there and keep the float32 sums in registers, which the producer has given
// to them (setmaxnreg). mbarriers with parity waits signal full and empty stages. Clusters of two
// blocks, neighbours along m, each load half of their common tile of b and multicast it. The grid
// is persistent: a block goes from tile to tile in groups of 8 tile rows, so that the panels in use
// stay in L2; if there are many tiles, blocks take them from a counter (matmul_sm90_work.cuh). Sums
// leave by stmatrix into swizzled buffers and from there by the copy engine, which also clips them
// to y. Operands contiguous along m or n use the MN-major form of wgmma's descriptors, without a
// transposition in memory.
//   two consumers, one tile  each has 64 rows of it; the second lags a step, so that it multiplies
//                            while the first stores
//   ping-pong                the consumers take turns with whole tiles: storing one overlaps with
//                            multiplying the next
//   split                    few tiles and a long k: splits of k on different blocks, float32 sums
//                            through scratch memory, added in order by the last block to arrive.
//                            No block waits, so a collective that occupies some of the SMs delays
//                            the sum but cannot stop it.
// Needs: rows of a and b (in either orientation) that start at multiples of 16 bytes; y with
// contiguous rows or columns. If the copy engine cannot write y (rows that do not start or end at
// multiples of 16 bytes), the consumers write it.
// Grid: one block an SM. FLOPs 2 m n k. Shared memory 208 to 225 KiB.
// Bytes: a k-step of a 128 x 256 tile loads 48 KiB into shared memory, in a cluster 32 KiB of them
// from L2; m k + k n + m n elements at least from memory.
// Numerics: products exact, float32 accumulation along k in order, alpha, beta and c in float32,
// one rounding. The same bits in every run; other tiles round differently only with a split.
// Technique: warp specialisation, persistent tiles and multicast as described for Hopper by
// CUTLASS's documentation and the public worklog "Outperforming cuBLAS on H100"; ping-pong as in
// FlashAttention-3.
//
// Versions, time relative to cuBLAS of torch 2.11 in the same run, H200 at 690 W (1.3 to 1.5 GHz),
// interleaved:
//   8192^3 NT           128x256 arrivals .release.cluster 1.44; default arrivals 0.99;
//                       ping-pong 128x192 0.92 to 0.97
//   4096^3 NT           128x256 1.00; ping-pong 128x208 0.98, 128x192 1.08 (5.3 waves),
//                       128x128 0.94 to 0.99
//   8192x14336x4096 NT  128x256 1.01; ping-pong 128x208 0.96, 128x192 0.95 to 0.96; 256x192 1.03
//   8192x4096x14336 NN  128x256 0.98 to 1.01; ping-pong 128x128 0.99, 128x208 0.99, 128x192 1.00;
//                       256x128 1.04
//   14336x4096x8192 TN  ping-pong 128x208 0.96 to 0.98, 128x192 0.98; 128x256 0.98
//   16384x2304x768 NT   ping-pong 128x192 0.86 to 0.95; 128x256 1.01
//   1000x3000x6216 NT   128x192 with 5 stages 0.96 to 1.01; with 256-byte fetches into L2 1.15
//                       (unaligned rows)
//   2048^3 NT           128x256 without clusters 0.99 to 1.01, with 1.02 to 1.05
//   512x4096x14336 NT   128x128 1.01 to 1.06 (limit: shared memory's 128 bytes a clock: 96 read,
//                       64 written); 128x256 with 2 splits 1.18; clusters of four with sums through
//                       distributed shared memory 2.1: only 30 such clusters fit
//   768x768x16384 TN    128x192 with 5 splits 0.99; 128x256 with 7 splits that all wait and add up
//                       a share each 1.05
//   128x4096x4096 NT    128x128 with 2 splits 22.3 us, one 22.7 (library 15.0): the block that adds
//                       the splits reads them alone
//   8192x14336x4096 NT  beside an all-gather that occupies 64 SMs for 650 us: static assignment
//                       1947 us, counter 1602 (alone 1238 both); beside one on 24 or 16 SMs 1499
//                       and 1420
// Slower everywhere: 64x256 ping-pong, 256x128 and 256x192, clusters along n with short rows of
// tiles, lag 2 instead of 1, the first stages prefetched to L2 before the previous kernels are
// complete (0.2 to 3 us more a product).
#include "../matmul_config.h"
#include "matmul_sm90.h"

namespace shardwise::cuda {
namespace {

constexpr int64_t kMaxSize = int64_t(1) << 30;

// The expected time of a product in clocks of an SM, up to a common factor; fitted to the figures
// above.
struct Plan {
  int tile = 0;
  Sm90Use use;
  double clocks = 1e300;
};

double clocks_of(int tile, int64_t waves, double steps) {
  const Sm90Shape& shape = kSm90Tiles[tile];
  double slower = 1, apart = 2500;  // factor of the multiplication; clocks between tiles
  if (shape.ping_pong) apart = 400;
  if (tile == 2) slower = 1.012, apart = 500;
  if (tile == 3) slower = 1.02 + 0.3 / double(waves * waves);
  if (tile == 4) slower = waves == 1 ? 0.98 : 1.02;
  if (tile == 5) slower = 1.005;
  if (tile == 6) slower = 1.3;
  if (waves == 1 && tile >= 4) apart = 1500;
  return double(waves) * (steps * 4 * shape.n * slower + apart);
}

Plan choose(const MatmulProblem& p, int32_t num_sms) {
  Plan best;
  const Sm90Forced& forced = sm90_forced();
  for (int tile = 0; tile < kNumSm90Tiles; tile++) {
    if (forced.tile >= 0 && tile != forced.tile) continue;
    const Sm90Shape& shape = kSm90Tiles[tile];
    const int64_t tiles = shape.count(p.batch, p.m, p.n), slots = num_sms / shape.sharers,
                  steps = ceil_div(p.k, 64);
    const double clocks = clocks_of(tile, ceil_div(tiles, slots), double(steps));
    if (clocks < best.clocks) best.tile = tile, best.use.split = 1, best.clocks = clocks;
    if (shape.ping_pong || tiles * 2 > slots) continue;
    int64_t split = slots / tiles < steps / 4 ? slots / tiles : steps / 4;
    if (forced.split > 0 && forced.split < split) split = forced.split;
    if (split < 2 || split > 16) continue;
    const double joined =
        clocks_of(tile, 1, double(ceil_div(steps, split))) + 2500 + 2000 * double(split);
    if (joined < best.clocks || forced.split > 1)
      best.tile = tile, best.use.split = static_cast<int32_t>(split), best.clocks = joined;
  }
  return best;
}

// Follows the configuration, or the rule. False for a split that the kernel does not support: one
// of more than a wave.
bool plan_for(const MatmulProblem& p, const MatmulConfig& config, int32_t num_sms, Plan* out) {
  if (config.tile >= kNumSm90Tiles) {
    *out = choose(p, num_sms);
    return true;
  }
  const Sm90Shape& shape = kSm90Tiles[config.tile];
  out->tile = config.tile;
  out->use.split = config.split;
  out->use.group = config.group;
  return config.split == 1 ||
         (!shape.ping_pong &&
          shape.count(p.batch, p.m, p.n) * config.split * shape.sharers <= num_sms);
}

}  // namespace

Sm90Forced& sm90_forced() {
  static thread_local Sm90Forced forced;  // of the native thread of a stream
  return forced;
}

bool matmul_sm90(const MatmulProblem& problem, MatmulConfig* config, Stream& stream,
                 const KernelCall& call) {
  MatmulProblem p = problem;
  if ((p.dtype != DType::Float16 && p.dtype != DType::BFloat16) || !is_sm90(*stream.facts))
    return false;
  if (p.m >= kMaxSize || p.n >= kMaxSize || p.k >= kMaxSize || p.batch >= kMaxSize ||
      double(p.batch) * ceil_div(p.m, 128) * ceil_div(p.n, 128) >= 1e9)
    return false;
  if (p.y.column_stride != 1 && p.n > 1) {  // y has contiguous columns: y^T = b^T a^T
    if (p.y.row_stride != 1 && p.m > 1) return false;
    p = problem.transposed();
  }
  const bool a_along_k = p.a.column_stride == 1 || p.k == 1,
             b_along_k = p.b.row_stride == 1 || p.k == 1;
  if ((!a_along_k && p.a.row_stride != 1 && p.m > 1) ||
      (!b_along_k && p.b.column_stride != 1 && p.n > 1))
    return false;
  Plan plan;
  if (!plan_for(p, *config, stream.facts->num_sms, &plan)) return false;
  const auto layout = a_along_k ? (b_along_k ? matmul_sm90_nt : matmul_sm90_nn)
                                : (b_along_k ? matmul_sm90_tt : matmul_sm90_tn);
  const Sm90Entry entry = layout(p.dtype == DType::BFloat16, plan.tile);
  Sm90Use use = plan.use;
  void* partial = nullptr;
  if (use.split > 1) {
    partial = stream.workspace(entry.partial_bytes(p, use.split), call);
    if (!partial) use.split = 1;
  }
  if (!entry.launch(p, use, stream, static_cast<float4*>(partial))) return false;
  config->tile = static_cast<uint8_t>(plan.tile);
  config->split = static_cast<uint8_t>(use.split);
  config->group = static_cast<uint8_t>(use.group);
  sm90_forced().taken++;
  sm90_forced().joined += use.split > 1;
  return true;
}

// Whether matmul_sm90 is at least as fast as the library, by the table above: enough tiles for the
// GPU, k not too short, and a y that the copy engine can write.
bool matmul_sm90_wins(const MatmulProblem& p) {
  // Gradients of weights, 45 of them on an H100: this kernel by its rule takes 1.11 of the fastest
  // time (up to 1.5), the library's first proposal 1.03. Other layouts: 1.05 and 1.09, 1.07 and 1.07.
  if (p.a.column_stride != 1 && p.b.row_stride != 1) return false;
  const bool rows = p.y.column_stride == 1;
  const int64_t width = rows ? p.n : p.m, step = rows ? p.y.row_stride : p.y.column_stride;
  return double(p.batch) * double(p.m) * double(p.n) >= 180.0 * 128 * 128 && p.m >= 192 &&
         p.n >= 192 && p.k >= 192 && width % 8 == 0 && step % 8 == 0;
}

}  // namespace shardwise::cuda
