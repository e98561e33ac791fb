// Events: marks of the work of a stream, with the failure that the stream had there.
#include "stream.h"

namespace shardwise {

Event::~Event() {
  if (handle) backend->event_destroy(handle);
}

Status Event::create(ErrorText* error) {
  return handle ? kOk : backend->event_create(device, timing, &handle, error);
}

void Event::wait_recorded(uint64_t count) {
  if (recorded.load(std::memory_order_acquire) >= count) return;
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return recorded.load(std::memory_order_acquire) >= count; });
}

void Event::record(Stream& stream) {
  Failure seen;
  ErrorText text;
  const Status status = backend->event_record(handle, stream.native(), &text);
  if (!status.ok()) stream.set_error(status.code, text);
  stream.skips(&seen);
  std::lock_guard<std::mutex> lock(mutex);
  why = seen;
  recorded.fetch_add(1);
  changed.notify_all();
}

Failure Event::wait() {
  wait_recorded(requested);
  std::lock_guard<std::mutex> lock(mutex);
  return why;
}

}  // namespace shardwise
