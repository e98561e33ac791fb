// How a fused kernel reaches its operands: what its code depends on, beside the program. space.h has
// what a launch passes.
#pragma once
#include "../../include/fused_program.h"

namespace shardwise::cuda::fused {

constexpr int32_t kThreads = 256;
constexpr int32_t kScattered = 4;  // elements of a thread without vectors, 256 apart

enum class Access : uint8_t {
  Linear,   // dense, in the order of the kernel: no offset to compute
  Strided,  // at an offset; its vectors are contiguous
  Splat,    // at an offset; one element for a whole vector
  Scalar,   // one element for all
};

// Compared and hashed as bytes.
struct Layout {
  uint8_t width = 1;     // elements of a vector, all of one thread; 1: without vectors
  uint8_t has_tail = 0;  // the last vector may lack elements
  uint8_t ndim = 0;      // dims of the offsets
  uint8_t num_operands = 0;
  Access access[kMaxFusedOperands] = {};  // inputs, then outputs

  int32_t elements_of_thread() const { return width > 1 ? width : kScattered; }
  bool is_strided(int32_t operand) const {
    return access[operand] == Access::Strided || access[operand] == Access::Splat;
  }
};

}  // namespace shardwise::cuda::fused
