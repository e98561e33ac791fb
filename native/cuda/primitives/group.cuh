// Reads or writes G neighbouring elements of a dtype known at run time by vector accesses. The
// branch is uniform over a launch. `index` is a multiple of G and the base is aligned to 16 bytes
// (or to G elements, if that is less).
#pragma once
#include "../../include/kernel_call.h"
#include "dtype.cuh"
#include "vector.cuh"

namespace shardwise::cuda {

template <class T, class C, int G>
__device__ __forceinline__ void load_group_as(const void* base, int64_t index, C (&out)[G]) {
  const auto v = load_vec<G>(static_cast<const T*>(base) + index);
#pragma unroll
  for (int i = 0; i < G; i++) out[i] = to_compute<C>(v[i]);
}

template <class T, class C, int G>
__device__ __forceinline__ void store_group_as(void* base, int64_t index, const C (&values)[G]) {
  Vec<T, G> v;
#pragma unroll
  for (int i = 0; i < G; i++) v[i] = from_compute<T>(values[i]);
  store_global(static_cast<T*>(base) + index, v);
}

// Floating dtypes only.
template <class C, int G>
__device__ __forceinline__ void load_group_floating(const void* base, int64_t index, DType dtype,
                                                    C (&out)[G]) {
  switch (dtype) {
    case DType::Float32:
      return load_group_as<float>(base, index, out);
    case DType::Float64:
      return load_group_as<double>(base, index, out);
    case DType::Float16:
      return load_group_as<half_t>(base, index, out);
    default:
      return load_group_as<bfloat16_t>(base, index, out);
  }
}

template <class C, int G>
__device__ __forceinline__ void store_group_floating(void* base, int64_t index, DType dtype,
                                                     const C (&values)[G]) {
  switch (dtype) {
    case DType::Float32:
      return store_group_as<float>(base, index, values);
    case DType::Float64:
      return store_group_as<double>(base, index, values);
    case DType::Float16:
      return store_group_as<half_t>(base, index, values);
    default:
      return store_group_as<bfloat16_t>(base, index, values);
  }
}

template <class C, int G>
__device__ __forceinline__ void store_group_any(void* base, int64_t index, DType dtype,
                                                const C (&values)[G]) {
  switch (dtype) {
    case DType::Int64:
      return store_group_as<int64_t>(base, index, values);
    case DType::Int32:
      return store_group_as<int32_t>(base, index, values);
    case DType::Int16:
      return store_group_as<int16_t>(base, index, values);
    case DType::Int8:
      return store_group_as<int8_t>(base, index, values);
    case DType::UInt8:
      return store_group_as<uint8_t>(base, index, values);
    case DType::Bool:
      return store_group_as<bool>(base, index, values);
    default:
      return store_group_floating(base, index, dtype, values);
  }
}

// The same in two steps, so that the loads of several operands can be in flight before the first
// conversion: 4 elements of a floating dtype as words of 16 bytes. `Words` is 2 if float64 may
// occur, else 1.
template <int Words>
__device__ __forceinline__ void load_raw4(const void* base, int64_t index, DType dtype,
                                          uint4 (&raw)[Words]) {
  const char* from = static_cast<const char*>(base) + index * item_size(dtype);
  if (item_size(dtype) == 2)
    reinterpret_cast<uint2&>(raw[0]) = *reinterpret_cast<const uint2*>(from);
  else
    raw[0] = *reinterpret_cast<const uint4*>(from);
  if constexpr (Words == 2) {
    if (item_size(dtype) == 8) raw[1] = reinterpret_cast<const uint4*>(from)[1];
  }
}

template <class T, class C, int Words>
__device__ __forceinline__ void convert_raw4_as(const uint4 (&raw)[Words], C (&out)[4]) {
  const Vec<T, 4>& v = reinterpret_cast<const Vec<T, 4>&>(raw);
#pragma unroll
  for (int i = 0; i < 4; i++) out[i] = to_compute<C>(v[i]);
}

template <class C, int Words>
__device__ __forceinline__ void convert_raw4(const uint4 (&raw)[Words], DType dtype, C (&out)[4]) {
  switch (dtype) {
    case DType::Float32:
      return convert_raw4_as<float>(raw, out);
    case DType::Float16:
      return convert_raw4_as<half_t>(raw, out);
    case DType::BFloat16:
      return convert_raw4_as<bfloat16_t>(raw, out);
    default:
      if constexpr (Words == 2) convert_raw4_as<double>(raw, out);
  }
}

// Whether groups of `group` elements of a contiguous view are aligned for these accesses.
inline bool groups_aligned(const TensorView& view, int64_t group) {
  const int64_t bytes = group * item_size(view.dtype);
  return is_aligned(view.data, bytes < 16 ? bytes : 16);
}

}  // namespace shardwise::cuda
