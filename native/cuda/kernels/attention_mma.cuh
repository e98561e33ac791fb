// What the tensor-core attention kernels share: tiles of rows in shared memory, and their products by a warp.
//
// A tile is [rows][Depth + 8] 16-bit elements: features along the row, padded by 16 bytes so that the 8 rows of an ldmatrix
// fall into different banks; rows past the end and features past the real depth are zeros.
#pragma once
#include "../primitives/mma.cuh"
#include "attention.cuh"

namespace shardwise::cuda {

constexpr int kAttentionWarps = 8, kAttentionThreads = kAttentionWarps * 32;
constexpr int kStationaryRows = kAttentionWarps * 16;  // of a block: 16 per warp

// Takes the kernels of depth 64; else those of 128.
inline bool is_shallow(const AttentionProblem& p) { return p.depth <= 64 && p.value_depth <= 64; }

// One head of an operand.
struct RowSource {
  const uint16_t* data;
  int64_t row_stride, column_stride;
  int32_t rows, columns;
  bool vectors;  // every row starts on a 16-byte boundary and is contiguous

  __device__ __forceinline__ RowSource(const HeadView& v, int64_t batch, int64_t head, int64_t row_count, int64_t column_count)
      : data(static_cast<const uint16_t*>(v.data) + v.offset(batch, head)),
        row_stride(v.row_stride),
        column_stride(v.column_stride),
        rows(static_cast<int32_t>(row_count)),
        columns(static_cast<int32_t>(column_count)),
        vectors(v.column_stride == 1 && v.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0) {}
};

// Starts to fill `Rows` rows of a tile from row `first` on. The caller commits and waits.
template <int Rows, int Depth>
__device__ __forceinline__ void fill_rows(uint16_t* tile, const RowSource& s, int32_t first) {
  constexpr int kChunks = Depth / 8;
  if (s.vectors) {
#pragma unroll
    for (int i = 0; i < Rows * kChunks / kAttentionThreads; i++) {
      const int chunk = threadIdx.x + i * kAttentionThreads, row = chunk / kChunks, column = chunk % kChunks * 8;
      const int left = first + row < s.rows ? s.columns - column : 0, count = left >= 8 ? 8 : left > 0 ? left : 0;
      fill_chunk<true>(tile + row * (Depth + 8) + column,
                       count > 0 ? s.data + int64_t(first + row) * s.row_stride + column : s.data, count, 1);
    }
  } else {
#pragma unroll 1
    for (int chunk = threadIdx.x; chunk < Rows * kChunks; chunk += kAttentionThreads) {
      const int row = chunk / kChunks, column = chunk % kChunks * 8;
      const int left = first + row < s.rows ? s.columns - column : 0;
      fill_chunk<false>(tile + row * (Depth + 8) + column,
                        s.data + int64_t(first + row) * s.row_stride + column * s.column_stride, left, s.column_stride);
    }
  }
}

// sums[16 rows x Columns] += a[16 x Depth] b[Columns x Depth]^T. `a` and `b` are addresses in shared memory of this lane: of the
// warp's rows plus lane_of_a, of the tile plus lane_of_b.
template <class T, int Columns, int Depth>
__device__ __forceinline__ void multiply_rows(float (&sums)[Columns / 8][4], uint32_t a, uint32_t b) {
  constexpr int kPitch = Depth + 8;
#pragma unroll
  for (int k = 0; k < Depth / 16; k++) {
    uint32_t af[4];
    load_matrices(af, a + k * 32);
#pragma unroll
    for (int j = 0; j < Columns / 16; j++) {
      uint32_t bf[4];
      load_matrices(bf, b + (j * 16 * kPitch + k * 16) * 2);
      mma_16816<T>(sums[2 * j], af, bf[0], bf[1]);
      mma_16816<T>(sums[2 * j + 1], af, bf[2], bf[3]);
    }
  }
}

// The same with the fragments of a in registers.
template <class T, int Columns, int Depth>
__device__ __forceinline__ void multiply_rows(float (&sums)[Columns / 8][4], const uint32_t (&a)[Depth / 16][4], uint32_t b) {
  constexpr int kPitch = Depth + 8;
#pragma unroll
  for (int k = 0; k < Depth / 16; k++)
#pragma unroll
    for (int j = 0; j < Columns / 16; j++) {
      uint32_t bf[4];
      load_matrices(bf, b + (j * 16 * kPitch + k * 16) * 2);
      mma_16816<T>(sums[2 * j], a[k], bf[0], bf[1]);
      mma_16816<T>(sums[2 * j + 1], a[k], bf[2], bf[3]);
    }
}

// sums[16 x Depth] += p[16 x Columns] b[Columns x Depth], p being accumulators that are rounded to T. `b` is the address of the
// tile plus lane_of_b_transposed.
template <class T, int Columns, int Depth>
__device__ __forceinline__ void multiply_columns(float (&sums)[Depth / 8][4], const float (&p)[Columns / 8][4], uint32_t b) {
  constexpr int kPitch = Depth + 8;
#pragma unroll
  for (int k = 0; k < Columns / 16; k++) {
    const uint32_t af[4] = {pack_pair<T>(p[2 * k][0], p[2 * k][1]), pack_pair<T>(p[2 * k][2], p[2 * k][3]),
                            pack_pair<T>(p[2 * k + 1][0], p[2 * k + 1][1]), pack_pair<T>(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
    for (int j = 0; j < Depth / 16; j++) {
      uint32_t bf[4];
      load_matrices_transposed(bf, b + (k * 16 * kPitch + j * 16) * 2);
      mma_16816<T>(sums[2 * j], af, bf[0], bf[1]);
      mma_16816<T>(sums[2 * j + 1], af, bf[2], bf[3]);
    }
  }
}

// Which of this thread's accumulators of 16 x Columns survive dropout, element (j, e) at bit j * 4 + e. Rolled up: it is rarely
// used, and 32 copies of Philox would be most of the kernel. ByKeys: rows are keys and columns queries.
template <int Columns, bool ByKeys>
__device__ __forceinline__ uint32_t kept_elements(const AttentionProblem& p, int64_t head_index, int32_t row_low,
                                                  int32_t column0) {
  static_assert(Columns / 8 * 4 <= 32, "one bit per accumulator");
  uint32_t kept = 0;
#pragma unroll 1
  for (int i = 0; i < Columns / 8 * 4; i++) {
    const int32_t row = row_low + (i >> 1 & 1) * 8,
                  column = column0 + (i >> 2) * 8 + static_cast<int>(threadIdx.x & 3) * 2 + (i & 1);
    if (survives(p, head_index, ByKeys ? column : row, ByKeys ? row : column)) kept |= 1u << i;
  }
  return kept;
}

// Writes a warp's 16 x Depth accumulators, scaled per row half, to rows of `columns` contiguous elements.
template <class T, int Depth>
__device__ __forceinline__ void store_rows(T* to, const float (&sums)[Depth / 8][4], int32_t first_row, int32_t rows,
                                           int32_t columns, float scale_low, float scale_high) {
  const int group = (threadIdx.x & 31) >> 2, pair = (threadIdx.x & 3) * 2;
  const bool pairs = columns % 2 == 0 && reinterpret_cast<uintptr_t>(to) % 4 == 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t row = first_row + half * 8 + group;
    if (row >= rows) continue;
    const float scale = half ? scale_high : scale_low;
#pragma unroll
    for (int j = 0; j < Depth / 8; j++) {
      const int column = j * 8 + pair;
      const float first = sums[j][half * 2] * scale, second = sums[j][half * 2 + 1] * scale;
      T* at = to + int64_t(row) * columns + column;
      if (pairs) {
        if (column < columns) *reinterpret_cast<uint32_t*>(at) = pack_pair<T>(first, second);
      } else {
        if (column < columns) at[0] = from_compute<T>(first);
        if (column + 1 < columns) at[1] = from_compute<T>(second);
      }
    }
  }
}

}  // namespace shardwise::cuda
