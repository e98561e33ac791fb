// The memory of a group: blocks of the ranks, slots that their data goes through, channels between
// two ranks.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "../include/status.h"
#include "group_info.h"
#include "layout.h"

namespace shardwise::comm {

// The group of all ranks of the world, if others are made of some of them: who has left it, or died
// in it, will not come to another either, nor will who has made that of other ranks.
struct Origin {
  std::shared_ptr<class Region> region;  // null: none
  // Asked while this rank waits for others to join: whether it has given up, and why. Empty: it has
  // not.
  std::function<bool(ErrorText* why)> has_given_up;

  // Whether the rank at a place of the group will not join it, as one at `own` sees there; then
  // why, in words that begin with "has".
  bool keeps_away(const Roster& group, int32_t place, int32_t own, ErrorText* why) const;
};

struct SegmentOptions {
  const char* name = "shardwise";  // letters, digits, '-', '_' and '.', at most 100
  // Tells groups apart that use one name at the same time, as by chance: the same on all ranks,
  // another for each group.
  uint64_t token = 0;
  int32_t size = 1, rank = 0;
  int64_t slot_bytes = 0;  // 0: by the number of ranks
  int64_t timeout_ms = 60'000;
  Use use = Use::World;
  Roster roster = {};
  const Origin* origin = nullptr;
};

class Region {
 public:
  // For ranks that are threads of this process: made once, handed to all.
  static Status in_process(int32_t size, int64_t slot_bytes, std::shared_ptr<Region>* out,
                           ErrorText* error, Use use = Use::World, Roster roster = {});
  // For ranks that are processes: rank 0 makes a segment of POSIX shared memory, the others wait
  // for it. Its name goes when all have joined, so that memory goes with the last process, however
  // that ends. A segment of a run that died early is replaced.
  static Status between_processes(const SegmentOptions& options, std::shared_ptr<Region>* out,
                                  ErrorText* error);
  ~Region();
  Region(const Region&) = delete;

  Header& header() { return *reinterpret_cast<Header*>(base_); }
  RankBlock& rank(int32_t rank) { return reinterpret_cast<RankBlock*>(base_ + plan_.ranks)[rank]; }
  // Of groups whose use is Meeting.
  WatchBlock& watch(int32_t rank) {
    return reinterpret_cast<WatchBlock*>(base_ + plan_.watches)[rank];
  }
  bool watched() const { return plan_.watches != 0; }
  // Of groups whose use is World.
  GroupBoard& board(int32_t rank) {
    return reinterpret_cast<GroupBoard*>(base_ + plan_.boards)[rank];
  }
  bool has_boards() const { return plan_.boards != 0; }
  // A rank has two, so that it fills one while others still read the other.
  char* slot(int32_t rank, uint32_t parity) {
    return base_ + plan_.slots + (rank * 2 + (parity & 1)) * plan_.slot_bytes;
  }
  Channel& channel(int32_t from, int32_t to) {
    return reinterpret_cast<Channel*>(base_ + plan_.channels)[from * size_ + to];
  }
  char* piece(int32_t from, int32_t to, uint32_t number) {
    const int64_t ring = (from * size_ + to) * int64_t{kChannelPieces} + number % kChannelPieces;
    return base_ + plan_.pieces + ring * plan_.piece_bytes;
  }

  int32_t size() const { return size_; }
  const Roster& roster() const { return roster_; }
  int64_t slot_bytes() const { return plan_.slot_bytes; }
  int64_t piece_bytes() const { return plan_.piece_bytes; }
  bool shared() const { return shared_; }
  int64_t timeout_ms() const { return timeout_ms_; }

  // Once for each rank, as it joins.
  void count_joined();

  // The first cause of a group's failure is kept, and every rank that waits is woken.
  void fail_group(Code code, const char* text);
  bool failed() { return header().failed.load(std::memory_order_acquire) != 0; }
  Status cause(ErrorText* error);  // of a group that has failed
  void wake_all();

 private:
  // Where what lies, in bytes from the start.
  struct Plan {
    int64_t slot_bytes, piece_bytes, ranks, slots, channels, pieces, watches, boards, total;
  };
  static Plan plan(int32_t size, int64_t slot_bytes, Use use);
  Region(void* base, int32_t size, const Plan& plan, Use use, bool shared, Roster roster)
      : base_(static_cast<char*>(base)),
        size_(size),
        plan_(plan),
        use_(use),
        shared_(shared),
        roster_(std::move(roster)) {}
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
  Roster roster_;
  int64_t timeout_ms_ = 0;  // to find each other
  int file_ = -1;           // while the segment may still have a name
  char path_[128] = {};
};

}  // namespace shardwise::comm
