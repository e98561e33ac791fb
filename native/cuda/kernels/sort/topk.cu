// topk: the k largest (or smallest) of each row, sorted; of equal ones the lowest index comes
// first. NaN is largest.
//
// Short rows, and k above 2048, go through the sort; topk_threshold.cu selects k up to 512 by one
// read of a row. Otherwise a block finds the key of the k-th element digit by digit (8 bits a pass,
// histogram in shared memory), collects all elements below it and the first of the equal ones in
// order of index, and sorts those. If rows are few and long, blocks first select from segments of a
// row and then among the candidates.
// Grid: a block of 512 threads for each row or segment (at least 4096 elements and 8 k, some two
// blocks an SM).
// Bytes: a row (bits / 8 + 1) times, mostly from L2. Operations: some six an element and pass for
// its key, a comparison, and for the remaining elements a count of their digit. Integer counting
// only: deterministic; elements are copied with their bits.
// Source: PyTorch's topk. Technique: radix selection from the highest digit, Alabi et al. (2012).
// On an H200, k 50 of 1024 x 128256 in float32 by this path, with lanes of equal digits by
// __match_any_sync: 1857 us (PyTorch 1549); topk_threshold.cu 561.
#include "../../../generated/op_params.h"
#include "radix_rank.cuh"
#include "topk.cuh"

namespace shardwise::cuda {
namespace {

using namespace sorting;

constexpr int kThreads = 512;
constexpr int kItems = 4;
constexpr int64_t kMaxK = radix::kSmall;
constexpr int64_t kMinSegment = 4096;

// FromTensor: blocks are (row, segment) and write candidates, unless there is one segment; else
// blocks are rows.
template <class Key, bool FromTensor>
__global__ void __launch_bounds__(kThreads)
    select_kernel(const __grid_constant__ SortArgs args,
                  const __grid_constant__ SelectArgs<Key> select, int size) {
  __shared__ Key chosen[kMaxK];
  __shared__ uint32_t chosen_positions[kMaxK];
  __shared__ uint32_t bins[radix::kDigits];
  __shared__ uint32_t shared[33];
  __shared__ uint32_t found[2];
  const Selection<Key, FromTensor> from(args, select);
  const int64_t count = from.count;

  // The key of the k-th smallest, and how many elements equal to it are selected.
  Key prefix = 0, mask = 0;
  uint32_t wanted = static_cast<uint32_t>(args.k);
  for (int shift = (select.bits + 7) / 8 * 8 - 8; shift >= 0; shift -= 8) {
    if (threadIdx.x < radix::kDigits) bins[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t start = 0; start < count; start += kThreads * kItems) {
      int64_t at[kItems];
      Key keys[kItems];
#pragma unroll
      for (int u = 0; u < kItems; u++) at[u] = start + u * kThreads + threadIdx.x;
      from.keys_of(args, at, keys);
#pragma unroll
      for (int u = 0; u < kItems; u++) {
        const bool matches =
            start + u * kThreads + threadIdx.x < count && (keys[u] & mask) == prefix;
        const uint32_t digit = static_cast<uint32_t>(keys[u] >> shift) & (radix::kDigits - 1);
        const unsigned peers = radix::lanes_with(digit) & __ballot_sync(kFullWarp, matches);
        if (matches && (threadIdx.x & 31) == static_cast<unsigned>(__ffs(peers) - 1))
          atomicAdd(&bins[digit], static_cast<uint32_t>(__popc(peers)));
      }
    }
    __syncthreads();
    const uint32_t own = threadIdx.x < radix::kDigits ? bins[threadIdx.x] : 0;
    uint32_t all;
    const uint32_t before = block_scan_exclusive(own, SumOp(), 0u, shared, all);
    if (before < wanted && wanted <= before + own) {
      found[0] = threadIdx.x;
      found[1] = before;
    }
    __syncthreads();
    prefix |= static_cast<Key>(found[0]) << shift;
    mask |= static_cast<Key>(radix::kDigits - 1) << shift;
    wanted -= found[1];
    __syncthreads();
  }

  // Collects in order of index: smaller keys first, equal ones after them.
  const uint32_t smaller = static_cast<uint32_t>(args.k) - wanted;
  uint32_t below = 0, equal = 0;
  for (int64_t start = 0; start < count; start += kThreads * kItems) {
    int64_t at[kItems];
    Key keys[kItems];
#pragma unroll
    for (int u = 0; u < kItems; u++) at[u] = start + threadIdx.x * kItems + u;
    from.keys_of(args, at, keys);
    uint32_t flags = 0;  // low half: number of smaller keys; high half: number of equal keys
#pragma unroll
    for (int u = 0; u < kItems; u++) {
      if (at[u] < count) flags += keys[u] < prefix ? 1u : keys[u] == prefix ? 0x10000u : 0u;
    }
    if (!__syncthreads_or(flags != 0)) continue;
    uint32_t in_round;
    const uint32_t before = block_scan_exclusive(flags, SumOp(), 0u, shared, in_round);
    uint32_t at_below = below + (before & 0xffff), at_equal = equal + (before >> 16);
#pragma unroll
    for (int u = 0; u < kItems; u++) {
      if (at[u] >= count || keys[u] > prefix) continue;
      uint32_t slot;
      if (keys[u] < prefix) {
        slot = at_below++;
      } else {
        if (at_equal >= wanted) continue;
        slot = smaller + at_equal++;
      }
      chosen[slot] = keys[u];
      chosen_positions[slot] = from.position(at[u]);
    }
    below += in_round & 0xffff;
    equal += in_round >> 16;
  }
  __syncthreads();
  if (FromTensor && select.segments > 1) {  // candidates need no order
    from.write(args, select, chosen, chosen_positions);
    return;
  }
  for (int i = static_cast<int>(args.k) + threadIdx.x; i < size; i += kThreads) {
    chosen[i] = ~Key(0);
    chosen_positions[i] = UINT32_MAX;
  }
  radix::sort_shared(chosen, chosen_positions, size);
  from.write(args, select, chosen, chosen_positions);
}

template <class Key>
Status select_rows(const KernelCall& call, const SortArgs& args) {
  Stream& stream = stream_of(call);
  int size = 2;
  while (size < args.k) size *= 2;
  const int64_t shortest = args.k * 8 > kMinSegment ? args.k * 8 : kMinSegment;
  int64_t segments = ceil_div(int64_t(stream.facts->num_sms) * 2, args.rows);
  if (segments > args.n / shortest) segments = args.n / shortest;
  if (segments < 1) segments = 1;
  SelectArgs<Key> select;
  select.segment = ceil_div(args.n, segments);
  select.segments = ceil_div(args.n, select.segment);
  // The last segment must have k elements too.
  if (args.n - (select.segments - 1) * select.segment < args.k) {
    select.segment = args.n;
    select.segments = 1;
  }
  select.bits = key_bits(args.dtype);
  select.keys = nullptr;
  select.positions = nullptr;
  if (select.segments > 1) {
    const int64_t candidates = args.rows * select.segments * args.k;
    const int64_t key_bytes = round_up(candidates * static_cast<int64_t>(sizeof(Key)), 256);
    char* scratch = static_cast<char*>(stream.workspace(key_bytes + candidates * 4, call));
    if (!scratch) return Status{Code::OutOfMemory};
    select.keys = reinterpret_cast<Key*>(scratch);
    select.positions = reinterpret_cast<uint32_t*>(scratch + key_bytes);
  }
  if (args.k <= kMaxThresholdK) {
    select_by_threshold<Key, true>(stream.handle, args, select);
    if (select.segments > 1) select_by_threshold<Key, false>(stream.handle, args, select);
    return launched(call);
  }
  select_kernel<Key, true>
      <<<static_cast<unsigned>(args.rows * select.segments), kThreads, 0, stream.handle>>>(
          args, select, size);
  if (select.segments > 1)
    select_kernel<Key, false>
        <<<static_cast<unsigned>(args.rows), kThreads, 0, stream.handle>>>(args, select, size);
  return launched(call);
}

}  // namespace

Status topk(const KernelCall& call) {
  const auto& p = call.params_as<TopkParams>();
  const SortArgs args = make_args(call, static_cast<int64_t>(p.k), p.largest != 0);
  if (args.rows == 0 || args.n == 0 || args.k == 0) return kOk;
  if (args.n <= radix::kSmall || args.k > kMaxK || args.n > kMax32) return sort_rows(call, args);
  return key_bits(args.dtype) > 32 ? select_rows<uint64_t>(call, args)
                                   : select_rows<uint32_t>(call, args);
}

}  // namespace shardwise::cuda
