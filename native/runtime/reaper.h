// Gives memory back to the system on a thread of its own: unmapping 64 MiB takes milliseconds,
// which neither the JavaScript thread nor a garbage collection has.
#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace shardwise {

class Reaper {
 public:
  using Release = void (*)(int32_t device, void* pointer, int64_t bytes);

  void add(Release release, int32_t device, void* pointer, int64_t bytes);
  // Until everything that was added is given back: before one says that there is no memory.
  void drain();
  static Reaper& get();

 private:
  struct Piece {
    Release release;
    int32_t device;
    void* pointer;
    int64_t bytes;
  };
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_, empty_;
  std::vector<Piece> pieces_;
  bool working_ = false;
  bool started_ = false;
};

}  // namespace shardwise
