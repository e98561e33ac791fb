// The last calls of a rank in a group, for the file that a failure writes (flight_recorder.h).
// Engines keep only what they compare, each in its own way: this is before them, the same for all.
#pragma once
#include <atomic>
#include <deque>

#include "../include/collective.h"
#include "texts.h"

namespace shardwise {

constexpr int32_t kShownDims = 8;

// The sizes of an operand, at most so many. `count` is -1 without an operand.
struct ShownShape {
  int32_t count = -1;
  int64_t sizes[kShownDims];
};

// What a record shows of a call beside what engines read.
struct ShownCall {
  SharedText name, where, about;
  ShownShape in, out;
};

class FlightRecord {
 public:
  static constexpr size_t kKept = 64;

  struct Entry {
    uint64_t sequence = 0;  // as in CommRecord
    Collective kind{};
    Reduce reduce{};
    DType dtype{};
    int32_t root = -1;
    ShownCall shown;
    int64_t start_ns = 0;             // since 1970
    std::atomic<int64_t> end_ns = 0;  // 0: not finished. A device has launched it by then
  };

  // By the thread that runs the calls.
  void begin(const CollectiveCall& call, const ShownCall& shown);
  void end();

  // Visits the calls from any thread, the latest last. With `at_once` it does not wait for the thread
  // that writes, and returns false where it would have to.
  template <class Visit>
  bool visit(bool at_once, Visit visit) const {
    if (!lock(at_once)) return false;
    for (uint64_t i = calls_ - entries_.size(); i < calls_; i++) visit(entries_[i % kKept]);
    unlock();
    return true;
  }

 private:
  // A lock that a signal handler can try.
  bool lock(bool at_once) const;
  void unlock() const { busy_.clear(std::memory_order_release); }

  mutable std::atomic_flag busy_;
  std::deque<Entry> entries_;  // most groups have few calls
  uint64_t calls_ = 0, collectives_ = 0;
};

}  // namespace shardwise
