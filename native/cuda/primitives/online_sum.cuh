// The largest element of a row and the sum of exp(element - largest), in one read: for softmax and
// cross entropy.
#pragma once
#include <cmath>

#include "dtype.cuh"
#include "reduce.cuh"

namespace shardwise::cuda {

template <class C>
__device__ __forceinline__ C negative_infinity() {
  return C(-INFINITY);
}

// exp for an element type. 16-bit types take one multiplication and one instruction, exact enough
// for results that are rounded to 16 bits; results below 2^-126 are 0.
template <class T>
__device__ __forceinline__ float row_exp(float v) {
  if constexpr (sizeof(T) == 2) {
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v * 1.4426950408889634f));
    return out;
  } else {
    return expf(v);
  }
}
template <class T>
__device__ __forceinline__ double row_exp(double v) {
  return exp(v);
}

__device__ __forceinline__ float row_max(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double row_max(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ float row_log(float v) { return logf(v); }
__device__ __forceinline__ double row_log(double v) { return log(v); }

// exp(v - base). A base of -inf counts as 0, so that a row of -inf has the sum 0 and its softmax is
// NaN by division. The difference is computed first: with the lowest finite number as mask, the
// product of either with log2(e) is infinite.
template <class T>
struct RowExponential {
  using C = compute_t<T>;
  C base;
  __device__ __forceinline__ explicit RowExponential(C of)
      : base(of == negative_infinity<C>() ? C(0) : of) {}
  __device__ __forceinline__ C operator()(C v) const { return row_exp<T>(v - base); }
};

// A NaN or +inf makes the sum NaN; -inf adds nothing.
template <class T>
struct OnlineSum {
  using C = compute_t<T>;
  C maximum, sum;

  static __device__ __forceinline__ OnlineSum empty() { return {negative_infinity<C>(), C(0)}; }

  template <int V>
  __device__ __forceinline__ void add(const C (&values)[V]) {
    C next = maximum;
#pragma unroll
    for (int i = 0; i < V; i++) next = row_max(next, values[i]);
    const RowExponential<T> exponential(next);
    if (next != maximum) sum *= exponential(maximum);
    C partial = C(0);
#pragma unroll
    for (int i = 0; i < V; i++) partial += exponential(values[i]);
    sum += partial;
    maximum = next;
  }
  // Merges over lanes that differ in the bits below `width`; all of them receive the result.
  __device__ __forceinline__ void merge_lanes(int width) {
    C all = maximum;
    for (int mask = width >> 1; mask > 0; mask >>= 1)
      all = row_max(all, __shfl_xor_sync(kFullWarp, all, mask));
    sum *= RowExponential<T>(all)(maximum);
    maximum = all;
    for (int mask = width >> 1; mask > 0; mask >>= 1) sum += __shfl_xor_sync(kFullWarp, sum, mask);
  }
};

template <class T>
struct MergeOnlineSums {
  __device__ __forceinline__ OnlineSum<T> operator()(const OnlineSum<T>& a,
                                                     const OnlineSum<T>& b) const {
    OnlineSum<T> out;
    out.maximum = row_max(a.maximum, b.maximum);
    const RowExponential<T> exponential(out.maximum);
    out.sum = a.sum * exponential(a.maximum) + b.sum * exponential(b.maximum);
    return out;
  }
};

}  // namespace shardwise::cuda
