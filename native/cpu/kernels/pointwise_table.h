// The functions of pointwise.cc for each instruction set: the engine behind every pointwise kernel,
// and loops for copy.cc, random.cc and others, which are compiled once.
#pragma once
#include "../../include/kernel_call.h"
#include "../philox.h"

namespace shardwise::cpu {

enum class PointwiseOp : int32_t {
#define SW_POINTWISE(name, arity, classes, result, expression) name,
#include "../../generated/pointwise_ops.inc"
#undef SW_POINTWISE
};

using PointwiseLoop = void (*)(const void* const* inputs, void* output, int64_t n,
                               const double* params);

// The loops of an op over contiguous arrays of a compute type.
struct PointwiseEntry {
  int32_t arity;
  bool boolean;           // they write uint8_t
  PointwiseLoop loop[3];  // by ComputeType; null: undefined for the type
  int64_t grain[3];       // the least elements worth waking a thread
};

// Division by zero is an error for integers.
[[maybe_unused]] static constexpr bool divides(PointwiseOp op) {
  return op == PointwiseOp::floor_divide || op == PointwiseOp::trunc_divide ||
         op == PointwiseOp::remainder || op == PointwiseOp::fmod;
}

struct PointwiseTable {
  // Unsupported: no such kernel for the compute type. Invalid: an integer divisor is 0. The
  // dispatcher formats the message, because fail() is an inline function and must not be compiled
  // for one instruction set.
  Code (*run)(const KernelCall& call, PointwiseOp op);
  // `n` elements between memory of any dtype and a buffer of the compute type; strides in elements
  // of the memory.
  void (*gather[3])(DType dtype, const void* from, int64_t stride, void* buffer, int64_t n);
  void (*scatter[3])(DType dtype, const void* buffer, void* to, int64_t stride, int64_t n);
  const PointwiseEntry* entries;  // by PointwiseOp
  // The elements [begin, begin + n) of a view, to and from a buffer of the compute type.
  void (*gather_view)(const TensorView& view, int64_t begin, int64_t n, int32_t compute,
                      void* buffer);
  void (*scatter_view)(const TensorView& view, int64_t begin, int64_t n, int32_t compute,
                       bool boolean, const void* buffer);
  // Random words from the start of a counter on, and Box-Muller normals from pairs of them, `n`
  // rounded up to even.
  void (*random_words)(const PhiloxKey& key, uint64_t counter, int64_t counters, uint32_t* out);
  void (*normal_floats)(const uint32_t* words, int64_t n, float mean, float deviation, float* out);
  void (*normal_doubles)(const uint32_t* words, int64_t n, double mean, double deviation,
                         double* out);
};

namespace baseline {
extern const PointwiseTable pointwise_table;
}
namespace avx2 {
extern const PointwiseTable pointwise_table;
}
namespace avx512 {
extern const PointwiseTable pointwise_table;
}

const PointwiseTable& pointwise_table();  // the table for this machine

}  // namespace shardwise::cpu
