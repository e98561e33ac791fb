// The ranks of several machines: what they call is compared over the connections by which their
// hosts have met, on a thread of its own while the devices work, so that a launch never waits for
// the network. A difference is known after the launch, and what that has written is then worth
// nothing on any rank.
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

class FarWatch final : public CallWatch {
 public:
  // Nobody else uses `member`, one of the engine's, between here and the end of `leave`, but for
  // what may be called from any thread.
  FarWatch(const GlooEngine* engine, void* member, Roster roster, int32_t rank, int32_t size);
  ~FarWatch() override;

  int32_t rank() const override { return rank_; }
  int32_t size() const override { return size_; }
  const Roster& roster() const override { return roster_; }
  uint64_t calls() const override { return calls_; }

  Status begin(const CollectiveCall& call, ErrorText* error) override;
  bool settle(uint64_t call, int64_t limit_ms) override;
  // Waits a while for the others to come to what this rank has called, and tells them.
  void leave() override;

  void fail_group(Code code, const char* text) override;
  bool failed() override { return failed_.load(std::memory_order_acquire); }
  int64_t telling_ms() const override { return 100; }
  Status cause(ErrorText* error) override;
  bool has_refuted() override;

  bool has_lost() override;
  void describe_lost(Text& text) override;
  bool describe_missing(Text& text, uint64_t call, int32_t peer) override;
  void blame(Facts& facts) override;

  // A collective of the hosts themselves, behind what was begun; waits for it.
  Status run(const CollectiveCall& call);

 private:
  // A call to compare, with what it points to; or one that somebody waits for.
  struct Task {
    CollectiveCall call{};
    uint64_t number = 0;
    std::vector<int64_t> counts;
    std::string name, where, about;
    std::shared_ptr<std::promise<Status>> done;
  };

  void work();
  Status carry_out(Task& task, ErrorText* error);
  void look();
  // With the mutex held.
  void finish(Task& task, Status status, const ErrorText& error);
  void keep_cause(Code code, const char* text, bool refutes);

  const GlooEngine* engine_;
  void* member_;
  const Roster roster_;
  const int32_t rank_, size_;
  uint64_t calls_ = 0;

  std::mutex mutex_;  // of what follows
  std::condition_variable wanted_, changed_;
  std::deque<Task> tasks_;
  uint64_t begun_ = 0, settled_ = 0;  // collectives
  bool ending_ = false, look_wanted_ = false;
  std::atomic<bool> failed_{false};
  bool refuted_ = false;
  Status code_;
  int32_t described_ = -1;  // a peer that has not come; those that are lost come with their facts
  ErrorText text_, lost_;
  std::thread thread_;
};

}  // namespace shardwise::comm
