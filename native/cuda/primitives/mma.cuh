// Tensor-core building blocks for float16 and bfloat16 (sm_80 and later): fragments of 16 x 8 x 16
// products.
//
// Lane l of a warp is in group g = l / 4 and has t = l % 4. A (16 x 16): registers 0..3 hold
// columns 2t, 2t+1 (+8 in 2, 3) of rows g (0, 2) and g + 8 (1, 3). B (16 x 8): registers 0, 1 hold
// rows 2t, 2t+1 (+8 in 1) of column g. Accumulator (16 x 8): elements 0, 1 are columns 2t, 2t+1 of
// row g, elements 2, 3 the same of row g + 8.
#pragma once
#include "async_copy.cuh"
#include "dtype.cuh"

namespace shardwise::cuda {

template <class T>
__device__ __forceinline__ void mma_16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t b0,
                                          const uint32_t b1) {
  if constexpr (std::is_same<T, bfloat16_t>::value)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Element offsets of this lane's row for load_matrices, in a tile with `pitch` elements per row of
// shared memory:
//   A of 16 x 16 from a tile stored [row][k]                  -> fragment registers 0..3
//   A of 16 x 16 from a tile stored [k][row], transposed load -> the same
//   B of 16 (k) x 16 from a tile stored [column][k]           -> registers 0, 1 of columns 0..7,
//                                                                then of columns 8..15
//   B of 16 (k) x 16 from a tile stored [k][column], transposed load -> the same
__device__ __forceinline__ int lane_of_a(int pitch) {
  const int l = threadIdx.x & 31;
  return (l & 15) * pitch + (l >> 4) * 8;
}
__device__ __forceinline__ int lane_of_a_transposed(int pitch) {
  const int l = threadIdx.x & 31;
  return ((l & 7) + (l >> 4) * 8) * pitch + ((l >> 3) & 1) * 8;
}
__device__ __forceinline__ int lane_of_b(int pitch) {
  const int l = threadIdx.x & 31;
  return ((l & 7) + (l >> 4) * 8) * pitch + ((l >> 3) & 1) * 8;
}
__device__ __forceinline__ int lane_of_b_transposed(int pitch) {
  const int l = threadIdx.x & 31;
  return ((l & 7) + ((l >> 3) & 1) * 8) * pitch + (l >> 4) * 8;
}

// Two floats as a pair of 16-bit elements, the first in the low half.
template <class T>
__device__ __forceinline__ uint32_t pack_pair(float first, float second) {
  if constexpr (std::is_same<T, bfloat16_t>::value) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }
}

// Fills the 16 bytes at `to` in shared memory with 8 elements at distance `stride`; the first
// `count` exist (0 to 8), the rest become zeros. Vectors: the stride is 1 and `from` is 16-byte
// aligned, so that cp.async copies them.
template <bool Vectors>
__device__ __forceinline__ void fill_chunk(uint16_t* to, const uint16_t* from, int count,
                                           int64_t stride) {
  if constexpr (Vectors) {
    copy_async(to, from, count * 2);
  } else {
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (i < count) words[i / 2] |= static_cast<uint32_t>(from[i * stride]) << (i % 2 * 16);
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

}  // namespace shardwise::cuda
