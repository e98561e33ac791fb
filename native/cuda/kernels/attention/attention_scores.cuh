// Operations of the tensor-core kernels on the scores in a thread's registers: mask and dropout,
// causal mask, softmax; and the tile schedule of the backward passes.
//
// A warp has 16 rows of scores, a thread `Columns` / 2 elements: element 4 j + e is at row `row` +
// e / 2 * 8 and column `column` + 8 j + e % 2 (mma.cuh). Rows are queries and columns keys; with
// ByKeys rows are keys and columns queries. Rows of a warp start at a multiple of 16, columns of a
// tile at a multiple of 8.
#pragma once
#include "../../primitives/mma.cuh"
#include "attention.cuh"

namespace shardwise::cuda {

// The tensor-core kernels take bool masks and masks of the operands' dtype.
inline bool mask_fits(const AttentionProblem& p) {
  return !p.mask.data || p.mask_dtype == DType::Bool || p.mask_dtype == p.dtype;
}

#if defined(__CUDACC__)

// The mask values for this thread's scores, in the dtype of the mask.
template <class T, int Columns, bool ByKeys>
struct MaskFragment {
  // Word 2 j + half holds elements 4 j + 2 half (low half; low byte of a bool mask) and the next.
  uint32_t pairs[Columns / 4];

  // `base`: offset of the head. Indices past the end read the nearest element that exists.
  __device__ __forceinline__ void load(const ScoreMods& m, int64_t base, int32_t row,
                                       int32_t column) {
    if (m.mask_dtype == DType::Bool)
      load_as<uint8_t, uint16_t>(m, base, row, column);
    else
      load_as<uint16_t, uint32_t>(m, base, row, column);
  }

  // s = scale s + mask, in base 2.
  __device__ __forceinline__ void add_to(float (&s)[Columns / 2], const ScoreMods& m,
                                         float scale) const {
    if (m.mask_dtype == DType::Bool) {
#pragma unroll
      for (int i = 0; i < Columns / 2; i++)
        s[i] = pairs[i / 2] & (i % 2 ? 0xff00u : 0xffu) ? s[i] * scale : -INFINITY;
    } else {
#pragma unroll
      for (int i = 0; i < Columns / 2; i++)
        s[i] = __fmaf_rn(s[i], scale,
                         to_log2(value_of(static_cast<uint16_t>(pairs[i / 2] >> i % 2 * 16))));
    }
  }

 private:
  __device__ __forceinline__ static float value_of(uint16_t bits) {
    return to_compute<float>(reinterpret_cast<const T&>(bits));
  }

  template <class M, class Pair>
  __device__ __forceinline__ void load_as(const ScoreMods& m, int64_t base, int32_t row,
                                          int32_t column) {
    const int32_t last_row = static_cast<int32_t>(ByKeys ? m.keys : m.queries) - 1,
                  last_column = static_cast<int32_t>(ByKeys ? m.queries : m.keys) - 1;
    const int64_t row_stride = ByKeys ? m.mask.column_stride : m.mask.row_stride,
                  column_stride = ByKeys ? m.mask.row_stride : m.mask.column_stride;
    const M* const mask = static_cast<const M*>(m.mask.data) + base;
    const M* const low = mask + (row < last_row ? row : last_row) * row_stride;
    const M* const high = mask + (row + 8 < last_row ? row + 8 : last_row) * row_stride;
    const bool pairs_lie_so = !ByKeys && column_stride == 1 && row_stride % 2 == 0 &&
                              reinterpret_cast<uintptr_t>(mask) % sizeof(Pair) == 0;
    if (pairs_lie_so &&
        column + Columns - 1 - static_cast<int>(threadIdx.x & 3) * 2 <= last_column) {
#pragma unroll
      for (int j = 0; j < Columns / 8; j++) {
        pairs[2 * j] = *reinterpret_cast<const Pair*>(low + column + 8 * j);
        pairs[2 * j + 1] = *reinterpret_cast<const Pair*>(high + column + 8 * j);
      }
    } else {
#pragma unroll
      for (int j = 0; j < Columns / 8; j++) {
        const int32_t first = column + 8 * j;
        const int64_t at = (first < last_column ? first : last_column) * column_stride,
                      next = (first + 1 < last_column ? first + 1 : last_column) * column_stride;
        pairs[2 * j] = low[at] | static_cast<uint32_t>(low[next]) << 8 * sizeof(M);
        pairs[2 * j + 1] = high[at] | static_cast<uint32_t>(high[next]) << 8 * sizeof(M);
      }
    }
  }
};

// The dropout bits of the 8 keys of a counter: bit k is set if key k is kept.
__device__ __forceinline__ uint32_t kept_keys(const ScoreMods& m, uint64_t counter) {
  const uint4 random = philox(m.key, counter);
  const uint32_t words[4] = {random.x, random.y, random.z, random.w};
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 4; i++)
    kept |= uint32_t((words[i] & 0xffff) >= m.dropout.drop_below) << 2 * i |
            uint32_t(words[i] >> 16 >= m.dropout.drop_below) << (2 * i + 1);
  return kept;
}

// The dropout bits of this thread's elements of up to 64 columns: bit i is set if element i is
// kept. Lanes draw for each other, so that every counter is drawn once: byte n of a lane's word has
// the 8 keys of the counter for columns 8 j to 8 j + 7, where j is 2 n or 2 n + 1.
template <int Columns, bool ByKeys>
__device__ __forceinline__ uint32_t kept_elements(const ScoreMods& m, int64_t head_index,
                                                  int32_t row, int32_t column) {
  static_assert(Columns % 16 == 0 && Columns <= 64, "one bit per element");
  // index among the 8 or 4 lanes that draw for each other
  const int lane = threadIdx.x & 31, own = ByKeys ? lane >> 2 : lane & 3;
  // Bit 0 of `own` selects the column (by keys) or one of two rows, bit 1 by keys one of two rows,
  // and the last bit says whether j is odd.
  const int odd = own >> (ByKeys ? 2 : 1);
  const int64_t query = ByKeys ? column + (own & 1) + odd * 8 : row + (own & 1) * 8,
                key = ByKeys ? row + (own & 2) * 4 : column + odd * 8;
  uint64_t counter = dropout_counter(m, head_index, query, key);
  const uint64_t step = ByKeys ? 2 * (m.keys + 7 & ~int64_t(7)) : 2;
  uint32_t drawn = 0, kept = 0;
#pragma unroll
  for (int n = 0; n < Columns / 16; n++, counter += step) drawn |= kept_keys(m, counter) << 8 * n;
  if constexpr (ByKeys) {
#pragma unroll
    for (int from = 0; from < 8; from++)
      kept |= (__shfl_sync(0xffffffffu, drawn, from << 2 | (lane & 3)) >> own & 0x01010101u)
              << ((from >> 2) * 4 + (from & 3));
  } else {
#pragma unroll
    for (int from = 0; from < 4; from++)
      kept |= (__shfl_sync(0xffffffffu, drawn, (lane & ~3) | from) >> 2 * own & 0x03030303u)
              << ((from >> 1) * 4 + (from & 1) * 2);
  }
  return kept;
}

// Mask and dropout of a thread's elements of a tile.
template <class T, int Columns, bool ByKeys>
struct ModsFragment {
  static constexpr bool kPresent = true;
  MaskFragment<T, Columns, ByKeys> mask;
  uint32_t kept[(Columns + 63) / 64];

  __device__ __forceinline__ void load(const ScoreMods& m, int64_t batch, int64_t head,
                                       int64_t heads, int32_t row, int32_t column) {
    constexpr int kOfWord = Columns < 64 ? Columns : 64;
    if (m.mask.data) mask.load(m, m.mask.offset(batch, head), row, column);
#pragma unroll
    for (int w = 0; w < (Columns + 63) / 64; w++)
      kept[w] = m.dropout.drop_below > 0
                    ? kept_elements<kOfWord, ByKeys>(m, batch * heads + head, row, column + w * 64)
                    : ~0u;
  }
  // s = scale s + mask.
  __device__ __forceinline__ void change(float (&s)[Columns / 2], const ScoreMods& m,
                                         float scale) const {
    if (m.mask.data) return mask.add_to(s, m, scale);
#pragma unroll
    for (int i = 0; i < Columns / 2; i++) s[i] *= scale;
  }
  __device__ __forceinline__ bool keeps(int i) const { return kept[i / 32] >> i % 32 & 1; }
  // Packs the kept elements as fragments of the next product, rounded to T.
  __device__ __forceinline__ void pack_kept(uint32_t (&p)[Columns / 16][4],
                                            const float (&s)[Columns / 2]) const {
#pragma unroll
    for (int i = 0; i < Columns / 2; i += 2)
      p[i / 8][i % 8 / 2] = pack_pair<T>(keeps(i) ? s[i] : 0.0f, keeps(i + 1) ? s[i + 1] : 0.0f);
  }
  __device__ __forceinline__ void drop(float (&s)[Columns / 2]) const {
#pragma unroll
    for (int i = 0; i < Columns / 2; i++) s[i] = keeps(i) ? s[i] : 0.0f;
  }
};

// Neither mask nor dropout.
struct NoMods {
  static constexpr bool kPresent = false;
  __device__ __forceinline__ void load(const ScoreMods&, int64_t, int64_t, int64_t, int32_t,
                                       int32_t) {}
};

template <class T, int Columns, bool ByKeys, bool Present>
using Mods = std::conditional_t<Present, ModsFragment<T, Columns, ByKeys>, NoMods>;

// Sets scores to -inf from a column limit on: one limit for this thread's lower row, one for the
// row 8 below. Limits are relative to the thread's first column.
template <int Half>
__device__ __forceinline__ void mask_columns_from(float (&s)[Half], int32_t limit_low,
                                                  int32_t limit_high) {
#pragma unroll
  for (int i = 0; i < Half; i++)
    if (i / 4 * 8 + i % 2 >= (i % 4 < 2 ? limit_low : limit_high)) s[i] = -INFINITY;
}

// Causal mask and end of the keys: sets scores to -inf whose key does not exist or comes after the
// query. `row` and `column` are those of the thread's first element, `of_tile` is its column within
// the tile. `first_row` is the first of the rows that branch together.
template <int Half>
__device__ __forceinline__ void mask_keys(float (&s)[Half], bool causal, int32_t keys,
                                          int32_t first_row, int32_t row, int32_t column,
                                          int of_tile) {
  const int32_t end = column - of_tile + 2 * Half;
  if (end <= keys && (!causal || end - 1 <= first_row)) return;
  const int32_t low = causal && row + 1 < keys ? row + 1 : keys,
                high = causal && row + 9 < keys ? row + 9 : keys;
  mask_columns_from(s, low - column, high - column);
}

// Causal mask by keys: sets scores to -inf whose query comes before the key. `last_row` is the last
// of the rows that branch together.
template <int Half>
__device__ __forceinline__ void mask_queries(float (&s)[Half], bool causal, int32_t last_row,
                                             int32_t row, int32_t column, int of_tile) {
  if (!causal || column - of_tile >= last_row) return;
#pragma unroll
  for (int i = 0; i < Half; i++)
    if (i / 4 * 8 + i % 2 < row - column + i % 4 / 2 * 8) s[i] = -INFINITY;
}

// Running softmax state of this thread's two rows in the forward pass: largest score so far, and
// sum of P over its columns.
struct RowState {
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
};

// Replaces scores by P = exp2(scale (score - maximum)) with the maximum so far. The caller
// multiplies earlier sums by `rescale`.
template <int Half>
__device__ __forceinline__ void softmax_step(float (&s)[Half], float scale, RowState& rows,
                                             float (&rescale)[2]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float largest = rows.maximum[half];
#pragma unroll
    for (int j = 0; j < Half / 4; j++)
      largest = fmaxf(largest, fmaxf(s[j * 4 + half * 2], s[j * 4 + half * 2 + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const float base = largest == -INFINITY ? 0.0f : largest * scale;
    // Rounded like `base`: exactly 1 while the maximum does not change.
    rescale[half] = exp2_fast(__fadd_rn(__fmul_rn(rows.maximum[half], scale), -base));
    rows.maximum[half] = largest;
    float partial = 0.0f;
#pragma unroll
    for (int j = 0; j < Half / 4; j++)
#pragma unroll
      for (int i = j * 4 + half * 2; i < j * 4 + half * 2 + 2; i++) {
        s[i] = exp2_fast(__fmaf_rn(s[i], scale, -base));
        partial += s[i];
      }
    rows.sum[half] = rows.sum[half] * rescale[half] + partial;
  }
}

// Ends the forward pass: factors of the two rows' sums over values, and their lse, which goes to
// `lse` (of the head) unless that is null.
__device__ __forceinline__ void finish_rows(const RowState& rows, float scale, float keep_scale,
                                            int32_t row, int32_t queries, float* lse,
                                            float (&factors)[2]) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    factors[half] = sum == 0.0f ? 0.0f : keep_scale / sum;
    if (lse && threadIdx.x % 4 == 0 && row + half * 8 < queries)
      lse[row + half * 8] =
          sum == 0.0f ? -INFINITY : (rows.maximum[half] * scale + log2f(sum)) * kLn2;
  }
}

__device__ __forceinline__ float2 load_two(uint32_t address) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

// lse or delta of this thread's elements: by keys one for each column, in shared memory; else one
// for each of its two rows.
template <bool ByKeys>
struct StatsFragment {
  float row[2] = {0, 0};

  // The statistics of elements 4 j to 4 j + 3. `columns`: shared-memory address of the first
  // column's.
  __device__ __forceinline__ void of_four(float (&out)[4], uint32_t columns, int j) const {
    if constexpr (ByKeys) {
      const float2 pair = load_two(columns + j * 32);
      out[0] = out[2] = pair.x;
      out[1] = out[3] = pair.y;
    } else {
      out[0] = out[1] = row[0];
      out[2] = out[3] = row[1];
    }
  }
};

// Backward: s becomes P = exp2(scale s - lse). With mask or dropout s is already scaled. Beside a
// large mask value lse is rounded, so P is limited to 1.
template <bool Modified, int Half, bool ByKeys>
__device__ __forceinline__ void softmax_rescale(float (&s)[Half], float scale,
                                                const StatsFragment<ByKeys>& lse,
                                                uint32_t columns) {
#pragma unroll
  for (int j = 0; j < Half / 4; j++) {
    float l[4];
    lse.of_four(l, columns, j);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float& score = s[j * 4 + e];
      score = exp2_fast(Modified ? fminf(score, l[e]) - l[e] : __fmaf_rn(score, scale, -l[e]));
    }
  }
}

// d becomes dS = P (d - delta); d is 0 for dropped weights.
template <int Half, bool ByKeys, class M>
__device__ __forceinline__ void scores_gradient(float (&d)[Half], const float (&s)[Half],
                                                const StatsFragment<ByKeys>& delta,
                                                uint32_t columns, const M& mods, float keep_scale) {
#pragma unroll
  for (int j = 0; j < Half / 4; j++) {
    float t[4];
    delta.of_four(t, columns, j);
#pragma unroll
    for (int e = 0; e < 4; e++) {
      float& gradient = d[j * 4 + e];
      if constexpr (M::kPresent) gradient = mods.keeps(j * 4 + e) ? gradient * keep_scale : 0.0f;
      gradient = s[j * 4 + e] * (gradient - t[e]);
    }
  }
}

// The work of a block in a backward pass: the rows it owns, and the rounds in which tiles of the
// other operand pass by, over the steps of one head after the other.
struct BackwardWork {
  int32_t row0, batch, own_head, kv_head, first_head, first_step, steps, rounds;

  // C::kByKeys: the block owns kOwned rows of k and v, of key head `owner`, and queries pass by in
  // tiles of kPassing. Else it owns queries, and keys pass by. `p` has heads, kv_heads, queries,
  // keys and causal.
  template <class C, class Problem>
  __device__ __forceinline__ static BackwardWork of(const Problem& p, int32_t tile, int32_t owner) {
    const int32_t heads = static_cast<int32_t>(p.heads),
                  kv_heads = static_cast<int32_t>(p.kv_heads);
    const int32_t own_heads = C::kByKeys ? kv_heads : heads, group_size = heads / kv_heads;
    const int32_t queries = static_cast<int32_t>(p.queries), keys = static_cast<int32_t>(p.keys);
    BackwardWork place;
    place.batch = owner / own_heads;
    place.own_head = owner % own_heads;
    place.kv_head = C::kByKeys ? place.own_head : place.own_head / group_size;
    place.first_head = C::kByKeys ? place.own_head * group_size : place.own_head;
    place.row0 = tile * C::kOwned;
    // The passing rows that an owned row can attend to, or that can attend to an owned row.
    const int32_t rows = C::kByKeys ? queries : keys, end = place.row0 + C::kOwned;
    const int32_t last_seen = end < queries ? end : queries;
    const int32_t passing = !C::kByKeys && p.causal && last_seen < rows ? last_seen : rows;
    place.first_step = C::kByKeys && p.causal ? place.row0 / C::kPassing : 0;
    place.steps = (passing + C::kPassing - 1) / C::kPassing - place.first_step;
    if (place.steps < 0) place.steps = 0;
    place.rounds = place.steps * (C::kByKeys ? group_size : 1);
    return place;
  }
};

#endif

}  // namespace shardwise::cuda
