// Reductions over the values of several ranks, in rank order. Every rank splits the data the same,
// so the bits are the same on every rank and in every run.
//
//   16-bit floats     computed in float32 over all ranks, rounded once
//   integers          Sum and Product wrap; Avg sums in int64 and truncates toward zero (PyTorch
//                     defines no average of integers)
//   bool              Sum and Max are "or"; Product, Min and Avg (truncated) are "and"
//   Min, Max          NaN wins
#pragma once
#include <cstdint>

#include "../include/collective.h"

namespace shardwise::comm {

// `count` elements of each source into each of the outputs, which may be the same memory as
// sources.
void reduce_into(const char* const* sources, int32_t ranks, char* const* outputs,
                 int32_t num_outputs, int64_t count, DType dtype, Reduce reduce);

}  // namespace shardwise::comm
