// Shared by copy.cu and transpose.cu.
#pragma once
#include "../../primitives/offsets.cuh"
#include "../../stream.h"

namespace shardwise::cuda {

struct TransposeArgs {
  const void* x;
  void* y;
  int64_t rows, columns;  // of y: y[r][c] is x[c][r]
  int64_t y_row, x_row;   // strides
  int64_t row_tiles, column_tiles;
  OffsetCalculator<2> batch;  // y, x
};

// Copies in 16-byte vectors if sizes, strides and addresses allow it, else returns false. Sets the
// tile counts of `args`.
bool transpose_vectors(const KernelCall& call, TransposeArgs& args, const Dims<2>& batch);

}  // namespace shardwise::cuda
