// Watchdog for ranks of one machine: compares calls in shared memory before they are launched.
// Never waits for another rank.
//
// Each rank publishes a stamp and a record of each call and reads the stamps of the other ranks
// under the same number: the later rank sees the mismatch. The region keeps the failure of the
// group, where every rank finds it.
#pragma once
#include <memory>

#include "compilation.h"
#include "watchdog.h"

namespace shardwise::comm {

class ShmWatchdog final : public Watchdog {
 public:
  // The use of the region must be Rendezvous.
  // `world`: as in Compilations.
  ShmWatchdog(std::shared_ptr<Region> region, std::shared_ptr<Region> world, int32_t rank);

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return region_->size(); }
  const GroupInfo& group_info() const override { return region_->group_info(); }
  uint64_t calls() const override { return calls_; }

  // A mismatch fails on all ranks.
  Status begin(const CollectiveCall& call, ErrorText* error) override;
  bool settle(uint64_t, int64_t) override { return true; }
  void leave() override { own().left.store(1, std::memory_order_release); }

  void fail_group(Code code, const ErrorText& why) override { region_->fail_group(code, why); }
  bool failed() override { return region_->failed(); }
  int64_t grace_ms() const override { return 0; }
  Status cause(ErrorText* error) override { return region_->cause(error); }
  bool has_mismatch() override { return false; }

  bool has_dead_peer() override;
  void describe_dead_peers(Text& text) override { describe_ranks(text, gone_); }
  bool is_delayed(uint64_t call, int32_t peer) override;
  bool describe_missing(Text& text, uint64_t call, int32_t peer) override;
  void blame(DetailsWriter& details) override;

 private:
  bool find_record(int32_t rank, uint64_t call, CallRecord* out);
  Status report_mismatch(const CallRecord& mine, int32_t rank, ErrorText* error);
  void publish_exchange(const CollectiveCall& call, uint64_t number);
  // Compares the sizes that this rank and another one send with those that they expect.
  Status compare_exchange(const CallRecord& mine, const CollectiveCall& call, int32_t rank,
                          ErrorText* error);
  // Ranks that left before they reached the last collective of this rank.
  uint64_t find_left();
  // Ranks whose process died, by /proc.
  uint64_t find_dead();
  // Ranks that have not reached a collective.
  uint64_t find_missing(uint64_t call);
  void describe_ranks(Text& text, uint64_t ranks);
  WatchdogBlock& own() { return region_->watchdog(rank_); }

  std::shared_ptr<Region> region_, world_;
  int32_t rank_;
  Compilations compilations_;
  uint64_t calls_ = 0;
  uint32_t polls_ = 0;
  uint64_t dead_ = 0, gone_ = 0;
  Missing described_;
};

}  // namespace shardwise::comm
