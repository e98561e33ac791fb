// The dynamic linker resolves gloo's receive to this program (-rdynamic), which passes it on.
#include "slow_gloo.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "../../gloo/slots.h"

// gloo::transport::tcp::UnboundBuffer::recv(int, uint64_t, size_t, size_t)
#define GLOO_RECEIVE "_ZN4gloo9transport3tcp13UnboundBuffer4recvEimmm"

namespace shardwise::comm::selftest {
namespace {

using Receive = void (*)(void* buffer, int rank, uint64_t slot, size_t offset, size_t bytes);
Receive receive = nullptr;
thread_local int pause_ms = 0;
std::atomic<bool> paused{false};

}  // namespace

void take_receive(void* engine) {
  receive = reinterpret_cast<Receive>(dlsym(engine, GLOO_RECEIVE));
}
void pause_before_frames(int milliseconds) { pause_ms = milliseconds; }
bool has_paused() { return paused.load(); }

__attribute__((visibility("default"))) void receive_slowly(void* buffer, int rank, uint64_t slot,
                                                           size_t offset,
                                                           size_t bytes) __asm__(GLOO_RECEIVE);
void receive_slowly(void* buffer, int rank, uint64_t slot, size_t offset, size_t bytes) {
  if (slot == gloo_engine::kFrameSlot && pause_ms > 0) {
    paused.store(true);
    usleep(static_cast<useconds_t>(pause_ms) * 1000);
  }
  receive(buffer, rank, slot, offset, bytes);
}

}  // namespace shardwise::comm::selftest
