// Scratch memory for kernels that are called without the runtime: one block, made anew for each request.
#pragma once
#include "../../include/backend.h"

namespace selftest {

using namespace shardwise;

struct Scratch {
  const Backend& backend;
  void* data = nullptr;
  int64_t bytes = 0;

  ScratchSource source() {
    return {this, [](void* self, int64_t wanted, void** out, ErrorText* error) { return static_cast<Scratch*>(self)->give(wanted, out, error); }};
  }

  Status give(int64_t wanted, void** out, ErrorText* error) {
    if (data) backend.release(0, data, bytes);
    data = nullptr;
    const Status status = wanted > 0 ? backend.allocate(0, wanted, &data, error) : kOk;
    bytes = data ? wanted : 0;
    *out = data;
    return status;
  }
};

}  // namespace selftest
