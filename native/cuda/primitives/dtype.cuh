// Element types on the device: the C++ type of a dtype, the type it computes in, conversions, and
// dispatch from a dtype to code.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../../include/dtype.h"

namespace shardwise::cuda {

using half_t = __half;
using bfloat16_t = __nv_bfloat16;

// Compute type: float for float32, float16, bfloat16; double for float64; int64_t for integers and
// bool.
template <class T>
struct ComputeOf {
  using type = int64_t;
};
template <>
struct ComputeOf<float> {
  using type = float;
};
template <>
struct ComputeOf<half_t> {
  using type = float;
};
template <>
struct ComputeOf<bfloat16_t> {
  using type = float;
};
template <>
struct ComputeOf<double> {
  using type = double;
};
template <class T>
using compute_t = typename ComputeOf<T>::type;

template <class T>
struct IsFloating {
  static constexpr bool value = false;
};
template <>
struct IsFloating<float> {
  static constexpr bool value = true;
};
template <>
struct IsFloating<half_t> {
  static constexpr bool value = true;
};
template <>
struct IsFloating<bfloat16_t> {
  static constexpr bool value = true;
};
template <>
struct IsFloating<double> {
  static constexpr bool value = true;
};

// element -> compute type C (any pair)
template <class C, class T>
__device__ __forceinline__ C to_compute(T value) {
  return static_cast<C>(value);
}
template <>
__device__ __forceinline__ float to_compute<float, half_t>(half_t v) {
  return __half2float(v);
}
template <>
__device__ __forceinline__ float to_compute<float, bfloat16_t>(bfloat16_t v) {
  return __bfloat162float(v);
}
template <>
__device__ __forceinline__ double to_compute<double, half_t>(half_t v) {
  return __half2float(v);
}
template <>
__device__ __forceinline__ double to_compute<double, bfloat16_t>(bfloat16_t v) {
  return __bfloat162float(v);
}
template <>
__device__ __forceinline__ int64_t to_compute<int64_t, half_t>(half_t v) {
  return static_cast<int64_t>(__half2float(v));
}
template <>
__device__ __forceinline__ int64_t to_compute<int64_t, bfloat16_t>(bfloat16_t v) {
  return static_cast<int64_t>(__bfloat162float(v));
}

// compute type -> element, rounding to nearest even; a float becomes an integer through int64
// (truncation), bool is != 0. float64 -> bfloat16 and float16 round once.
template <class T>
struct FromCompute {
  static __device__ __forceinline__ T convert(float v) {
    return static_cast<T>(static_cast<int64_t>(v));
  }
  static __device__ __forceinline__ T convert(double v) {
    return static_cast<T>(static_cast<int64_t>(v));
  }
  static __device__ __forceinline__ T convert(int64_t v) { return static_cast<T>(v); }
};
template <>
struct FromCompute<bool> {
  template <class C>
  static __device__ __forceinline__ bool convert(C v) {
    return v != C(0);
  }
};
template <>
struct FromCompute<float> {
  template <class C>
  static __device__ __forceinline__ float convert(C v) {
    return static_cast<float>(v);
  }
};
template <>
struct FromCompute<double> {
  template <class C>
  static __device__ __forceinline__ double convert(C v) {
    return static_cast<double>(v);
  }
};
template <>
struct FromCompute<half_t> {
  static __device__ __forceinline__ half_t convert(float v) { return __float2half_rn(v); }
  static __device__ __forceinline__ half_t convert(double v) { return __double2half(v); }
  static __device__ __forceinline__ half_t convert(int64_t v) {
    return __double2half(static_cast<double>(v));
  }
};
template <>
struct FromCompute<bfloat16_t> {
  static __device__ __forceinline__ bfloat16_t convert(float v) { return __float2bfloat16_rn(v); }
  static __device__ __forceinline__ bfloat16_t convert(double v) { return __double2bfloat16(v); }
  static __device__ __forceinline__ bfloat16_t convert(int64_t v) {
    return __double2bfloat16(static_cast<double>(v));
  }
};
template <class T, class C>
__device__ __forceinline__ T from_compute(C value) {
  return FromCompute<T>::convert(value);
}

// A bool element may hold any byte; it is read as byte != 0.
template <class T>
__device__ __forceinline__ T load_element(const T* p) {
  return *p;
}
template <>
__device__ __forceinline__ bool load_element<bool>(const bool* p) {
  return *reinterpret_cast<const uint8_t*>(p) != 0;
}

// U elements of `base` (at the given offsets) whose dtype is known at run time only. The branch is
// uniform over a launch; the U loads are in flight together.
template <class T, class C, int U, class Offset>
__device__ __forceinline__ void load_as(const void* base, const Offset (&at)[U], C (&out)[U]) {
  T raw[U];
#pragma unroll
  for (int u = 0; u < U; u++) raw[u] = static_cast<const T*>(base)[at[u]];
#pragma unroll
  for (int u = 0; u < U; u++) out[u] = to_compute<C>(raw[u]);
}

template <class C, int U, class Offset>
__device__ __forceinline__ void load_any(const void* base, const Offset (&at)[U], DType dtype,
                                         C (&out)[U]) {
  switch (dtype) {
    case DType::Float32:
      return load_as<float>(base, at, out);
    case DType::Float64:
      return load_as<double>(base, at, out);
    case DType::Float16:
      return load_as<half_t>(base, at, out);
    case DType::BFloat16:
      return load_as<bfloat16_t>(base, at, out);
    case DType::Int64:
      return load_as<int64_t>(base, at, out);
    case DType::Int32:
      return load_as<int32_t>(base, at, out);
    case DType::Int16:
      return load_as<int16_t>(base, at, out);
    case DType::Int8:
      return load_as<int8_t>(base, at, out);
    case DType::UInt8:
      return load_as<uint8_t>(base, at, out);
    default:
      load_as<uint8_t>(base, at, out);
#pragma unroll
      for (int u = 0; u < U; u++) out[u] = out[u] != C(0) ? C(1) : C(0);
  }
}

template <class C>
__device__ __forceinline__ C load_any(const void* base, int64_t index, DType dtype) {
  const int64_t at[1] = {index};
  C out[1];
  load_any<C>(base, at, dtype, out);
  return out[0];
}

// The counterpart: stores the elements u with `valid[u]`.
template <class T, class C, int U, class Offset>
__device__ __forceinline__ void store_as(void* base, const Offset (&at)[U], const C (&values)[U],
                                         const bool (&valid)[U]) {
#pragma unroll
  for (int u = 0; u < U; u++)
    if (valid[u]) static_cast<T*>(base)[at[u]] = from_compute<T>(values[u]);
}

template <class C, int U, class Offset>
__device__ __forceinline__ void store_any(void* base, const Offset (&at)[U], DType dtype,
                                          const C (&values)[U], const bool (&valid)[U]) {
  switch (dtype) {
    case DType::Float32:
      return store_as<float>(base, at, values, valid);
    case DType::Float64:
      return store_as<double>(base, at, values, valid);
    case DType::Float16:
      return store_as<half_t>(base, at, values, valid);
    case DType::BFloat16:
      return store_as<bfloat16_t>(base, at, values, valid);
    case DType::Int64:
      return store_as<int64_t>(base, at, values, valid);
    case DType::Int32:
      return store_as<int32_t>(base, at, values, valid);
    case DType::Int16:
      return store_as<int16_t>(base, at, values, valid);
    case DType::Int8:
      return store_as<int8_t>(base, at, values, valid);
    case DType::UInt8:
      return store_as<uint8_t>(base, at, values, valid);
    default:
      return store_as<bool>(base, at, values, valid);
  }
}

template <class C>
__device__ __forceinline__ void store_any(void* base, int64_t index, DType dtype, C value) {
  const int64_t at[1] = {index};
  const C values[1] = {value};
  const bool valid[1] = {true};
  store_any<C>(base, at, dtype, values, valid);
}

// The same for the dtypes that a pointwise op of compute type C reads (only integers for int64) and
// writes (its own class, or bool for a comparison): a third of the code.
template <class C, int U, class Offset>
__device__ __forceinline__ void load_class(const void* base, const Offset (&at)[U], DType dtype,
                                           C (&out)[U]) {
  if constexpr (IsFloating<C>::value) {
    load_any<C>(base, at, dtype, out);
  } else {
    switch (dtype) {
      case DType::Int64:
        return load_as<int64_t>(base, at, out);
      case DType::Int32:
        return load_as<int32_t>(base, at, out);
      case DType::Int16:
        return load_as<int16_t>(base, at, out);
      case DType::Int8:
        return load_as<int8_t>(base, at, out);
      case DType::UInt8:
        return load_as<uint8_t>(base, at, out);
      default:
        load_as<uint8_t>(base, at, out);
#pragma unroll
        for (int u = 0; u < U; u++) out[u] = out[u] != 0 ? 1 : 0;
    }
  }
}

template <bool Bool, class C, int U, class Offset>
__device__ __forceinline__ void store_class(void* base, const Offset (&at)[U], DType dtype,
                                            const C (&values)[U], const bool (&valid)[U]) {
  if constexpr (Bool) {
    store_as<bool>(base, at, values, valid);
  } else if constexpr (IsFloating<C>::value) {
    switch (dtype) {
      case DType::Float32:
        return store_as<float>(base, at, values, valid);
      case DType::Float64:
        return store_as<double>(base, at, values, valid);
      case DType::Float16:
        return store_as<half_t>(base, at, values, valid);
      default:
        return store_as<bfloat16_t>(base, at, values, valid);
    }
  } else {
    switch (dtype) {
      case DType::Int64:
        return store_as<int64_t>(base, at, values, valid);
      case DType::Int32:
        return store_as<int32_t>(base, at, values, valid);
      case DType::Int16:
        return store_as<int16_t>(base, at, values, valid);
      case DType::Bool:
        return store_as<bool>(base, at, values, valid);
      default:
        return store_as<uint8_t>(base, at, values, valid);  // int8 has the same low byte
    }
  }
}

// Whether store_class writes this dtype.
template <class C>
inline bool storable(DType dtype, bool gives_bool) {
  return gives_bool ? dtype == DType::Bool : is_floating(dtype) == IsFloating<C>::value;
}

// A parameter or immediate as a compute type; integers saturate, NaN is 0.
template <class C>
inline C number_as(double value) {
  if constexpr (IsFloating<C>::value) {
    return static_cast<C>(value);
  } else {
    if (value >= 9223372036854775807.0) return INT64_MAX;
    if (value <= -9223372036854775808.0) return INT64_MIN;
    return value == value ? static_cast<C>(value) : 0;
  }
}

template <class T>
struct TypeTag {
  using type = T;
};
template <class Tag>
using tag_t = typename Tag::type;

// dispatch_*(dtype, [&](auto tag) { using T = tag_t<decltype(tag)>; ... }) runs the body for the
// dtype's C++ type and returns true, or returns false if the dtype is not of the class.
template <class F>
inline bool dispatch_floating(DType dtype, F&& body) {
  switch (dtype) {
    case DType::Float32:
      body(TypeTag<float>{});
      return true;
    case DType::Float64:
      body(TypeTag<double>{});
      return true;
    case DType::Float16:
      body(TypeTag<half_t>{});
      return true;
    case DType::BFloat16:
      body(TypeTag<bfloat16_t>{});
      return true;
    default:
      return false;
  }
}

template <class F>
inline bool dispatch_integer(DType dtype, F&& body) {
  switch (dtype) {
    case DType::Int64:
      body(TypeTag<int64_t>{});
      return true;
    case DType::Int32:
      body(TypeTag<int32_t>{});
      return true;
    case DType::Int16:
      body(TypeTag<int16_t>{});
      return true;
    case DType::Int8:
      body(TypeTag<int8_t>{});
      return true;
    case DType::UInt8:
      body(TypeTag<uint8_t>{});
      return true;
    case DType::Bool:
      body(TypeTag<bool>{});
      return true;
    default:
      return false;
  }
}

template <class F>
inline bool dispatch_all(DType dtype, F&& body) {
  return dispatch_floating(dtype, body) || dispatch_integer(dtype, body);
}

// For kernels that only copy elements: one instantiation per size.
template <class F>
inline void dispatch_size(DType dtype, F&& body) {
  switch (item_size(dtype)) {
    case 8:
      body(TypeTag<uint64_t>{});
      break;
    case 4:
      body(TypeTag<uint32_t>{});
      break;
    case 2:
      body(TypeTag<uint16_t>{});
      break;
    default:
      body(TypeTag<uint8_t>{});
      break;
  }
}

}  // namespace shardwise::cuda
