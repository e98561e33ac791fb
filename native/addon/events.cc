#include "events.h"

#include "environment.h"

namespace shardwise {

Status find_named(Environment& state, int64_t id, SharedEvent* event) {
  *event = state.events.find(id);
  return *event ? kOk : fail(error_of(state), Code::Closed, "the event is gone");
}

Status Events::create(DeviceCode device, bool timing, uint32_t* id, ErrorText* error) {
  auto event = std::make_shared<Event>();
  event->backend = device.backend();
  event->device = device.index();
  event->timing = timing;
  const Status status = event->create(error);
  if (!status.ok()) return status;
  *id = next_++;
  events_[*id] = std::move(event);
  return kOk;
}

void Events::destroy(int64_t id) { events_.erase(id); }

Status Events::record(SharedEvent event, Stream& stream, ErrorText* error) {
  if (stream.backend() != event->backend)
    return fail(error, Code::Invalid, "the event and the stream are of different devices");
  event->requested++;
  event->recorder = &stream;
  event->rank_runtime = stream.rank_runtime();
  stream.enqueue([event](Stream& s) { event->record(s); });
  event->sequence = stream.submitted();
  return kOk;
}

void Events::wait(SharedEvent event, Stream& stream) {
  const uint64_t count = event->requested, sequence = event->sequence;
  stream.enqueue([event, count, recorder = event->recorder, sequence](Stream& s) {
    ErrorText text;
    event->wait_recorded(count);
    if (recorder && recorder != &s) s.inherit_failure(*recorder, sequence);
    Status status = s.backend() == event->backend
                        ? s.backend()->event_wait(event->handle, s.native(), &text)
                        : event->backend->event_synchronize(event->handle, &text);
    if (!status.ok()) s.set_error(status.code, text);
  });
}

Status Events::query(SharedEvent event, bool* done, ErrorText* error) {
  *done = event->recorded.load() >= event->requested;
  if (!*done || event->requested == 0) return kOk;
  return event->backend->event_query(event->handle, done, error);
}

// A GPU reports a bad index with a delay: at the stream's next command, or here.
Status Events::unobserved_failure(const Event& event, ErrorText* error) {
  Stream& recorder = *event.recorder;
  if (!event.backend->stream_failure || event.sequence <= recorder.verified()) return kOk;
  const Status status = event.backend->stream_failure(recorder.native(), error);
  if (status.ok() || recorder.unbounded()) return status;
  return state_.streams.synchronize(recorder, error);
}

Status Events::synchronize(SharedEvent event, ErrorText* error) {
  if (event->requested == 0) return kOk;
  Failure seen = event->wait();
  Status status = event->backend->event_synchronize(event->handle, error);
  if (!status.ok()) return status;
  // otherwise another rank uses the stream now
  const bool is_same = event->recorder->rank_runtime() == event->rank_runtime;
  if (seen.status.ok() && is_same) {
    status = unobserved_failure(*event, error);
    if (!status.ok()) return status;
    event->recorder->failure_of(event->sequence, &seen);
  }
  if (seen.status.ok()) return kOk;
  state_.streams.mark_reported(seen, event->rank_runtime);
  *error = seen.text;
  return seen.status;
}

Status Events::elapsed_ms(SharedEvent start, SharedEvent end, double* ms, ErrorText* error) {
  if (start->backend != end->backend)
    return fail(error, Code::Invalid, "the events are of different devices");
  if (start->requested == 0 || end->requested == 0)
    return fail(error, Code::Invalid, "both events must have been recorded");
  Status status = synchronize(start, error);
  if (status.ok()) status = synchronize(end, error);
  if (status.ok()) status = start->backend->event_elapsed_ms(start->handle, end->handle, ms, error);
  return status;
}

}  // namespace shardwise
