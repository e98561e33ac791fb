// What cross_entropy.cu and cross_entropy_rows.cu share.
#pragma once
#include "../primitives/row_tile.cuh"

namespace shardwise::cuda {

// Operands as the kernels got them; loss and lse may be immediates (absent). Without label smoothing.
struct CrossEntropyRows {
  const TensorView *x, *target, *weight;
  int64_t ignore_index;
  const TensorView* g;  // the gradient of the losses: for each row, or one for all (g_stride 0)
  int64_t g_stride;
  const TensorView *loss, *lse, *gx;
};
// Each does the rows if they are whole aligned vectors and long enough, or returns false.
bool cross_entropy_loss_rows(const KernelCall& call, const CrossEntropyRows& r);
bool cross_entropy_gradient_rows(const KernelCall& call, const CrossEntropyRows& r);
bool cross_entropy_both_rows(const KernelCall& call, const CrossEntropyRows& r);

}  // namespace shardwise::cuda
