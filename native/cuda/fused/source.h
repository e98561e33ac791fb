// The CUDA source of a fused kernel. Host code only, without CUDA: a text of a program.
#pragma once
#include <string>

#include "layout.h"

namespace shardwise::cuda::fused {

// The most elements that a thread computes: 16 bytes of the widest output, since stores of more
// write parts of sectors; fewer for long programs, whose code is unrolled.
int32_t widest_vector(const KernelCall& call);

// The kernel is called `fused`, with the names of the ops behind it.
struct Source {
  std::string name, text;
};
Source write_source(const FusedProgram& program, const Layout& layout);

// The program for readers, a line for each step.
std::string describe(const FusedProgram& program);

}  // namespace shardwise::cuda::fused
