#include "isa.h"

#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace shardwise::cpu {

namespace {

#if defined(__x86_64__)
uint64_t enabled_by_system() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}
#endif

CpuFeatures detect() {
  CpuFeatures found{Isa::Baseline, false, false};
#if defined(__x86_64__)
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return found;
  const uint64_t state = enabled_by_system();
  const bool fma = c & bit_FMA, f16c = c & bit_F16C;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  const bool avx2 = (b & bit_AVX2) && (b & bit_BMI2) && fma && f16c && (state & 6) == 6;
  const bool avx512 = (b & bit_AVX512F) && (b & bit_AVX512BW) && (b & bit_AVX512DQ) &&
                      (b & bit_AVX512VL) && (b & bit_AVX512CD) && (state & 0xe6) == 0xe6;
  if (avx2) found = {avx512 ? Isa::Avx512 : Isa::Avx2, false, true};
  if (avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) found.avx512_bf16 = a & (1u << 5);
#endif
  return found;
}

CpuFeatures limited() {
  CpuFeatures found = detect();
  const char* wanted = std::getenv("SHARDWISE_CPU_ISA");
  if (!wanted) return found;
  const Isa limit = !std::strcmp(wanted, "baseline") ? Isa::Baseline
                    : !std::strcmp(wanted, "avx2")   ? Isa::Avx2
                                                     : Isa::Avx512;
  if (found.isa > limit) found.isa = limit;
  if (found.isa < Isa::Avx512) found.avx512_bf16 = false;
  if (found.isa < Isa::Avx2) found.f16c = false;
  return found;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = limited();
  return features;
}

}  // namespace shardwise::cpu
