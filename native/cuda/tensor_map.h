// Descriptions of tensors for the copy engine of sm_90 (TMA). The driver's encoder is found at run
// time; nothing is linked.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace shardwise::cuda {

// A [depth, height, width] tensor of 16-bit elements whose rows are contiguous, or [batch, depth,
// height, width] if there is a batch: the kernel names as many coordinates. Strides are in
// elements; that of a size of 1 may be anything.
struct TensorMapShape {
  const void* data = nullptr;
  int64_t width = 0, height = 0, depth = 1, batch = 0;
  int64_t row_stride = 0, depth_stride = 0, batch_stride = 0;
};

// Can the copy engine take it? Base and strides are multiples of 16 bytes, sizes fit.
bool tensor_map_fits(const TensorMapShape& shape);

// Boxes of [(1,) 1, box_height, box_width]; rows of 128 (box_width 64) or 64 bytes (32) in shared
// memory, swizzled in 16-byte units. What lies outside the tensor is read as zeros and not written.
// False if the driver has no encoder or refuses.
bool make_tensor_map(const TensorMapShape& shape, int box_width, int box_height, bool bfloat16,
                     CUtensorMap* out);

}  // namespace shardwise::cuda
