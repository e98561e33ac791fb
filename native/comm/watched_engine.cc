#include "watched_engine.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "describe.h"
#include "note.h"

namespace shardwise::comm {
namespace {

constexpr int64_t kLookMs = 50;
// A call that is done may be known as in flight until the engine looks: it counts as hanging when it is still there so many looks later.
constexpr int32_t kLooksToHang = 2;
constexpr int32_t kLooksToProc = 4;  // /proc is read this often
constexpr int32_t kRecent = 32;

class Watched {
 public:
  Watched(std::unique_ptr<WatchGroup> watch, const CommEngine* made_by, void* made)
      : group_(std::move(watch)), engine_(made_by), member_(made) {}

  Status run(const CollectiveCall& call) {
    Status status = group_->begin(call, call.error);
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mutex_);
      give_up(*call.error);
      return status;
    }
    status = engine_->run(member_, call);
    // What the engine cannot do it cannot on any rank.
    if (status.ok() || status.code == Code::Unsupported) return status;
    group_->fail_group(status.code, call.error->text);
    return cause(comm::note_of(call, group_->size(), group_->calls()), call.error);
  }

  void abort(const char* reason) {
    ErrorText text;
    Text message(text);
    describe_abort(message, group_->group(), group_->rank(), reason);
    group_->fail_group(Code::Closed, text.text);
    std::lock_guard<std::mutex> lock(mutex_);
    give_up(text);
  }

  Status failure(ErrorText* error) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!told_) look_at_engine();
    if (!told_) return kOk;
    *error = told_text_;
    return told_status_;
  }

  void set_timeout(int64_t milliseconds) {
    timeout_ms_.store(milliseconds);
    engine_->set_timeout(member_, milliseconds);
  }

  int32_t recent(CommRecord* out, int32_t most) { return engine_->recent ? engine_->recent(member_, out, most) : 0; }

  // Nobody looks any more.
  void end() {
    group_->leave();
    if (group_->failed()) engine_->abort(member_, "the group has failed");
    engine_->destroy(member_);
  }

  // Every 50 ms.
  void look() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (told_) return;
    look_at_engine();
    if (told_) return;
    CommRecord oldest;
    if (!in_flight(&oldest)) {
      looks_in_vain_ = 0;
      return;
    }
    if (looks_++ % kLooksToProc == 0) dead_ = group_->find_dead();
    const uint64_t lost = group_->failed() ? 0 : group_->find_left() | dead_;
    if (!group_->failed() && lost == 0) {
      looks_in_vain_ = 0;
      return;
    }
    if (++looks_in_vain_ < kLooksToHang) return;
    if (lost != 0) report_lost(oldest, lost);
    ErrorText why;
    cause(note_of(oldest), &why);
    give_up(why);
  }

 private:
  // What has gone wrong on this rank's device is told to the others, with what the hosts know of it.
  void look_at_engine() {
    ErrorText seen;
    const Status status = engine_->failure(member_, &seen);
    if (status.ok()) return;
    CommRecord oldest;
    if (status.code == Code::Peer && in_flight(&oldest)) report_timeout(oldest);
    else group_->fail_group(status.code, seen.text);
    ErrorText why;
    cause(note_of(oldest), &why);
    give_up(why);
  }

  void report_timeout(const CommRecord& oldest) {
    ErrorText message;
    Text text(message);
    describe_title(text, note_of(oldest), group_->group());
    describe_place(text, note_of(oldest).site);
    const auto limit = static_cast<long long>(timeout_ms_.load());
    const bool is_message = oldest.kind == Collective::Send || oldest.kind == Collective::Receive;
    const uint64_t missing = is_message ? uint64_t{1} << oldest.root : group_->find_missing(oldest.sequence);
    if (missing == 0) {
      text.add(": all ranks have come to it, but it is not done (timeout after %lld ms): a GPU or the way between them hangs or is slow", limit);
    } else {
      group_->describe_ranks(text, missing);
      text.add(" (timeout after %lld ms)", limit);
    }
    describe_facts(text, group_->group(), note_of(oldest), group_->rank());
    group_->describe_rank_facts(text, missing);
    group_->fail_group(Code::Device, message.text);
  }

  void report_lost(const CommRecord& oldest, uint64_t lost) {
    ErrorText message;
    Text text(message);
    describe_title(text, note_of(oldest), group_->group());
    describe_place(text, note_of(oldest).site);
    group_->describe_ranks(text, lost);
    describe_facts(text, group_->group(), note_of(oldest), group_->rank());
    group_->describe_rank_facts(text, lost);
    group_->fail_group(Code::Device, message.text);
  }

  // The first cause, and for an abort, which does not say it, what this rank was in.
  Status cause(const Note& mine, ErrorText* error) {
    ErrorText first;
    const Status status = group_->cause(&first);
    Text text(*error);
    if (status.code == Code::Closed && mine.site.name[0] != 0) {
      describe_title(text, mine, group_->group());
      describe_place(text, mine.site);
      text.add(": ");
    }
    text.add("%s", first.text);
    if (status.code == Code::Closed) describe_facts(text, group_->group(), mine, group_->rank());
    return status;
  }

  // The oldest call that is not done.
  bool in_flight(CommRecord* oldest) {
    *oldest = {};
    if (!engine_->recent) return true;
    CommRecord records[kRecent];
    const int32_t kept = engine_->recent(member_, records, kRecent);
    for (int32_t i = 0; i < kept; i++) {
      if (records[i].state == CommState::Complete) continue;
      *oldest = records[i];
      return true;
    }
    return false;
  }

  static Note note_of(const CommRecord& record) {
    Note note = {};
    note.site = site_of({record.name, record.where});
    note.peer = record.kind == Collective::Send || record.kind == Collective::Receive ? record.root : -1;
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
    engine_->abort(member_, why.text);
  }

  std::unique_ptr<WatchGroup> group_;
  const CommEngine* engine_;
  void* member_;
  std::atomic<int64_t> timeout_ms_{0};
  std::mutex mutex_;
  // The engine has been told to end.
  bool told_ = false;
  Status told_status_;
  ErrorText told_text_;
  uint64_t dead_ = 0;
  uint32_t looks_ = 0;
  int32_t looks_in_vain_ = 0;
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

void* watched_member(std::unique_ptr<WatchGroup> group, const CommEngine* engine, void* member) {
  auto* made = new Watched(std::move(group), engine, member);
  Looker::of_process().add(made);
  return made;
}

}  // namespace shardwise::comm
