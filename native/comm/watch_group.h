// What the ranks of a group of devices call, compared in the shared memory of their hosts before it is launched: a device's engine only
// launches, and a launch that the other ranks do not match hangs. Nothing here waits for another rank.
//
// Each rank publishes a word and a note of its calls, and looks at the word of the others under the same number: whoever comes second sees
// a difference. The group's failure is that of the region, so that every rank finds it there.
#pragma once
#include <memory>

#include "../include/collective.h"
#include "../include/text.h"
#include "region.h"

namespace shardwise::comm {

class WatchGroup {
 public:
  // The region's use is Meeting.
  WatchGroup(std::shared_ptr<Region> region, int32_t rank);

  int32_t rank() const { return rank_; }
  int32_t size() const { return region_->size(); }
  uint64_t calls() const { return calls_; }  // collectives begun, for the thread that begins them
  const char* group() { return region_->header().group; }

  // Of each call that is about to be launched, on one thread at a time. Fails, on all ranks, where another has called something else.
  Status begin(const CollectiveCall& call, ErrorText* error);
  // This rank calls nothing any more.
  void leave() { own().left.store(1, std::memory_order_release); }

  // Of all ranks: from any thread.
  void fail_group(Code code, const char* text) { region_->fail_group(code, text); }
  bool failed() { return region_->failed(); }
  Status cause(ErrorText* error) { return region_->cause(error); }

  // Ranks that have left before they came to this rank's last collective.
  uint64_t find_left();
  // Ranks whose process has died: looks into /proc.
  uint64_t find_dead();
  // Ranks that have not come to a collective.
  uint64_t find_missing(uint64_t call);
  // `: rank 2 has died (process 7), its last call was …; rank 3 …`
  void describe_ranks(Text& text, uint64_t ranks);
  // The same for programs.
  void describe_rank_facts(Text& text, uint64_t ranks);

 private:
  Status refuse(const Note& note, ErrorText* error);
  Status report_difference(const Note& mine, int32_t rank, ErrorText* error);
  void publish_exchange(const CollectiveCall& call, uint64_t number);
  // What this rank and another send each other is what each expects.
  Status compare_exchange(const Note& mine, const CollectiveCall& call, int32_t rank, ErrorText* error);
  WatchBlock& own() { return region_->watch(rank_); }

  std::shared_ptr<Region> region_;
  int32_t rank_;
  uint64_t calls_ = 0;
};

}  // namespace shardwise::comm
