// The tiles of matmul_sm90.cuh for a contiguous along m, b along k.
#include "matmul_sm90_launch.cuh"

namespace shardwise::cuda {

WgmmaEntry wgmma_tt(bool bfloat16, int tile) {
  return bfloat16 ? wgmma_entry<bfloat16_t, true, false>(tile)
                  : wgmma_entry<half_t, true, false>(tile);
}

}  // namespace shardwise::cuda
