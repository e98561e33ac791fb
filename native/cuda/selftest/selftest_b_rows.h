// What the tests of row kernels share.
#pragma once
#include "selftest_b.h"

namespace selftest {

// What `wide` and `sparse` leave out.
inline void choose(std::vector<Sizes>* shapes) {
  std::vector<Sizes> rest;
  for (const Sizes& s : *shapes) {
    const int64_t numel = s[0] * s[1];
    if (context().wide && (s[1] <= 2000 || numel >= 600000)) continue;
    if (context().sparse && numel >= 300000) continue;
    rest.push_back(s);
  }
  *shapes = rest;
}

// A second run gives the same bits.
template <class P>
void run_again(const std::string& what, const char* name, const std::vector<const Tensor*>& inputs,
               const std::vector<Tensor*>& outputs, const P& params) {
  std::vector<std::vector<double>> first;
  for (Tensor* t : outputs) first.push_back(t->values);
  for (Tensor* t : outputs)
    if (t->present()) t->fill([](int64_t) { return kUntouched; });
  run(what + " again", name, inputs, outputs, params);
  for (size_t i = 0; i < outputs.size(); i++)
    if (!first[i].empty() && std::memcmp(first[i].data(), outputs[i]->values.data(), first[i].size() * sizeof(double)) != 0)
      problem(what + ": two runs differ in output " + std::to_string(i));
}

}  // namespace selftest
