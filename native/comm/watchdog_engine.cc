#include "watchdog_engine.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "call_record.h"
#include "messages.h"

namespace shardwise::comm {
namespace {

constexpr int64_t kLookMs = 50;
// A call that is done may be known as in flight until the engine looks: it counts as hanging when
// it is still there so many looks later.
constexpr int32_t kLooksToHang = 2;
// A device may hear before the hosts do that a rank is gone, and does not know which: so long the
// hosts may take.
constexpr int32_t kLooksForLost = 4;
constexpr int64_t kPollMs = 5;
constexpr int32_t kRecent = 32;
// A result that is there was there on the other ranks' devices too, or soon will be: so what they
// called is under way. Who reads it waits so long to know that it agrees, once for each call, and
// JavaScript with it.
constexpr int64_t kReadMs = 100;

class Watched {
 public:
  Watched(std::unique_ptr<CallWatch> watch, const CommEngine* made_by, void* made)
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
    // What the engine cannot do it cannot on any rank.
    if (status.ok() || status.code == Code::Unsupported) return status;
    const Note note = comm::note_of(call, group_->size(), group_->calls());
    std::lock_guard<std::mutex> lock(mutex_);
    if (status.code != Code::Peer) explain_by_lost(note, true);
    fail_for_engine(status.code, *call.error);
    return cause(note, call.error);
  }

  void abort(const char* reason) {
    ErrorText text;
    Text(text).add_text(reason);
    group_->fail_group(Code::Closed, reason);
    std::lock_guard<std::mutex> lock(mutex_);
    give_up(text);
  }

  Status failure(ErrorText* error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!told_) settle_results();
    if (!told_ && group_->has_refuted()) tell({});
    if (!told_) look_at_engine(true);
    if (!told_ && !trusts_results()) tell(first_in_doubt());
    if (!told_) return kOk;
    *error = told_text_;
    return told_status_;
  }

  void set_timeout(int64_t milliseconds) {
    timeout_ms_.store(milliseconds);
    engine_->set_timeout(member_, milliseconds);
  }

  int32_t recent(CommRecord* out, int32_t most) {
    return engine_->recent ? engine_->recent(member_, out, most) : 0;
  }

  // Nobody looks any more.
  void end() {
    group_->leave();
    wait_for_calls();
    if (group_->failed()) {
      std::lock_guard<std::mutex> lock(mutex_);
      ErrorText why;
      group_->cause(&why);
      give_up(why);
      while (!end_device()) usleep(1000);
    }
    engine_->destroy(member_);
  }

  // Every 50 ms.
  void look() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (told_) return (void)end_device();
    if (group_->has_refuted()) return tell({});
    look_at_engine(false);
    if (told_) return;
    CommRecord oldest;
    // one that connects to the others does not return
    const bool waits = in_flight(&oldest) || launching_.load();
    const bool doubts = !trusts_results(), lost = waits && !group_->failed() && group_->has_lost();
    if (!lost && !doubts && !(waits && group_->failed())) {
      looks_in_vain_ = 0;
      return;
    }
    if (++looks_in_vain_ < kLooksToHang) return;
    if (lost) report_lost(note_of(oldest));
    tell(first_in_doubt());
  }

 private:
  // Results that are there are told when it is known that all ranks called the same.
  void settle_results() {
    if (group_->settle(UINT64_MAX, 0)) return;
    const uint64_t done = last_done();
    if (done > waited_for_) group_->settle(done, kReadMs);
    waited_for_ = std::max(waited_for_, done);
  }

  // The last collective that may be done.
  uint64_t last_done() {
    if (!engine_->recent) return UINT64_MAX;
    CommRecord records[kRecent];
    const int32_t kept = engine_->recent(member_, records, kRecent);
    uint64_t done = kept > 0 && records[0].sequence > 0 ? records[0].sequence - 1 : 0;
    for (int32_t i = 0; i < kept; i++)
      if (records[i].state == CommState::Complete) done = records[i].sequence;
    return done;
  }

  // What has gone wrong on this rank's device is told to the others, with what the hosts know of
  // it. Ranks that have not come to a call are named where they are compared, at about the time at
  // which the device gives up: `at_once` waits for that no longer than a read does.
  void look_at_engine(bool at_once) {
    ErrorText seen;
    const Status status = engine_->failure(member_, &seen);
    if (status.ok()) return;
    CommRecord oldest;
    const bool waits = in_flight(&oldest);
    if (waits && status.code != Code::Peer && !explain_by_lost(note_of(oldest), at_once)) return;
    if (status.code != Code::Peer || !waits) {
      // of a group that has failed it changes nothing: what this rank waits in is said all the same
      fail_for_engine(status.code, seen);
    } else {
      const bool settled =
          group_->failed() || group_->settle(oldest.sequence, at_once ? kReadMs : 0);
      if (!settled && !at_once) return;
      report_timeout(oldest);
    }
    tell(oldest);
  }

  // Calls that others have not come to are given up for all, and not on this rank alone: what it
  // has sent already would seem well to them.
  void wait_for_calls() {
    CommRecord oldest;
    const int64_t most = std::min(kLeaveMs, timeout_ms_.load());
    for (int64_t left = engine_->recent ? most : 0; left > 0 && !group_->failed();
         left -= kPollMs) {
      if (!in_flight(&oldest)) return;
      usleep(kPollMs * 1000);
    }
    if (!engine_->recent || group_->failed() || !in_flight(&oldest)) return;
    ErrorText message;
    Text text(message);
    describe_heading(text, group_->roster(), note_of(oldest));
    text.add(
        ": rank %d has left the group, and the others have not all come to this call within %lld "
        "ms",
        group_->roster().rank_at(group_->rank()), static_cast<long long>(most));
    Facts(group_->roster(), note_of(oldest), group_->rank()).add_to(text);
    group_->fail_group(Code::Peer, message.text);
  }

  // False while the hosts may still find which rank has made the device fail.
  bool explain_by_lost(const Note& mine, bool at_once) {
    for (int64_t left = at_once ? kReadMs : kPollMs; left > 0 && !group_->failed();
         left -= kPollMs) {
      if (group_->has_lost())
        report_lost(mine);
      else if (at_once)
        usleep(kPollMs * 1000);
    }
    return group_->failed() || at_once || ++looks_for_lost_ > kLooksForLost;
  }

  // The engine does not know which rank of the world this is.
  void fail_for_engine(Code code, const ErrorText& why) {
    ErrorText message;
    Text(message).add("on rank %d: ", group_->roster().rank_at(group_->rank())).add_text(why.text);
    group_->fail_group(code, message.text);
  }

  void report_timeout(const CommRecord& oldest) {
    ErrorText message;
    Text text(message);
    describe_waiting(text, group_->roster(), note_of(oldest), group_->rank());
    const auto limit = static_cast<long long>(timeout_ms_.load());
    if (group_->describe_missing(text, oldest.sequence, is_message(oldest.kind) ? oldest.root : -1))
      text.add(" (timeout after %lld ms)", limit);
    else
      text.add(
          ": all ranks have come to it, but it is not done (timeout after %lld ms): a GPU or the "
          "way between them hangs or is slow",
          limit);
    Facts facts(group_->roster(), note_of(oldest), group_->rank());
    group_->blame(facts);
    facts.add_to(text);
    group_->fail_group(Code::Device, message.text);
  }

  void report_lost(const Note& mine) {
    ErrorText message;
    Text text(message);
    describe_heading(text, group_->roster(), mine);
    group_->describe_lost(text);
    Facts facts(group_->roster(), mine, group_->rank());
    group_->blame(facts);
    facts.add_to(text);
    group_->fail_group(Code::Device, message.text);
  }

  // Of a group that has failed, with the call that this rank waits in.
  void tell(const CommRecord& oldest) {
    ErrorText why;
    cause(note_of(oldest), &why);
    give_up(why);
  }

  // The first cause, and for an abort, which does not say it, what this rank was in.
  Status cause(const Note& mine, ErrorText* error) {
    ErrorText first;
    const Status status = group_->cause(&first);
    Text text(*error);
    if (status.code == Code::Closed && mine.site.name[0] != 0) {
      describe_heading(text, group_->roster(), mine);
      text.add(": ");
    }
    text.add_text(first.text);
    if (status.code == Code::Closed) Facts(group_->roster(), mine, group_->rank()).add_to(text);
    return status;
  }

  // A device that gives up ends its kernels as they stand, and with them those of the other ranks,
  // as if they were well. So what was not seen to be done before the group failed may be worth
  // nothing.
  bool trusts_results() {
    if (!engine_->recent) return true;  // it has waited for the other ranks itself
    const uint64_t launched = launched_.load(std::memory_order_acquire);
    if (trusted_ == launched) return true;
    const uint64_t done = count_done(launched);  // before the look at the failure
    if (group_->failed()) return false;
    trusted_ = std::max(trusted_, done);
    return true;
  }

  // Of so many calls, at least so many are done.
  uint64_t count_done(uint64_t launched) {
    CommRecord records[kRecent];
    int32_t kept = 0;
    const int32_t done = first_open(records, &kept);
    const auto open = static_cast<uint64_t>(kept - done);
    return (done == 0 && kept == kRecent) || open > launched ? 0 : launched - open;
  }

  // The call that this rank waits in, or the first that was done too late to be trusted.
  CommRecord first_in_doubt() {
    CommRecord records[kRecent] = {};
    if (in_flight(records)) return records[0];
    const auto kept = static_cast<uint64_t>(engine_->recent(member_, records, kRecent)),
               doubts = launched_.load() - trusted_;
    return kept == 0 || doubts == 0 ? CommRecord{} : records[kept - std::min(kept, doubts)];
  }

  // The oldest call that is not done.
  bool in_flight(CommRecord* oldest) {
    *oldest = {};
    if (!engine_->recent) return true;
    CommRecord records[kRecent];
    int32_t kept = 0;
    const int32_t first = first_open(records, &kept);
    if (first < kept) *oldest = records[first];
    return first < kept;
  }

  // Which of the engine's last calls is the first that is not done; how many of them are kept if
  // all are.
  int32_t first_open(CommRecord (&records)[kRecent], int32_t* kept) {
    *kept = engine_->recent(member_, records, kRecent);
    const auto is_open = [](const CommRecord& record) {
      return record.state != CommState::Complete;
    };
    return static_cast<int32_t>(std::find_if(records, records + *kept, is_open) - records);
  }

  static Note note_of(const CommRecord& record) {
    Note note = {};
    note.site = site_of({record.name, record.where});
    note.peer = is_message(record.kind) ? record.root : -1;
    note.print.kind = kind_of(record.kind);
    note.print.call = record.sequence;
    return note;
  }

  void give_up(const ErrorText& why) {
    if (told_) return;
    told_ = true;
    told_text_ = why;
    ErrorText ignored;
    told_status_ = group_->cause(&ignored);
    end_device_at_ns_ = now_ns() + group_->telling_ms() * 1'000'000;
    end_device();
  }

  // Once the other ranks can know that the group has failed: see trusts_results.
  bool end_device() {
    if (!ended_ && now_ns() < end_device_at_ns_) return false;
    if (!ended_) engine_->abort(member_, told_text_.text);
    return ended_ = true;
  }

  std::unique_ptr<CallWatch> group_;
  const CommEngine* engine_;
  void* member_;
  std::atomic<int64_t> timeout_ms_{0};
  std::mutex mutex_;
  // The group has failed, for this rank too; and the engine has been told to end.
  bool told_ = false, ended_ = false;
  int64_t end_device_at_ns_ = 0;
  Status told_status_;
  ErrorText told_text_;
  int32_t looks_in_vain_ = 0, looks_for_lost_ = 0;
  uint64_t waited_for_ = 0;
  // Calls of the engine, and those of them that were seen to be done while the group was well.
  std::atomic<uint64_t> launched_{0};
  std::atomic<bool> launching_{false};  // one of them
  uint64_t trusted_ = 0;
};

// One thread of the process looks at all members. It is never ended, only parked.
class Looker {
 public:
  static Looker& of_process() {
    static auto* created = new Looker;  // lives as long as the process
    return *created;
  }

  void add(Watched* member) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_.push_back(member);
    changed_.notify_all();
    if (started_) return;
    try {
      std::thread([this] { keep_looking(); }).detach();
      started_ = true;
      std::atexit([] { of_process().stop(); });
    } catch (...) {  // no thread to be had: the next group tries again
    }
  }

  void remove(Watched* member) {
    std::lock_guard<std::mutex> lock(mutex_);
    members_.erase(std::remove(members_.begin(), members_.end(), member), members_.end());
  }

 private:
  void keep_looking() {
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return !members_.empty(); });
        for (Watched* member : members_) member->look();
      }
      usleep(kLookMs * 1000);
    }
  }
  // Devices must not be asked while the process tears them down.
  void stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    members_.clear();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Watched*> members_;
  bool started_ = false;
};

Watched& watched(void* member) { return *static_cast<Watched*>(member); }

}  // namespace

const CommEngine kWatchedEngine = {
    "watched",
    [](void* member, const CollectiveCall& call) { return watched(member).run(call); },
    [](void* member, const char* reason) { watched(member).abort(reason); },
    [](void* member, ErrorText* error) { return watched(member).failure(error); },
    [](void* member, int64_t milliseconds) { watched(member).set_timeout(milliseconds); },
    [](void* member) {
      Looker::of_process().remove(&watched(member));
      watched(member).end();
      delete &watched(member);
    },
    [](void* member, CommRecord* out, int32_t most) { return watched(member).recent(out, most); },
};

void* watched_member(std::unique_ptr<CallWatch> group, const CommEngine* engine, void* member) {
  auto* made = new Watched(std::move(group), engine, member);
  Looker::of_process().add(made);
  return made;
}

}  // namespace shardwise::comm
