// Instruction sets, chosen once at load by cpuid. Files under kernels/ that gain from it are
// compiled once per level with SW_ISA_NAMESPACE set to baseline, avx2 or avx512, and return a
// table; select<>() picks one.
//
// Such a file must not use templates of the standard library (std::min, std::vector ...): the
// linker could keep the copy compiled for AVX-512 and use it on a machine without AVX-512.
// test/architecture checks that those objects export nothing weak.
#pragma once
#include <cstdint>

namespace shardwise::cpu {

enum class Isa : int32_t { Baseline = 0, Avx2 = 1, Avx512 = 2 };

struct CpuFeatures {
  Isa isa;           // the highest level usable, lowered by SHARDWISE_CPU_ISA=baseline|avx2|avx512
  bool avx512_bf16;  // vdpbf16ps
  bool f16c;
};

const CpuFeatures& cpu_features();

}  // namespace shardwise::cpu
