// How long a rank has waited for others.
#pragma once
#include <algorithm>

#include "wait.h"

namespace shardwise::comm {

// How often a waiting rank looks what has become of the others.
constexpr int64_t kLookNs = 100'000'000;

// If all of a group was stopped and goes on (Ctrl-Z, a debugger), the pause does not count.
class Patience {
 public:
  explicit Patience(int64_t limit_ms)
      : limit_(std::min(limit_ms, kLongestTimeoutMs) * 1'000'000), last_(now_ns()) {}
  int64_t left() {
    const int64_t now = now_ns();
    waited_ += std::min(now - last_, 2 * kLookNs);
    last_ = now;
    return limit_ - waited_;
  }
  int64_t waited_ms() const { return waited_ / 1'000'000; }

 private:
  int64_t limit_, last_, waited_ = 0;
};

}  // namespace shardwise::comm
