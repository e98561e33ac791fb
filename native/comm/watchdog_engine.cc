#include "watchdog_engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "../include/start_thread.h"
#include "call_record.h"
#include "messages.h"

namespace shardwise::comm {
namespace {

constexpr int64_t kWatchMs = 50;
// The engine may list a finished call as in flight until it polls: a call hangs if it is still
// there after so many polls.
constexpr int32_t kPollsToHang = 2;
// A device may notice a dead peer before the hosts do, and does not know which rank it is: the
// hosts get so many polls to find it.
constexpr int32_t kPollsForDeadPeer = 4;
constexpr int64_t kPollMs = 5;
constexpr int32_t kRecent = 32;
// If a result is there, the other ranks have it or will soon have it, so their calls are being
// compared. A reader, and JavaScript with it, waits up to this for the comparison, once per call.
constexpr int64_t kReadMs = 100;

class WatchdogMember {
 public:
  WatchdogMember(std::unique_ptr<Watchdog> watch, const CommEngine* made_by, void* made)
      : group_(std::move(watch)), engine_(made_by), member_(made) {}

  Status run(const CollectiveCall& call) {
    Status status = group_->begin(call, call.error);
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      give_up(*call.error);
      return status;
    }
    launching_.store(true);
    status = engine_->run(member_, call);
    launching_.store(false);
    if (status.ok()) launched_.fetch_add(1, std::memory_order_release);
    // An operation that the engine does not support fails alike on all ranks.
    if (status.ok() || status.code == Code::Unsupported) return status;
    const CallRecord record = comm::record_of(call, group_->size(), group_->calls());
    std::lock_guard<std::mutex> lock(mutex_);
    if (status.code != Code::Peer) explain_by_dead_peer(record, true);
    fail_for_engine(status.code, *call.error);
    return cause(record, call.error);
  }

  void abort(const ErrorText& reason) {
    group_->fail_group(Code::Closed, reason);
    std::lock_guard<std::mutex> lock(mutex_);
    give_up(reason);
  }

  Status failure(ErrorText* error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!reported_) settle_results();
    if (!reported_ && group_->has_mismatch()) report_failure({});
    if (!reported_) poll_engine(true);
    if (!reported_ && !trusts_results()) report_failure(first_in_doubt());
    if (!reported_) return kOk;
    *error = reported_text_;
    return reported_status_;
  }

  void set_timeout(int64_t milliseconds) {
    timeout_ms_.store(milliseconds);
    engine_->set_timeout(member_, milliseconds);
  }

  int32_t recent(CommRecord* out, int32_t most) {
    return engine_->recent ? engine_->recent(member_, out, most) : 0;
  }

  // The thread no longer polls this member.
  void end() {
    group_->leave();
    wait_for_calls();
    if (group_->failed()) {
      std::lock_guard<std::mutex> lock(mutex_);
      ErrorText why;
      group_->cause(&why);
      give_up(why);
      while (!end_device()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    engine_->destroy(member_);
  }

  // Called every 50 ms.
  void poll() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (reported_) return (void)end_device();
    if (group_->has_mismatch()) return report_failure({});
    allow_for_compilations();
    poll_engine(false);
    if (reported_) return;
    CommRecord oldest;
    // a launch that connects to other ranks may not return
    const bool waits = in_flight(&oldest) || launching_.load();
    const bool doubts = !trusts_results(),
               dead = waits && !group_->failed() && group_->has_dead_peer();
    if (!dead && !doubts && !(waits && group_->failed())) {
      fruitless_polls_ = 0;
      return;
    }
    if (++fruitless_polls_ < kPollsToHang) return;
    if (dead) report_dead_peers(record_of(oldest));
    report_failure(first_in_doubt());
  }

 private:
  // Results count only once all ranks are known to have made the same call.
  void settle_results() {
    if (group_->settle(UINT64_MAX, 0)) return;
    const uint64_t done = last_done();
    if (done > waited_for_) group_->settle(done, kReadMs);
    waited_for_ = std::max(waited_for_, done);
  }

  // The device does not know that a rank compiles: its timeout grows by that time.
  void allow_for_compilations() {
    const int64_t now = now_ns(),
                  passed_ms = std::min((now - polled_ns_) / 1'000'000, 4 * kWatchMs);
    polled_ns_ = now;
    CommRecord oldest;
    if (!engine_->recent || !in_flight(&oldest)) return;
    const int64_t allowed = oldest.sequence == delayed_call_ ? delayed_ms_ : 0;
    const bool delayed =
        group_->is_delayed(oldest.sequence, is_message(oldest.kind) ? oldest.root : -1);
    delayed_call_ = oldest.sequence;
    if (!delayed && allowed == delayed_ms_) return;
    delayed_ms_ = delayed ? allowed + passed_ms + 1 : allowed;
    engine_->set_timeout(member_, timeout_ms_.load() + delayed_ms_);
  }

  // The last collective that may have finished.
  uint64_t last_done() {
    if (!engine_->recent) return UINT64_MAX;
    CommRecord records[kRecent];
    const int32_t kept = engine_->recent(member_, records, kRecent);
    uint64_t done = kept > 0 && records[0].sequence > 0 ? records[0].sequence - 1 : 0;
    for (int32_t i = 0; i < kept; i++)
      if (records[i].state == CommState::Complete) done = records[i].sequence;
    return done;
  }

  // Reports a failure of this rank's device to the other ranks, with what the hosts know. The
  // comparison names ranks that have not come, at about the time at which the device gives up; with
  // `at_once` this waits no longer than a read.
  void poll_engine(bool at_once) {
    ErrorText seen;
    const Status status = engine_->failure(member_, &seen);
    if (status.ok()) return;
    CommRecord oldest;
    const bool waits = in_flight(&oldest);
    if (waits && status.code != Code::Peer && !explain_by_dead_peer(record_of(oldest), at_once))
      return;
    if (status.code != Code::Peer || !waits) {
      // has no effect on a group that has failed; the call that this rank waits in is reported all
      // the same
      fail_for_engine(status.code, seen);
    } else {
      const bool settled =
          group_->failed() || group_->settle(oldest.sequence, at_once ? kReadMs : 0);
      if (!settled && !at_once) return;
      report_timeout(oldest);
    }
    report_failure(oldest);
  }

  // Fails calls that other ranks have not reached for all ranks: the data that this rank has sent
  // would seem valid to them.
  void wait_for_calls() {
    CommRecord oldest;
    const int64_t most = std::min(kLeaveMs, timeout_ms_.load());
    for (int64_t left = engine_->recent ? most : 0; left > 0 && !group_->failed();
         left -= kPollMs) {
      if (!in_flight(&oldest)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
    }
    if (!engine_->recent || group_->failed() || !in_flight(&oldest)) return;
    ErrorText message;
    Text text(message);
    describe_heading(text, group_->group_info(), record_of(oldest));
    text.add(
        ": rank %d has left the group, and the others have not all come to this call within %lld "
        "ms",
        group_->group_info().rank_at(group_->rank()), static_cast<long long>(most));
    DetailsWriter(group_->group_info(), record_of(oldest), group_->rank()).add_to(text);
    group_->fail_group(Code::Peer, message);
  }

  // False while the hosts may still find the rank that made the device fail.
  bool explain_by_dead_peer(const CallRecord& mine, bool at_once) {
    for (int64_t left = at_once ? kReadMs : kPollMs; left > 0 && !group_->failed();
         left -= kPollMs) {
      if (group_->has_dead_peer())
        report_dead_peers(mine);
      else if (at_once)
        std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
    }
    return group_->failed() || at_once || ++polls_for_dead_peer_ > kPollsForDeadPeer;
  }

  // The engine does not know the rank in the world.
  void fail_for_engine(Code code, const ErrorText& why) {
    ErrorText message;
    Text(message).add("on rank %d: ", group_->group_info().rank_at(group_->rank())).add_cause(why);
    group_->fail_group(code, message);
  }

  void report_timeout(const CommRecord& oldest) {
    ErrorText message;
    Text text(message);
    describe_waiting(text, group_->group_info(), record_of(oldest), group_->rank());
    const auto limit = static_cast<long long>(timeout_ms_.load());
    if (group_->describe_missing(text, oldest.sequence, is_message(oldest.kind) ? oldest.root : -1))
      text.add(" (timeout after %lld ms)", limit);
    else
      text.add(
          ": all ranks have come to it, but it is not done (timeout after %lld ms): a GPU or the "
          "way between them hangs or is slow",
          limit);
    DetailsWriter details(group_->group_info(), record_of(oldest), group_->rank());
    group_->blame(details);
    details.add_to(text);
    group_->fail_group(Code::Device, message);
  }

  void report_dead_peers(const CallRecord& mine) {
    ErrorText message;
    Text text(message);
    describe_heading(text, group_->group_info(), mine);
    group_->describe_dead_peers(text);
    DetailsWriter details(group_->group_info(), mine, group_->rank());
    group_->blame(details);
    details.add_to(text);
    group_->fail_group(Code::Device, message);
  }

  // Reports the failure of the group, with the call that this rank waits in.
  void report_failure(const CommRecord& oldest) {
    ErrorText why;
    cause(record_of(oldest), &why);
    give_up(why);
  }

  // The first cause; for an abort, which does not name it, also the call of this rank.
  Status cause(const CallRecord& mine, ErrorText* error) {
    ErrorText first;
    const Status status = group_->cause(&first);
    Text text(*error);
    if (status.code == Code::Closed && mine.site.name[0] != 0) {
      describe_heading(text, group_->group_info(), mine);
      text.add(": ");
    }
    text.add_cause(first);
    if (status.code == Code::Closed)
      DetailsWriter(group_->group_info(), mine, group_->rank()).add_to(text);
    return status;
  }

  // A device that gives up ends its kernels, and those of the other ranks, as if they had
  // succeeded. Results that were not seen as finished before the group failed may be invalid.
  bool trusts_results() {
    if (!engine_->recent) return true;  // such an engine waits for the other ranks itself
    const uint64_t launched = launched_.load(std::memory_order_acquire);
    if (trusted_ == launched) return true;
    const uint64_t done = count_done(launched);  // must precede the check for a failure
    if (group_->failed()) return false;
    trusted_ = std::max(trusted_, done);
    return true;
  }

  // At least so many of the launched calls have finished.
  uint64_t count_done(uint64_t launched) {
    CommRecord records[kRecent];
    int32_t kept = 0;
    const int32_t done = first_open(records, &kept);
    const auto open = static_cast<uint64_t>(kept - done);
    return (done == 0 && kept == kRecent) || open > launched ? 0 : launched - open;
  }

  // The call that this rank waits in, or the first one that finished too late to be trusted.
  CommRecord first_in_doubt() {
    CommRecord records[kRecent] = {};
    if (in_flight(records)) return records[0];
    const auto kept = static_cast<uint64_t>(engine_->recent(member_, records, kRecent)),
               doubts = launched_.load() - trusted_;
    return kept == 0 || doubts == 0 ? CommRecord{} : records[kept - std::min(kept, doubts)];
  }

  // The oldest call in flight.
  bool in_flight(CommRecord* oldest) {
    *oldest = {};
    if (!engine_->recent) return true;
    CommRecord records[kRecent];
    int32_t kept = 0;
    const int32_t first = first_open(records, &kept);
    if (first < kept) *oldest = records[first];
    return first < kept;
  }

  // The index of the first of the engine's last calls that is in flight; `kept` if all have
  // finished.
  int32_t first_open(CommRecord (&records)[kRecent], int32_t* kept) {
    *kept = engine_->recent(member_, records, kRecent);
    const auto is_open = [](const CommRecord& record) {
      return record.state != CommState::Complete;
    };
    return static_cast<int32_t>(std::find_if(records, records + *kept, is_open) - records);
  }

  static CallRecord record_of(const CommRecord& call) {
    CallRecord record = {};
    record.site = site_of({call.name, call.where});
    record.peer = is_message(call.kind) ? call.root : -1;
    record.print.kind = kind_of(call.kind);
    record.print.call = call.sequence;
    return record;
  }

  void give_up(const ErrorText& why) {
    if (reported_) return;
    reported_ = true;
    reported_text_ = why;
    ErrorText ignored;
    reported_status_ = group_->cause(&ignored);
    end_device_at_ns_ = now_ns() + group_->grace_ms() * 1'000'000;
    end_device();
  }

  // Ends the device once the other ranks can know of the failure: see trusts_results.
  bool end_device() {
    if (!ended_ && now_ns() < end_device_at_ns_) return false;
    if (!ended_) engine_->abort(member_, reported_text_);
    return ended_ = true;
  }

  std::unique_ptr<Watchdog> group_;
  const CommEngine* engine_;
  void* member_;
  std::atomic<int64_t> timeout_ms_{0};
  std::mutex mutex_;
  // This rank has reported the failure of the group; the engine has been aborted.
  bool reported_ = false, ended_ = false;
  int64_t end_device_at_ns_ = 0;
  Status reported_status_;
  ErrorText reported_text_;
  int32_t fruitless_polls_ = 0, polls_for_dead_peer_ = 0;
  uint64_t waited_for_ = 0;
  // The time for which compilations delayed this call.
  int64_t polled_ns_ = now_ns(), delayed_ms_ = 0;
  uint64_t delayed_call_ = 0;
  // Calls launched, and those that finished while the group was intact.
  std::atomic<uint64_t> launched_{0};
  std::atomic<bool> launching_{false};  // a launch is in progress
  uint64_t trusted_ = 0;
};

// One thread of the process polls all members. It never ends; it sleeps without members.
class WatchdogThread {
 public:
  static WatchdogThread& of_process() {
    static auto* created = new WatchdogThread;  // lives as long as the process
    return *created;
  }

  void add(WatchdogMember* member) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_.push_back(member);
    changed_.notify_all();
    // without a thread the next group tries again
    if (started_ || !start_detached([this] { keep_polling(); })) return;
    started_ = true;
    std::atexit([] { of_process().stop(); });
  }

  void remove(WatchdogMember* member) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_.erase(std::remove(members_.begin(), members_.end(), member), members_.end());
  }

 private:
  void keep_polling() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !members_.empty(); });
        for (WatchdogMember* member : members_) member->poll();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(kWatchMs));
    }
  }
  // Devices must not be polled while the process tears them down.
  void stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    members_.clear();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WatchdogMember*> members_;
  bool started_ = false;
};

WatchdogMember& member_of(void* member) { return *static_cast<WatchdogMember*>(member); }

}  // namespace

const CommEngine kWatchdogEngine = {
    "watched",
    [](void* member, const CollectiveCall& call) { return member_of(member).run(call); },
    [](void* member, const ErrorText& reason) { member_of(member).abort(reason); },
    [](void* member, ErrorText* error) { return member_of(member).failure(error); },
    [](void* member, int64_t milliseconds) { member_of(member).set_timeout(milliseconds); },
    [](void* member) {
      WatchdogThread::of_process().remove(&member_of(member));
      member_of(member).end();
      delete &member_of(member);
    },
    [](void* member, CommRecord* out, int32_t most) { return member_of(member).recent(out, most); },
};

void* watchdog_member(std::unique_ptr<Watchdog> group, const CommEngine* engine, void* member) {
  auto* made = new WatchdogMember(std::move(group), engine, member);
  WatchdogThread::of_process().add(made);
  return made;
}

}  // namespace shardwise::comm
