// Words are 16 bytes of elements of a row at any address, for kernels whose operands do not share
// the alignment of a row (row_tile.cuh serves those that do). Words stay packed until their use:
// unpacked 16-bit elements would take a register each, and two instructions more.
#pragma once
#include "packed.cuh"
#include "row_tile.cuh"

namespace shardwise::cuda {

// unpack and pack, for float64 too.
template <class T>
__device__ __forceinline__ void unpack_words(const uint4& words, compute_t<T> (&out)[kVec16<T>]) {
  if constexpr (sizeof(T) == 8) {
    out[0] = __hiloint2double(words.y, words.x);
    out[1] = __hiloint2double(words.w, words.z);
  } else {
    unpack<T>(words, out);
  }
}

template <class T>
__device__ __forceinline__ uint4 pack_words(const compute_t<T> (&values)[kVec16<T>]) {
  if constexpr (sizeof(T) == 8)
    return make_uint4(__double2loint(values[0]), __double2hiint(values[0]),
                      __double2loint(values[1]), __double2hiint(values[1]));
  else
    return pack<T>(values);
}

namespace detail {

// Loads elements [first, first + V) one by one; 0 outside the row. load_masked instead costs the
// forward pass of norms 2 to 6 %.
template <class T, class Index>
__device__ __forceinline__ uint4 words_of_elements(const T* row, Index first, Index n) {
  constexpr int V = kVec16<T>;
  Vec<T, V> elements;
#pragma unroll
  for (int i = 0; i < V; i++)
    elements[i] =
        first + i >= 0 && first + i < n ? row[first + i] : from_compute<T>(compute_t<T>(0));
  return *reinterpret_cast<const uint4*>(&elements);
}

// The 16 bytes at offset `bytes` of low and high together.
template <class T>
__device__ __forceinline__ uint4 join_words(const uint4& low, const uint4& high, uint32_t bytes) {
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 6; i++) words[i] = bytes & 8 ? words[i + 2] : words[i];
  if constexpr (sizeof(T) < 8)
#pragma unroll
    for (int i = 0; i < 5; i++) words[i] = bytes & 4 ? words[i + 1] : words[i];
  if constexpr (sizeof(T) < 4)
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = __funnelshift_r(words[i], words[i + 1], (bytes & 2) * 8);
  return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace detail

// Loads V elements at any address by the two aligned vectors around them; the second is mostly in
// L1.
template <class T>
__device__ __forceinline__ uint4 load_words_across(const T* from) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  const auto bytes = static_cast<uint32_t>(address & 15);
  const uint4* vectors = reinterpret_cast<const uint4*>(address - bytes);
  return detail::join_words<T>(__ldca(vectors), __ldca(vectors + (bytes != 0)), bytes);
}

// Loads elements [first, first + V) of a row of n at any address, 0 outside it.
template <class T, class Index>
__device__ __forceinline__ uint4 load_words_anywhere(const T* row, Index first, Index n) {
  constexpr int V = kVec16<T>;
  if (n < V) return detail::words_of_elements(row, first, n);
  // At an end of the row it loads the V elements there and shifts them: no load is in a divergent
  // branch.
  const Index from = first < 0 ? 0 : first + V <= n ? first : n - V;
  const uint4 words = load_words_across(row + from), nothing = make_uint4(0, 0, 0, 0);
  if (first == from) return words;
  if (first + V <= 0 || first >= n) return nothing;
  const auto moved = static_cast<int32_t>(first - from) * static_cast<int32_t>(sizeof(T));
  return moved > 0 ? detail::join_words<T>(words, nothing, moved)
                   : detail::join_words<T>(nothing, words, 16 + moved);
}

// The same if row + first is 16-byte aligned.
template <class T, class Index>
__device__ __forceinline__ uint4 load_words(const T* row, Index first, Index n) {
  if (first >= 0 && first + kVec16<T> <= n) return *reinterpret_cast<const uint4*>(row + first);
  if (first >= n) return make_uint4(0, 0, 0, 0);
  return load_words_anywhere(row, first, n);
}

// `vectors` false: row + first is not aligned.
template <class T, class Index>
__device__ __forceinline__ void store_words(T* row, Index first, Index n, const uint4& words,
                                            bool vectors = true) {
  if (vectors && first >= 0 && first + kVec16<T> <= n) {
    __stwb(reinterpret_cast<uint4*>(row + first), words);
    return;
  }
  store_masked<kVec16<T>>(row, first, n, *reinterpret_cast<const Vec<T, kVec16<T>>*>(&words),
                          false);
}

}  // namespace shardwise::cuda
