// Conversions between element types in memory and compute types: scalars, contiguous runs, and
// strided chunks of a view gathered into (scattered from) a buffer. Everything has internal
// linkage, so it may be compiled per instruction set.
//
//   gather(dtype, from, stride, buffer, n)  n elements at from[i * stride] -> T buffer[n],
//                                           T = float, double or int64_t
//   scatter(dtype, buffer, to, stride, n)   the inverse; also from uint8_t (0 or 1)
//   gather(view, begin, n, buffer)          elements [begin, begin + n) of a view, row-major
//   scatter(view, begin, n, buffer)
//
// Low-precision floats round to nearest even; a double is converted by way of float. Float to
// integer truncates (values out of range give the machine's result), to bool is != 0.
#pragma once
#include <cstdint>
#include <cstring>

#include "../include/dtype.h"
#include "../include/kernel_call.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace shardwise::cpu {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};
struct Boolean {
  uint8_t value;
};

#define SW_CONVERT [[maybe_unused]] static inline __attribute__((always_inline))

SW_CONVERT float to_float(BFloat16 v) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(v.bits) << 16);
}

SW_CONVERT float to_float(Half v) {
  uint32_t magnitude = static_cast<uint32_t>(v.bits & 0x7fff) << 13;
  // The multiplication moves the exponent bias and normalises denormals; infinity and NaN need
  // their exponent back.
  uint32_t r = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, magnitude) * 0x1p112f);
  r |= magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
  return __builtin_bit_cast(float, r | static_cast<uint32_t>(v.bits & 0x8000) << 16);
}

SW_CONVERT BFloat16 to_bfloat16(float v) {
  uint32_t b = __builtin_bit_cast(uint32_t, v);
  uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
  uint32_t nan = (b >> 16) | 0x40u;
  return {static_cast<uint16_t>((b & 0x7fffffffu) > 0x7f800000u ? nan : rounded)};
}

SW_CONVERT Half to_half(float v) {
  uint32_t b = __builtin_bit_cast(uint32_t, v);
  uint32_t a = b & 0x7fffffffu;
  uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  // 0.5 has the unit of float16 denormals as its last bit: the addition rounds them.
  uint32_t tiny = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, a) + 0.5f) - 0x3f000000u;
  uint32_t r = a < 0x38800000u ? tiny : normal;
  r = a >= 0x477ff000u ? 0x7c00u : r;
  r = a > 0x7f800000u ? 0x7e00u | ((a >> 13) & 0x3ffu) : r;
  return {static_cast<uint16_t>(r | ((b >> 16) & 0x8000u))};
}

// convert(v, To*) picks by type; the pointer is never read.
template <class From, class To>
SW_CONVERT To convert(From v, To*) {
  return static_cast<To>(v);
}
template <class To>
SW_CONVERT To convert(Half v, To*) {
  return static_cast<To>(to_float(v));
}
template <class To>
SW_CONVERT To convert(BFloat16 v, To*) {
  return static_cast<To>(to_float(v));
}
template <class To>
SW_CONVERT To convert(Boolean v, To*) {
  return static_cast<To>(v.value);
}
template <class From>
SW_CONVERT Half convert(From v, Half*) {
  return to_half(static_cast<float>(v));
}
template <class From>
SW_CONVERT BFloat16 convert(From v, BFloat16*) {
  return to_bfloat16(static_cast<float>(v));
}
template <class From>
SW_CONVERT Boolean convert(From v, Boolean*) {
  return {static_cast<uint8_t>(v != From(0))};
}
// Through int32: vectorises, and wraps as PyTorch's casts do.
SW_CONVERT int16_t convert(float v, int16_t*) {
  return static_cast<int16_t>(static_cast<int32_t>(v));
}
SW_CONVERT int16_t convert(double v, int16_t*) {
  return static_cast<int16_t>(static_cast<int32_t>(v));
}
SW_CONVERT int8_t convert(float v, int8_t*) { return static_cast<int8_t>(static_cast<int32_t>(v)); }
SW_CONVERT int8_t convert(double v, int8_t*) {
  return static_cast<int8_t>(static_cast<int32_t>(v));
}
SW_CONVERT uint8_t convert(float v, uint8_t*) {
  return static_cast<uint8_t>(static_cast<int32_t>(v));
}
SW_CONVERT uint8_t convert(double v, uint8_t*) {
  return static_cast<uint8_t>(static_cast<int32_t>(v));
}

template <class From, class To>
SW_CONVERT void convert_run(const From* from, To* to, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) to[i] = convert(from[i], static_cast<To*>(nullptr));
}

#if defined(__F16C__)
SW_CONVERT void convert_run(const Half* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < n; i++) to[i] = to_float(from[i]);
}
SW_CONVERT void convert_run(const float* from, Half* to, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m128i h =
        _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), h);
  }
  for (; i < n; i++) to[i] = to_half(from[i]);
}
#endif

template <class From, class To>
SW_CONVERT void gather_as(const void* from, int64_t stride, To* to, int64_t n) {
  const From* source = static_cast<const From*>(from);
  if (stride == 1) {
    convert_run(source, to, n);
  } else if (stride == 0) {
    const To value = convert(source[0], static_cast<To*>(nullptr));
    for (int64_t i = 0; i < n; i++) to[i] = value;
  } else {
    for (int64_t i = 0; i < n; i++) to[i] = convert(source[i * stride], static_cast<To*>(nullptr));
  }
}

template <class To, class From>
SW_CONVERT void scatter_as(const From* from, void* to, int64_t stride, int64_t n) {
  To* target = static_cast<To*>(to);
  if (stride == 1) {
    convert_run(from, target, n);
  } else {
    for (int64_t i = 0; i < n; i++)
      target[i * stride] = convert(from[i], static_cast<To*>(nullptr));
  }
}

template <class To>
[[maybe_unused]] static __attribute__((noinline)) void gather(DType dtype, const void* from,
                                                              int64_t stride, To* to, int64_t n) {
  switch (dtype) {
    case DType::Float32:
      return gather_as<float>(from, stride, to, n);
    case DType::Float64:
      return gather_as<double>(from, stride, to, n);
    case DType::Float16:
      return gather_as<Half>(from, stride, to, n);
    case DType::BFloat16:
      return gather_as<BFloat16>(from, stride, to, n);
    case DType::Int64:
      return gather_as<int64_t>(from, stride, to, n);
    case DType::Int32:
      return gather_as<int32_t>(from, stride, to, n);
    case DType::Int16:
      return gather_as<int16_t>(from, stride, to, n);
    case DType::Int8:
      return gather_as<int8_t>(from, stride, to, n);
    case DType::UInt8:
      return gather_as<uint8_t>(from, stride, to, n);
    case DType::Bool:
      return gather_as<Boolean>(from, stride, to, n);
  }
}

template <class From>
[[maybe_unused]] static __attribute__((noinline)) void scatter(DType dtype, const From* from,
                                                               void* to, int64_t stride,
                                                               int64_t n) {
  switch (dtype) {
    case DType::Float32:
      return scatter_as<float>(from, to, stride, n);
    case DType::Float64:
      return scatter_as<double>(from, to, stride, n);
    case DType::Float16:
      return scatter_as<Half>(from, to, stride, n);
    case DType::BFloat16:
      return scatter_as<BFloat16>(from, to, stride, n);
    case DType::Int64:
      return scatter_as<int64_t>(from, to, stride, n);
    case DType::Int32:
      return scatter_as<int32_t>(from, to, stride, n);
    case DType::Int16:
      return scatter_as<int16_t>(from, to, stride, n);
    case DType::Int8:
      return scatter_as<int8_t>(from, to, stride, n);
    case DType::UInt8:
      return scatter_as<uint8_t>(from, to, stride, n);
    case DType::Bool:
      return scatter_as<Boolean>(from, to, stride, n);
  }
}

// The address of an element, `offset` elements behind `data`.
SW_CONVERT char* element_at(const void* data, DType dtype, int64_t offset) {
  return static_cast<char*>(const_cast<void*>(data)) + offset * item_size(dtype);
}

// Whether all elements of a view are one.
SW_CONVERT bool is_constant(const TensorView& view) {
  if (view.is_immediate) return true;
  for (int32_t d = 0; d < view.ndim; d++) {
    if (view.strides[d] != 0 && view.sizes[d] != 1) return false;
  }
  return true;
}

// The offset of an element of a view from its row-major linear index.
SW_CONVERT int64_t offset_of(const TensorView& view, int64_t index) {
  int64_t offset = 0;
  for (int32_t d = view.ndim - 1; d > 0; d--) {
    offset += index % view.sizes[d] * view.strides[d];
    index /= view.sizes[d];
  }
  return view.ndim > 0 ? offset + index * view.strides[0] : 0;
}

// Calls run(offset, done, length) for the runs along the last dim that make up elements [begin,
// begin + n) of a view: `offset` is the start of the run, `done` the number of elements before it.
template <class Run>
SW_CONVERT void for_each_run(const TensorView& view, int64_t begin, int64_t n, Run run) {
  if (n <= 0) return;
  if (view.ndim == 0) return run(0, 0, n);
  const int32_t last = view.ndim - 1;
  const int64_t width = view.sizes[last];
  if (last == 0) return run(begin * view.strides[0], 0, n);
  int64_t coord[kMaxDims];
  int64_t row = begin / width;
  int64_t column = begin - row * width;
  int64_t base = 0;
  for (int32_t d = last - 1; d >= 0; d--) {
    coord[d] = d > 0 ? row % view.sizes[d] : row;
    row = d > 0 ? row / view.sizes[d] : 0;
    base += coord[d] * view.strides[d];
  }
  for (int64_t done = 0; done < n;) {
    const int64_t left = n - done;
    const int64_t length = width - column < left ? width - column : left;
    run(base + column * view.strides[last], done, length);
    done += length;
    column = 0;
    for (int32_t d = last - 1; d >= 0; d--) {
      base += view.strides[d];
      if (++coord[d] < view.sizes[d]) break;
      base -= coord[d] * view.strides[d];
      coord[d] = 0;
    }
  }
}

template <class To>
SW_CONVERT void gather(const TensorView& view, int64_t begin, int64_t n, To* to) {
  const int64_t stride = view.ndim > 0 ? view.strides[view.ndim - 1] : 1;
  for_each_run(view, begin, n, [&](int64_t offset, int64_t done, int64_t length) {
    gather(view.dtype, element_at(view.data, view.dtype, offset), stride, to + done, length);
  });
}

template <class From>
SW_CONVERT void scatter(const TensorView& view, int64_t begin, int64_t n, const From* from) {
  const int64_t stride = view.ndim > 0 ? view.strides[view.ndim - 1] : 1;
  for_each_run(view, begin, n, [&](int64_t offset, int64_t done, int64_t length) {
    scatter(view.dtype, from + done, element_at(view.data, view.dtype, offset), stride, length);
  });
}

// An immediate or parameter as the compute type; doubles beyond int64 saturate.
SW_CONVERT void from_double(double v, float* to) { *to = static_cast<float>(v); }
SW_CONVERT void from_double(double v, double* to) { *to = v; }
SW_CONVERT void from_double(double v, int64_t* to) {
  *to =
      v >= 0x1p63 ? INT64_MAX : (v <= -0x1p63 ? INT64_MIN : (v == v ? static_cast<int64_t>(v) : 0));
}

}  // namespace
}  // namespace shardwise::cpu
