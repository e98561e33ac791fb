// Scratch memory for kernels that run without the runtime: one block, allocated again for each
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
// Whether scratch memory is filled with 0xff bytes (NaN, or -1), so that a kernel cannot rely on
// the results of an earlier call. SELFTEST_UNPOISONED=1 turns it off for initcheck, which would
// count the fill as initialisation.
inline bool is_poisoned() {
  static const bool answer = getenv("SELFTEST_UNPOISONED") == nullptr;
  return answer;
}

// Fills the scratch memory of the next call on the stream.
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
      cudaDeviceSynchronize();  // streams do not wait for the fill
    }
#endif
    *out = data;
    return status;
  }
};

}  // namespace selftest
