// The order in which sources are written to their targets, or combined with them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "dtype.h"

namespace shardwise::cpu {

// Source order; or, if results of 16 bits are rounded, grouped by target, so that each target is
// rounded once.
class TargetOrder {
 public:
  TargetOrder(const int64_t* targets, int64_t count, DType dtype, bool rounds = true)
      : targets_(targets), count_(count) {
    if (!rounds || !is_floating(dtype) || item_size(dtype) != 2) return;
    order_.resize(static_cast<size_t>(count));
    std::iota(order_.begin(), order_.end(), int64_t(0));
    std::stable_sort(order_.begin(), order_.end(),
                     [targets](int64_t a, int64_t b) { return targets[a] < targets[b]; });
  }
  int64_t operator[](int64_t i) const {
    return order_.empty() ? i : order_[static_cast<size_t>(i)];
  }

  // Calls each(target, begin, end) for runs (*this)[begin] to (*this)[end - 1] with one target.
  template <class Each>
  void for_each_run(Each&& each) const {
    for (int64_t begin = 0, end; begin < count_; begin = end) {
      const int64_t target = targets_[(*this)[begin]];
      for (end = begin + 1; end < count_ && targets_[(*this)[end]] == target;) end++;
      each(target, begin, end);
    }
  }

 private:
  const int64_t* targets_;
  int64_t count_;
  std::vector<int64_t> order_;  // empty: source order
};

}  // namespace shardwise::cpu
