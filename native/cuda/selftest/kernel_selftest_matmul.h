// A reference for the tests of products.
#pragma once
#include "kernel_selftest_floats.h"

namespace selftest::floats {

// Element (row, column) of a[batch] b[batch] in float64.
inline double product_at(const Tensor& a, const Tensor& b, int64_t batch, int64_t row,
                         int64_t column) {
  const double* left = a.values.data() + a.index_of({batch, row, 0});
  const double* right = b.values.data() + b.index_of({batch, 0, column});
  double sum = 0;
  for (int64_t t = 0; t < a.sizes[2]; t++) sum += left[t * a.strides[2]] * right[t * b.strides[1]];
  return sum;
}

}  // namespace selftest::floats
