// What the launches of matmul's sm_90 kernels have in common.
#pragma once
#include "../../primitives/overlap.cuh"
#include "../../tensor_map.h"
#include "matmul.h"

namespace shardwise::cuda {

// An operand as the copy engine sees it: `width` along its contiguous dim, which is that of its
// columns, or `across` them.
inline TensorMapShape operand_shape(const MatmulProblem& p, const MatrixView& v, int64_t width,
                                    int64_t height, bool across) {
  TensorMapShape s;
  s.data = v.data;
  s.width = width;
  s.height = height;
  s.row_stride = across ? v.column_stride : v.row_stride;
  s.depth = p.batch > 1 && v.batch_stride != 0 ? p.batch : 1;
  s.depth_stride = v.batch_stride;
  return s;
}

}  // namespace shardwise::cuda
