// Shapes for the tests of row kernels.
#pragma once
#include "kernel_selftest_floats.h"

namespace selftest::floats {

// Removes the shapes that `wide` and `sparse` skip.
inline void choose(std::vector<Sizes>* shapes) {
  std::vector<Sizes> rest;
  for (const Sizes& s : *shapes) {
    const int64_t numel = s[0] * s[1];
    if (options.wide && (s[1] <= 2000 || numel >= 600000)) continue;
    if (options.sparse && numel >= 300000) continue;
    rest.push_back(s);
  }
  *shapes = rest;
}

// The elements of a tensor, rounded to a dtype.
inline std::vector<double> values_of(const Tensor& t, DType dtype) {
  std::vector<double> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); i++)
    values[i] = round_to(dtype, t.get(static_cast<int64_t>(i)));
  return values;
}

}  // namespace selftest::floats
