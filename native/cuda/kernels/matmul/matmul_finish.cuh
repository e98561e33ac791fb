// The last step of matmul kernels that end with the sum of one element of y in a thread.
#pragma once
#include "../../primitives/dtype.cuh"
#include "matmul.h"

namespace shardwise::cuda {

// y = alpha sum + beta c, rounded once.
template <class T>
__device__ __forceinline__ void finish_element(const MatmulProblem& p, int64_t batch, int64_t row,
                                               int64_t column, float sum) {
  sum *= static_cast<float>(p.alpha);
  if (p.c.data)
    sum += static_cast<float>(p.beta) *
           to_compute<float>(
               static_cast<const T*>(p.c.data)[batch * p.c.batch_stride + row * p.c.row_stride +
                                               column * p.c.column_stride]);
  static_cast<T*>(
      p.y.data)[batch * p.y.batch_stride + row * p.y.row_stride + column * p.y.column_stride] =
      from_compute<T>(sum);
}

}  // namespace shardwise::cuda
