// Streams and events as JavaScript sees them: small integers.
#include "environment.h"

namespace shardwise {

namespace {

Stream* stream_argument(napi_env env, int64_t id) {
  Stream* stream = state_of(env).stream(id);
  if (!stream) fail_call(env, Code::Closed, "the stream is gone");
  return stream;
}

std::shared_ptr<Event> event_argument(napi_env env, int64_t id) {
  auto& events = state_of(env).events;
  auto found = id >= 0 && id <= UINT32_MAX ? events.find(static_cast<uint32_t>(id)) : events.end();
  if (found != events.end()) return found->second;
  fail_call(env, Code::Closed, "the event is gone");
  return nullptr;
}

napi_value default_stream(napi_env env, napi_callback_info info) {
  int64_t device;
  if (!read_integers(env, info, 1, &device)) return nullptr;
  if (!Devices::get().valid(device)) return fail_call(env, Code::Device, "there is no such device");
  ErrorText error;
  Stream* stream = state_of(env).default_stream(static_cast<int32_t>(device), &error);
  return stream ? number_value(env, stream->id()) : fail_call(env, Code::Device, error);
}

// streamCreate(device, priority, rank runtime)
napi_value stream_create(napi_env env, napi_callback_info info) {
  int64_t args[3];
  if (!read_integers(env, info, 3, args)) return nullptr;
  Environment& state = state_of(env);
  if (!Devices::get().valid(args[0]))
    return fail_call(env, Code::Device, "there is no such device");
  ErrorText error;
  const auto device = static_cast<int32_t>(args[0]), priority = static_cast<int32_t>(args[1]);
  Stream* stream = state.reuse_stream(device, priority);
  if (!stream) stream = state.open_stream(device, priority, &error);
  if (stream) stream->set_rank_runtime(args[2]);
  return stream ? number_value(env, stream->id()) : fail_call(env, Code::Device, error);
}

// Does not wait. The id stays valid: storages may still name the stream as their owner.
napi_value stream_destroy(napi_env env, napi_callback_info info) {
  int64_t id;
  if (!read_integers(env, info, 1, &id)) return nullptr;
  if (Stream* stream = stream_argument(env, id)) state_of(env).park_stream(*stream);
  return nullptr;
}

napi_value synchronize(napi_env env, napi_callback_info info) {
  int64_t id;
  if (!read_integers(env, info, 1, &id)) return nullptr;
  Stream* stream = stream_argument(env, id);
  if (!stream) return nullptr;
  ErrorText error;
  Status status = state_of(env).synchronize(*stream, &error);
  return status.ok() ? nullptr : fail_call(env, status.code, error);
}

napi_value stream_query(napi_env env, napi_callback_info info) {
  int64_t id;
  if (!read_integers(env, info, 1, &id)) return nullptr;
  Stream* stream = stream_argument(env, id);
  if (!stream) return nullptr;
  stream->flush_waits();
  if (!stream->idle()) return boolean_value(env, false);
  bool done = true;
  ErrorText error;
  const Status status = stream->backend()->stream_query(stream->native(), &done, &error);
  return status.ok() ? boolean_value(env, done) : fail_call(env, status.code, error);
}

napi_value event_create(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  if (!Devices::get().valid(args[0]))
    return fail_call(env, Code::Device, "there is no such device");
  auto event = std::make_shared<Event>();
  event->backend = Devices::get().backend(static_cast<int32_t>(args[0]));
  event->device = Devices::index(static_cast<int32_t>(args[0]));
  event->timing = args[1] != 0;
  ErrorText error;
  Status status = event->create(&error);
  if (!status.ok()) return fail_call(env, status.code, error);
  Environment& state = state_of(env);
  state.events[state.next_event] = event;
  return number_value(env, state.next_event++);
}

napi_value event_destroy(napi_env env, napi_callback_info info) {
  int64_t id;
  if (read_integers(env, info, 1, &id) && id >= 0 && id <= UINT32_MAX)
    state_of(env).events.erase(static_cast<uint32_t>(id));
  return nullptr;
}

napi_value event_record(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  auto event = event_argument(env, args[0]);
  Stream* stream = event ? stream_argument(env, args[1]) : nullptr;
  if (!stream) return nullptr;
  if (stream->backend() != event->backend)
    return fail_call(env, Code::Invalid, "the event and the stream are of different devices");
  event->requested++;
  event->recorder = stream;
  event->rank_runtime = stream->rank_runtime();
  stream->enqueue([event](Stream& s) { event->record(s); });
  event->sequence = stream->submitted();
  return nullptr;
}

napi_value event_wait(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  auto event = event_argument(env, args[0]);
  Stream* stream = event ? stream_argument(env, args[1]) : nullptr;
  if (!stream) return nullptr;
  const uint64_t count = event->requested, sequence = event->sequence;
  stream->enqueue([event, count, recorder = event->recorder, sequence](Stream& s) {
    ErrorText text;
    event->wait_recorded(count);
    if (recorder && recorder != &s) s.inherit_failure(*recorder, sequence);
    Status status = s.backend() == event->backend
                        ? s.backend()->event_wait(event->handle, s.native(), &text)
                        : event->backend->event_synchronize(event->handle, &text);
    if (!status.ok()) s.set_error(status.code, text);
  });
  return nullptr;
}

napi_value event_query(napi_env env, napi_callback_info info) {
  int64_t id;
  if (!read_integers(env, info, 1, &id)) return nullptr;
  auto event = event_argument(env, id);
  if (!event) return nullptr;
  bool done = event->recorded.load() >= event->requested;
  ErrorText error;
  if (done && event->requested > 0) {
    Status status = event->backend->event_query(event->handle, &done, &error);
    if (!status.ok()) return fail_call(env, status.code, error);
  }
  return boolean_value(env, done);
}

// A GPU reports a bad index with a delay: at the stream's next command, or here.
Status unobserved_failure(Environment& state, const Event& event, ErrorText* error) {
  Stream& recorder = *event.recorder;
  if (!event.backend->stream_failure || event.sequence <= recorder.verified()) return kOk;
  const Status status = event.backend->stream_failure(recorder.native(), error);
  if (status.ok() || recorder.unbounded()) return status;
  return state.synchronize(recorder, error);
}

// Waits for all work before the event. Fails if that failed.
Status wait_for(Environment& state, Event& event, ErrorText* error) {
  if (event.requested == 0) return kOk;
  Failure seen = event.wait();
  Status status = event.backend->event_synchronize(event.handle, error);
  if (!status.ok()) return status;
  // otherwise another rank uses the stream now
  const bool is_same = event.recorder->rank_runtime() == event.rank_runtime;
  if (seen.status.ok() && is_same) {
    status = unobserved_failure(state, event, error);
    if (!status.ok()) return status;
    event.recorder->failure_of(event.sequence, &seen);
  }
  if (seen.status.ok()) return kOk;
  state.mark_reported(seen, event.rank_runtime);
  *error = seen.text;
  return seen.status;
}

napi_value event_synchronize(napi_env env, napi_callback_info info) {
  int64_t id;
  if (!read_integers(env, info, 1, &id)) return nullptr;
  auto event = event_argument(env, id);
  if (!event) return nullptr;
  ErrorText error;
  const Status status = wait_for(state_of(env), *event, &error);
  return status.ok() ? nullptr : fail_call(env, status.code, error);
}

napi_value event_elapsed(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  auto start = event_argument(env, args[0]);
  auto end = start ? event_argument(env, args[1]) : nullptr;
  if (!end) return nullptr;
  if (start->backend != end->backend)
    return fail_call(env, Code::Invalid, "the events are of different devices");
  if (start->requested == 0 || end->requested == 0)
    return fail_call(env, Code::Invalid, "both events must have been recorded");
  double ms = 0;
  ErrorText error;
  Status status = wait_for(state_of(env), *start, &error);
  if (status.ok()) status = wait_for(state_of(env), *end, &error);
  if (status.ok())
    status = start->backend->event_elapsed_ms(start->handle, end->handle, &ms, &error);
  return status.ok() ? number_value(env, ms) : fail_call(env, status.code, error);
}

}  // namespace

void export_streams(napi_env env, napi_value exports) {
  export_function<default_stream>(env, exports, "defaultStream");
  export_function<stream_create>(env, exports, "streamCreate");
  export_function<stream_destroy>(env, exports, "streamDestroy");
  export_function<synchronize>(env, exports, "synchronize");
  export_function<stream_query>(env, exports, "streamQuery");
  export_function<event_create>(env, exports, "eventCreate");
  export_function<event_destroy>(env, exports, "eventDestroy");
  export_function<event_record>(env, exports, "eventRecord");
  export_function<event_wait>(env, exports, "eventWait");
  export_function<event_query>(env, exports, "eventQuery");
  export_function<event_synchronize>(env, exports, "eventSynchronize");
  export_function<event_elapsed>(env, exports, "eventElapsedMs");
}

}  // namespace shardwise
