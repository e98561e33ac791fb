// Failure of a stream: which commands are skipped, what other streams inherit, and what JavaScript
// takes.
#include <cstdio>

#include "stream.h"

namespace shardwise {

namespace {

uint64_t next_failure() {
  static std::atomic<uint64_t> numbers{0};
  return ++numbers;
}

}  // namespace

Status Stream::synchronize(Failure* failure) {
  flush_waits();
  wait(submitted_);
  if (backend_->asynchronous && native_) {
    ErrorText text;
    const Status status = backend_->stream_synchronize(native_, &text);
    if (!status.ok()) set_error(status.code, text);
  }
  if (!failed()) {
    verify(submitted_);
    return kOk;
  }
  std::lock_guard<std::mutex> lock(failure_mutex_);
  take_failure();
  *failure = taken_;
  return taken_.status;
}

// Requires the mutex.
void Stream::take_failure() {
  taken_ = failure_;
  taken_.last = submitted_;
  skip_until_.store(submitted_);
  failed_.store(false, std::memory_order_release);
  verify(submitted_);
}

void Stream::verify(uint64_t sequence) {
  if (sequence > verified()) verified_.store(sequence, std::memory_order_relaxed);
}

bool Stream::skips() const {
  const uint64_t current = completed_.load(std::memory_order_relaxed) + 1;
  return failed() || current <= skip_until_.load(std::memory_order_relaxed);
}

bool Stream::skips(Failure* why) {
  if (!skips()) return false;
  std::lock_guard<std::mutex> lock(failure_mutex_);
  *why = failed() ? failure_ : taken_;
  return true;
}

bool Stream::skips(Failed* why) {
  Failure cause;
  if (!skips(&cause)) return false;
  *why = {cause.status, cause.text};
  return true;
}

bool Stream::failure_of(uint64_t sequence, Failure* failure) {
  if (!failed() && sequence > skip_until_.load(std::memory_order_relaxed)) return false;
  std::lock_guard<std::mutex> lock(failure_mutex_);
  const bool untold = failed() && failure_.first <= sequence;
  if (!untold && !(taken_.first <= sequence && sequence <= taken_.last)) return false;
  *failure = untold ? failure_ : taken_;
  return true;
}

// Also inherits a failure that JavaScript took meanwhile: its commands were skipped all the same.
void Stream::inherit_failure(Stream& other, uint64_t sequence) {
  Failure seen;
  if (other.failure_of(sequence, &seen) && seen.number != 0) fail_with(seen);
}

bool Stream::take(const Failure& reported, Failure* failure) {
  if (!failed()) return false;
  std::lock_guard<std::mutex> lock(failure_mutex_);
  const bool same = reported.number != 0 ? failure_.number == reported.number
                                         : failure_.origin == reported.origin;
  if (!same) return false;
  take_failure();
  *failure = taken_;
  return true;
}

void Stream::give_up(const Failure& reported) {
  std::lock_guard<std::mutex> lock(failure_mutex_);
  taken_ = reported;
  taken_.number = next_failure();
  taken_.last = submitted_;
  skip_until_.store(submitted_);
}

void Stream::set_error(Code code, const ErrorText& error) {
  Failure failure;
  failure.status = Status{code};
  failure.text = error;
  with_id(failure.text);
  failure.origin = this;
  failure.number = next_failure();
  fail_with(failure);
}

// A GPU reports a failure with a delay: everything since the last verified command may be invalid.
void Stream::fail_with(const Failure& failure) {
  std::lock_guard<std::mutex> lock(failure_mutex_);
  const uint64_t current = completed_.load(std::memory_order_relaxed) + 1;
  if (failed_.load() || current <= skip_until_.load()) return;  // the first failure is the cause
  failure_ = failure;
  failure_.first = backend_->asynchronous ? verified() + 1 : current;
  failed_.store(true, std::memory_order_release);
}

}  // namespace shardwise
