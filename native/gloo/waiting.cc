#include "waiting.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../include/start_thread.h"

namespace shardwise::gloo_engine {
namespace {

constexpr auto kTick = std::chrono::milliseconds(50);
constexpr auto kForever = std::chrono::hours(24);
// A thread without waits to end stays awake for so many ticks: to wake it costs more than a
// collective.
constexpr int kIdleTicks = 20;

// Ends all waits of the process at every tick. Never destroyed: other threads may wait until the
// process ends.
class Pulse {
 public:
  static Pulse& get() {
    static Pulse* pulse = new Pulse;
    return *pulse;
  }
  void add(Buffer& buffer, Direction direction) {
    std::lock_guard<std::mutex> lock(mutex_);
    waits_.push_back({&buffer, direction});
    if (asleep_) changed_.notify_one();
  }
  void remove(Buffer& buffer, Direction direction) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(waits_.begin(), waits_.end(), [&](const Wait& wait) {
      return wait.buffer == &buffer && wait.direction == direction;
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
    Direction direction;
  };

  Pulse() {
    if (!start_detached([this] { run(); })) throw std::runtime_error(kNoThread);
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
      if (wait.direction == Direction::Receive)
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
  Direction direction;
  Interruptible(Buffer& b, Direction w) : buffer(b), direction(w) {
    Pulse::get().add(buffer, direction);
  }
  ~Interruptible() { Pulse::get().remove(buffer, direction); }
};

}  // namespace

Waited wait_a_moment(Buffer& buffer, Direction direction, std::string* why) {
  const Interruptible wait(buffer, direction);
  try {
    const bool done =
        direction == Direction::Receive ? buffer.waitRecv(kForever) : buffer.waitSend(kForever);
    return done ? Waited::Done : Waited::Interrupted;
  } catch (const std::exception& error) {
    *why = plain(error.what());
    return Waited::Broken;
  }
}

bool is_broken(Buffer& buffer, std::string* why) {
  buffer.abortWaitRecv();
  try {
    buffer.waitRecv(kForever);  // already interrupted
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

}  // namespace shardwise::gloo_engine
