// The tiles of matmul_sm90.cuh for a contiguous along k, b along n (the gradient of x).
#include "matmul_sm90_launch.cuh"

namespace shardwise::cuda {

WgmmaEntry wgmma_nn(bool bfloat16, int tile) {
  return bfloat16 ? wgmma_entry<bfloat16_t, false, true>(tile)
                  : wgmma_entry<half_t, false, true>(tile);
}

}  // namespace shardwise::cuda
