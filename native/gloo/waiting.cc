#include "waiting.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace shardwise::across {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kForever = std::chrono::hours(24);
// A thread that has nothing to wake stays awake for so many ticks: to wake it costs more than a
// collective in between.
constexpr int kIdleTicks = 20;

// Ends all waits of the process with every tick. Never destroyed: other threads may wait until the
// process ends.
class Pulse {
 public:
  static Pulse& get() {
    static Pulse* pulse = new Pulse;
    return *pulse;
  }
  void add(Buffer& buffer, Way way) {
    std::lock_guard<std::mutex> lock(mutex_);
    waits_.push_back({&buffer, way});
    if (asleep_) changed_.notify_one();
  }
  void remove(Buffer& buffer, Way way) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(waits_.begin(), waits_.end(), [&](const Wait& wait) {
      return wait.buffer == &buffer && wait.way == way;
    });
    *found = waits_.back();
    waits_.pop_back();
  }
  void beat() {
    std::lock_guard<std::mutex> lock(mutex_);
    interrupt_all();
  }

 private:
  struct Wait {
    Buffer* buffer;
    Way way;
  };

  Pulse() {
    std::thread([this] { run(); }).detach();
  }
  void run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (int idle = 0;; idle = waits_.empty() ? idle + 1 : 0) {
      if (idle > kIdleTicks) {
        asleep_ = true;
        changed_.wait(lock, [this] { return !waits_.empty(); });
        asleep_ = false;
      }
      lock.unlock();
      std::this_thread::sleep_for(kTick);
      lock.lock();
      interrupt_all();
    }
  }
  void interrupt_all() {
    for (const Wait& wait : waits_) {
      if (wait.way == Way::Receive)
        wait.buffer->abortWaitRecv();
      else
        wait.buffer->abortWaitSend();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Wait> waits_;
  bool asleep_ = false;
};

struct Interruptible {
  Buffer& buffer;
  Way way;
  Interruptible(Buffer& b, Way w) : buffer(b), way(w) { Pulse::get().add(buffer, way); }
  ~Interruptible() { Pulse::get().remove(buffer, way); }
};

}  // namespace

Waited wait_a_moment(Buffer& buffer, Way way, std::string* why) {
  const Interruptible wait(buffer, way);
  try {
    const bool done = way == Way::Receive ? buffer.waitRecv(kForever) : buffer.waitSend(kForever);
    return done ? Waited::Done : Waited::Interrupted;
  } catch (const std::exception& error) {
    *why = plain(error.what());
    return Waited::Broken;
  }
}

bool is_broken(Buffer& buffer, std::string* why) {
  buffer.abortWaitRecv();
  try {
    buffer.waitRecv(kForever);  // interrupted already
    return false;
  } catch (const std::exception& error) {
    *why = plain(error.what());
    return true;
  }
}

void interrupt_waits() { Pulse::get().beat(); }

std::string plain(const char* what) {
  const char* end = what[0] == '[' ? strstr(what, "] ") : nullptr;
  return end ? end + 2 : what;
}

}  // namespace shardwise::across
