// Dropout of attention weights with 16 random bits per weight (README.md, "Random
// numbers").
#pragma once
#include <cmath>
#include <cstdint>

namespace shardwise {

struct WeightDropout {
  uint32_t drop_below = 0;  // of 2^16; smaller draws drop the weight
  // the scale of kept weights: one over the keep probability that 16 bits give; 0 if it is 0
  double keep_scale = 1;

  static WeightDropout of(double probability) {
    constexpr double kAll = 65536;
    const double below = std::round(probability * kAll);
    return {static_cast<uint32_t>(below), below < kAll ? kAll / (kAll - below) : 0};
  }
};

}  // namespace shardwise
