#include "reaper.h"

#include "../include/start_thread.h"

namespace shardwise {

Reaper& Reaper::get() {
  // never destroyed: its thread waits on it while the process ends
  static Reaper* reaper = new Reaper;
  return *reaper;
}

void Reaper::add(Release release, int32_t device, void* pointer, int64_t bytes) {
  bool is_waiting;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!started_) started_ = start_detached([this] { loop(); });
    if (started_) released_.push_back({release, device, pointer, bytes});
    is_waiting = started_;
  }
  if (is_waiting)
    wake_.notify_one();
  else
    release(device, pointer, bytes);
}

void Reaper::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  empty_.wait(lock, [&] { return released_.empty() && !working_; });
}

void Reaper::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return !released_.empty(); });
    std::vector<Memory> taken;
    taken.swap(released_);
    working_ = true;
    lock.unlock();
    for (const Memory& memory : taken) memory.release(memory.device, memory.pointer, memory.bytes);
    lock.lock();
    working_ = false;
    if (released_.empty()) empty_.notify_all();
  }
}

}  // namespace shardwise
