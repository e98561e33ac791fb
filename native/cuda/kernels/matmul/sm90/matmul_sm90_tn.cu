// The tiles of matmul_sm90.cuh for a contiguous along m, b along n (the gradient of W).
#include "matmul_sm90_launch.cuh"

namespace shardwise::cuda {

WgmmaEntry wgmma_tn(bool bfloat16, int tile) {
  return bfloat16 ? wgmma_entry<bfloat16_t, true, true>(tile)
                  : wgmma_entry<half_t, true, true>(tile);
}

}  // namespace shardwise::cuda
