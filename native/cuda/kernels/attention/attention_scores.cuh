// What the tensor-core kernels do with the scores that a thread holds: a mask and dropout, the
// causal order, exponentials.
//
// A warp has 16 rows of scores, a thread of it `Columns` / 2: its element 4 j + e is of row `row` +
// e / 2 * 8 and column `column` + 8 j + e % 2 (mma.cuh), rows being queries and columns keys;
// ByKeys: rows are keys, columns queries. Rows of a warp begin at a multiple of 16, columns of a
// tile at one of 8.
#pragma once
#include "../../primitives/mma.cuh"
#include "attention.cuh"

namespace shardwise::cuda {

// Masks that the tensor-core kernels take: bool, or of the operands' dtype.
inline bool mask_fits(const AttentionProblem& p) {
  return !p.mask.data || p.mask_dtype == DType::Bool || p.mask_dtype == p.dtype;
}

#if defined(__CUDACC__)

// Of a mask, what is added to this thread's scores, as it lies in memory.
template <class T, int Columns, bool ByKeys>
struct MaskFragment {
  // 2 j + half: of elements 4 j + 2 half (in the low half, of a bool the low byte) and the next
  uint32_t pairs[Columns / 4];

  // `base`: of the head. Places that do not exist get what is at the nearest one that does.
  __device__ __forceinline__ void load(const ScoreMods& m, int64_t base, int32_t row,
                                       int32_t column) {
    if (m.mask_dtype == DType::Bool)
      load_as<uint8_t, uint16_t>(m, base, row, column);
    else
      load_as<uint16_t, uint32_t>(m, base, row, column);
  }

  // s = scale s + mask, in powers of 2.
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

// Which of the 8 keys of a counter survive dropout: key k at bit k.
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

// Which of this thread's elements of up to 64 columns survive dropout: element i at bit i. Lanes
// draw for each other, every counter once: in byte n of a lane's word are the 8 keys of a counter
// of columns 8 j to 8 j + 7, j being 2 n or 2 n + 1.
template <int Columns, bool ByKeys>
__device__ __forceinline__ uint32_t kept_elements(const ScoreMods& m, int64_t head_index,
                                                  int32_t row, int32_t column) {
  static_assert(Columns % 16 == 0 && Columns <= 64, "one bit per element");
  // of 8 or 4 lanes that draw for each other
  const int lane = threadIdx.x & 31, own = ByKeys ? lane >> 2 : lane & 3;
  // Of `own` bit 0 says which column (by keys) or row of two, by keys bit 1 which row of two, and
  // the last one whether j is odd.
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

// Both, of a thread's elements of a tile.
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
  // s = scale s, and the mask.
  __device__ __forceinline__ void change(float (&s)[Columns / 2], const ScoreMods& m,
                                         float scale) const {
    if (m.mask.data) return mask.add_to(s, m, scale);
#pragma unroll
    for (int i = 0; i < Columns / 2; i++) s[i] *= scale;
  }
  __device__ __forceinline__ bool keeps(int i) const { return kept[i / 32] >> i % 32 & 1; }
  // As fragments of the next product, rounded to T.
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

// Where there are neither.
struct NoMods {
  static constexpr bool kPresent = false;
  __device__ __forceinline__ void load(const ScoreMods&, int64_t, int64_t, int64_t, int32_t,
                                       int32_t) {}
};

template <class T, int Columns, bool ByKeys, bool Present>
using Mods = std::conditional_t<Present, ModsFragment<T, Columns, ByKeys>, NoMods>;

// Scores of columns from a limit on become -inf: one limit for this thread's lower row, one for the
// row 8 below. Limits are relative to the thread's first column.
template <int Half>
__device__ __forceinline__ void mask_columns_from(float (&s)[Half], int32_t limit_low,
                                                  int32_t limit_high) {
#pragma unroll
  for (int i = 0; i < Half; i++)
    if (i / 4 * 8 + i % 2 >= (i % 4 < 2 ? limit_low : limit_high)) s[i] = -INFINITY;
}

// Hides keys that do not exist, or come after the query. `row` and `column` are those of the
// thread's first element, which is at `of_tile` of its tile's columns; the first of the rows that
// branch together is `first_row`.
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

// By keys: hides queries before the key. The last of the rows that branch together is `last_row`.
template <int Half>
__device__ __forceinline__ void mask_queries(float (&s)[Half], bool causal, int32_t last_row,
                                             int32_t row, int32_t column, int of_tile) {
  if (!causal || column - of_tile >= last_row) return;
#pragma unroll
  for (int i = 0; i < Half; i++)
    if (i / 4 * 8 + i % 2 < row - column + i % 4 / 2 * 8) s[i] = -INFINITY;
}

// Of this thread's two rows, from tile to tile of the forward pass: the largest score so far, and
// the sum of P over its columns.
struct RowState {
  float maximum[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
};

// Replaces scores by P = exp2(scale (score - maximum)) with the maximum so far; `rescale` is what
// earlier sums have to be multiplied by.
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
    // Rounded as `base` is: while the maximum stays, this is 1.
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

// At the end: factors of the two rows' sums over values, and their lse, written to `lse` (of the
// head) where it is wanted.
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

// lse or delta of this thread's elements: by keys of its columns, in shared memory, else of its two
// rows.
template <bool ByKeys>
struct StatsFragment {
  float row[2] = {0, 0};

  // Those of elements 4 j to 4 j + 3. `columns`: the address of its first column's.
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

// The backward pass: s becomes P = exp2(scale s - lse). With mods s has its scale already; beside a
// large number of a mask lse is rounded, but P is never above 1.
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

// d becomes dS = P (d - delta), d being 0 where it is dropped.
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

// The rows that a block owns, and the rounds in which tiles of the other side pass by: over the
// steps of one head after the other.
struct BackwardWork {
  int32_t row0, batch, own_head, kv_head, first_head, first_step, steps, rounds;

  // C::kByKeys: owns kOwned rows of keys and values, of head `owner` of all key heads, and queries
  // pass by in tiles of kPassing; else the other way round. `p` has heads, kv_heads, queries, keys
  // and causal.
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
    // Of what passes by, the rows that can see, or be seen by, the owned ones.
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
