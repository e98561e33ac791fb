// Converts a linear element index to memory offsets of strided operands, with precomputed
// divisions.
#pragma once
#include <cstdint>

#include "../../include/kernel_call.h"

namespace shardwise::cuda {

constexpr int64_t kMax32 = (int64_t(1) << 31) - 1;

// Division of n < 2^31 by a fixed d as multiply-high, add, shift. A divisor above 2^31 counts as
// 2^31 (the quotient is 0).
struct FastDivide {
  uint32_t divisor = 1, magic = 1, shift = 0;

  FastDivide() = default;
  __host__ explicit FastDivide(int64_t size) {
    const uint64_t d = size < 1        ? 1
                       : size > kMax32 ? uint64_t(1) << 31
                                       : static_cast<uint64_t>(size);
    divisor = static_cast<uint32_t>(d);
    while ((uint64_t(1) << shift) < d) shift++;
    magic = static_cast<uint32_t>(((uint64_t(1) << 32) * ((uint64_t(1) << shift) - d)) / d + 1);
  }
  __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
    return (__umulhi(n, magic) + n) >> shift;
  }
};

// Division of any n >= 0 by a fixed size.
struct IndexDivide {
  FastDivide fast;
  int64_t size = 1;

  IndexDivide() = default;
  __host__ explicit IndexDivide(int64_t n) : fast(n), size(n < 1 ? 1 : n) {}
  __device__ __forceinline__ int64_t quotient(int64_t n) const {
    return n <= kMax32
               ? static_cast<int64_t>(fast.quotient(static_cast<uint32_t>(n)))
               : static_cast<int64_t>(static_cast<uint64_t>(n) / static_cast<uint64_t>(size));
  }
};

template <int N>
struct Offsets {
  int64_t at[N];
  __device__ __forceinline__ int64_t operator[](int i) const { return at[i]; }
};

// Offsets (in elements, 64 bits) of N operands that share their sizes, from a linear index below
// 2^31 (get_small, get_many) or any (get). Pass it to kernels as `const __grid_constant__`: then
// nothing is copied to local memory. Dims are stored innermost first. 16 dims of 4 operands are 840
// bytes of kernel arguments.
template <int N, int Dims = kMaxDims>
struct OffsetCalculator {
  int32_t ndim = 0;
  int32_t identity = 0;  // every offset is the linear index itself: no division
  FastDivide sizes[Dims];
  int64_t full_sizes[Dims];
  int64_t strides[Dims][N];

  // `strides_of[i]` may be null: that operand stays at offset 0. Sizes are outermost first, as in a
  // TensorView.
  __host__ void set(int32_t dims, const int64_t* dim_sizes, const int64_t* const* strides_of) {
    ndim = dims;
    identity = dims <= 1;
    for (int32_t d = 0; d < dims; d++) {
      const int32_t from = dims - 1 - d;
      sizes[d] = FastDivide(dim_sizes[from]);
      full_sizes[d] = dim_sizes[from];
      for (int i = 0; i < N; i++) {
        strides[d][i] = strides_of[i] ? strides_of[i][from] : 0;
        if (strides[d][i] != 1) identity = 0;
      }
    }
  }

  // For U indices below 2^31 at once: the division chains overlap. With `identity` any index works.
  template <int U>
  __device__ __forceinline__ void get_many(const int64_t (&linear)[U], Offsets<N> (&out)[U]) const {
    uint32_t n[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      n[u] = static_cast<uint32_t>(linear[u]);
#pragma unroll
      for (int i = 0; i < N; i++) out[u].at[i] = identity ? linear[u] : 0;
    }
    if (identity) return;
#pragma unroll 1
    for (int32_t d = 0; d < ndim; d++) {
#pragma unroll
      for (int u = 0; u < U; u++) {
        const uint32_t next = sizes[d].quotient(n[u]);
        const uint32_t coordinate = n[u] - next * sizes[d].divisor;
        n[u] = next;
#pragma unroll
        for (int i = 0; i < N; i++)
          out[u].at[i] += static_cast<int64_t>(coordinate) * strides[d][i];
      }
    }
  }

  __device__ __forceinline__ Offsets<N> get_small(int64_t linear) const {
    const int64_t one[1] = {linear};
    Offsets<N> out[1];
    get_many<1>(one, out);
    return out[0];
  }

  // Any index.
  __device__ __forceinline__ Offsets<N> get(int64_t linear) const {
    if (linear <= kMax32 || identity) return get_small(linear);
    Offsets<N> out;
#pragma unroll
    for (int i = 0; i < N; i++) out.at[i] = 0;
    uint64_t n = static_cast<uint64_t>(linear);
#pragma unroll 1
    for (int32_t d = 0; d < ndim; d++) {
      const uint64_t next = d + 1 < ndim ? n / static_cast<uint64_t>(full_sizes[d]) : 0;
      const int64_t coordinate =
          static_cast<int64_t>(n - next * static_cast<uint64_t>(full_sizes[d]));
      n = next;
#pragma unroll
      for (int i = 0; i < N; i++) out.at[i] += coordinate * strides[d][i];
    }
    return out;
  }

  // Any indices; the last must be the largest.
  template <int U>
  __device__ __forceinline__ void get_many_large(const int64_t (&linear)[U],
                                                 Offsets<N> (&out)[U]) const {
    if (linear[U - 1] <= kMax32 || identity) return get_many(linear, out);
#pragma unroll
    for (int u = 0; u < U; u++) out[u] = get(linear[u]);
  }
};

// Sizes and strides of N operands, to be merged and reordered before a launch.
template <int N>
struct Dims {
  int32_t ndim = 0;
  int64_t sizes[kMaxDims];
  int64_t strides[N][kMaxDims];

  void push(int64_t size, const int64_t (&stride)[N]) {
    sizes[ndim] = size;
    for (int i = 0; i < N; i++) strides[i][ndim] = stride[i];
    ndim++;
  }

  int64_t numel() const {
    int64_t n = 1;
    for (int32_t d = 0; d < ndim; d++) n *= sizes[d];
    return n;
  }

  // Drops dims of size 1 and merges neighbouring dims that are contiguous in every operand.
  void collapse() {
    int32_t n = 0;
    for (int32_t d = 0; d < ndim; d++) {
      if (sizes[d] == 1) continue;
      bool merge = n > 0;
      for (int i = 0; merge && i < N; i++) merge = strides[i][n - 1] == strides[i][d] * sizes[d];
      const int32_t to = merge ? n - 1 : n++;
      sizes[to] = merge ? sizes[to] * sizes[d] : sizes[d];
      for (int i = 0; i < N; i++) strides[i][to] = strides[i][d];
    }
    ndim = n;
  }

  // Reorders the dims by the strides of operand 0 (then 1, ...), for kernels that do not depend on
  // the order.
  void sort_by_stride() {
    for (int32_t a = 1; a < ndim; a++)
      for (int32_t b = a; b > 0 && goes_inside(b - 1, b); b--) swap_dims(b - 1, b);
  }

  template <int Max>
  OffsetCalculator<N, Max> calculator() const {
    OffsetCalculator<N, Max> out;
    const int64_t* pointers[N];
    for (int i = 0; i < N; i++) pointers[i] = strides[i];
    out.set(ndim, sizes, pointers);
    return out;
  }

 private:
  // Whether dim `outer` should move inside of dim `inner`.
  bool goes_inside(int32_t outer, int32_t inner) const {
    for (int i = 0; i < N; i++) {
      const int64_t a = strides[i][outer], b = strides[i][inner];
      if (a == b || a == 0 || b == 0) continue;
      return a < b;
    }
    return false;
  }
  void swap_dims(int32_t a, int32_t b) {
    int64_t t = sizes[a];
    sizes[a] = sizes[b];
    sizes[b] = t;
    for (int i = 0; i < N; i++) {
      t = strides[i][a];
      strides[i][a] = strides[i][b];
      strides[i][b] = t;
    }
  }
};

// The dims of operands that all have the sizes of `views[0]`; an immediate counts as stride 0.
template <int N>
inline Dims<N> dims_of(const TensorView* const (&views)[N]) {
  Dims<N> out;
  for (int32_t d = 0; d < views[0]->ndim; d++) {
    int64_t stride[N];
    for (int i = 0; i < N; i++)
      stride[i] = views[i]->strides && d < views[i]->ndim ? views[i]->strides[d] : 0;
    out.push(views[0]->sizes[d], stride);
  }
  return out;
}

// The largest offset of a view, in elements.
inline int64_t largest_offset(int32_t ndim, const int64_t* sizes, const int64_t* strides) {
  int64_t offset = 0;
  for (int32_t d = 0; d < ndim; d++) offset += (sizes[d] > 0 ? sizes[d] - 1 : 0) * strides[d];
  return offset;
}

}  // namespace shardwise::cuda
