// What a profile records of one environment: when streams ran commands, when devices ran what these
// launched, and the memory that came and went. Commands get their numbers on the JavaScript thread,
// while a profile is open; only those with a number are recorded, whenever they run.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "../include/backend.h"
#include "spin_lock.h"

namespace shardwise {

class Stream;

// Nanoseconds of the clock of the host, which is that of `performance.now()`.
int64_t host_nanoseconds();

// A command as its stream has run it.
struct Span {
  uint32_t command = 0, op = 0;
  bool is_kernel = false;
  bool at_once = false;  // on the JavaScript thread
  int32_t together = 1;  // commands that ran together: each gets its share of the time
  int32_t device = 0;    // device code
  uint32_t stream = 0;
  int64_t rank_runtime = 0;
  const char* name = "";  // static
  int64_t start = 0, end = 0;
  void *before = nullptr, *after = nullptr;  // events of the device
};

// What a device did for a command.
struct Activity {
  enum Kind : int32_t { Kernel, Copy, Fill };
  Kind kind = Kernel;
  uint32_t command = 0;  // 0: unknown
  int32_t device = 0;    // device code
  int64_t queue = -1;    // of the driver; -1 if the device was timed by events
  const char* name = "";
  int64_t start = 0, end = 0;
  int64_t bytes = 0;
};

struct MemoryChange {
  uint32_t op = 0;
  int32_t device = 0;  // device code; -1: pinned memory
  int64_t rank_runtime = 0;
  int64_t bytes = 0;  // < 0: freed
  int64_t allocated = 0, reserved = 0;
  int64_t time = 0;
};

// Who times a device that runs behind its stream.
enum class DeviceTimer : int32_t { None, Events, Cupti };

class SpanLog {
 public:
  // ---- on the JavaScript thread ----
  // Records a rank of this process, or for rank runtime 0 all of them. `words`: the op that runs,
  // which JavaScript writes, and the number of the last command. The first rank that opens the log
  // decides about the rest.
  void open(int64_t rank_runtime, int32_t* words, DeviceTimer timer, bool host_commands);
  void close(int64_t rank_runtime);
  bool is_open() const { return words_ != nullptr; }
  // The number of the next command; 0 if it is not recorded.
  uint32_t issue(const Stream& stream);
  // Does nothing if it is not recorded.
  void remember(MemoryChange change);
  // Whether all commands with a number have run, and the devices that events time are done with
  // them.
  bool done(int64_t rank_runtime);
  DeviceTimer timer() const { return timer_; }
  // Takes what has been recorded, as of `done`, out of the log.
  struct Contents {
    std::vector<Span> spans;
    std::vector<Activity> activities;
    std::vector<MemoryChange> memory;
  };
  Contents take();

  // ---- on the thread that runs the command ----
  void begin(const Stream& stream, Span& span);
  void end(const Stream& stream, Span& span);
  // The kernels ran together from `start` until now. Those without a number are not recorded.
  void add_together(const Stream& stream, const KernelCall* const* calls, const uint32_t* commands,
                    int32_t count, int64_t start);

  ~SpanLog();

 private:
  // A point of a device's clock by that of the host.
  struct Origin {
    void* event = nullptr;
    int64_t at = 0;
  };
  bool records(int64_t rank_runtime) const {
    return words_ && (ranks_.count(0) || ranks_.count(rank_runtime));
  }
  void* take_event(const Stream& stream);
  void find_origin(const Stream& stream);
  void add(const Stream& stream, Span& span);
  void time_by_events(const std::vector<Span>& spans, std::vector<Activity>* activities);

  int32_t* words_ = nullptr;
  DeviceTimer timer_ = DeviceTimer::None;
  bool host_commands_ = true;
  std::set<int64_t> ranks_;        // that are recorded
  uint32_t next_ = 1, first_ = 1;  // commands: the next one, and the first of `ops_`
  std::vector<uint32_t> ops_;
  std::vector<MemoryChange> changes_;

  SpinLock mutex_;
  std::map<int64_t, int64_t> running_;  // commands by rank that have a number and have not run
  std::vector<Span> spans_;
  std::map<int32_t, std::vector<void*>> events_;  // unused ones by device code
  std::map<int32_t, Origin> origins_;             // by device code
  const Backend* device_backend_ = nullptr;
};

}  // namespace shardwise
