// The worker pool of the CPU backend. One region runs at a time; a nested call runs inline.
#pragma once
#include <cstdint>

namespace shardwise::cpu {

// Threads of a region, including the caller.
int num_threads();

// Calls fn(context, begin, end) on disjoint chunks of [0, count), on the caller and the workers,
// and returns when all are complete. A chunk has at least `grain` items (except the last); a single
// chunk runs on the caller.
void parallel_for_raw(int64_t count, int64_t grain, void (*fn)(void*, int64_t, int64_t),
                      void* context);

template <class F>
inline void parallel_for(int64_t count, int64_t grain, F&& body) {
  parallel_for_raw(
      count, grain,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<F*>(context))(begin, end); },
      static_cast<void*>(&body));
}

// Kernels with long chunks call this every few hundred microseconds: it lets threads that wait for
// this processor run, above all the event loop, which otherwise waits for the end of a scheduler
// slice.
void give_turn();

// 64-byte aligned scratch memory of the calling thread, kept between calls and grown on demand.
// `slot` 0 to 3 are separate buffers, so that a kernel and the functions it calls do not share one.
void* scratch(int slot, int64_t bytes);

}  // namespace shardwise::cpu
