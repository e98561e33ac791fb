// sort and topk of rows of 257 to 16,384 elements with keys of up to 32 bits: a block holds a row
// and sorts it in shared memory.
//
// One pass for each byte of an element, from the lowest: keys and positions are read into
// registers, ranked (radix_rank.cuh) and written back in the order of that byte. The end copies
// elements by position, so their bits survive.
// Grid: a block a row, of 256 threads with 4, 8 or 16 keys each, or of 512 or 1024 with 16. Shared
// memory: 6 bytes a key and 1 KiB a warp, 128 KiB for the longest rows.
// Bytes: x twice (for keys, and by position from L1 or L2), values and indices once; the sort
// through memory (radix_sort.cu) moves 20 bytes an element and pass besides. Integer counting only:
// deterministic.
// Source: PyTorch's sort with stable=True. Technique: radix sort, ranks within a block as in
// Onesweep (arXiv:2206.01784). On an H200, float32 (PyTorch): 4096 x 16384 1830 us (4965), 16384 x
// 4096 1419 (2057), 65536 x 1000 1754 (2136); bfloat16 4096 x 16384 1051 (2441).
// Versions: loads and stores of a row one after the other 1988 for 4096 x 16384; through memory,
// with ranks by __match_any_sync, 7677; rows of 1000 by the bitonic network 4290.
#include "../../primitives/async_copy.cuh"
#include "radix_rank.cuh"
#include "sort.cuh"

namespace shardwise::cuda::sorting {
namespace {

using namespace radix;

template <int Warps, int Items>
struct BlockTile {
  static constexpr int kThreads = Warps * 32, kTile = kThreads * Items;
  static constexpr int kBytes = kTile * 6 + Warps * kDigits * 4;
};

template <int Warps, int kItems>
__global__ void __launch_bounds__(Warps * 32, Warps > 8      ? 32 / Warps
                                              : kItems == 16 ? 3
                                                             : 4)
    sort_block_rows(const __grid_constant__ SortArgs args, int bits) {
  using Tile = BlockTile<Warps, kItems>;
  extern __shared__ uint32_t tile_keys[];
  auto* const counts = reinterpret_cast<uint32_t(*)[kDigits]>(tile_keys + Tile::kTile);
  uint16_t* const tile_places = reinterpret_cast<uint16_t*>(counts + Warps);
  __shared__ uint32_t shared[33];
  const Offsets<3> row = args.row_offsets.get(blockIdx.x);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = static_cast<int>(args.n);
  const auto item = [=](int r) { return warp * (32 * kItems) + r * 32 + lane; };

  // Items past the end take the largest key and come last. Ranks share a word with positions:
  // registers are few.
  uint32_t keys[kItems], places[kItems];
  {
    int64_t at[kItems];
#pragma unroll
    for (int r = 0; r < kItems; r++) at[r] = row[0] + (item(r) < n ? item(r) : 0) * args.x_step;
    keys_at(args, at, keys);
  }
#pragma unroll
  for (int r = 0; r < kItems; r++) {
    if (item(r) >= n) keys[r] = ~0u;
    places[r] = item(r);
  }
#pragma unroll 1
  for (int shift = 0;; shift += 8) {
    rank_in_warp(keys, shift, counts[warp], [&](int r, uint32_t rank) { places[r] |= rank << 16; });
    __syncthreads();
    begin_of_digits<Warps>(counts, shared);
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kItems; r++) {
      const uint32_t slot = counts[warp][digit_of(keys[r], shift)] + (places[r] >> 16);
      tile_keys[slot] = keys[r];
      tile_places[slot] = static_cast<uint16_t>(places[r]);
    }
    __syncthreads();
    if (shift + 8 >= bits) break;
#pragma unroll
    for (int r = 0; r < kItems; r++) {
      keys[r] = tile_keys[item(r)];
      places[r] = tile_places[item(r)];
    }
  }
  write_entries(args, row, threadIdx.x, Tile::kThreads, tile_places);
}

template <int Warps, int Items>
bool sort_with(const SortArgs& args, const Stream& stream) {
  using Tile = BlockTile<Warps, Items>;
  if (args.n > Tile::kTile || stream.facts->max_shared_per_block < Tile::kBytes) return false;
  allow_shared(sort_block_rows<Warps, Items>, Tile::kBytes);
  sort_block_rows<Warps, Items>
      <<<static_cast<unsigned>(args.rows), Tile::kThreads, Tile::kBytes, stream.handle>>>(
          args, key_bits(args.dtype));
  return true;
}

}  // namespace

bool sort_rows_in_blocks(const SortArgs& args, const Stream& stream) {
  return key_bits(args.dtype) <= 32 && args.n > 256 && args.rows <= kMax32 &&
         (sort_with<8, 4>(args, stream) || sort_with<8, 8>(args, stream) ||
          sort_with<8, 16>(args, stream) || sort_with<16, 16>(args, stream) ||
          sort_with<32, 16>(args, stream));
}

}  // namespace shardwise::cuda::sorting
