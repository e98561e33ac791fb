// Shared by the sm_80 tensor-core attention kernels: tiles of rows in shared memory, and their
// products by a warp.
//
// A tile is [rows][Depth + 8] 16-bit elements: features along the row, padded by 16 bytes so that
// the 8 rows of an ldmatrix use different banks; rows past the end and features past the real depth
// are zeros.
#pragma once
#include "attention_scores.cuh"

namespace shardwise::cuda {

constexpr int kStationaryRows = 128;  // of a block

// Selects the kernels of depth 64; else those of depth 128.
inline bool is_shallow(const AttentionProblem& p) { return p.depth <= 64 && p.value_depth <= 64; }

// One head of an operand.
struct RowSource {
  const uint16_t* data;
  int64_t row_stride, column_stride;
  int32_t rows, columns;
  bool vectors;  // every row is contiguous and starts on a 16-byte boundary

  __device__ __forceinline__ RowSource(const HeadView& v, int64_t batch, int64_t head,
                                       int64_t row_count, int64_t column_count)
      : data(static_cast<const uint16_t*>(v.data) + v.offset(batch, head)),
        row_stride(v.row_stride),
        column_stride(v.column_stride),
        rows(static_cast<int32_t>(row_count)),
        columns(static_cast<int32_t>(column_count)),
        vectors(v.column_stride == 1 && v.row_stride % 8 == 0 &&
                reinterpret_cast<uintptr_t>(data) % 16 == 0) {}
};

// A block of `Threads` threads starts to fill `Rows` rows of a tile, from row `first` on. The
// caller commits and waits.
template <int Threads, int Rows, int Depth>
__device__ __forceinline__ void fill_rows(uint16_t* tile, const RowSource& s, int32_t first) {
  constexpr int kChunks = Depth / 8, kRowsAtOnce = Threads / kChunks;
  static_assert(Threads % kChunks == 0 && Rows % kRowsAtOnce == 0,
                "a thread has one column of chunks");
  if (s.vectors) {
    const int row = threadIdx.x / kChunks, column = threadIdx.x % kChunks * 8,
              left = s.columns - column;
    const int bytes = 2 * (left >= 8 ? 8 : left > 0 ? left : 0);
    const uint16_t* from =
        bytes > 0 ? s.data + int64_t(first + row) * s.row_stride + column : s.data;
    const int64_t step = bytes > 0 ? kRowsAtOnce * s.row_stride : 0;
    uint16_t* const to = tile + row * (Depth + 8) + column;
    if (first + Rows <= s.rows) {
#pragma unroll
      for (int i = 0; i < Rows / kRowsAtOnce; i++, from += step)
        copy_async(to + i * kRowsAtOnce * (Depth + 8), from, bytes);
    } else {
#pragma unroll 1
      for (int i = 0; i < Rows / kRowsAtOnce; i++, from += step) {
        const bool exists = first + row + i * kRowsAtOnce < s.rows;
        copy_async(to + i * kRowsAtOnce * (Depth + 8), exists ? from : s.data, exists ? bytes : 0);
      }
    }
  } else {
#pragma unroll 1
    for (int chunk = threadIdx.x; chunk < Rows * kChunks; chunk += Threads) {
      const int row = chunk / kChunks, column = chunk % kChunks * 8;
      const int left = first + row < s.rows ? s.columns - column : 0;
      fill_chunk<false>(tile + row * (Depth + 8) + column,
                        s.data + int64_t(first + row) * s.row_stride + column * s.column_stride,
                        left, s.column_stride);
    }
  }
}

__device__ __forceinline__ float (&four_of(float* sums))[4] {
  return reinterpret_cast<float(&)[4]>(*sums);
}

// sums[16 M rows x Columns] += a[16 M x Depth] b[Columns x Depth]^T; sums[m] holds 16 rows. `a` and
// `b` are shared-memory addresses of this lane: the warp's rows plus lane_of_a, and the tile plus
// lane_of_b.
template <class T, int Depth, int M, int Half>
__device__ __forceinline__ void multiply_rows(float (&sums)[M][Half], uint32_t a, uint32_t b) {
  constexpr int kPitch = Depth + 8;
#pragma unroll
  for (int k = 0; k < Depth / 16; k++) {
    uint32_t af[M][4];
#pragma unroll
    for (int m = 0; m < M; m++) load_matrices(af[m], a + (m * 16 * kPitch + k * 16) * 2);
#pragma unroll
    for (int j = 0; j < Half / 8; j++) {
      uint32_t bf[4];
      load_matrices(bf, b + (j * 16 * kPitch + k * 16) * 2);
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma_16816<T>(four_of(sums[m] + 8 * j), af[m], bf[0], bf[1]);
        mma_16816<T>(four_of(sums[m] + 8 * j + 4), af[m], bf[2], bf[3]);
      }
    }
  }
}

// sums[16 M x Depth] += p[16 M x Columns] b[Columns x Depth]; p are accumulators, rounded to T
// here. `b` is the address of the tile plus lane_of_b_transposed.
template <class T, int Depth, int M, int Half>
__device__ __forceinline__ void multiply_columns(float (&sums)[M][Depth / 2],
                                                 const float (&p)[M][Half], uint32_t b) {
  constexpr int kPitch = Depth + 8;
#pragma unroll
  for (int k = 0; k < Half / 8; k++) {
    uint32_t af[M][4];
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        af[m][i] = pack_pair<T>(p[m][8 * k + 2 * i], p[m][8 * k + 2 * i + 1]);
#pragma unroll
    for (int j = 0; j < Depth / 16; j++) {
      uint32_t bf[4];
      load_matrices_transposed(bf, b + (k * 16 * kPitch + j * 16) * 2);
#pragma unroll
      for (int m = 0; m < M; m++) {
        mma_16816<T>(four_of(sums[m] + 8 * j), af[m], bf[0], bf[1]);
        mma_16816<T>(four_of(sums[m] + 8 * j + 4), af[m], bf[2], bf[3]);
      }
    }
  }
}

// Writes a warp's 16 x Depth accumulators, scaled per row half, to rows of `columns` elements.
template <class T, int Depth>
__device__ __forceinline__ void store_rows(T* to, const float (&sums)[Depth / 2], int32_t first_row,
                                           int32_t rows, int32_t columns, int64_t row_stride,
                                           float scale_low, float scale_high) {
  const int group = (threadIdx.x & 31) >> 2, pair = (threadIdx.x & 3) * 2;
  const bool pairs =
      columns % 2 == 0 && row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(to) % 4 == 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int32_t row = first_row + half * 8 + group;
    if (row >= rows) continue;
    const float scale = half ? scale_high : scale_low;
#pragma unroll
    for (int j = 0; j < Depth / 8; j++) {
      const int column = j * 8 + pair;
      const float first = sums[j * 4 + half * 2] * scale,
                  second = sums[j * 4 + half * 2 + 1] * scale;
      T* at = to + int64_t(row) * row_stride + column;
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
