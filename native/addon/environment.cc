#include "environment.h"

#include <algorithm>

#include "../runtime/cupti.h"
#include "member.h"

namespace shardwise {

Devices& Devices::get() {
  static Devices* devices = new Devices;  // never destroyed: streams may outlive statics
  return *devices;
}

bool Devices::valid(int64_t code) {
  if (code == 0) return true;
  const Backend* found = cuda.load();
  return found && code > 0 && code < kMaxDevices && code <= found->device_count();
}

CachingAllocator* Devices::allocator(int32_t code) {
  std::atomic<CachingAllocator*>& kept = allocators[code];
  if (CachingAllocator* found = kept.load(std::memory_order_acquire)) return found;
  std::lock_guard<std::mutex> lock(mutex);
  if (!kept.load())
    kept.store(new CachingAllocator(backend(code), index(code)), std::memory_order_release);
  return kept.load();
}

// Its memory is kept for reuse until emptyCache, like that of a GPU, because returning it waits for
// every device.
CachingAllocator* Devices::pinned_allocator() {
  if (CachingAllocator* found = pinned_kept.load(std::memory_order_acquire)) return found;
  std::lock_guard<std::mutex> lock(mutex);
  if (CachingAllocator* found = pinned_kept.load()) return found;
  pinned = *cpu;
  pinned.asynchronous = true;
  pinned.alignment = 512;
  pinned.allocate = [](int32_t, int64_t bytes, void** out, ErrorText* error) {
    return get().cuda.load()->host_allocate(bytes, out, error);
  };
  pinned.release = [](int32_t, void* pointer, int64_t bytes) {
    get().cuda.load()->host_release(pointer, bytes);
  };
  pinned_kept.store(new CachingAllocator(&pinned, 0), std::memory_order_release);
  return pinned_kept.load();
}

// Environments that have not ended.
static std::atomic<int> environments{0};

Environment::Environment(napi_env e) : env(e), gate(std::make_shared<Gate>()) {
  napi_value buffer = nullptr;
  void* data = nullptr;
  // A worker may be stopped while it loads the addon: from then on the engine creates no values.
  if (napi_create_arraybuffer(env, kWordBytes, &data, &buffer) != napi_ok) return;
  words = static_cast<double*>(data);
  environments++;
  napi_create_reference(env, buffer, 1, &words_ref);
  gate->open(env);
}

void Environment::close() {
  closed = true;
  gate->close();
  Cupti::get().stop(&log);
  abort_all_groups(*this, "the program of another rank has ended");
  // Drains all before the first is destroyed: commands of one may wait for another.
  Failure ignored;
  for (auto& each : streams) each->synchronize(&ignored);
  storages.for_each([&](int64_t, StorageEntry& entry) {
    if (entry.block) entry.allocator->free(entry.block, true);
  });
  if (pinned_pool >= 0)
    Devices::get().pinned_allocator()->close_pool(static_cast<uint32_t>(pinned_pool));
  // closes their pools: the allocators belong to the process, and keep no pointer to this
  streams.clear();
  storages = StorageTable{};
  plans.clear();
  weak_tokens.clear();
  // For other threads that continue; a process that ends needs nothing.
  if (--environments > 0) trim_c_heap();
}

Stream* Environment::stream(int64_t id) {
  return id >= 0 && id < static_cast<int64_t>(streams.size()) ? streams[id].get() : nullptr;
}

Stream* Environment::default_stream(int32_t device, ErrorText* error) {
  auto found = default_streams.find(device);
  if (found != default_streams.end()) return streams[found->second].get();
  Stream* stream = open_stream(device, 0, error);
  if (!stream) return nullptr;
  if (device == 0) stream->on_idle = [] { Devices::get().allocator(0)->trim_idle_host(); };
  default_streams[device] = stream->id();
  return stream;
}

Stream* Environment::open_stream(int32_t device, int32_t priority, ErrorText* error) {
  if (!Devices::get().valid(device)) {
    fail(error, Code::Device, "there is no device %d", device);
    return nullptr;
  }
  const auto id = static_cast<uint32_t>(streams.size());
  auto stream = std::make_unique<Stream>(Devices::get().backend(device), Devices::index(device), id,
                                         priority, log);
  if (!stream->open(*Devices::get().allocator(device), error).ok()) return nullptr;
  streams.push_back(std::move(stream));
  return streams[id].get();
}

void Environment::park_stream(Stream& stream) {
  for (auto& [device, id] : default_streams)
    if (id == stream.id()) return;
  for (Stream* each : parked) each->reap();
  if (std::find(parked.begin(), parked.end(), &stream) != parked.end()) return;
  if (active == &stream) active = nullptr;
  stream.park();
  parked.push_back(&stream);
}

// A stream with an untaken failure stays parked: it skips commands.
Stream* Environment::reuse_stream(int32_t device, int32_t priority) {
  for (Stream* each : parked) each->reap();
  const auto fits = [&](Stream* s) {
    return s->device_code() == device && s->priority() == priority && s->idle() && !s->failed();
  };
  // the thread of the most recent may still run
  const auto found = std::find_if(parked.rbegin(), parked.rend(), fits);
  if (found == parked.rend()) return nullptr;
  Stream* stream = *found;
  parked.erase(std::next(found).base());
  return stream;
}

namespace {

// Orders `stream` behind a command of `other`. If `writer` has failed by the command `written`,
// `stream` takes over the failure.
void order_behind(Stream& stream, Stream& other, uint64_t sequence, Stream* writer,
                  uint64_t written) {
  std::function<void(Stream&)> inherit;
  if (writer) inherit = [writer, written](Stream& s) { s.inherit_failure(*writer, written); };
  if (other.backend()->asynchronous) {
    stream.wait_for(other, sequence, std::move(inherit));
  } else if (other.completed() < sequence) {
    const auto wait = [&other, sequence, inherit = std::move(inherit)](Stream& s) {
      other.wait(sequence);
      if (inherit) inherit(s);
    };
    stream.enqueue(wait, "wait for a stream");
    stream.remember_wait(other, sequence);
  } else if (writer && writer->failed()) {
    stream.enqueue(std::move(inherit));
  }
}

}  // namespace

void Environment::touch(StorageEntry& entry, Stream& stream) {
  if (active != &stream) switch_to(stream);
  // Before its first use, memory may still be in use by earlier commands of its owner stream: those
  // of the previous owner of the block.
  const Block* inherited =
      !entry.last_stream && entry.block && entry.block->progress ? entry.block : nullptr;
  Stream* before = inherited ? entry.owner : entry.last_stream;
  if (before != &stream && before) {
    Stream* writer = inherited || entry.writer == &stream ? nullptr : entry.writer;
    order_behind(stream, *before, inherited ? inherited->sequence : entry.last_sequence, writer,
                 entry.written);
  }
  if (entry.owner != &stream) {
    bool known = false;
    for (Stream* each : entry.other_streams) known = known || each == &stream;
    if (!known) entry.other_streams.push_back(&stream);
  }
  entry.last_stream = &stream;
  // not a number of the previous stream, which this one may never reach
  entry.last_sequence = stream.claimed();
}

void Environment::switch_to(Stream& stream) {
  if (!stream.backend()->asynchronous) return;
  if (active) active->mark();
  active = &stream;
}

void Environment::write(StorageEntry& entry, Stream& stream, bool whole) {
  entry.writer = &stream;
  entry.written = stream.submitted();
  if (whole) entry.no_value.reset();
}

Status Environment::synchronize(Stream& stream, ErrorText* error) {
  Failure failure;
  const Status status = stream.synchronize(&failure);
  if (status.ok()) return stream.backend()->asynchronous ? check_others(stream, error) : kOk;
  lose_results(stream, failure);
  mark_reported(failure, stream.rank_runtime());
  *error = failure.text;
  return status;
}

// Streams of other ranks keep the failure: it is reported to them separately.
void Environment::mark_reported(const Failure& failure, int64_t rank_runtime) {
  for (auto& each : streams) {
    Failure same;
    if (each->rank_runtime() == rank_runtime && each->take(failure, &same))
      lose_results(*each, same);
  }
  for (auto& [id, member] : members)
    if (member->stream == failure.origin && member->stream->rank_runtime() == rank_runtime)
      member->mark_reported();
}

// A GPU reports a bad index on the stream where it happened, while dependent results may be read on
// another one. Streams of other ranks are skipped: their failures are not this rank's, and they may
// wait for it.
Status Environment::check_others(const Stream& read, ErrorText* error) {
  for (auto& each : streams) {
    const Backend* backend = each->backend();
    if (each.get() == &read || each->unbounded() || !backend->stream_failure ||
        each->submitted() == each->verified())
      continue;
    ErrorText known;
    if (!each->failed() && backend->stream_failure(each->native(), &known).ok()) continue;
    const Status status = synchronize(*each, error);
    if (!status.ok()) return status;
  }
  return members.empty() ? kOk : check_groups(read.rank_runtime(), error);
}

void Environment::lose_results(Stream& stream, const Failure& failure) {
  const auto cause = std::make_shared<const std::string>(failure.text.text);
  std::vector<Stream*> readers;
  storages.for_each([&](int64_t, StorageEntry& entry) {
    if (entry.writer != &stream || entry.written < failure.first) return;
    entry.no_value = cause;
    readers.insert(readers.end(), entry.other_streams.begin(), entry.other_streams.end());
    readers.push_back(entry.owner);
  });
  // Other streams continued with invalid inputs: everything that they wrote since they were last
  // verified is invalid.
  storages.for_each([&](int64_t, StorageEntry& entry) {
    for (const Stream* reader : readers)
      if (reader != &stream && entry.writer == reader && entry.written > reader->verified())
        entry.no_value = cause;
  });
}

Status check_value(const StorageEntry& entry, ErrorText* error) {
  if (!entry.no_value) return kOk;
  return fail(error, Code::NoValue,
              "the tensor has no value: what should have computed it was skipped after an earlier "
              "failure: %.300s",
              entry.no_value->c_str());
}

CallFailure& call_failure(napi_env env) { return state_of(env).failure; }

Environment& state_of(napi_env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return *static_cast<Environment*>(data);
}

}  // namespace shardwise
