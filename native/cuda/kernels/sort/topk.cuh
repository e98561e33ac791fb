// Shared by both selections; topk.cu chooses between them.
#pragma once
#include "sort.cuh"

namespace shardwise::cuda::sorting {

// The source of a select kernel: the tensor (segments of its rows), or the candidates of an earlier
// select.
template <class Key>
struct SelectArgs {
  int64_t segments, segment;  // per row, and their length
  Key* keys;                  // [rows][segments][k] candidates
  uint32_t* positions;
  int bits;
};

// The elements that a block selects from: a segment of a row of the tensor, or all candidates of a
// row.
template <class Key, bool FromTensor>
struct Selection {
  int64_t row, first, count;
  Offsets<3> row_offsets;
  int64_t base;  // of the tensor
  const Key* candidates;
  const uint32_t* positions;  // of candidates

  __device__ __forceinline__ Selection(const SortArgs& args, const SelectArgs<Key>& select)
      : row(FromTensor ? blockIdx.x / select.segments : blockIdx.x),
        first(FromTensor ? blockIdx.x % select.segments * select.segment : 0),
        count(FromTensor ? (args.n - first < select.segment ? args.n - first : select.segment)
                         : select.segments * args.k),
        row_offsets(args.row_offsets.get(row)),
        base(row_offsets[0] + first * args.x_step),
        candidates(select.keys + row * count),
        positions(select.positions + row * count) {}

  // Keys of elements i; indices past the end read the last.
  template <int N>
  __device__ __forceinline__ void keys_of(const SortArgs& args, const int64_t (&i)[N],
                                          Key (&keys)[N]) const {
    int64_t at[N];
#pragma unroll
    for (int u = 0; u < N; u++) at[u] = i[u] < count ? i[u] : count - 1;
    if constexpr (FromTensor) {
#pragma unroll
      for (int u = 0; u < N; u++) at[u] = base + at[u] * args.x_step;
      keys_at(args, at, keys);
    } else {
#pragma unroll
      for (int u = 0; u < N; u++) keys[u] = candidates[at[u]];
    }
  }

  // The position in the row.
  __device__ __forceinline__ uint32_t position(int64_t i) const {
    return FromTensor ? static_cast<uint32_t>(first + i) : positions[i];
  }

  // Writes the first k of `chosen`, in order: candidates of this segment, or the final result.
  __device__ __forceinline__ void write(const SortArgs& args, const SelectArgs<Key>& select,
                                        const Key* chosen, const uint32_t* chosen_positions) const {
    if (!FromTensor || select.segments == 1)
      return write_entries(args, row_offsets, threadIdx.x, blockDim.x, chosen_positions);
    const int64_t to = static_cast<int64_t>(blockIdx.x) * args.k;
    for (int i = threadIdx.x; i < args.k; i += blockDim.x) {
      select.keys[to + i] = chosen[i];
      select.positions[to + i] = chosen_positions[i];
    }
  }
};

// Selects few elements of a row by one read: topk_threshold.cu. Launches a stage: from the tensor,
// or from candidates.
constexpr int64_t kMaxThresholdK = 512;
template <class Key, bool FromTensor>
void select_by_threshold(cudaStream_t stream, const SortArgs& args, const SelectArgs<Key>& select);

}  // namespace shardwise::cuda::sorting
