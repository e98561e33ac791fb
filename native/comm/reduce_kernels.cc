#include "reduce_kernels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "../cpu/convert.h"

namespace shardwise::comm {
namespace {

using cpu::BFloat16;
using cpu::convert;
using cpu::Half;

// Both buffers of a chunk stay in the first-level cache.
constexpr int64_t kChunk = 1024;

// Unsigned, so that overflow wraps, and wide enough that nothing is promoted to a signed type.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a + b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>)
      return a * b;
    else
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// NaN wins: the comparison with a NaN in b is false and takes it; a NaN in a needs a test.
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return a <= b || a != a ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return a >= b || a != a ? a : b;
  }
};

// T is the type in memory, A the type between ranks; `divisor` is 1 except for Avg.
template <class T, class A, class Op>
void reduce_as(const char* const* sources, int32_t ranks, char* const* outputs, int32_t num_outputs,
               int64_t count, A divisor) {
  alignas(64) A sum[kChunk];
  alignas(64) T result[kChunk];
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t n = std::min(kChunk, count - begin);
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    for (int64_t i = 0; i < n; i++) sum[i] = convert(first[i], static_cast<A*>(nullptr));
    for (int32_t rank = 1; rank < ranks; rank++) {
      const T* next = reinterpret_cast<const T*>(sources[rank]) + begin;
      for (int64_t i = 0; i < n; i++)
        sum[i] = Op::apply(sum[i], convert(next[i], static_cast<A*>(nullptr)));
    }
    if (divisor != A(1)) {
      for (int64_t i = 0; i < n; i++) sum[i] /= divisor;
    }
    const void* from = sum;
    if constexpr (!std::is_same_v<T, A>) {
      for (int64_t i = 0; i < n; i++) result[i] = convert(sum[i], static_cast<T*>(nullptr));
      from = result;
    }
    for (int32_t o = 0; o < num_outputs; o++) {
      memcpy(outputs[o] + begin * static_cast<int64_t>(sizeof(T)), from,
             static_cast<size_t>(n) * sizeof(T));
    }
  }
}

// `Average` is the type in which Avg sums.
template <class T, class A, class Average>
void reduce_typed(const char* const* sources, int32_t ranks, char* const* outputs,
                  int32_t num_outputs, int64_t count, Reduce reduce) {
  switch (reduce) {
    case Reduce::Sum:
      return reduce_as<T, A, Sum>(sources, ranks, outputs, num_outputs, count, A(1));
    case Reduce::Avg:
      return reduce_as<T, Average, Sum>(sources, ranks, outputs, num_outputs, count,
                                        static_cast<Average>(ranks));
    case Reduce::Product:
      return reduce_as<T, A, Product>(sources, ranks, outputs, num_outputs, count, A(1));
    case Reduce::Min:
      return reduce_as<T, A, Min>(sources, ranks, outputs, num_outputs, count, A(1));
    case Reduce::Max:
      return reduce_as<T, A, Max>(sources, ranks, outputs, num_outputs, count, A(1));
  }
}

// Every byte except 0 is true. "and" is the minimum, "or" the maximum.
struct Truth {
  uint8_t byte;
};
[[maybe_unused]] uint8_t convert(Truth value, uint8_t*) { return value.byte != 0; }
[[maybe_unused]] Truth convert(uint8_t value, Truth*) { return {value}; }

void reduce_bool(const char* const* sources, int32_t ranks, char* const* outputs,
                 int32_t num_outputs, int64_t count, Reduce reduce) {
  if (reduce == Reduce::Sum || reduce == Reduce::Max)
    return reduce_as<Truth, uint8_t, Max>(sources, ranks, outputs, num_outputs, count, 1);
  reduce_as<Truth, uint8_t, Min>(sources, ranks, outputs, num_outputs, count, 1);
}

}  // namespace

void reduce_into(const char* const* sources, int32_t ranks, char* const* outputs,
                 int32_t num_outputs, int64_t count, DType dtype, Reduce reduce) {
  switch (dtype) {
    case DType::Float32:
      return reduce_typed<float, float, float>(sources, ranks, outputs, num_outputs, count, reduce);
    case DType::Float64:
      return reduce_typed<double, double, double>(sources, ranks, outputs, num_outputs, count,
                                                  reduce);
    case DType::Float16:
      return reduce_typed<Half, float, float>(sources, ranks, outputs, num_outputs, count, reduce);
    case DType::BFloat16:
      return reduce_typed<BFloat16, float, float>(sources, ranks, outputs, num_outputs, count,
                                                  reduce);
    case DType::Int64:
      return reduce_typed<int64_t, int64_t, int64_t>(sources, ranks, outputs, num_outputs, count,
                                                     reduce);
    case DType::Int32:
      return reduce_typed<int32_t, int32_t, int64_t>(sources, ranks, outputs, num_outputs, count,
                                                     reduce);
    case DType::Int16:
      return reduce_typed<int16_t, int16_t, int64_t>(sources, ranks, outputs, num_outputs, count,
                                                     reduce);
    case DType::Int8:
      return reduce_typed<int8_t, int8_t, int64_t>(sources, ranks, outputs, num_outputs, count,
                                                   reduce);
    case DType::UInt8:
      return reduce_typed<uint8_t, uint8_t, int64_t>(sources, ranks, outputs, num_outputs, count,
                                                     reduce);
    case DType::Bool:
      return reduce_bool(sources, ranks, outputs, num_outputs, count, reduce);
  }
}

}  // namespace shardwise::comm
