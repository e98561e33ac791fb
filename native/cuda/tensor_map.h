// Tensor maps for the copy engine of sm_90 (TMA). The driver's encoder is looked up at run time;
// nothing is linked.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace shardwise::cuda {

// A [depth, height, width] tensor of 16-bit elements with contiguous rows, or [batch, depth,
// height, width] if there is a batch: the kernel passes as many coordinates. Strides are in
// elements; the stride of a dim of size 1 is ignored.
struct TensorMapShape {
  const void* data = nullptr;
  int64_t width = 0, height = 0, depth = 1, batch = 0;
  int64_t row_stride = 0, depth_stride = 0, batch_stride = 0;
};

// Whether the copy engine can take it: base and strides are multiples of 16 bytes, sizes fit.
bool tensor_map_fits(const TensorMapShape& shape);

// Boxes of [(1,) 1, box_height, box_width]; rows of 128 (box_width 64) or 64 bytes (32) in shared
// memory, swizzled in 16-byte units. Elements outside the tensor are read as zeros and not written.
// Returns false if the driver has no encoder or refuses.
bool make_tensor_map(const TensorMapShape& shape, int box_width, int box_height, bool bfloat16,
                     CUtensorMap* out);

}  // namespace shardwise::cuda
