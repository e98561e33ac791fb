#include "remote_watchdog.h"

#include <algorithm>
#include <chrono>

#include "call_record.h"
#include "messages.h"

namespace shardwise::comm {
FarWatch::FarWatch(const GlooEngine* engine, void* member, Roster roster, int32_t rank,
                   int32_t size)
    : engine_(engine), member_(member), roster_(std::move(roster)), rank_(rank), size_(size) {
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::exception& none) {  // no thread to be had
    ErrorText text;
    Text(text).add("rank %d could not start a thread that compares calls (%s)",
                   roster_.rank_at(rank_), none.what());
    fail_group(Code::Peer, text.text);
  }
}

FarWatch::~FarWatch() {
  if (!ending_) leave();
}

Status FarWatch::begin(const CollectiveCall& call, ErrorText* error) {
  if (!is_message(call.kind)) calls_++;
  if (failed()) return refuse(note_of(call, size_, calls_), error);
  if (is_message(call.kind)) return kOk;
  Task task;
  task.number = calls_;
  task.name = call.name ? call.name : "";
  task.where = call.where ? call.where : "";
  task.about = call.about ? call.about : "";
  if (has_counts(call.kind)) task.counts.assign(call.counts, call.counts + size_);
  if (call.kind == Collective::AllToAll)
    task.counts.insert(task.counts.end(), call.send_counts, call.send_counts + size_);
  task.call = call;
  std::lock_guard<std::mutex> lock(mutex_);
  begun_ = task.number;
  tasks_.push_back(std::move(task));
  wanted_.notify_one();
  return kOk;
}

Status FarWatch::run(const CollectiveCall& call) {
  // it never ran
  if (!thread_.joinable() && failed()) return refuse(note_of(call, size_, 0), call.error);
  const auto done = std::make_shared<std::promise<Status>>();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ending_)
      return fail(call.error, Code::Closed, "%s: rank %d has left the group", call.name,
                  roster_.rank_at(rank_));
    Task task;
    task.call = call;
    task.done = done;
    tasks_.push_back(std::move(task));
    wanted_.notify_one();
  }
  return done->get_future().get();
}

bool FarWatch::settle(uint64_t call, int64_t limit_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t target = std::min(call, begun_);
  const auto is_known = [&] { return settled_ >= target || failed(); };
  if (limit_ms > 0) changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), is_known);
  return settled_ >= target;
}

void FarWatch::leave() {
  if (!settle(calls_, kLeaveMs) && !failed()) {
    ErrorText text;
    Text(text).add(
        "rank %d has left the group: the other ranks did not all come to its last call within %lld "
        "ms",
        roster_.rank_at(rank_), static_cast<long long>(kLeaveMs));
    fail_group(Code::Peer, text.text);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    wanted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  // Now: the device's connections close before those of the hosts do, and the others should know
  // why.
  engine_->end(member_);
}

void FarWatch::fail_group(Code code, const char* text) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed()) keep_cause(code, text, false);
  }
  engine_->fail(member_, code, text);
}

Status FarWatch::cause(ErrorText* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  return fail(error, code_.code, "%s", text_.text);
}

bool FarWatch::has_refuted() {
  if (!failed()) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return refuted_;
}

bool FarWatch::has_lost() {
  std::lock_guard<std::mutex> lock(mutex_);
  look_wanted_ = true;
  wanted_.notify_one();
  return lost_.text[0] != 0;
}

void FarWatch::describe_lost(Text& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  text.add(": ").add_text(lost_.text);
}

bool FarWatch::describe_missing(Text& text, uint64_t call, int32_t peer) {
  described_ = peer;
  if (peer >= 0)
    text.add(": rank %d has not come to it", roster_.rank_at(peer));
  else if (settle(call, 0))
    return false;
  else
    text.add(": the other ranks have not all come to it");
  return true;
}

void FarWatch::blame(Facts& facts) {
  if (described_ >= 0) facts.blame(described_, nullptr);
}

void FarWatch::keep_cause(Code code, const char* text, bool refutes) {
  code_ = fail(&text_, code, "%s", text);
  refuted_ = refutes;
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

Status FarWatch::carry_out(Task& task, ErrorText* error) {
  if (task.done) {
    const Status status = failed() ? refuse(note_of(task.call, size_, 0), task.call.error)
                                   : engine_->comm->run(member_, task.call);
    if (!status.ok()) *error = *task.call.error;
    return status;
  }
  task.call.name = task.name.c_str();
  task.call.where = task.where.c_str();
  task.call.about = task.about.c_str();
  task.call.counts = task.counts.data();
  task.call.send_counts = task.counts.data() + size_;
  task.call.error = error;
  if (failed()) return refuse(note_of(task.call, size_, task.number), error);
  return engine_->compare(member_, task.call, task.number);
}

void FarWatch::finish(Task& task, Status status, const ErrorText& error) {
  if (status.ok())
    settled_ = std::max(settled_, task.number);
  else
    look_wanted_ = true;  // which waits for last words to be on their way
  // The text of a call that has failed says already what this rank was in, as that of an abort does
  // not.
  if (!status.ok() && !failed())
    keep_cause(status.code == Code::Closed ? Code::Peer : status.code, error.text, !task.done);
  changed_.notify_all();
  if (task.done) task.done->set_value(status);
}

void FarWatch::look() {
  ErrorText lost, error;
  const Status status = engine_->look(member_, &lost, &error);
  std::lock_guard<std::mutex> lock(mutex_);
  lost_ = lost;
  if (!status.ok() && !failed()) keep_cause(status.code, error.text, false);
}

void FarWatch::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return ending_ || look_wanted_ || !tasks_.empty(); });
    if (!tasks_.empty()) {
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      ErrorText error;
      const Status status = carry_out(task, &error);
      lock.lock();
      finish(task, status, error);
      continue;
    }
    if (ending_) return;
    look_wanted_ = false;
    lock.unlock();
    look();
    lock.lock();
  }
}

}  // namespace shardwise::comm
