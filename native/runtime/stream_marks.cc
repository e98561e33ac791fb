// Waits between streams of asynchronous backends. A wait is for the last use of the memory and not
// for all that its stream was given: one layer's weights must not wait for the gather of the next.
#include <algorithm>

#include "block_return.h"
#include "stream.h"

namespace shardwise {

void Stream::mark() {
  flush_waits();
  if (!marks_.empty() && marks_.back().sequence == submitted_) return;
  const std::shared_ptr<Event> event = unused_event();
  enqueue([event](Stream& s) {
    ErrorText ignored;
    const bool recorded = event->create(&ignored).ok() &&
                          event->backend->event_record(event->handle, s.native(), &ignored).ok();
    // Without an event the other streams wait until this thread has waited.
    if (!recorded) s.backend()->stream_synchronize(s.native(), &ignored);
    std::lock_guard<std::mutex> lock(event->mutex);
    event->recorded.store(1);
    event->changed.notify_all();
  });
  marks_.push_back({submitted_, event});
}

// Destroying an event waits for threads that launch kernels, so old ones are used again.
std::shared_ptr<Event> Stream::unused_event() {
  if (marks_.size() >= kMostMarks) {
    std::shared_ptr<Event> oldest = std::move(marks_.front().event);
    marks_.pop_front();
    if (oldest.use_count() == 1) {
      // the threads that have let it go are done with it
      std::atomic_thread_fence(std::memory_order_acquire);
      oldest->recorded.store(0);
      return oldest;
    }
  }
  auto event = std::make_shared<Event>();
  event->backend = backend_;
  event->device = device_;
  return event;
}

const Mark& Stream::mark_behind(uint64_t sequence) {
  const auto is_before = [](const Mark& mark, uint64_t value) { return mark.sequence < value; };
  auto found = std::lower_bound(marks_.begin(), marks_.end(), sequence, is_before);
  if (found != marks_.end()) return *found;
  mark();
  return marks_.back();
}

void Stream::wait_for(Stream& other, uint64_t sequence, std::function<void(Stream&)> then) {
  Waited& waited = waited_for_[&other];
  const bool known = waited.sequence >= sequence && waited.sequence > 0;
  if (known && !then) return;
  std::shared_ptr<Event> event;
  if (!known) {
    const Mark& mark = other.mark_behind(sequence);
    waited.sequence = mark.sequence;
    event = mark.event;
  }
  waits_.push_back([event, then = std::move(then)](Stream& s) {
    if (event) event->wait_recorded(1);
    if (then) then(s);
    if (!event || !event->handle) return;
    ErrorText ignored;
    if (s.backend()->asynchronous)
      s.backend()->event_wait(event->handle, s.native(), &ignored);
    else
      event->backend->event_synchronize(event->handle, &ignored);
  });
  if (!backend_->asynchronous) flush_waits();
  if (!known) return_blocks(waited);
}

bool Stream::has_waited_for(const Stream& other, uint64_t sequence) const {
  if (!other.backend_->asynchronous && other.completed() >= sequence) return true;
  const auto found = waited_for_.find(&other);
  return found != waited_for_.end() && found->second.sequence >= sequence;
}

void Stream::remember_wait(const Stream& other, uint64_t sequence) {
  Waited& waited = waited_for_[&other];
  if (waited.sequence >= sequence) return;
  waited.sequence = sequence;
  return_blocks(waited);
}

// Memory comes back in the order of its last uses, nearly always.
void Stream::return_behind(const Stream& other, uint64_t sequence,
                           std::shared_ptr<BlockReturn> block) {
  auto& blocks = waited_for_[&other].blocks;
  while (!blocks.empty() && blocks.front().second->returned()) blocks.pop_front();
  blocks.emplace_back(sequence, std::move(block));
}

void Stream::return_blocks(Waited& waited) {
  auto& blocks = waited.blocks;
  while (!blocks.empty() && blocks.front().first <= waited.sequence) {
    blocks.front().second->behind(claimed());
    blocks.pop_front();
  }
}

void Stream::flush_waits() {
  if (waits_.empty()) return;
  std::vector<std::function<void(Stream&)>> waits;
  waits.swap(waits_);
  enqueue([waits = std::move(waits)](Stream& s) {
    for (const auto& wait : waits) wait(s);
  });
}

}  // namespace shardwise
