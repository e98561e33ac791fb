// The time that a rank still waits for others.
#pragma once
#include <algorithm>

#include "wait.h"

namespace shardwise::comm {

// How often a waiting rank checks the other ranks.
constexpr int64_t kWatchNs = 100'000'000;

// A pause of the whole program (Ctrl-Z, a debugger) does not count, nor the time that other ranks
// need to compile.
class Deadline {
 public:
  explicit Deadline(int64_t limit_ms)
      : limit_(std::min(limit_ms, kLongestTimeoutMs) * 1'000'000), last_(now_ns()) {}
  // `counts`: whether the time since the last call does.
  int64_t left(bool counts = true) {
    const int64_t now = now_ns();
    if (counts) waited_ += std::min(now - last_, 2 * kWatchNs);
    last_ = now;
    return limit_ - waited_;
  }
  int64_t waited_ms() const { return waited_ / 1'000'000; }

 private:
  int64_t limit_, last_, waited_ = 0;
};

}  // namespace shardwise::comm
