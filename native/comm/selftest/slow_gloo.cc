// The dynamic linker takes gloo's receive from this program (-rdynamic), which passes it on.
#include "slow_gloo.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace shardwise::comm::selftest {
namespace {

constexpr uint64_t kFrameSlot = 2;  // as in native/gloo/slots.h

using Receive = void (*)(void* buffer, int rank, uint64_t slot, size_t offset, size_t bytes);
Receive receive = nullptr;
thread_local int pause_ms = 0;
std::atomic<bool> paused{false};

}  // namespace

void take_receive(void* engine) {
  receive = reinterpret_cast<Receive>(dlsym(engine, "_ZN4gloo9transport3tcp13UnboundBuffer4recvEimmm"));
}
void pause_before_frames(int milliseconds) { pause_ms = milliseconds; }
bool has_paused() { return paused.load(); }

}  // namespace shardwise::comm::selftest

// gloo::transport::tcp::UnboundBuffer::recv(int, uint64_t, size_t, size_t)
extern "C" __attribute__((visibility("default"))) void _ZN4gloo9transport3tcp13UnboundBuffer4recvEimmm(void* buffer, int rank, uint64_t slot, size_t offset, size_t bytes) {
  using namespace shardwise::comm::selftest;
  if (slot == kFrameSlot && pause_ms > 0) {
    paused.store(true);
    usleep(static_cast<useconds_t>(pause_ms) * 1000);
  }
  receive(buffer, rank, slot, offset, bytes);
}
