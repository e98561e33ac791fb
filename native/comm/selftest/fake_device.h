// Ranks with fake devices. The engine only counts launches. A call finishes when all ranks launched
// it, or when one rank gives up: as with NCCL, whose kernels then end, and let those of the other
// ranks end, as if they had succeeded.
#pragma once
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "../watchdog_engine.h"
#include "selftest.h"

namespace shardwise::comm::selftest {

inline bool contains(const ErrorText& error, const char* part) {
  return strstr(error.text, part) != nullptr;
}

// The launches of the devices of all ranks, also between processes.
struct Devices {
  std::atomic<uint64_t> launched[kMaxRanks];
  std::atomic<uint64_t> never_done;  // calls from this number on; 0: all are done in time
  std::atomic<bool> given_up;        // one device has given up
  // the first call returns when all ranks have reached it, or when this rank gives up
  std::atomic<bool> connects;
  // A rank that leaves closes its connections at once and returns this much later; meanwhile the
  // others only see closed connections.
  std::atomic<int64_t> closing_ms;
  std::atomic<bool> closed;
};

struct FakeDevice {
  FakeDevice(Devices* shared, int32_t own_rank, int32_t ranks)
      : devices(shared), rank(own_rank), size(ranks) {}
  Devices* devices;
  int32_t rank, size;
  std::mutex mutex;
  std::vector<CommRecord> records;
  std::vector<int64_t> begun;
  int64_t timeout_ns = 1'000'000'000'000;
  bool aborted = false, timed_out = false;
  std::string reason;

  bool is_done(uint64_t number) const {
    if (devices->given_up.load()) return true;
    const uint64_t stuck = devices->never_done.load();
    if (stuck != 0 && number >= stuck) return false;
    for (int32_t r = 0; r < size; r++)
      if (devices->launched[r].load() < number) return false;
    return true;
  }
};

extern const CommEngine kFakeEngine;
Devices* new_devices();

// One rank of a group with a watchdog over a fake device.
struct Rank {
  FakeDevice device;
  void* member;

  Rank(std::unique_ptr<Watchdog> watch, Devices* devices, int64_t timeout_ms)
      : device(devices, watch->rank(), watch->size()) {
    member = watchdog_member(std::move(watch), &kFakeEngine, &device);
    kWatchdogEngine.set_timeout(member, timeout_ms);
  }
  ~Rank() {
    if (member) leave();
  }
  void leave() {
    kWatchdogEngine.destroy(member);
    member = nullptr;
  }

  Status sum(int64_t count, ErrorText* error, DType dtype = DType::Float32,
             const char* name = "all_reduce") {
    CollectiveCall call = {};
    call.kind = Collective::AllReduce;
    call.dtype = dtype;
    call.count = count;
    return run(call, name, "a.ts:9", error);
  }
  Status broadcast(int64_t count, ErrorText* error) {
    CollectiveCall call = {};
    call.kind = Collective::Broadcast;
    call.dtype = DType::Float32;
    call.count = count;
    return run(call, "broadcast", "b.ts:3", error);
  }
  Status run(CollectiveCall& call, const char* name, const char* where, ErrorText* error) {
    call.name = name;
    call.where = where;
    call.error = error;
    return kWatchdogEngine.run(member, call);
  }

  // Polls as a reader does until the group has failed; returns the seconds.
  double wait_for_failure(Status* status, ErrorText* error) {
    const int64_t begin = now_ns();
    while ((*status = kWatchdogEngine.failure(member, error)).ok() &&
           now_ns() - begin < 10'000'000'000)
      usleep(2000);
    return static_cast<double>(now_ns() - begin) * 1e-9;
  }
  // Waits up to a second: the other ranks get a failure first.
  bool aborted() {
    for (int i = 0; i < 1000; i++, usleep(1000)) {
      std::lock_guard<std::mutex> lock(device.mutex);
      if (device.aborted) return true;
    }
    return false;
  }
};

}  // namespace shardwise::comm::selftest
