// Machine code of earlier processes, in the folder that `shardwise tune` uses
// (lib/cuda/tables.ts): a file for each source, architecture and version of NVRTC. Without a folder
// that can be written, nothing is kept.
#pragma once
#include <cstdint>
#include <string>

namespace shardwise::cuda::fused {

// Of bytes, for keys in memory and names of files.
uint64_t hash_of(const void* data, size_t bytes, uint64_t seed);

// The name of the file for this code.
std::string code_name(const std::string& source, int32_t architecture, int32_t version);

// False if there is no such file, or a damaged one.
bool read_code(const std::string& name, std::string* code);
void write_code(const std::string& name, const std::string& code);

}  // namespace shardwise::cuda::fused
