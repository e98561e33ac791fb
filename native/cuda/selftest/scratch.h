// Scratch memory for kernels that are called without the runtime: one block, made anew for each
// request.
#pragma once
#include "../../include/backend.h"
#if defined(__CUDACC__)
#include <cstdlib>

#include "../stream.h"
#endif

namespace selftest {

using namespace shardwise;

#if defined(__CUDACC__)
// 0xff in each byte, NaN and -1, in the place of what an earlier call left. Not with
// SELFTEST_UNPOISONED=1, for initcheck, which would take it for written.
inline bool is_poisoned() {
  static const bool answer = getenv("SELFTEST_UNPOISONED") == nullptr;
  return answer;
}

// What the next call on the stream gets.
inline void poison_scratch(void* of_stream) {
  const auto& stream = *static_cast<const cuda::Stream*>(of_stream);
  if (!stream.scratch || !is_poisoned()) return;
  cudaMemsetAsync(stream.scratch, 0xff, static_cast<size_t>(stream.scratch_bytes), stream.handle);
}
#endif

struct Scratch {
  const Backend& backend;
  void* data = nullptr;
  int64_t bytes = 0;

  ScratchSource source() {
    return {this, [](void* self, int64_t wanted, void** out, ErrorText* error) {
              return static_cast<Scratch*>(self)->give(wanted, out, error);
            }};
  }

  Status give(int64_t wanted, void** out, ErrorText* error) {
    if (data) backend.release(0, data, bytes);
    data = nullptr;
    const Status status = wanted > 0 ? backend.allocate(0, wanted, &data, error) : kOk;
    bytes = data ? wanted : 0;
#if defined(__CUDACC__)
    if (data && is_poisoned()) {
      cudaMemset(data, 0xff, static_cast<size_t>(wanted));
      cudaDeviceSynchronize();  // streams do not wait for it
    }
#endif
    *out = data;
    return status;
  }
};

}  // namespace selftest
