// Sorting of unsigned keys with 32-bit positions: stable, deterministic, by rows. Used by sort, topk and by the index kernels
// that must combine equal targets in order.
#pragma once
#include "../primitives/reduce.cuh"
#include "../stream.h"

namespace shardwise::cuda::radix {

constexpr int kThreads = 256;
constexpr int kDigits = 256;
constexpr int64_t kSmall = 2048;  // rows up to this long are sorted by one block in shared memory

// Elements of a block's tile.
template <class Key>
constexpr int kTile = sizeof(Key) == 4 ? 4096 : 2048;

// Scratch memory of one sort of `rows` rows of `n` keys. The caller writes keys[0] (row after row); after sort_pairs the sorted
// keys are in keys[result], the positions (0 to n-1 within their row) in positions[result].
template <class Key>
struct Buffers {
  int64_t rows, n;
  Key* keys[2];
  uint32_t* positions[2];
  uint32_t* histogram;  // [rows][digits][tiles]
  uint32_t* totals;     // [rows][digits]
  int result;
};

template <class Key>
int64_t tiles_of(int64_t n) {
  return ceil_div(n, kTile<Key>);
}

// Bytes of scratch memory, and its layout from `base` (256-byte aligned).
template <class Key>
int64_t buffer_bytes(int64_t rows, int64_t n) {
  const int64_t elements = rows * n;
  return 2 * round_up(elements * static_cast<int64_t>(sizeof(Key)), 256) + 2 * round_up(elements * 4, 256) +
         round_up(rows * kDigits * tiles_of<Key>(n) * 4, 256) + round_up(rows * kDigits * 4, 256);
}

template <class Key>
Buffers<Key> lay_out(void* base, int64_t rows, int64_t n) {
  char* p = static_cast<char*>(base);
  const auto take = [&p](int64_t bytes) {
    char* at = p;
    p += round_up(bytes, 256);
    return at;
  };
  Buffers<Key> b;
  b.rows = rows;
  b.n = n;
  b.result = 0;
  for (int i = 0; i < 2; i++) b.keys[i] = reinterpret_cast<Key*>(take(rows * n * static_cast<int64_t>(sizeof(Key))));
  for (int i = 0; i < 2; i++) b.positions[i] = reinterpret_cast<uint32_t*>(take(rows * n * 4));
  b.histogram = reinterpret_cast<uint32_t*>(take(rows * kDigits * tiles_of<Key>(n) * 4));
  b.totals = reinterpret_cast<uint32_t*>(take(rows * kDigits * 4));
  return b;
}

// Sorts by the low `bits` bits of the keys; n < 2^31. Only launches.
template <class Key>
void sort_pairs(cudaStream_t stream, Buffers<Key>& buffers, int bits);

// Bits needed for keys below `range`.
inline int bits_for(uint64_t range) {
  int bits = 1;
  while (bits < 64 && (uint64_t(1) << bits) < range) bits++;
  return bits;
}

// How blocks take rows of up to kSmall places, each padded to a power of two: a thread has two places of one row.
struct SmallRows {
  int length, per_block;
  unsigned blocks;
  int threads() const { return length / 2 * per_block; }
};

// As many rows to a block as it has places for, while each multiprocessor has a block.
inline SmallRows small_rows(int64_t rows, int64_t n, int num_sms) {
  SmallRows small{2, 1, 0};
  while (small.length < n) small.length *= 2;
  while (small.threads() < kWarpSize || (small.threads() < kSmall / 2 && small.per_block * int64_t(num_sms) < rows))
    small.per_block *= 2;
  small.blocks = static_cast<unsigned>(ceil_div(rows, small.per_block));
  return small;
}

#if defined(__CUDACC__)
// What a thread of such a block has: places first, first + step, ... of a row, whose places begin at `base` of the block's.
struct SmallRow {
  int first, step, base;
  int64_t row;
  __device__ __forceinline__ explicit SmallRow(int length)
      : first(threadIdx.x & (length / 2 - 1)),
        step(length / 2),
        base(2 * (threadIdx.x - first)),
        row(static_cast<int64_t>(blockIdx.x) * (2 * blockDim.x / length) + base / length) {}
};

// Bitonic network over each `length` of some places in shared memory (powers of two), by all warps of the block.
// exchange(low, high, rising) puts the larger of two places into `high`, or else into `low`. Begins and ends with a barrier;
// between steps that stay within the 64 places of a warp, only the warp waits.
template <class Exchange>
__device__ __forceinline__ void bitonic(int places, int length, Exchange&& exchange) {
  bool crossed = true;
  for (int run = 2; run <= length; run <<= 1) {
    for (int gap = run >> 1; gap > 0; gap >>= 1) {
      const bool crosses = gap > kWarpSize;
      if (crosses || crossed)
        __syncthreads();
      else
        __syncwarp();
      crossed = crosses;
      for (int t = threadIdx.x; t < places / 2; t += blockDim.x) {
        const int low = 2 * t - (t & (gap - 1));
        exchange(low, low + gap, (low & run & (length - 1)) == 0);
      }
    }
  }
  __syncthreads();
}

// Pairs, by key and then position.
template <class Key>
__device__ __forceinline__ void sort_shared(Key* keys, uint32_t* positions, int places, int length) {
  bitonic(places, length, [=](int low, int high, bool rising) {
    const Key a = keys[low], b = keys[high];
    const uint32_t pa = positions[low], pb = positions[high];
    const bool swapped = a > b || (a == b && pa > pb);
    if (swapped != rising) return;
    keys[low] = b, keys[high] = a;
    positions[low] = pb, positions[high] = pa;
  });
}

template <class Word>
__device__ __forceinline__ void sort_shared(Word* words, int places, int length) {
  bitonic(places, length, [=](int low, int high, bool rising) {
    const Word a = words[low], b = words[high];
    if ((a > b) == rising) words[low] = b, words[high] = a;
  });
}
#endif

}  // namespace shardwise::cuda::radix
