// The tiles of matmul_sm90.cuh for a and b contiguous along k (x W^T, a linear layer).
#include "matmul_sm90_launch.cuh"

namespace shardwise::cuda {

WgmmaEntry wgmma_nt(bool bfloat16, int tile) {
  return bfloat16 ? wgmma_entry<bfloat16_t, false, false>(tile)
                  : wgmma_entry<half_t, false, false>(tile);
}

}  // namespace shardwise::cuda
