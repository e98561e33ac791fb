// Loads all kernels of this library before any is launched.
//
// CUDA loads a kernel at its first launch, and waits for all running work on all devices of the
// process to do so. With several ranks in a process that would deadlock: a collective on one device
// waits for the rank of another one, whose launch would wait for that collective.
#pragma once
#include "stream.h"

namespace shardwise::cuda {

// Loads them on this device. From then on cuBLASLt gets no products and NVRTC no programs, because
// both load kernels on demand.
Status load_kernels(int32_t device, ErrorText* error);

}  // namespace shardwise::cuda
