// Element types, numbered as in lib/core/dtype.ts. Shared by every backend and by the addon.
#pragma once
#include <cstdint>

namespace shardwise {

enum class DType : int32_t {
  Float32 = 0,
  Float64 = 1,
  Float16 = 2,
  BFloat16 = 3,
  Int64 = 4,
  Int32 = 5,
  Int16 = 6,
  Int8 = 7,
  UInt8 = 8,
  Bool = 9,
};

constexpr int32_t kNumDTypes = 10;

// The type a pointwise kernel computes in: low-precision floats widen to float, integers and bool
// to int64.
enum class ComputeType : int32_t { Float = 0, Double = 1, Int64 = 2 };

#if defined(__CUDACC__)
#define SW_HOST_DEVICE __host__ __device__
#else
#define SW_HOST_DEVICE
#endif

SW_HOST_DEVICE constexpr int64_t item_size(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Int64:
      return 8;
    case DType::Float32:
    case DType::Int32:
      return 4;
    case DType::Float16:
    case DType::BFloat16:
    case DType::Int16:
      return 2;
    default:
      return 1;
  }
}

SW_HOST_DEVICE constexpr bool is_floating(DType dtype) { return static_cast<int32_t>(dtype) <= 3; }

constexpr const char* dtype_name(DType dtype) {
  constexpr const char* names[] = {"float32", "float64", "float16", "bfloat16", "int64",
                                   "int32",   "int16",   "int8",    "uint8",    "bool"};
  return names[static_cast<int32_t>(dtype)];
}

}  // namespace shardwise
