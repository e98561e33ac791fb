// Watchdog for ranks of several machines: compares calls over the connections of the hosts, on a
// thread of its own while the devices work, so a launch never waits for the network. A mismatch is
// found after the launch, whose results are then invalid on all ranks.
#pragma once
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../include/gloo_engine.h"
#include "watchdog.h"

namespace shardwise::comm {

class RemoteWatchdog final : public Watchdog {
 public:
  // The watchdog alone uses `member`, a member of the engine, until `leave` returns, except for
  // functions that any thread may call.
  RemoteWatchdog(const GlooEngine* engine, void* member, GroupInfo group_info, int32_t rank,
                 int32_t size);
  ~RemoteWatchdog() override;

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  const GroupInfo& group_info() const override { return group_info_; }
  uint64_t calls() const override { return calls_; }

  Status begin(const CollectiveCall& call, ErrorText* error) override;
  bool settle(uint64_t call, int64_t limit_ms) override;
  // Waits up to kLeaveMs for the other ranks to reach the last call, and fails the group if they do
  // not.
  void leave() override;

  void fail_group(Code code, const ErrorText& why) override;
  bool failed() override { return failed_.load(std::memory_order_acquire); }
  int64_t grace_ms() const override { return 100; }
  Status cause(ErrorText* error) override;
  bool has_mismatch() override;

  bool has_dead_peer() override;
  void describe_dead_peers(Text& text) override;
  // Ranks compare calls in order, so what delays the comparison delays the devices.
  bool is_delayed(uint64_t, int32_t) override { return engine_->is_delayed(member_); }
  bool describe_missing(Text& text, uint64_t call, int32_t peer) override;
  void blame(DetailsWriter& details) override;

  // Runs a collective of the hosts after the calls that were begun, and waits for it.
  Status run(const CollectiveCall& call);

 private:
  // A call to compare, with the data that it points to; or a collective with a waiting thread.
  struct Task {
    CollectiveCall call{};
    uint64_t number = 0;
    std::vector<int64_t> counts;
    std::string name, where, about;
    std::shared_ptr<std::promise<Status>> done;
  };

  void work();
  Status carry_out(Task& task, ErrorText* error);
  void poll();
  // With the mutex held.
  void finish(Task& task, Status status, const ErrorText& error);
  void keep_cause(Code code, const ErrorText& why, bool is_mismatch);

  const GlooEngine* engine_;
  void* member_;
  const GroupInfo group_info_;
  const int32_t rank_, size_;
  uint64_t calls_ = 0;

  std::mutex mutex_;  // guards the fields below
  std::condition_variable wanted_, changed_;
  std::deque<Task> tasks_;
  uint64_t begun_ = 0, settled_ = 0;  // numbers of collectives
  bool ending_ = false, poll_wanted_ = false;
  std::atomic<bool> failed_{false};
  bool mismatched_ = false;
  Status code_;
  int32_t described_ = -1;  // a peer that has not come; dead peers have details of their own
  ErrorText text_, gone_;
  std::thread thread_;
};

}  // namespace shardwise::comm
