// Kernels of one output element from up to three input elements, instantiated by pointwise_*.cu.
//
// Math: y[i] = f(x[i], ...) with f from generated/pointwise_ops.inc, in float, double or int64,
// rounded once. Each op has a `vector` kernel for float32, bfloat16 and float16, and a `strided`
// kernel per compute type for everything else.
//   vector   16 bytes per thread; operands of the output's dtype, bool, or numbers; the innermost
//            dim is contiguous or broadcast, outer dims have any strides that keep vectors aligned
//            (x + bias, x * column, ...)
//   strided  4 elements per thread, 256 apart; any dtype, any strides; dtype switch per launch (a
//            uniform branch)
// Grid: one block of 256 threads per 4096 bytes (vector) or 1024 elements (strided).
// Operations: f, once an element. Bytes: every operand once. A thread issues all loads before the
// first use. The same thread reads an element before it writes it, so the output may be the memory
// of an input. No element depends on another: the same bits in every run.
// Source: PyTorch's elementwise ops. On an H200, 512 MiB of float32: times a number 251 us (4.28
// TB/s), x + y 368 (4.38). Versions: 8 elements a thread, whose stores wrote half of each sector,
// 280 and 385.
#pragma once
#include "../../../generated/op_params.h"
#include "../../math.cuh"
#include "../../primitives/dtype.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/pdl.cuh"
#include "../../primitives/vector.cuh"
#include "../../stream.h"

namespace shardwise::cuda::pointwise {

constexpr int kThreads = 256;
constexpr int kStridedElements = 4;  // per thread
constexpr int kVectorDims = 6;
constexpr int kMaxInputs = 3;

// How a vector kernel reads an operand.
enum class Read : int32_t { Number, Elements, Bools, OneElement, OneBool };

template <class C>
struct Parameters {
  C p0, p1, p2, p3;
};

struct VectorArgs {
  int64_t numel;
  Parameters<float> parameters;
  float numbers[kMaxInputs];
  Read read[kMaxInputs];
  const void* inputs[kMaxInputs];
  void* output;
  OffsetCalculator<kMaxInputs + 1, kVectorDims> offsets;  // per vector; output first
};

template <class C>
struct StridedArgs {
  int64_t numel;
  Parameters<C> parameters;
  C numbers[kMaxInputs];
  DType dtypes[kMaxInputs];
  DType output_dtype;
  const void* inputs[kMaxInputs];  // null: the number is the operand
  void* output;
  OffsetCalculator<kMaxInputs + 1> offsets;
};

// An operand's bits at offset `at`; bools and single elements are stored at the start of the
// vector. The kernel fetches all operands before it converts the first, so that the loads are in
// flight together.
template <class T, int V>
__device__ __forceinline__ void fetch(const VectorArgs& args, int operand, int64_t at,
                                      Vec<T, V>& raw) {
  const void* base = args.inputs[operand];
  switch (args.read[operand]) {
    case Read::Elements:
      raw = load_vec<V>(static_cast<const T*>(base) + at);
      break;
    case Read::Bools:
      reinterpret_cast<Vec<uint8_t, V>&>(raw) = load_vec<V>(static_cast<const uint8_t*>(base) + at);
      break;
    case Read::OneElement:
      raw[0] = static_cast<const T*>(base)[at];
      break;
    case Read::OneBool:
      reinterpret_cast<uint32_t&>(raw) = static_cast<const uint8_t*>(base)[at];
      break;
    default:
      break;
  }
}

template <class T, int V>
__device__ __forceinline__ void convert(const VectorArgs& args, int operand, const Vec<T, V>& raw,
                                        float (&out)[V]) {
  switch (args.read[operand]) {
    case Read::Elements: {
#pragma unroll
      for (int i = 0; i < V; i++) out[i] = to_compute<float>(raw[i]);
      break;
    }
    case Read::Bools: {
      const uint32_t* words = reinterpret_cast<const uint32_t*>(&raw);
#pragma unroll
      for (int i = 0; i < V; i++)
        out[i] = ((words[i / 4] >> (i % 4 * 8)) & 0xff) != 0 ? 1.0f : 0.0f;
      break;
    }
    default: {
      float number = args.numbers[operand];
      if (args.read[operand] == Read::OneElement) number = to_compute<float>(raw[0]);
      if (args.read[operand] == Read::OneBool)
        number = reinterpret_cast<const uint32_t&>(raw) != 0 ? 1.0f : 0.0f;
#pragma unroll
      for (int i = 0; i < V; i++) out[i] = number;
    }
  }
}

// T: element type of the operands, R: of the output (T or bool).
template <class Op, int Arity, class T, class R>
__global__ void __launch_bounds__(kThreads) vector(const __grid_constant__ VectorArgs args) {
  pdl_begin();
  constexpr int V = kVec16<T>;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (vector * V >= args.numel) return;
  Offsets<kMaxInputs + 1> at;
  if (args.offsets.identity) {
#pragma unroll
    for (int i = 0; i <= kMaxInputs; i++) at.at[i] = vector * V;
  } else {
    at = args.offsets.get_small(vector);
  }
  float x[V], y[V], z[V];
  Vec<T, V> raw_x = {}, raw_y = {}, raw_z = {};
  fetch<T>(args, 0, at[1], raw_x);
  if constexpr (Arity > 1) fetch<T>(args, 1, at[2], raw_y);
  if constexpr (Arity > 2) fetch<T>(args, 2, at[3], raw_z);
  convert<T>(args, 0, raw_x, x);
  if constexpr (Arity > 1) convert<T>(args, 1, raw_y, y);
  if constexpr (Arity > 2) convert<T>(args, 2, raw_z, z);
  const Parameters<float>& p = args.parameters;
  Vec<R, V> out;
#pragma unroll
  for (int i = 0; i < V; i++)
    out[i] = from_compute<R>(static_cast<float>(
        Op::apply(x[i], Arity > 1 ? y[i] : 0.0f, Arity > 2 ? z[i] : 0.0f, p.p0, p.p1, p.p2, p.p3)));
  store_global(static_cast<R*>(args.output) + at[0], out);
}

// Also computes the last elements of a long contiguous operand, which fill no vector.
template <class Op, int Arity, class C, bool Bool>
__global__ void __launch_bounds__(kThreads) strided(const __grid_constant__ StridedArgs<C> args) {
  pdl_begin();
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * (kThreads * kStridedElements) + threadIdx.x;
  int64_t linear[kStridedElements];
  bool valid[kStridedElements];
#pragma unroll
  for (int u = 0; u < kStridedElements; u++) {
    const int64_t i = first + u * kThreads;
    valid[u] = i < args.numel;
    linear[u] = valid[u] ? i : args.numel - 1;
  }
  Offsets<kMaxInputs + 1> offsets[kStridedElements];
  args.offsets.get_many(linear, offsets);
  C v[kMaxInputs][kStridedElements] = {};
  int64_t at[kStridedElements];
#pragma unroll
  for (int k = 0; k < Arity; k++) {
    if (args.inputs[k]) {
#pragma unroll
      for (int u = 0; u < kStridedElements; u++) at[u] = offsets[u][k + 1];
      load_class<C>(args.inputs[k], at, args.dtypes[k], v[k]);
    } else {
#pragma unroll
      for (int u = 0; u < kStridedElements; u++) v[k][u] = args.numbers[k];
    }
  }
  const Parameters<C>& p = args.parameters;
  C result[kStridedElements];
#pragma unroll
  for (int u = 0; u < kStridedElements; u++) {
    result[u] = static_cast<C>(Op::apply(v[0][u], v[1][u], v[2][u], p.p0, p.p1, p.p2, p.p3));
    at[u] = offsets[u][0];
  }
  store_class<Bool, C>(args.output, at, args.output_dtype, result, valid);
}

// The kernels of one op; null for an unsupported compute type.
struct Kernels {
  int arity;
  bool gives_bool;
  void (*vector_float32)(VectorArgs);
  void (*vector_bfloat16)(VectorArgs);
  void (*vector_float16)(VectorArgs);
  void (*strided_float)(StridedArgs<float>);
  void (*strided_double)(StridedArgs<double>);
  void (*strided_int64)(StridedArgs<int64_t>);
};

Status run(const KernelCall& call, const Kernels& kernels);

template <class Op, int Arity, bool Bool>
constexpr Kernels floating_kernels() {
  using F = float;
  return {Arity,
          Bool,
          vector<Op, Arity, F, std::conditional_t<Bool, bool, F>>,
          vector<Op, Arity, bfloat16_t, std::conditional_t<Bool, bool, bfloat16_t>>,
          vector<Op, Arity, half_t, std::conditional_t<Bool, bool, half_t>>,
          strided<Op, Arity, float, Bool>,
          strided<Op, Arity, double, Bool>,
          nullptr};
}

template <class Op, int Arity, bool Bool>
constexpr Kernels all_kernels() {
  Kernels k = floating_kernels<Op, Arity, Bool>();
  k.strided_int64 = strided<Op, Arity, int64_t, Bool>;
  return k;
}

template <class Op, int Arity, bool Bool>
constexpr Kernels integer_kernels() {
  return {Arity,   Bool,    nullptr, nullptr,
          nullptr, nullptr, nullptr, strided<Op, Arity, int64_t, Bool>};
}

}  // namespace shardwise::cuda::pointwise

// The body of one table entry: an op struct and the kernel function.
#define SW_POINTWISE_OP(name, arity, maker, bool_result, expression)                      \
  namespace {                                                                             \
  struct name##_op {                                                                      \
    template <class T>                                                                    \
    static __device__ __forceinline__ auto apply(T x, T y, T z, T p0, T p1, T p2, T p3) { \
      (void)x, (void)y, (void)z, (void)p0, (void)p1, (void)p2, (void)p3;                  \
      return expression;                                                                  \
    }                                                                                     \
  };                                                                                      \
  }                                                                                       \
  Status name(const KernelCall& call) {                                                   \
    static constexpr pointwise::Kernels kernels =                                         \
        pointwise::maker<name##_op, arity, bool_result>();                                \
    return pointwise::run(call, kernels);                                                 \
  }
#define SW_CLASS_F floating_kernels
#define SW_CLASS_A all_kernels
#define SW_CLASS_I integer_kernels
#define SW_RESULT_SAME false
#define SW_RESULT_BOOL true
