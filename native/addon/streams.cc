#include "streams.h"

#include <algorithm>

#include "environment.h"

namespace shardwise {

Status find_named(Environment& state, int64_t id, Stream** stream) {
  *stream = state.streams.find(id);
  return *stream ? kOk : fail(error_of(state), Code::Closed, "the stream is gone");
}

Stream* Streams::default_of(int32_t device, ErrorText* error) {
  auto found = defaults_.find(device);
  if (found != defaults_.end()) return streams_[found->second].get();
  Stream* stream = open(device, 0, error);
  if (!stream) return nullptr;
  if (device == 0) stream->on_idle = [] { Devices::get().allocator(0)->trim_idle_host(); };
  defaults_[device] = stream->id();
  return stream;
}

Stream* Streams::open(int32_t device, int32_t priority, ErrorText* error) {
  if (!Devices::get().valid(device)) {
    fail(error, Code::Device, "there is no device %d", device);
    return nullptr;
  }
  const auto id = static_cast<uint32_t>(streams_.size());
  auto stream = std::make_unique<Stream>(Devices::get().backend(device), Devices::index(device), id,
                                         priority, state_.profile.log);
  if (!stream->open(*Devices::get().allocator(device), error).ok()) return nullptr;
  streams_.push_back(std::move(stream));
  return streams_[id].get();
}

void Streams::close() { streams_.clear(); }

// A stream with an untaken failure stays parked: it skips commands.
Stream* Streams::reuse(int32_t device, int32_t priority) {
  for (Stream* each : parked_) each->reap();
  const auto fits = [&](Stream* s) {
    return s->device_code() == device && s->priority() == priority && s->idle() && !s->failed();
  };
  // the thread of the most recent may still run
  const auto found = std::find_if(parked_.rbegin(), parked_.rend(), fits);
  if (found == parked_.rend()) return nullptr;
  Stream* stream = *found;
  parked_.erase(std::next(found).base());
  return stream;
}

void Streams::switch_to(Stream& stream) {
  if (!stream.backend()->asynchronous) return;
  if (active_) active_->mark();
  active_ = &stream;
}

Status Streams::default_stream(DeviceCode device, uint32_t* id, ErrorText* error) {
  const Stream* stream = default_of(device, error);
  if (!stream) return Status{Code::Device};
  *id = stream->id();
  return kOk;
}

Status Streams::create(DeviceCode device, int64_t priority, int64_t rank_runtime, uint32_t* id,
                       ErrorText* error) {
  Stream* stream = reuse(device, static_cast<int32_t>(priority));
  if (!stream) stream = open(device, static_cast<int32_t>(priority), error);
  if (!stream) return Status{Code::Device};
  stream->set_rank_runtime(rank_runtime);
  // it may wait for what another rank has yet to do
  if (stream->unbounded() && !stream->require_thread(error).ok()) {
    parked_.push_back(stream);
    return Status{Code::Device};
  }
  *id = stream->id();
  return kOk;
}

void Streams::destroy(Stream& stream) {
  for (auto& [device, id] : defaults_)
    if (id == stream.id()) return;
  for (Stream* each : parked_) each->reap();
  if (std::find(parked_.begin(), parked_.end(), &stream) != parked_.end()) return;
  if (active_ == &stream) active_ = nullptr;
  stream.park();
  parked_.push_back(&stream);
}

Status Streams::synchronize(Stream& stream, ErrorText* error) {
  Failure failure;
  const Status status = stream.synchronize(&failure);
  if (status.ok()) return stream.backend()->asynchronous ? check_others(stream, error) : kOk;
  state_.storages.lose_results(stream, failure);
  mark_reported(failure, stream.rank_runtime());
  *error = failure.text;
  return status;
}

Status Streams::query(Stream& stream, bool* done, ErrorText* error) {
  stream.flush_waits();
  *done = stream.idle();
  return *done ? stream.backend()->stream_query(stream.native(), done, error) : kOk;
}

// Streams of other ranks keep the failure: it is reported to them separately.
void Streams::mark_reported(const Failure& failure, int64_t rank_runtime) {
  for (auto& each : streams_) {
    Failure same;
    if (each->rank_runtime() == rank_runtime && each->take(failure, &same))
      state_.storages.lose_results(*each, same);
  }
  state_.groups.mark_reported(failure, rank_runtime);
}

// A GPU reports a bad index on the stream where it happened, while dependent results may be read on
// another one. Streams of other ranks are skipped: their failures are not this rank's, and they may
// wait for it.
Status Streams::check_others(const Stream& read, ErrorText* error) {
  for (auto& each : streams_) {
    const Backend* backend = each->backend();
    if (each.get() == &read || each->unbounded() || !backend->stream_failure ||
        each->submitted() == each->verified())
      continue;
    ErrorText known;
    if (!each->failed() && backend->stream_failure(each->native(), &known).ok()) continue;
    const Status status = synchronize(*each, error);
    if (!status.ok()) return status;
  }
  return state_.groups.check(read.rank_runtime(), error);
}

}  // namespace shardwise
