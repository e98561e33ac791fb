// Shared by softmax.cu, softmax_vectors.cu and softmax_cluster.cu.
#pragma once
#include "../../primitives/row_sum.cuh"

namespace shardwise::cuda {

// Contiguous rows: `first` is x forward, g backward; `second` is y backward, else null.
struct SoftmaxRows {
  DType dtype;
  int64_t rows, n;
  const void *first, *second;
  void* out;
  bool log_form;
};
// Each returns false, and launches nothing, unless the rows are whole aligned vectors and fit.
bool softmax_vectors_forward(const KernelCall& call, const SoftmaxRows& r);
bool softmax_vectors_backward(const KernelCall& call, const SoftmaxRows& r);
bool softmax_cluster_forward(const KernelCall& call, const SoftmaxRows& r);
bool softmax_cluster_backward(const KernelCall& call, const SoftmaxRows& r);

}  // namespace shardwise::cuda
