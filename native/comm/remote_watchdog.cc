#include "remote_watchdog.h"

#include <algorithm>
#include <chrono>

#include "../include/start_thread.h"
#include "call_record.h"
#include "messages.h"

namespace shardwise::comm {
RemoteWatchdog::RemoteWatchdog(const GlooEngine* engine, void* member, GroupInfo group_info,
                               int32_t rank, int32_t size)
    : engine_(engine),
      member_(member),
      group_info_(std::move(group_info)),
      rank_(rank),
      size_(size) {
  if (start_thread(&thread_, [this] { work(); })) return;
  ErrorText text;
  Text(text).add("rank %d could not start a thread that compares calls: %s",
                 group_info_.rank_at(rank_), kNoThread);
  fail_group(Code::Peer, text);
}

RemoteWatchdog::~RemoteWatchdog() {
  if (!ending_) leave();
}

Status RemoteWatchdog::begin(const CollectiveCall& call, ErrorText* error) {
  if (!is_message(call.kind)) calls_++;
  if (failed()) return refuse(record_of(call, size_, calls_), error);
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

Status RemoteWatchdog::run(const CollectiveCall& call) {
  // the thread never ran
  if (!thread_.joinable() && failed()) return refuse(record_of(call, size_, 0), call.error);
  const auto done = std::make_shared<std::promise<Status>>();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ending_)
      return fail(call.error, Code::Closed, "%s: rank %d has left the group", call.name,
                  group_info_.rank_at(rank_));
    Task task;
    task.call = call;
    task.done = done;
    tasks_.push_back(std::move(task));
    wanted_.notify_one();
  }
  return done->get_future().get();
}

bool RemoteWatchdog::settle(uint64_t call, int64_t limit_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t target = std::min(call, begun_);
  const auto is_known = [&] { return settled_ >= target || failed(); };
  if (limit_ms > 0) changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), is_known);
  return settled_ >= target;
}

void RemoteWatchdog::leave() {
  if (!settle(calls_, kLeaveMs) && !failed()) {
    ErrorText text;
    Text(text).add(
        "rank %d has left the group: the other ranks did not all come to its last call within %lld "
        "ms",
        group_info_.rank_at(rank_), static_cast<long long>(kLeaveMs));
    fail_group(Code::Peer, text);
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
    wanted_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  // Before the device's connections close: the other ranks should know why they close.
  engine_->end(member_);
}

void RemoteWatchdog::fail_group(Code code, const ErrorText& why) {
  ErrorText kept = why;
  with_id(kept);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed()) keep_cause(code, kept, false);
  }
  engine_->fail(member_, code, kept);
}

Status RemoteWatchdog::cause(ErrorText* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  return fail_with(error, code_.code, text_);
}

bool RemoteWatchdog::has_mismatch() {
  if (!failed()) return false;
  std::lock_guard<std::mutex> lock(mutex_);
  return mismatched_;
}

bool RemoteWatchdog::has_dead_peer() {
  std::lock_guard<std::mutex> lock(mutex_);
  poll_wanted_ = true;
  wanted_.notify_one();
  return gone_.text[0] != 0;
}

void RemoteWatchdog::describe_dead_peers(Text& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  text.add(": ").add_cause(gone_);
}

bool RemoteWatchdog::describe_missing(Text& text, uint64_t call, int32_t peer) {
  described_ = peer;
  if (peer >= 0)
    text.add(": rank %d has not come to it", group_info_.rank_at(peer));
  else if (settle(call, 0))
    return false;
  else
    text.add(": the other ranks have not all come to it");
  return true;
}

void RemoteWatchdog::blame(DetailsWriter& details) {
  if (described_ >= 0) details.blame(described_, nullptr);
}

void RemoteWatchdog::keep_cause(Code code, const ErrorText& why, bool is_mismatch) {
  code_ = fail_with(&text_, code, why);
  with_id(text_);
  mismatched_ = is_mismatch;
  failed_.store(true, std::memory_order_release);
  changed_.notify_all();
}

Status RemoteWatchdog::carry_out(Task& task, ErrorText* error) {
  if (task.done) {
    const Status status = failed() ? refuse(record_of(task.call, size_, 0), task.call.error)
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
  if (failed()) return refuse(record_of(task.call, size_, task.number), error);
  return engine_->compare(member_, task.call, task.number);
}

void RemoteWatchdog::finish(Task& task, Status status, const ErrorText& error) {
  if (status.ok())
    settled_ = std::max(settled_, task.number);
  else
    poll_wanted_ = true;  // the poll waits until the final messages are on their way
  // The text of a failed call already names the call of this rank; the text of an abort does not.
  if (!status.ok() && !failed())
    keep_cause(status.code == Code::Closed ? Code::Peer : status.code, error, !task.done);
  changed_.notify_all();
  if (task.done) task.done->set_value(status);
}

void RemoteWatchdog::poll() {
  ErrorText dead, error;
  const Status status = engine_->poll(member_, &dead, &error);
  std::lock_guard<std::mutex> lock(mutex_);
  gone_ = dead;
  if (!status.ok() && !failed()) keep_cause(status.code, error, false);
}

void RemoteWatchdog::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wanted_.wait(lock, [this] { return ending_ || poll_wanted_ || !tasks_.empty(); });
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
    poll_wanted_ = false;
    lock.unlock();
    poll();
    lock.lock();
  }
}

}  // namespace shardwise::comm
