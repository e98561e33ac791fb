// Pauses between two checks of a value that another thread changes.
#pragma once
#if defined(__x86_64__)
#include <immintrin.h>
#elif !defined(__aarch64__)
#include <thread>
#endif

namespace shardwise {

inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#else
  std::this_thread::yield();
#endif
}

}  // namespace shardwise
