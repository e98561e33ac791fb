// Loading all kernels of this library before any is launched.
//
// CUDA loads a kernel with its first launch, and waits for what runs on all devices of the process
// to do so. Ranks that share a process must not have that: a collective on one device waits for the
// rank of another one, whose launch would wait for that collective.
#pragma once
#include "stream.h"

namespace shardwise::cuda {

// On this device. From then on no product goes to cuBLASLt, which loads kernels of its own as it
// needs them.
Status load_kernels(int32_t device, ErrorText* error);

}  // namespace shardwise::cuda
