// The ranks of one machine: what they call is compared in shared memory before it is launched.
// Nothing here waits for another rank.
//
// Each rank publishes a word and a note of its calls, and looks at the word of the others under the
// same number: whoever comes second sees a difference. The group's failure is that of the region,
// so that every rank finds it there.
#pragma once
#include <memory>

#include "region.h"
#include "watchdog.h"

namespace shardwise::comm {

class WatchGroup final : public CallWatch {
 public:
  // The region's use is Meeting.
  WatchGroup(std::shared_ptr<Region> region, int32_t rank);

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return region_->size(); }
  const Roster& roster() const override { return region_->roster(); }
  uint64_t calls() const override { return calls_; }

  // A difference fails on all ranks.
  Status begin(const CollectiveCall& call, ErrorText* error) override;
  bool settle(uint64_t, int64_t) override { return true; }
  void leave() override { own().left.store(1, std::memory_order_release); }

  void fail_group(Code code, const char* text) override { region_->fail_group(code, text); }
  bool failed() override { return region_->failed(); }
  int64_t telling_ms() const override { return 0; }
  Status cause(ErrorText* error) override { return region_->cause(error); }
  bool has_refuted() override { return false; }

  bool has_lost() override;
  void describe_lost(Text& text) override { describe_ranks(text, lost_); }
  bool describe_missing(Text& text, uint64_t call, int32_t peer) override;
  void blame(Facts& facts) override;

 private:
  bool find_note(int32_t rank, uint64_t call, Note* out);
  Status report_difference(const Note& mine, int32_t rank, ErrorText* error);
  void publish_exchange(const CollectiveCall& call, uint64_t number);
  // What this rank and another send each other is what each expects.
  Status compare_exchange(const Note& mine, const CollectiveCall& call, int32_t rank,
                          ErrorText* error);
  // Ranks that have left before they came to this rank's last collective.
  uint64_t find_left();
  // Ranks whose process has died: looks into /proc.
  uint64_t find_dead();
  // Ranks that have not come to a collective.
  uint64_t find_missing(uint64_t call);
  void describe_ranks(Text& text, uint64_t ranks);
  WatchBlock& own() { return region_->watch(rank_); }

  std::shared_ptr<Region> region_;
  int32_t rank_;
  uint64_t calls_ = 0;
  uint32_t looks_ = 0;
  uint64_t dead_ = 0, lost_ = 0;
  Missing described_;
};

}  // namespace shardwise::comm
