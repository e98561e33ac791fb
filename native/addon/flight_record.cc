#include "flight_record.h"

#include <chrono>
#include <thread>

namespace shardwise {

namespace {

int64_t wall_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

bool FlightRecord::lock(bool at_once) const {
  while (busy_.test_and_set(std::memory_order_acquire)) {
    if (at_once) return false;
    std::this_thread::yield();
  }
  return true;
}

void FlightRecord::begin(const CollectiveCall& call, const ShownCall& shown) {
  const int64_t now = wall_ns();
  lock(false);
  if (!is_message(call.kind)) collectives_++;
  Entry& entry = entries_.size() < kKept ? entries_.emplace_back() : entries_[calls_ % kKept];
  calls_++;
  entry.sequence = collectives_;
  entry.kind = call.kind;
  entry.reduce = call.reduce;
  entry.dtype = call.dtype;
  entry.root = has_root(call.kind) || is_message(call.kind) ? call.root : -1;
  entry.shown = shown;
  entry.start_ns = now;
  entry.end_ns.store(0, std::memory_order_relaxed);
  unlock();
}

void FlightRecord::end() {
  entries_[(calls_ - 1) % kKept].end_ns.store(wall_ns(), std::memory_order_relaxed);
}

}  // namespace shardwise
