// Random inputs for the self-tests. Every run draws others, prints its seed, and takes it from
// SELFTEST_SEED.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace selftest {

inline uint64_t run_seed() {
  static const uint64_t seed = [] {
    const char* given = getenv("SELFTEST_SEED");
    const uint64_t drawn =
        given ? strtoull(given, nullptr, 10) : static_cast<uint64_t>(time(nullptr));
    printf("SELFTEST_SEED=%llu\n", static_cast<unsigned long long>(drawn));
    return drawn;
  }();
  return seed;
}

struct Random {
  uint64_t state;
  explicit Random(uint64_t seed)
      : state((run_seed() * 0x632be59bd9b4e019u + seed) * 0x9e3779b97f4a7c15u + 1) {
    for (int i = 0; i < 8; i++) bits();  // neighbouring seeds start with similar values
  }
  uint64_t bits() {
    if (state == 0) state = 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1du;
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  int64_t integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low));
  }
  double normal() {
    return std::sqrt(-2 * std::log(1 - uniform())) * std::cos(6.283185307179586 * uniform());
  }
};

}  // namespace selftest
