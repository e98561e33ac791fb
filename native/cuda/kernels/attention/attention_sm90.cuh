// Shared by the sm_90 attention kernels: order of the tiles, products of tiles, store of the
// results.
//
// A tile in shared memory is a sequence of boxes of 64 features, each [rows][128 bytes] as the copy
// engine writes it (swizzled). Rows past the end and features past the real depth are zeros there;
// the copy engine drops them when it stores a tile.
#pragma once
#include "../../primitives/wgmma.cuh"
#include "../../tensor_map.h"
#include "attention_scores.cuh"

namespace shardwise::cuda {

// The order of the tiles of all heads. Heads form groups whose keys and values should fit in L2
// together. Within a group the longest tiles start first, so that the short ones fill the gaps at
// the end.
struct AttentionOrder {
  // tiles of a head; heads of all batches; heads of a group
  int32_t tiles = 0, heads = 0, together = 1;
  bool last_first = false;

  __device__ __forceinline__ void place(int32_t block, int32_t* tile, int32_t* head) const {
    const int32_t first = block / (tiles * together) * together, in_group = block - first * tiles;
    const int32_t size = heads - first < together ? heads - first : together;
    *head = first + in_group % size;
    *tile = last_first ? tiles - 1 - in_group / size : in_group / size;
  }
};

// `bytes_of_head`: bytes that the tiles of a head read. The last group ends evenly only if the GPU
// takes at least twice as long for it as for its longest tile, which is up to twice the average.
inline AttentionOrder attention_order(int64_t tiles, int64_t heads, int64_t bytes_of_head,
                                      bool last_first, const DeviceFacts& facts) {
  constexpr int64_t kInL2 = 16 << 20;  // of 50 MiB, in two halves
  const int64_t fit = kInL2 / (bytes_of_head + 1), even = ceil_div(2 * facts.num_sms, tiles);
  const int64_t at_least = fit > even ? fit : even,
                groups = at_least < heads ? heads / at_least : 1;
  return {static_cast<int32_t>(tiles), static_cast<int32_t>(heads),
          static_cast<int32_t>(ceil_div(heads, groups)), last_first};
}

// The kernels take 16-bit elements and depths up to 128. The tensor maps check the strides.
inline bool attention_sm90_applies(const AttentionProblem& p, const DeviceFacts& facts) {
  constexpr int64_t kMax = int64_t(1) << 30;
  return is_sm90(facts) && (p.dtype == DType::Float16 || p.dtype == DType::BFloat16) &&
         mask_fits(p) && p.batch * p.heads > 0 && p.depth > 0 && p.depth <= 128 &&
         p.value_depth > 0 && p.value_depth <= 128 && p.queries > 0 && p.keys > 0 &&
         p.queries < kMax && p.keys < kMax && p.batch * p.heads < kMax &&
         p.lse_dtype == DType::Float32 && p.scale > 0;
}

// Boxes of `box_rows` positions and 64 features. False if the copy engine cannot take the operand.
inline bool attention_map(const AttentionProblem& p, const HeadView& v, int64_t heads, int64_t rows,
                          int64_t columns, int box_rows, CUtensorMap* out) {
  TensorMapShape s;
  s.data = v.data;
  s.width = columns, s.height = rows, s.depth = heads, s.batch = p.batch;
  s.row_stride = v.row_stride, s.depth_stride = v.head_stride, s.batch_stride = v.batch_stride;
  return v.column_stride == 1 && tensor_map_fits(s) &&
         make_tensor_map(s, 64, box_rows, p.dtype == DType::BFloat16, out);
}

// The same for a result. The copy engine writes whole 16 bytes at the end of a row.
inline bool attention_result_map(const AttentionProblem& p, const HeadResult& result, int64_t heads,
                                 int64_t rows, int64_t columns, CUtensorMap* out) {
  return columns % 8 == 0 && attention_map(p, result, heads, rows, columns, 64, out);
}

#if SW_SM90A

// A position in a ring of stages.
template <int Stages>
struct RingPlace {
  int32_t stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == Stages) stage = 0, phase ^= 1;
  }
};

// Loads a tile of `Boxes` boxes.
template <int Boxes>
__device__ __forceinline__ void load_tile(uint32_t to, uint32_t box_bytes, const CUtensorMap* map,
                                          uint32_t barrier, int32_t row, int32_t head,
                                          int32_t batch) {
#pragma unroll
  for (int box = 0; box < Boxes; box++)
    tensor_load(to + box * box_bytes, map, barrier, box * 64, row, head, batch);
}

// Starts s[64 x Columns] = a[64 x Depth] b[Columns x Depth]^T. Boxes of a (b) are BoxA (BoxB)
// bytes.
template <class T, int Columns, int Depth, int BoxA, int BoxB>
__device__ __forceinline__ void start_rows(float (&s)[Columns / 2], uint64_t a, uint64_t b) {
#pragma unroll
  for (int k = 0; k < Depth / 16; k++)
    wgmma<T, Columns, false, false>(s, a + (k / 4 * BoxA + k % 4 * 32) / 16,
                                    b + (k / 4 * BoxB + k % 4 * 32) / 16, k > 0);
}

// The same with the fragments of a in registers.
template <class T, int Columns, int Depth, int BoxB>
__device__ __forceinline__ void start_rows(float (&s)[Columns / 2],
                                           const uint32_t (&a)[Depth / 16][4], uint64_t b) {
#pragma unroll
  for (int k = 0; k < Depth / 16; k++)
    wgmma<T, Columns, false>(s, a[k], b + (k / 4 * BoxB + k % 4 * 32) / 16, k > 0);
}

// Loads the fragments of a warpgroup's 64 rows of a tile in boxes of Box bytes.
template <int Depth, int Box>
__device__ __forceinline__ void load_fragments(uint32_t (&f)[Depth / 16][4], uint32_t rows) {
  const int thread = threadIdx.x & 127, lane = thread & 31;
  const uint32_t line = rows + ((thread >> 5) * 16 + (lane & 15)) * 128;
#pragma unroll
  for (int k = 0; k < Depth / 16; k++)
    load_matrices(f[k], line + k / 4 * Box + (((k % 4 * 2 + (lane >> 4)) ^ (lane & 7)) << 4));
}

// Starts sums[64 x Depth] += p[64 x Rows] b[Rows x Depth]; p are fragments, b is described as
// MN-major.
template <class T, int Rows, int Depth>
__device__ __forceinline__ void start_columns(float (&sums)[Depth / 2],
                                              const uint32_t (&p)[Rows / 16][4], uint64_t b) {
#pragma unroll
  for (int k = 0; k < Rows / 16; k++) wgmma<T, Depth, true>(sums, p[k], b + k * (2048 / 16), 1);
}

// Packs accumulators, rounded to T, as fragments of the next product.
template <class T, int Columns>
__device__ __forceinline__ void pack_fragments(uint32_t (&p)[Columns / 16][4],
                                               const float (&s)[Columns / 2]) {
#pragma unroll
  for (int k = 0; k < Columns / 16; k++)
#pragma unroll
    for (int i = 0; i < 4; i++) p[k][i] = pack_pair<T>(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
}

// Writes the 64 x Depth accumulators of a warpgroup, scaled per row half, through its rows of a
// tile of shared memory (`rows`, in boxes of `box_bytes`), which no other warp uses. `barrier` is a
// named barrier of this warpgroup. The copy continues after the return.
template <class T, int Depth>
__device__ __forceinline__ void store_tile(const CUtensorMap* map, uint32_t rows,
                                           uint32_t box_bytes, const float (&sums)[Depth / 2],
                                           float scale_low, float scale_high, int barrier,
                                           int32_t row, int32_t head, int32_t batch) {
  const int thread = threadIdx.x & 127, lane = thread & 31;
  const uint32_t line = rows + ((thread >> 5) * 16 + (lane & 15)) * 128;
  if (thread == 0) tensor_store_wait_read<0>();  // the earlier store from these rows
  sync_threads_of(barrier, 128);
#pragma unroll
  for (int j = 0; j < Depth / 16; j++) {
    const float* const v = sums + j * 8;
    store_matrices(line + j / 4 * box_bytes + (((j % 4 * 2 + (lane >> 4)) ^ (lane & 7)) << 4),
                   pack_pair<T>(v[0] * scale_low, v[1] * scale_low),
                   pack_pair<T>(v[2] * scale_high, v[3] * scale_high),
                   pack_pair<T>(v[4] * scale_low, v[5] * scale_low),
                   pack_pair<T>(v[6] * scale_high, v[7] * scale_high));
  }
  fence_for_copy_engine();
  sync_threads_of(barrier, 128);
  if (thread != 0) return;
#pragma unroll
  for (int box = 0; box < Depth / 64; box++)
    tensor_store(map, rows + box * box_bytes, box * 64, row, head, batch);
  tensor_store_commit();
}

// Before a warpgroup ends: its shared memory must last until the copy engine has read it.
__device__ __forceinline__ void finish_stores() {
  if ((threadIdx.x & 127) == 0) tensor_store_wait_read<0>();
}

#endif

}  // namespace shardwise::cuda
