// Dropout of attention's weights: each has 16 random bits (README.md, "Conventions of kernels").
#pragma once
#include <cmath>
#include <cstdint>

namespace shardwise {

struct WeightDropout {
  uint32_t drop_below = 0;  // of 2^16: what is below it is dropped
  // of the others: one over the probability of being kept, as 16 bits have it; 0 if none is
  double keep_scale = 1;

  static WeightDropout of(double probability) {
    constexpr double kAll = 65536;
    const double below = std::round(probability * kAll);
    return {static_cast<uint32_t>(below), below < kAll ? kAll / (kAll - below) : 0};
  }
};

}  // namespace shardwise
