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

}  // namespace selftest::floats
