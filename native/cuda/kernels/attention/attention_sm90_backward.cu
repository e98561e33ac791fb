// Gradient of attention in float16 and bfloat16 on Hopper's warpgroup tensor cores (wgmma): two
// passes of one kernel, as in attention_sm80_backward.cu.
//
// Math: attention.cu. By queries: a block owns 128 rows of q and g, tiles of 64 keys and values
// pass by; gq = scale dS k. By keys: it owns 128 rows of k and v, tiles of 64 rows of q and g pass
// by, for every query head of the group in order; gk = scale dS^T q, gv = P^T g. P and dS with a
// mask or dropout: attention.cu, attention_scores.cuh. attention_row_stats.cu runs before both.
// Layout: as in attention_sm90_forward.cu.
// Mapping: one block an SM. One thread, the producer, has the copy engine (TMA) fill a ring of 3 or
// 4 stages; two consumer warpgroups own 64 rows each. P and dS are A operands straight from the
// accumulators of S and dP. The bottleneck is shared-memory bandwidth (a 64 x 64 x 16 product reads
// as long as it multiplies), so registers hold the owned rows where they fit: not by keys at depth
// 128, whose two sums take 128 registers. With the rows in registers, the sums of a round are
// issued with the scores of the next. Causal: a block skips tiles on the masked side of the
// diagonal.
// Bytes: owned tiles once, passing tiles once per owned tile, most of them from L2. FLOPs: 3
// products by queries, 4 by keys, of 2 S T D each (half if causal). 5 in all would do, but then gq
// needs sums in memory, added in order. Shared memory 97 to 193 KiB.
// Numerics: float32 scores, sums and accumulators; P and dS are rounded to the dtype of the inputs
// for the products. The same bits in every run.
// Technique: Dao, FlashAttention-2 (arXiv:2307.08691); Shah et al., FlashAttention-3
// (arXiv:2407.08608).
//
// Versions, us on an H200 (1.7 to 1.98 GHz, 500 to 690 W), bfloat16, PyTorch 2.11 (cuDNN) in the
// same run in brackets:
//                                128 causal   128 full     64 causal    128 full     128 causal
//                                2x16x8192    2x16x8192    2x32x8192    8x16x2048    1x32/8x8192
//   attention_sm80_backward.cu   12525
//   owned rows in shared memory  3306 (2811)  6599 (5150)  4079 (3348)  1791 (1458)  3624 (2853)
//   owned rows in registers (1)  3042 (2811)  5815 (5150)  3725 (3348)  1625 (1458)  3206 (2730)
//   groups of heads end evenly                                                       2832 (2853)
//   uniform descriptors          2918 (2801)  5638 (5088)  3059 (3416)  1523 (1415)  2768 (2818)
// (1) and rounds overlap, where before each round waited for its products; gq 1488 to 1195. With a
// bool mask, 128, 2x16x4096: 2428 us (2330), where mma.sync took 12943. With dropout, 128 causal,
// 2x16x8192: 5080 (3419), since both passes draw; with four keys a Philox counter instead of eight
// 5987, where mma.sync took 25786. 471 TFLOP/s of 5 products at depth 128 causal, 659 of the 7 that
// run. 16x12x1024 causal, 64: 249 (274).
// racecheck does not count __syncwarp as an order between reads of all lanes and the arrival of
// one, and reports statistics that are overwritten by keys. It reports none if all lanes arrive,
// which takes 5 % longer at depth 64.
// No gain: consumers that issue in turn; statistics of columns in 16-byte words. By keys at depth
// 128, rounds that overlap spill.
#include "attention_sm90_backward.cuh"

namespace shardwise::cuda {
namespace {

BackwardArgs arguments(const AttentionProblem& p) {
  BackwardArgs args;
  args.heads = static_cast<int32_t>(p.heads);
  args.kv_heads = static_cast<int32_t>(p.kv_heads);
  args.queries = static_cast<int32_t>(p.queries);
  args.keys = static_cast<int32_t>(p.keys);
  args.stat_blocks = static_cast<int32_t>(attention_stat_blocks(p));
  args.causal = p.causal;
  args.scale = static_cast<float>(p.scale);
  args.scale_log2 = static_cast<float>(p.scale * 1.4426950408889634);
  args.row_stats = p.row_stats;
  args.mods = p;
  return args;
}

// The tensor maps of q, g and k, v with boxes of the given rows.
struct PairMaps {
  CUtensorMap first, second;
  bool of_queries(const AttentionProblem& p, int rows) {
    return attention_map(p, p.q, p.heads, p.queries, p.depth, rows, &first) &&
           attention_map(p, p.g, p.heads, p.queries, p.value_depth, rows, &second);
  }
  bool of_keys(const AttentionProblem& p, int rows) {
    return attention_map(p, p.k, p.kv_heads, p.keys, p.depth, rows, &first) &&
           attention_map(p, p.v, p.kv_heads, p.keys, p.value_depth, rows, &second);
  }
};

// One pass: its tensor maps, then the launch.
template <class C>
struct BackwardPass {
  PairMaps own, pass, results;

  // False if the copy engine cannot take an operand or a result.
  bool prepare(const AttentionProblem& p) {
    const bool maps = C::kByKeys ? own.of_keys(p, C::kOwned) && pass.of_queries(p, C::kPassing)
                                 : own.of_queries(p, C::kOwned) && pass.of_keys(p, C::kPassing);
    results = own;
    const HeadResult& result = C::kByKeys ? p.gk : p.gq;
    const int64_t heads = C::kByKeys ? p.kv_heads : p.heads, rows = C::kByKeys ? p.keys : p.queries;
    return maps &&
           (!result.data ||
            attention_result_map(p, result, heads, rows, p.depth, &results.first)) &&
           (!C::kByKeys || !p.gv.data ||
            attention_result_map(p, p.gv, heads, rows, p.value_depth, &results.second));
  }

  void launch(const AttentionProblem& p, const Stream& stream) const {
    BackwardArgs args = arguments(p);
    args.want1 = (C::kByKeys ? p.gk : p.gq).data != nullptr;
    args.want2 = p.gv.data != nullptr;
    const int64_t tiles = ceil_div(C::kByKeys ? p.keys : p.queries, C::kOwned),
                  owners = p.batch * (C::kByKeys ? p.kv_heads : p.heads);
    // By keys all owners of a head read the same query head at about the same time; by queries the
    // owners of one key head share it.
    const int64_t passing = C::kByKeys ? p.queries : p.keys * args.kv_heads / args.heads;
    args.order = attention_order(tiles, owners, passing * (p.depth + p.value_depth) * 2,
                                 p.causal && !C::kByKeys, *stream.facts);
    allow_shared(backward_kernel<C>, C::kSharedBytes);
    backward_kernel<C><<<tiles * owners, C::kThreads, C::kSharedBytes, stream.handle>>>(
        own.first, own.second, pass.first, pass.second, results.first, results.second, args);
  }
};

template <class ByQueries, class ByKeys>
bool start(const AttentionProblem& p, const Stream& stream) {
  BackwardPass<ByQueries> by_queries;
  BackwardPass<ByKeys> by_keys;
  if (!by_queries.prepare(p) || !by_keys.prepare(p)) return false;
  if (p.gq.data) by_queries.launch(p, stream);
  if (p.gk.data || p.gv.data) by_keys.launch(p, stream);
  return true;
}

template <class T, bool Modified>
bool start_of_depth(const AttentionProblem& p, const Stream& stream) {
  if (p.depth <= 64 && p.value_depth <= 64)
    return start<BackwardTile<T, 64, false, 64, 4, Modified>,
                 BackwardTile<T, 64, true, 64, 4, Modified>>(p, stream);
  return start<BackwardTile<T, 128, false, 64, 4, Modified>,
               BackwardTile<T, 128, true, 64, 3, Modified>>(p, stream);
}

template <class T>
bool start_of(const AttentionProblem& p, const Stream& stream) {
  return p.is_modified() ? start_of_depth<T, true>(p, stream) : start_of_depth<T, false>(p, stream);
}

}  // namespace

bool attention_sm90_backward(const AttentionProblem& p, const Stream& stream) {
  if (!attention_sm90_applies(p, *stream.facts)) return false;
  const bool taken =
      p.dtype == DType::BFloat16 ? start_of<bfloat16_t>(p, stream) : start_of<half_t>(p, stream);
  attention_sm90_taken() += taken;
  return taken;
}

}  // namespace shardwise::cuda
