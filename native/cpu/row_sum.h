// Rows of a sum that a norm reads and writes.
#pragma once
#include "row_math.h"

namespace shardwise::cpu {

// The row of `sum` = x + residual, as it is rounded to its dtype. `buffer` has 2 n elements.
template <class T>
const T* row_of_sum(const T* x, const TensorView& residual, const TensorView& sum, int64_t row,
                    int64_t n, T* buffer) {
  const T* other = read_row(residual, row, n, buffer);
  T* out = row_target(sum, row, n, buffer + n);
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + other[i];
  store_row(sum, row, n, out, buffer + n);
  return read_row(sum, row, n, buffer + n);
}

}  // namespace shardwise::cpu
