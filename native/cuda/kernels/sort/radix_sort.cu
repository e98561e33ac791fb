// LSD radix sort of (key, position) pairs, 8 bits a pass; one block sorts a short row. Interface:
// radix_sort.cuh.
//
// A pass: histogram of every tile; prefix over the tiles for each digit; scatter. In the scatter
// each warp ranks its items by ballots (equal digits keep their order), the tile is ordered by
// digit in shared memory and written in runs.
// Grid: a block of 256 threads for each tile of a row (4096 keys of 32 bits, 2048 of 64); for the
// prefix one for each row and digit. Rows of up to 2048: one block, bitonic, by key and then
// position.
// Bytes per element and pass: the key once for the histogram, key and position in and out for the
// scatter (the first pass generates the positions). Integer counting only, so the result does not
// depend on timing.
// Technique: Merrill and Grimshaw (2011), a pass by histogram, prefix and scatter; ranks within a
// warp as in Onesweep (arXiv:2206.01784), without its look-back.
// On an H200, a pass over 16M keys of 32 bits: scatter 136 to 160 us, 60 of them for its bytes:
// some 130 instructions for 32 keys. Versions: histogram and prefix took 33 and 16 us by loads one
// at a time and blocks of 256; now 8 or 16 loads are in flight and, for more than 256 tiles, blocks
// have 1024 threads. __match_any_sync instead of the ballots: 200 us more in four passes. Timings
// of whole ops: sort.cu, index_add.cu.
#include "radix_rank.cuh"

namespace shardwise::cuda::radix {
namespace {

constexpr int kScanThreads = 1024;

// Block (row, tile).
template <class Key>
__global__ void __launch_bounds__(kThreads)
    histogram(const Key* keys, uint32_t* counts, int64_t n, int64_t tiles, int shift) {
  __shared__ uint32_t bins[kDigits];
  const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  bins[threadIdx.x] = 0;
  __syncthreads();
  constexpr int kItems = kTile<Key> / kThreads;
  const int64_t first = tile * kTile<Key> + threadIdx.x;
  Key own[kItems];
#pragma unroll
  for (int r = 0; r < kItems; r++)
    own[r] = keys[row * n + (first + r * kThreads < n ? first + r * kThreads : n - 1)];
#pragma unroll
  for (int r = 0; r < kItems; r++)
    if (first + r * kThreads < n) atomicAdd(&bins[digit_of(own[r], shift)], 1u);
  __syncthreads();
  counts[(row * kDigits + threadIdx.x) * tiles + tile] = bins[threadIdx.x];
}

// Block (row, digit): exclusive prefix over the tiles.
__global__ void __launch_bounds__(kScanThreads)
    scan_tiles(uint32_t* counts, uint32_t* totals, int64_t tiles) {
  __shared__ uint32_t shared[33];
  uint32_t* own = counts + static_cast<int64_t>(blockIdx.x) * tiles;
  uint32_t carry = 0;
  for (int64_t start = 0; start < tiles; start += blockDim.x) {
    const int64_t i = start + threadIdx.x;
    uint32_t total;
    const uint32_t before =
        block_scan_exclusive(i < tiles ? own[i] : 0u, SumOp(), 0u, shared, total);
    if (i < tiles) own[i] = carry + before;
    carry += total;
  }
  if (threadIdx.x == 0) totals[blockIdx.x] = carry;
}

// Block (row, tile).
template <class Key>
__global__ void __launch_bounds__(kThreads, 4)
    scatter(const Key* keys_in, const uint32_t* positions_in, Key* keys_out,
            uint32_t* positions_out, const uint32_t* counts, const uint32_t* totals, int64_t n,
            int64_t tiles, int shift) {
  constexpr int kWarps = kThreads / 32, kItems = kTile<Key> / kThreads;
  __shared__ Key tile_keys[kTile<Key>];
  __shared__ uint32_t tile_positions[kTile<Key>];
  __shared__ uint32_t warp_counts[kWarps][kDigits];
  // start of a digit's run in the row, minus its start in the tile
  __shared__ uint32_t run_base[kDigits];
  __shared__ uint32_t shared[33];
  const int64_t row = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t first = tile * kTile<Key>;
  const int count = static_cast<int>(n - first < kTile<Key> ? n - first : kTile<Key>);

  // Items past the end take the largest key: they come last and are not written.
  const auto item = [=](int r) { return warp * (32 * kItems) + r * 32 + lane; };
  Key keys[kItems];
  uint32_t ranks[kItems];
#pragma unroll
  for (int r = 0; r < kItems; r++)
    keys[r] = item(r) < count ? keys_in[row * n + first + item(r)] : ~Key(0);
  rank_in_warp(keys, shift, warp_counts[warp], [&](int r, uint32_t rank) { ranks[r] = rank; });
  __syncthreads();
  {
    static_assert(kThreads == kDigits);
    const int digit = threadIdx.x;
    const uint32_t begin = begin_of_digits<kWarps>(warp_counts, shared);
    uint32_t total;
    const uint32_t row_start =
        block_scan_exclusive(totals[row * kDigits + digit], SumOp(), 0u, shared, total);
    run_base[digit] = row_start + counts[(row * kDigits + digit) * tiles + tile] - begin;
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kItems; r++) {
    const uint32_t slot = warp_counts[warp][digit_of(keys[r], shift)] + ranks[r];
    tile_keys[slot] = keys[r];
    if (item(r) < count)
      tile_positions[slot] = positions_in ? positions_in[row * n + first + item(r)]
                                          : static_cast<uint32_t>(first + item(r));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const Key key = tile_keys[i];
    const int64_t to = row * n + static_cast<uint32_t>(run_base[digit_of(key, shift)] + i);
    keys_out[to] = key;
    positions_out[to] = tile_positions[i];
  }
}

// One block per row.
template <class Key>
__global__ void __launch_bounds__(1024)
    sort_small(const Key* keys_in, Key* keys_out, uint32_t* positions_out, int64_t n, int size) {
  __shared__ Key keys[kSmall];
  __shared__ uint32_t positions[kSmall];
  const int64_t base = static_cast<int64_t>(blockIdx.x) * n;
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    keys[i] = i < n ? keys_in[base + i] : ~Key(0);
    positions[i] = i < n ? static_cast<uint32_t>(i) : UINT32_MAX;
  }
  sort_shared(keys, positions, size);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    keys_out[base + i] = keys[i];
    positions_out[base + i] = positions[i];
  }
}

}  // namespace

template <class Key>
void sort_pairs(cudaStream_t stream, Buffers<Key>& b, int bits) {
  if (b.rows == 0 || b.n == 0) return;
  if (b.n <= kSmall) {
    int size = 2;
    while (size < b.n) size *= 2;
    const int threads = size / 2 < 32 ? 32 : size / 2;
    sort_small<<<static_cast<unsigned>(b.rows), threads, 0, stream>>>(b.keys[0], b.keys[1],
                                                                      b.positions[1], b.n, size);
    b.result = 1;
    return;
  }
  const int64_t tiles = tiles_of<Key>(b.n);
  const unsigned blocks = static_cast<unsigned>(b.rows * tiles);
  int from = 0;
  for (int shift = 0; shift < bits; shift += 8) {
    const int to = 1 - from;
    histogram<<<blocks, kThreads, 0, stream>>>(b.keys[from], b.histogram, b.n, tiles, shift);
    scan_tiles<<<static_cast<unsigned>(b.rows * kDigits),
                 tiles <= kThreads ? kThreads : kScanThreads, 0, stream>>>(b.histogram, b.totals,
                                                                           tiles);
    scatter<<<blocks, kThreads, 0, stream>>>(b.keys[from], shift == 0 ? nullptr : b.positions[from],
                                             b.keys[to], b.positions[to], b.histogram, b.totals,
                                             b.n, tiles, shift);
    from = to;
  }
  b.result = from;
}

template void sort_pairs<uint32_t>(cudaStream_t, Buffers<uint32_t>&, int);
template void sort_pairs<uint64_t>(cudaStream_t, Buffers<uint64_t>&, int);

}  // namespace shardwise::cuda::radix
