// NVRTC, opened at run time if the machine has it: compiles CUDA source to machine code. Needs no
// header of it: nvrtc.cc declares the few functions used.
#pragma once
#include <cstdint>
#include <string>

namespace shardwise::cuda::nvrtc {

// Sets the paths and names to try, one a line, in order; before the first use.
// lib/native/libraries.ts finds them.
void look_at(const char* candidates);

// Opens the library on the first call.
bool is_ready();

// The path and version found, or one line per candidate with the reason why it was refused.
const char* report();

// As the library reports it, 13000 for 13.0; 0 without one.
int32_t version();

// Whether it compiles for this architecture: 90 for compute capability 9.0.
bool supports(int32_t architecture);

// Writes the machine code of a source for an architecture, or the compiler's messages. Threads may
// call it together.
bool compile(const std::string& name, const std::string& source, int32_t architecture,
             std::string* code, std::string* log);

}  // namespace shardwise::cuda::nvrtc
