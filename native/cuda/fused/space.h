// The iteration space of a call of a fused kernel: chooses the layout that the kernel is compiled
// for, and makes the arguments of a launch.
#pragma once
#include "../primitives/offsets.cuh"
#include "../stream.h"
#include "layout.h"

namespace shardwise::cuda::fused {

// The sizes and strides of a call, dims in the memory order of the first output and merged, and
// where each operand starts. Operands are numbered as in the call.
struct Space {
  Dims<kMaxFusedOperands> dims;
  char* start[kMaxFusedOperands];
};

// Chooses a layout with vectors of at most `width` elements, a power of 2.
Layout lay_out(const KernelCall& call, int32_t width, Space* space);

// Whether a launch covers the space: offsets are computed with 32 bits. If not, `first` and
// `second` are its halves.
bool fits_one_launch(const Layout& layout, const Space& space);
void halve(const KernelCall& call, const Layout& layout, const Space& space, Space* first,
           Space* second);

// The parameter of a kernel, in the layout that source.cc declares.
class Arguments {
 public:
  void fill(const KernelCall& call, const Layout& layout, const Space& space);
  void* data() { return words_; }
  int64_t num_blocks() const { return num_blocks_; }

 private:
  static constexpr int32_t kMaxWords =
      2 + kMaxFusedOperands + 2 * kMaxDims + kMaxDims * kMaxFusedOperands;
  uint64_t words_[kMaxWords];
  int64_t num_blocks_ = 0;
};

}  // namespace shardwise::cuda::fused
