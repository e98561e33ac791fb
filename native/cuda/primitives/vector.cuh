// Vector loads and stores: up to 16 bytes of one element type in a register array.
#pragma once
#include <cstdint>

#include "../../include/dtype.h"

namespace shardwise::cuda {

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T at[N];
  __device__ __forceinline__ T& operator[](int i) { return at[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return at[i]; }
};

// Elements of T in 16 bytes.
template <class T>
constexpr int kVec16 = 16 / static_cast<int>(sizeof(T));
inline int64_t vec16(DType dtype) { return 16 / item_size(dtype); }

namespace detail {
template <int Bytes>
struct Word;
template <>
struct Word<16> {
  using type = uint4;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<4> {
  using type = uint32_t;
};
template <>
struct Word<2> {
  using type = uint16_t;
};
template <>
struct Word<1> {
  using type = uint8_t;
};
}  // namespace detail

// `p` must be aligned to sizeof(T) * N, which is 1, 2, 4, 8, 16, or a multiple of 16.
template <int N, class T>
__device__ __forceinline__ Vec<T, N> load_vec(const T* p) {
  Vec<T, N> v;
  constexpr int bytes = sizeof(T) * N;
  if constexpr (bytes > 16) {
#pragma unroll
    for (int i = 0; i < bytes / 16; i++)
      reinterpret_cast<uint4*>(&v)[i] = reinterpret_cast<const uint4*>(p)[i];
  } else {
    using W = typename detail::Word<bytes>::type;
    *reinterpret_cast<W*>(&v) = *reinterpret_cast<const W*>(p);
  }
  return v;
}

template <int N, class T>
__device__ __forceinline__ void store_vec(T* p, const Vec<T, N>& v) {
  constexpr int bytes = sizeof(T) * N;
  if constexpr (bytes > 16) {
#pragma unroll
    for (int i = 0; i < bytes / 16; i++)
      reinterpret_cast<uint4*>(p)[i] = reinterpret_cast<const uint4*>(&v)[i];
  } else {
    using W = typename detail::Word<bytes>::type;
    *reinterpret_cast<W*>(p) = *reinterpret_cast<const W*>(&v);
  }
}

// store_vec to global memory (not shared). In loops the compiler splits plain 16-byte stores into
// elements, but not these.
template <int N, class T>
__device__ __forceinline__ void store_global(T* p, const Vec<T, N>& v) {
  constexpr int bytes = sizeof(T) * N;
  if constexpr (bytes < 8) {
    store_vec(p, v);
  } else {
    uint32_t words[bytes / 4] = {};
#pragma unroll
    for (int i = 0; i < N; i++) {
      if constexpr (sizeof(T) < 4) {
        const auto bits = reinterpret_cast<const typename detail::Word<sizeof(T)>::type&>(v.at[i]);
        words[i * sizeof(T) / 4] |= static_cast<uint32_t>(bits) << (i * sizeof(T) % 4 * 8);
      } else {
#pragma unroll
        for (int w = 0; w < static_cast<int>(sizeof(T) / 4); w++)
          words[i * sizeof(T) / 4 + w] = reinterpret_cast<const uint32_t*>(&v.at[i])[w];
      }
    }
    if constexpr (bytes == 8) {
      __stwb(reinterpret_cast<uint2*>(p), make_uint2(words[0], words[1]));
    } else {
#pragma unroll
      for (int i = 0; i < bytes / 16; i++)
        __stwb(reinterpret_cast<uint4*>(p) + i,
               make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]));
    }
  }
}

inline bool is_aligned(const void* p, int64_t bytes) {
  return (reinterpret_cast<uintptr_t>(p) & (bytes - 1)) == 0;
}

}  // namespace shardwise::cuda
