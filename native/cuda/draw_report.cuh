// Reports of values that nothing can be drawn by, in the slot for invalid indices: the size, which
// is negative then, has the kind of the fault and `least`.
#pragma once
#include <cstring>

#include "../include/draw_fault.h"
#include "stream.h"

namespace shardwise::cuda {

constexpr int64_t kDrawKinds = 4;

#if defined(__CUDACC__)
__device__ __forceinline__ void report_draw(const IndexErrorSink& sink, const DrawFault& fault) {
  sink.report(__double_as_longlong(fault.given), -1 - (fault.least * kDrawKinds + fault.kind),
              fault.position);
}
#endif

inline bool is_draw_report(const IndexError& error) { return error.size < 0; }

inline DrawFault draw_fault_of(const IndexError& error) {
  const int64_t packed = -1 - error.size;
  DrawFault fault{static_cast<DrawFault::Kind>(packed % kDrawKinds), 0, error.position,
                  packed / kDrawKinds};
  memcpy(&fault.given, &error.value, sizeof fault.given);
  return fault;
}

}  // namespace shardwise::cuda
