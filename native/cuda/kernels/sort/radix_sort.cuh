// Stable, deterministic sort of unsigned keys with 32-bit positions, by rows. Used by sort, topk
// and the index kernels that combine equal targets in order.
#pragma once
#include "../../stream.h"

namespace shardwise::cuda::radix {

constexpr int kThreads = 256;
constexpr int kDigits = 256;
constexpr int64_t kSmall = 2048;  // rows up to this long are sorted by one block in shared memory

// Elements of a block's tile.
template <class Key>
constexpr int kTile = sizeof(Key) == 4 ? 4096 : 2048;

// Scratch memory of one sort of `rows` rows of `n` keys. The caller writes keys[0] (row after row);
// after sort_pairs the sorted keys are in keys[result], and the positions (0 to n-1 within their
// row) in positions[result].
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
  return 2 * round_up(elements * static_cast<int64_t>(sizeof(Key)), 256) +
         2 * round_up(elements * 4, 256) + round_up(rows * kDigits * tiles_of<Key>(n) * 4, 256) +
         round_up(rows * kDigits * 4, 256);
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
  for (int i = 0; i < 2; i++)
    b.keys[i] = reinterpret_cast<Key*>(take(rows * n * static_cast<int64_t>(sizeof(Key))));
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

#if defined(__CUDACC__)
// Bitonic network over `size` (a power of two) slots in shared memory, by all threads of the block.
// exchange(low, high, rising) moves the larger of two slots to `high`, or to `low` if not rising.
// Begins and ends with a barrier.
template <class Exchange>
__device__ __forceinline__ void bitonic(int size, Exchange&& exchange) {
  for (int run = 2; run <= size; run <<= 1) {
    for (int gap = run >> 1; gap > 0; gap >>= 1) {
      __syncthreads();
      for (int t = threadIdx.x; t < size / 2; t += blockDim.x) {
        const int low = 2 * t - (t & (gap - 1));
        exchange(low, low + gap, (low & run) == 0);
      }
    }
  }
  __syncthreads();
}

// Sorts pairs by key and then position.
template <class Key>
__device__ __forceinline__ void sort_shared(Key* keys, uint32_t* positions, int size) {
  bitonic(size, [=](int low, int high, bool rising) {
    const Key a = keys[low], b = keys[high];
    const uint32_t pa = positions[low], pb = positions[high];
    const bool swapped = a > b || (a == b && pa > pb);
    if (swapped != rising) return;
    keys[low] = b, keys[high] = a;
    positions[low] = pb, positions[high] = pa;
  });
}

template <class Word>
__device__ __forceinline__ void sort_shared(Word* words, int size) {
  bitonic(size, [=](int low, int high, bool rising) {
    const Word a = words[low], b = words[high];
    if ((a > b) == rising) words[low] = b, words[high] = a;
  });
}
#endif

}  // namespace shardwise::cuda::radix
