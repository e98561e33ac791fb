// Returns memory to the system on a thread of its own: unmapping 64 MiB takes milliseconds, too
// long for the JavaScript thread and for a garbage collection. Without a thread the caller does it.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace shardwise {

class Reaper {
 public:
  using Release = void (*)(int32_t device, void* pointer, int64_t bytes);

  void add(Release release, int32_t device, void* pointer, int64_t bytes);
  // Waits until all memory that was added is returned. Called before an allocation fails.
  void drain();
  static Reaper& get();

 private:
  struct Memory {
    Release release;
    int32_t device;
    void* pointer;
    int64_t bytes;
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_, empty_;
  std::vector<Memory> released_;
  bool working_ = false;
  bool started_ = false;
};

}  // namespace shardwise
