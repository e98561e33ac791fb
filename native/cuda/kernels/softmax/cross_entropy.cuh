// What cross_entropy.cu and cross_entropy_rows.cu share.
#pragma once
#include "../../primitives/row_tile.cuh"

namespace shardwise::cuda {

// Operands as the kernels got them; loss and lse may be immediates (absent). Without label
// smoothing.
struct CrossEntropyRows {
  const TensorView *x, *target, *weight;
  int64_t ignore_index;
  // the gradient of the losses, for each row; or what they are scaled by, a number or one element;
  // null: 1
  const TensorView* g;
  int64_t g_stride;
  const TensorView *loss, *lse, *gx;
};

// Factors of the rows, as kernels see them.
template <class C>
struct RowFactor {
  const C* data;  // null: all are `value`
  int64_t stride;
  C value;

  explicit RowFactor(const CrossEntropyRows& r)
      : data(r.g && !r.g->is_immediate ? static_cast<const C*>(r.g->data) : nullptr),
        stride(r.g_stride),
        value(r.g && r.g->is_immediate ? static_cast<C>(r.g->scalar) : C(1)) {}
  __device__ __forceinline__ C of(int64_t row) const { return data ? data[row * stride] : value; }
};

// Each does the rows if they are whole aligned vectors and long enough, or returns false.
bool cross_entropy_loss_rows(const KernelCall& call, const CrossEntropyRows& r);
bool cross_entropy_gradient_rows(const KernelCall& call, const CrossEntropyRows& r);
bool cross_entropy_both_rows(const KernelCall& call, const CrossEntropyRows& r);

}  // namespace shardwise::cuda
