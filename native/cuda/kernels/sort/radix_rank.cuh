// Ranks of keys by one digit of 8 bits within a block, shared by the sort through memory and the
// sort in a block. A warp's items are contiguous, so that warp, round and lane count upwards with
// the index, and equal digits keep their order.
// Technique: counts of each warp and ranks among its lanes, as in Onesweep (arXiv:2206.01784).
#pragma once
#include "../../primitives/scan.cuh"
#include "radix_sort.cuh"

namespace shardwise::cuda::radix {

// The lanes of a warp with this lane's digit. __match_any_sync takes a turn for each digit that
// occurs.
__device__ __forceinline__ unsigned lanes_with(uint32_t digit) {
  unsigned lanes = kFullWarp;
#pragma unroll
  for (int bit = 0; bit < 8; bit++) {
    const bool set = digit >> bit & 1;
    const unsigned votes = __ballot_sync(kFullWarp, set);
    lanes &= set ? votes : ~votes;
  }
  return lanes;
}

template <class Key>
__device__ __forceinline__ uint32_t digit_of(Key key, int shift) {
  return static_cast<uint32_t>(key >> shift) & (kDigits - 1);
}

// Counts the digits of a warp's items in `counts` [kDigits], which the warp owns. Calls
// visit(round, rank) with the rank of each item among its equals.
template <int Items, class Key, class Visit>
__device__ __forceinline__ void rank_in_warp(const Key (&keys)[Items], int shift, uint32_t* counts,
                                             Visit&& visit) {
  const int lane = threadIdx.x & 31;
  for (int d = lane; d < kDigits; d += 32) counts[d] = 0;
  __syncwarp();
#pragma unroll
  for (int r = 0; r < Items; r++) {
    const uint32_t digit = digit_of(keys[r], shift);
    const unsigned peers = lanes_with(digit);
    const int leader = __ffs(peers) - 1;
    uint32_t base = 0;
    if (lane == leader) {
      base = counts[digit];
      counts[digit] = base + __popc(peers);
    }
    __syncwarp();
    visit(r, __shfl_sync(kFullWarp, base, leader) + __popc(peers & ((1u << lane) - 1)));
  }
}

// Replaces the counts of the warps by the position in the tile where the items of each begin.
// Thread d receives where digit d begins. For blocks of at least kDigits threads; `shared` holds 33
// words. The caller adds barriers before and after.
template <int Warps>
__device__ __forceinline__ uint32_t begin_of_digits(uint32_t (*counts)[kDigits], uint32_t* shared) {
  const int digit = threadIdx.x;
  uint32_t in_tile = 0, total;
  if (digit < kDigits) {
#pragma unroll 8
    for (int w = 0; w < Warps; w++) {
      const uint32_t c = counts[w][digit];
      counts[w][digit] = in_tile;
      in_tile += c;
    }
  }
  const uint32_t begin = block_scan_exclusive(in_tile, SumOp(), 0u, shared, total);
  if (digit < kDigits) {
#pragma unroll 8
    for (int w = 0; w < Warps; w++) counts[w][digit] += begin;
  }
  return begin;
}

}  // namespace shardwise::cuda::radix
