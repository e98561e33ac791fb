// The shared memory of a group: a block for each rank, slots for its data, and a channel for each
// pair of ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "../include/status.h"
#include "group_info.h"
#include "layout.h"

namespace shardwise::comm {

// The group of all ranks, for a group of some of them. A rank that left or died there, or created
// this group with other ranks, will not join.
struct Origin {
  std::shared_ptr<class Region> region;  // null: none
  // Asked while this rank waits for others to join: whether this rank gave up, and why. May be
  // empty.
  std::function<bool(ErrorText* why)> has_given_up;

  // Whether the rank at `place` of the group will not join it, seen from `own`. If so, `why` says
  // it in a phrase that begins with "has".
  bool keeps_away(const GroupInfo& group, int32_t place, int32_t own, ErrorText* why) const;
};

struct SegmentOptions {
  const char* name = "shardwise";  // letters, digits, '-', '_' and '.', at most 100
  // Distinguishes groups that use one name at the same time. The same on all ranks, and different
  // for each group.
  uint64_t token = 0;
  int32_t size = 1, rank = 0;
  int64_t slot_bytes = 0;  // 0: chosen by the number of ranks
  int64_t timeout_ms = 60'000;
  Use use = Use::World;
  GroupInfo group_info = {};
  const Origin* origin = nullptr;
};

class Region {
 public:
  // For ranks that are threads of this process; all ranks share the object.
  static Status in_process(int32_t size, int64_t slot_bytes, std::shared_ptr<Region>* out,
                           ErrorText* error, Use use = Use::World, GroupInfo group_info = {});
  // For ranks that are processes: rank 0 creates a segment of shared memory and the others
  // wait for it. Its name is removed when all have joined, so the memory is freed with the last
  // process, however it ends. A segment of a run that died early is replaced.
  static Status between_processes(const SegmentOptions& options, std::shared_ptr<Region>* out,
                                  ErrorText* error);
  ~Region();
  Region(const Region&) = delete;

  Header& header() { return *reinterpret_cast<Header*>(base_); }
  RankBlock& rank(int32_t rank) { return reinterpret_cast<RankBlock*>(base_ + plan_.ranks)[rank]; }
  // Only if the use is Rendezvous.
  WatchdogBlock& watchdog(int32_t rank) {
    return reinterpret_cast<WatchdogBlock*>(base_ + plan_.watchdogs)[rank];
  }
  bool has_watchdogs() const { return plan_.watchdogs != 0; }
  // Only if the use is World.
  GroupRegistry& registry(int32_t rank) {
    return reinterpret_cast<GroupRegistry*>(base_ + plan_.registries)[rank];
  }
  bool has_registries() const { return plan_.registries != 0; }
  // Each rank has two: it fills one while others still read the other.
  char* slot(int32_t rank, uint32_t parity) {
    return base_ + plan_.slots + (rank * 2 + (parity & 1)) * plan_.slot_bytes;
  }
  Channel& channel(int32_t from, int32_t to) {
    return reinterpret_cast<Channel*>(base_ + plan_.channels)[from * size_ + to];
  }
  char* chunk(int32_t from, int32_t to, uint32_t number) {
    const int64_t ring = (from * size_ + to) * int64_t{kChannelChunks} + number % kChannelChunks;
    return base_ + plan_.chunks + ring * plan_.chunk_bytes;
  }

  int32_t size() const { return size_; }
  const GroupInfo& group_info() const { return group_info_; }
  int64_t slot_bytes() const { return plan_.slot_bytes; }
  int64_t chunk_bytes() const { return plan_.chunk_bytes; }
  bool shared() const { return shared_; }
  int64_t timeout_ms() const { return timeout_ms_; }

  // Each rank calls this once as it joins.
  void count_joined();

  // Keeps the first cause and wakes every rank that waits.
  void fail_group(Code code, const ErrorText& why);
  bool failed() { return header().failed.load(std::memory_order_acquire) != 0; }
  Status cause(ErrorText* error);  // only after the group has failed
  void wake_all();

 private:
  // Offsets in bytes from the start.
  struct Plan {
    int64_t slot_bytes, chunk_bytes, ranks, slots, channels, chunks, watchdogs, registries, total;
  };
  static Plan plan(int32_t size, int64_t slot_bytes, Use use);
  Region(void* base, int32_t size, const Plan& plan, Use use, bool shared, GroupInfo group_info)
      : base_(static_cast<char*>(base)),
        size_(size),
        plan_(plan),
        use_(use),
        shared_(shared),
        group_info_(std::move(group_info)) {}
  static Status create(const SegmentOptions& options, std::shared_ptr<Region>* out,
                       ErrorText* error);
  static Status attach(const SegmentOptions& options, std::shared_ptr<Region>* out,
                       ErrorText* error);
  void prepare();

  char* base_;
  int32_t size_;
  Plan plan_;
  Use use_;
  bool shared_;
  GroupInfo group_info_;
  int64_t timeout_ms_ = 0;     // for joining
  platform::SharedFile file_;  // while the segment may have a name
  char path_[128] = {};
};

}  // namespace shardwise::comm
