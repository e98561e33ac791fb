// Shared by cross_entropy.cu and cross_entropy_rows.cu.
#pragma once
#include "../../primitives/row_tile.cuh"

namespace shardwise::cuda {

// The operands of both kernels, without label smoothing; loss and lse may be immediates (absent).
struct CrossEntropyRows {
  const TensorView *x, *target, *weight;
  int64_t ignore_index;
  int64_t first_class, classes;  // x has the columns from first_class on, weight all classes
  const TensorView *loss, *lse, *gx;
  // The gradient of the losses, one per row; or their scale, a number or one element. Null: 1.
  const TensorView* g = nullptr;
  int64_t g_stride = 0;
  bool scores = false;  // loss and lse get the score and lse of the columns of x, in float64
};

// Where the statistics of the columns of x go, instead of losses; none if `score` is null.
struct CrossEntropyStatistics {
  double *score, *lse;

  explicit CrossEntropyStatistics(const CrossEntropyRows& r)
      : score(r.scores ? static_cast<double*>(r.loss->data) : nullptr),
        lse(r.scores ? static_cast<double*>(r.lse->data) : nullptr) {}
};

// What losses and scores are relative to: the largest logit, which the lse is near. Losses of large
// logits are small differences. Not of a row of -inf, whose logits stay so.
template <class C>
__device__ __forceinline__ C base_of(C maximum) {
  return maximum == negative_infinity<C>() ? C(0) : maximum;
}

// The factor of each row in the kernels.
template <class C>
struct RowFactor {
  const C* data;  // null: `value` for all rows
  int64_t stride;
  C value;

  explicit RowFactor(const CrossEntropyRows& r)
      : data(r.g && !r.g->is_immediate ? static_cast<const C*>(r.g->data) : nullptr),
        stride(r.g_stride),
        value(r.g && r.g->is_immediate ? static_cast<C>(r.g->scalar) : C(1)) {}
  __device__ __forceinline__ C of(int64_t row) const { return data ? data[row * stride] : value; }
};

// Each returns false, and launches nothing, unless the rows are whole aligned vectors and long
// enough.
bool cross_entropy_loss_rows(const KernelCall& call, const CrossEntropyRows& r);
bool cross_entropy_gradient_rows(const KernelCall& call, const CrossEntropyRows& r);
bool cross_entropy_both_rows(const KernelCall& call, const CrossEntropyRows& r);

}  // namespace shardwise::cuda
