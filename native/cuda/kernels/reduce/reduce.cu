// reduce_sum, mean, prod, amax, amin, any, all, argmax, argmin. reduce.cuh has the kernels.
//
// amin is amax of the values in reverse order (-x for floats, ~x for integers), argmin likewise;
// all is "no zero". NaN wins in amax, amin, argmax and argmin; the index is the first occurrence,
// row-major within the reduced dims.
// Bytes: x once, y once, and accumulators twice if the reduced elements are split over blocks.
// Operations: one combination an element.
// Numerics: float32, float64 or int64 (which wraps), rounded once; mean divides at the end. Sums
// add groups pairwise, then in the order of reduce.cuh, fixed by shape, strides, alignment and
// device.
// Source: PyTorch's reductions of these names. On an H200, float32, 16384 x 16384 (PyTorch): sum of
// all 244 us (249), of rows 242 (260), of columns 250 (248), argmax of rows 256 (351). Reading the
// bytes takes some 240. Versions: all by as many blocks as the device holds at once, which end with
// the slowest: 286.
#include "reduce.cuh"

namespace shardwise::cuda {

using namespace reduce;

namespace {

template <class C>
struct SumReduce {
  static constexpr bool kOwnOutput = false;
  using Value = C;
  using Accumulator = C;
  bool mean;

  __device__ __forceinline__ C identity() const { return C(0); }
  __device__ __forceinline__ C combine(C a, C b) const { return a + b; }
  template <int N>
  __device__ __forceinline__ void add(C& a, const C (&v)[N], int64_t, int64_t) const {
    C sums[N];
#pragma unroll
    for (int i = 0; i < N; i++) sums[i] = v[i];
#pragma unroll
    for (int width = N / 2; width > 0; width /= 2)
#pragma unroll
      for (int i = 0; i < width; i++) sums[i] += sums[i + width];
    a += sums[0];
  }
  __device__ __forceinline__ void finish(const Args& args, int64_t output, C a) const {
    write_result<C>(args.y, output, args.y_dtype, mean ? a / static_cast<C>(args.reduced) : a);
  }
};

template <class C>
struct ProductReduce {
  static constexpr bool kOwnOutput = false;
  using Value = C;
  using Accumulator = C;

  __device__ __forceinline__ C identity() const { return C(1); }
  __device__ __forceinline__ C combine(C a, C b) const { return a * b; }
  template <int N>
  __device__ __forceinline__ void add(C& a, const C (&v)[N], int64_t, int64_t) const {
#pragma unroll
    for (int i = 0; i < N; i++) a *= v[i];
  }
  __device__ __forceinline__ void finish(const Args& args, int64_t output, C a) const {
    write_result<C>(args.y, output, args.y_dtype, a);
  }
};

template <class C>
__device__ __forceinline__ C smallest() {
  if constexpr (IsFloating<C>::value)
    return static_cast<C>(-__int_as_float(0x7f800000));
  else
    return static_cast<C>(INT64_MIN);
}

// An order-reversing map of the type onto itself.
template <class C>
__device__ __forceinline__ C reversed(C v) {
  if constexpr (IsFloating<C>::value)
    return -v;
  else
    return ~v;
}

template <class C>
struct ExtremeReduce {
  static constexpr bool kOwnOutput = false;
  using Value = C;
  using Accumulator = C;
  bool reverse;

  __device__ __forceinline__ C identity() const { return smallest<C>(); }
  __device__ __forceinline__ C combine(C a, C b) const { return MaxOp()(a, b); }
  template <int N>
  __device__ __forceinline__ void add(C& a, const C (&v)[N], int64_t, int64_t) const {
#pragma unroll
    for (int i = 0; i < N; i++) a = combine(a, reverse ? reversed(v[i]) : v[i]);
  }
  __device__ __forceinline__ void finish(const Args& args, int64_t output, C a) const {
    write_result<C>(args.y, output, args.y_dtype, reverse ? reversed(a) : a);
  }
};

template <class C>
struct AnyReduce {
  static constexpr bool kOwnOutput = true;
  using Value = C;
  using Accumulator = uint32_t;
  bool all;

  __device__ __forceinline__ uint32_t identity() const { return 0; }
  __device__ __forceinline__ uint32_t combine(uint32_t a, uint32_t b) const { return a | b; }
  template <int N>
  __device__ __forceinline__ void add(uint32_t& a, const C (&v)[N], int64_t, int64_t) const {
#pragma unroll
    for (int i = 0; i < N; i++) a |= (v[i] != C(0)) != all ? 1u : 0u;
  }
  __device__ __forceinline__ void finish(const Args& args, int64_t output, uint32_t a) const {
    static_cast<uint8_t*>(args.y)[output] = (a != 0) != all;
  }
};

template <class C>
struct Place {
  C value;
  int64_t index;
};

template <class C>
struct ArgReduce {
  static constexpr bool kOwnOutput = true;
  using Value = C;
  using Accumulator = Place<C>;
  bool reverse;

  __device__ __forceinline__ Place<C> identity() const { return {smallest<C>(), INT64_MAX}; }
  __device__ __forceinline__ Place<C> combine(const Place<C>& a, const Place<C>& b) const {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) {
      if (a_nan != b_nan) return a_nan ? a : b;
    } else if (a.value != b.value) {
      return a.value > b.value ? a : b;
    }
    return a.index < b.index ? a : b;
  }
  template <int N>
  __device__ __forceinline__ void add(Place<C>& a, const C (&v)[N], int64_t index,
                                      int64_t step) const {
#pragma unroll
    for (int i = 0; i < N; i++)
      a = combine(a, Place<C>{reverse ? reversed(v[i]) : v[i], index + i * step});
  }
  __device__ __forceinline__ void finish(const Args& args, int64_t output,
                                         const Place<C>& a) const {
    static_cast<int64_t*>(args.y)[output] = a.index == INT64_MAX ? 0 : a.index;
  }
};

template <template <class> class Op, class... Fields>
Status reduce_all_types(const KernelCall& call, bool keep_order, Fields... fields) {
  Plan plan;
  // Every parameter struct of a reduction starts with reduced_ndim.
  make_plan(call, static_cast<int32_t>(call.params_as<ReduceSumParams>().reduced_ndim), keep_order,
            &plan);
  return with_compute_type(call.input(0).dtype, [&](auto tag) {
    return launch_reduce(call, plan, Op<tag_t<decltype(tag)>>{fields...});
  });
}

}  // namespace

Status reduce_sum(const KernelCall& call) {
  return reduce_all_types<SumReduce>(call, false, false);
}
Status reduce_mean(const KernelCall& call) {
  if (!is_floating(call.input(0).dtype)) return unsupported(call, call.input(0).dtype);
  return reduce_all_types<SumReduce>(call, false, true);
}
Status reduce_prod(const KernelCall& call) { return reduce_all_types<ProductReduce>(call, false); }
Status reduce_amax(const KernelCall& call) {
  return reduce_all_types<ExtremeReduce>(call, false, false);
}
Status reduce_amin(const KernelCall& call) {
  return reduce_all_types<ExtremeReduce>(call, false, true);
}
Status reduce_any(const KernelCall& call) {
  return reduce_all_types<AnyReduce>(call, false, false);
}
Status reduce_all(const KernelCall& call) { return reduce_all_types<AnyReduce>(call, false, true); }
Status reduce_argmax(const KernelCall& call) {
  return reduce_all_types<ArgReduce>(call, true, false);
}
Status reduce_argmin(const KernelCall& call) {
  return reduce_all_types<ArgReduce>(call, true, true);
}

}  // namespace shardwise::cuda
