// Shared by layer_norm.cu, rms_norm.cu and their kernels: rms norm is layer norm with mean 0 and
// without a bias.
#pragma once
#include "../../primitives/row_words.cuh"

namespace shardwise::cuda {

// Rows of y or gx in float16 or bfloat16, beside them; data is null if they are absent.
struct LowRows {
  void* data = nullptr;
  bool half = false;     // float16
  bool vectors = false;  // starts on an 8-byte boundary
};

inline bool is_low(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

inline LowRows low_rows(const TensorView& view) {
  if (view.is_immediate) return {};
  return {view.data, view.dtype == DType::Float16, is_low(view.dtype) && is_aligned(view.data, 8)};
}

struct NormOutputs {
  const TensorView& y;     // may be absent
  const TensorView* mean;  // null for rms norm
  const TensorView& rstd;
  const TensorView& low;  // y in 16 bits; may be absent
};

inline void* data_or_null(const TensorView& view) {
  return view.is_immediate ? nullptr : view.data;
}

// y = (x - mean) rstd w + b with rstd = 1 / sqrt(mean((x - mean)^2) + eps). Views may be immediates
// (absent): w, b.
Status norm_forward(const KernelCall& call, const TensorView& x, const TensorView* w,
                    const TensorView* b, const NormOutputs& to, double eps);

// Two summands, and their rounded sum. x has its dtype; the residual of float32 may have 16 bits.
struct NormSum {
  const TensorView &x, &residual, &sum;
};
// The norm of a sum, which is written, too (add_rms_norm.cu).
Status norm_of_sum(const KernelCall& call, const NormSum& rows, const TensorView* w,
                   const TensorView* b, const NormOutputs& to, double eps);
// The same in one pass. Returns false for rows that it does not take.
bool norm_forward_of_sum(const KernelCall& call, const NormSum& rows, const TensorView* w,
                         const TensorView* b, const NormOutputs& to, double eps);

// out = a + b of n contiguous elements each, rounded once (add_rms_norm.cu); out may be a.
Status add_contiguous(const KernelCall& call, const void* a, const void* b, void* out, DType dtype,
                      int64_t n);

// low = n contiguous elements of another floating dtype (add_rms_norm.cu).
Status round_contiguous(const KernelCall& call, const void* from, DType dtype, const LowRows& low,
                        int64_t n);

// Null or immediate views are absent: mean (rms norm), w, `more`, which is added to gx, and any of
// the outputs gx, gw, gb, and gx in 16 bits.
struct NormGradients {
  const TensorView &g, &x;
  const TensorView* mean;
  const TensorView& rstd;
  const TensorView *w, *more, *gx, *gw, *gb;
  const TensorView& low;
};
Status norm_backward(const KernelCall& call, const NormGradients& v);

// A weight or bias of the norms in a kernel: any floating dtype, any stride; data is null if
// absent.
struct NormVector {
  const void* data = nullptr;
  int64_t stride = 1;
  DType dtype = DType::Float32;
  bool contiguous = false;  // and has the dtype of x
  bool vectors = false;     // and starts on a 16-byte boundary
};

inline NormVector norm_vector(const TensorView* view, DType dtype) {
  NormVector out;
  if (!view || view->is_immediate || !view->data) return out;
  out.data = view->data;
  out.dtype = view->dtype;
  out.stride = view->ndim > 0 ? view->strides[view->ndim - 1] : 1;
  out.contiguous = view->dtype == dtype && out.stride == 1;
  out.vectors = out.contiguous && reinterpret_cast<uintptr_t>(view->data) % 16 == 0;
  return out;
}

// A forward pass; data pointers are null if absent. norm_forward_vectors takes it if the rows are
// whole aligned vectors and fit.
struct NormForward {
  DType dtype;
  int64_t rows, n;
  const void* x;
  NormVector w, b;
  void *y, *mean, *rstd;
  double eps;
  bool centered;
  const void* residual;  // added to x first; null: none
  void* sum;             // output of x + residual
  LowRows low;
  DType residual_dtype;  // that of x, or 16 bits beside float32
};
bool norm_forward_vectors(const KernelCall& call, const NormForward& f);

// A backward pass: gx, and `partials` rows of sums [2][n] (of g xh and of g) if `sums`; null if
// absent.
struct NormBackward {
  DType dtype;
  int64_t rows, n;
  const void *g, *x, *mean, *rstd;
  NormVector w;
  void* gx;
  const void* more;  // added to gx
  bool sums;         // whether partials are needed
  void* partials;    // in the type of the sums
  LowRows low;       // gx in 16 bits; norm_backward_ring alone writes it
};
// The number of partial rows that norm_backward_ring writes for these rows; 0 if it does not take
// them.
int64_t norm_backward_ring_partial_rows(const KernelCall& call, const NormBackward& b);
void norm_backward_ring(const KernelCall& call, const NormBackward& b);
// The same for any rows; 0 only if there are no rows.
int64_t norm_backward_any_partial_rows(const KernelCall& call, const NormBackward& b);
void norm_backward_any(const KernelCall& call, const NormBackward& b);

// Writes four elements of low, as a copy would, bit for bit.
__device__ __forceinline__ void store_low(const LowRows& low, int64_t vector,
                                          const float (&values)[4]) {
  float padded[8] = {values[0], values[1], values[2], values[3]};
  const uint4 words = low.half ? pack<half_t>(padded) : pack<bfloat16_t>(padded);
  static_cast<uint2*>(low.data)[vector] = make_uint2(words.x, words.y);
}

// Elements [first, first + V) of y in `words`, some of which may be outside of the row of n, which
// begins at element `start`.
template <class T, class Index>
__device__ __forceinline__ void store_low(const LowRows& low, int64_t start, Index first, Index n,
                                          const uint4& words) {
  constexpr int V = kVec16<T>;
  if (!low.data) return;
  compute_t<T> values[V];
  unpack_words<T>(words, values);
  if constexpr (V == 4)
    if (low.vectors && first >= 0 && first + V <= n && (start + first) % V == 0)
      return store_low(low, (start + first) / V, values);
#pragma unroll
  for (int i = 0; i < V; i++) {
    if (first + i < 0 || first + i >= n) continue;
    const int64_t at = start + first + i;
    if (low.half)
      static_cast<half_t*>(low.data)[at] = from_compute<half_t>(values[i]);
    else
      static_cast<bfloat16_t*>(low.data)[at] = from_compute<bfloat16_t>(values[i]);
  }
}

// Two sums at once.
template <class C>
struct Pair {
  C first, second;
};
struct AddPairs {
  template <class C>
  __device__ __forceinline__ Pair<C> operator()(const Pair<C>& a, const Pair<C>& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

// w or b of elements [first, first + V); `absent` if data is null. kWhole: they are a whole vector,
// on a boundary if w begins on one.
template <class T, bool kWhole = false, int V, class C, class Index>
__device__ __forceinline__ void load_norm_vector(const NormVector& v, Index first, Index n,
                                                 C absent, C (&out)[V]) {
  if (!v.data) {
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = absent;
  } else if (kWhole && v.vectors) {
    unpack_words<T>(*reinterpret_cast<const uint4*>(static_cast<const T*>(v.data) + first), out);
  } else if (v.contiguous) {
    unpack_words<T>(load_words_anywhere(static_cast<const T*>(v.data), first, n), out);
  } else {
#pragma unroll 1
    for (int i = 0; i < V; i++) {
      const C value = first + i >= 0 && first + i < n
                          ? load_floating<C>(v.data, (first + i) * v.stride, v.dtype)
                          : C(0);
#pragma unroll
      for (int j = 0; j < V; j++)
        if (i == j) out[j] = value;
    }
  }
}

}  // namespace shardwise::cuda
