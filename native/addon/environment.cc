#include "environment.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../runtime/cupti.h"
#include "../runtime/staging.h"
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

void Gate::post(Completion* completion) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!alive) {
    // The references were deleted with the environment.
    if (completion->staging) give_staging(completion->staging, completion->bytes);
    delete completion;
    return;
  }
  finished.push_back(completion);
  if (scheduled) return;
  scheduled = true;
  napi_call_threadsafe_function(function, nullptr, napi_tsfn_nonblocking);
}

namespace {

void finish(Environment& state, Completion* completion) {
  napi_env env = state.env;
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  if (completion->staging) {
    if (completion->code == Code::Ok && completion->bytes > 0)
      std::memcpy(completion->destination, completion->staging, completion->bytes);
    give_staging(completion->staging, completion->bytes);
  }
  napi_value callback = nullptr, receiver = nullptr, argument = nullptr;
  napi_get_reference_value(env, completion->callback, &callback);
  napi_get_global(env, &receiver);
  Stream* stream = state.stream(completion->stream);
  ErrorText known;
  // After the failure is taken the stream runs new work, which may wait for JavaScript.
  if (completion->code == Code::Ok)
    stream->verify(completion->sequence);
  else if (stream->failed() || stream->backend()->asynchronous)
    state.synchronize(*stream, &known);
  // The device reports no id; the stream assigned one as it took the failure.
  Failure taken;
  if (completion->code != Code::Ok && completion->error.details.id == 0 &&
      stream->failure_of(completion->sequence, &taken))
    completion->error.details.id = taken.text.details.id;
  if (completion->code == Code::Ok && stream->backend()->asynchronous)
    completion->code = state.check_others(*stream, &completion->error).code;
  if (completion->code == Code::Ok) {
    napi_get_null(env, &argument);
  } else {
    fail_call(env, completion->code, completion->error);
    argument = take_failure(env);
  }
  napi_delete_reference(env, completion->callback);
  if (completion->keep_alive) napi_delete_reference(env, completion->keep_alive);
  delete completion;
  napi_value ignored = nullptr, thrown = nullptr;
  // An exception of the callback is an uncaught exception. Left pending, it would stop the
  // completions behind it. V8 has created its message by then, and no collection runs before it is
  // taken.
  if (napi_call_function(env, receiver, callback, 1, &argument, &ignored) ==
          napi_pending_exception &&
      napi_get_and_clear_last_exception(env, &thrown) == napi_ok)
    napi_fatal_exception(env, thrown);
  napi_close_handle_scope(env, scope);
}

void on_completions(napi_env env, napi_value, void*, void*) {
  if (!env) return;
  Environment& state = state_of(env);
  std::vector<Completion*> done;
  {
    std::lock_guard<std::mutex> lock(state.gate->mutex);
    done.swap(state.gate->finished);
    state.gate->scheduled = false;
  }
  state.pending_completions -= static_cast<int>(done.size());
  if (state.pending_completions == 0) napi_unref_threadsafe_function(env, state.gate->function);
  for (Completion* each : done) finish(state, each);
}

// Environments that have not ended.
std::atomic<int> environments{0};

}  // namespace

Environment::Environment(napi_env e) : env(e), gate(std::make_shared<Gate>()) {
  napi_value buffer = nullptr, name = nullptr;
  void* data = nullptr;
  // A worker may be stopped while it loads the addon: from then on the engine creates no values.
  if (napi_create_arraybuffer(env, kWordBytes, &data, &buffer) != napi_ok) return;
  words = static_cast<double*>(data);
  environments++;
  napi_create_reference(env, buffer, 1, &words_ref);
  napi_create_string_utf8(env, "shardwise", NAPI_AUTO_LENGTH, &name);
  napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr,
                                  on_completions, &gate->function);
  napi_unref_threadsafe_function(env, gate->function);
}

void Environment::close() {
  closed = true;
  {
    std::lock_guard<std::mutex> lock(gate->mutex);
    gate->alive = false;
    for (Completion* each : gate->finished) {
      if (each->staging) give_staging(each->staging, each->bytes);
      delete each;
    }
    gate->finished.clear();
    if (gate->function) napi_release_threadsafe_function(gate->function, napi_tsfn_abort);
  }
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

namespace {

struct LastUse {
  std::shared_ptr<std::atomic<int>> left;
  std::shared_ptr<std::function<void()>> then;
  void done() {
    if (left->fetch_sub(1) == 1) (*then)();
    delete this;
  }
};

// Runs `then` when all streams other than the owner have finished their commands with the entry.
// The last one runs it, on its native thread or a thread of the backend, so it must not wait.
void when_others_are_done(const StorageEntry& entry, std::function<void()> then) {
  const LastUse shared{
      std::make_shared<std::atomic<int>>(static_cast<int>(entry.other_streams.size())),
      std::make_shared<std::function<void()>>(std::move(then))};
  for (Stream* each : entry.other_streams) {
    each->enqueue([shared](Stream& s) {
      auto* use = new LastUse(shared);
      auto done = [](void* context, const Failed*) { static_cast<LastUse*>(context)->done(); };
      ErrorText ignored;
      if (!s.backend()->stream_on_complete(s.native(), done, use, &ignored).ok()) use->done();
    });
  }
}

}  // namespace

napi_value Environment::make_collectable(void* data, node_api_basic_finalize on_collected) {
  napi_value token = nullptr;
  if (!defers_finalizers) {
    const napi_status made = napi_create_external(env, data, on_collected, this, &token);
    return made == napi_ok ? token : nullptr;
  }
  napi_ref weak = nullptr;
  if (napi_create_object(env, &token) != napi_ok ||
      napi_create_reference(env, token, 0, &weak) != napi_ok)
    return nullptr;
  weak_tokens.push_back({weak, data, on_collected});
  return token;
}

void Environment::sweep_tokens() {
  size_t kept = 0;
  for (const WeakToken& each : weak_tokens) {
    napi_value token = nullptr;
    napi_get_reference_value(env, each.reference, &token);
    if (token) {
      weak_tokens[kept++] = each;
    } else {
      napi_delete_reference(env, each.reference);
      each.on_collected(env, each.data, this);
    }
  }
  weak_tokens.resize(kept);
}

void Environment::release(int64_t handle, bool collected) {
  StorageEntry* entry = closed ? nullptr : storages.find(handle);
  if (!entry) return;
  if (entry->token_bytes >= 0) {
    tokens--;
    token_bytes -= entry->bytes;
    external_delta -= entry->token_bytes;
  }
  if (entry->adopted) dropped_refs.push_back(static_cast<napi_ref>(entry->adopted));
  release_block(*entry, collected);
  storages.remove(handle);
}

void Environment::release_block(const StorageEntry& entry, bool collected) {
  Block* block = entry.block;
  if (!block) return;
  const int64_t bytes = log.is_open() ? block->bytes : 0;
  CachingAllocator* allocator = entry.allocator;
  const std::atomic<uint64_t>* progress = entry.owner->progress();
  const bool owner_is_last = entry.last_stream == entry.owner;
  const uint64_t sequence = owner_is_last ? entry.last_sequence : entry.owner->claimed();
  // Each stream that took the memory over waited for the one before. If the owner was the last, it
  // is behind all of them.
  if (entry.other_streams.empty() || (owner_is_last && !entry.recorded)) {
    allocator->free(block, collected, progress, sequence);
  } else {
    // The owner may be behind all the others.
    when_others_are_done(entry, [block, allocator, progress, sequence] {
      allocator->free_later(block, progress, sequence);
    });
  }
  if (bytes > 0) remember(entry, -bytes);
}

void Environment::remember(const StorageEntry& entry, int64_t bytes) {
  const auto [allocated, reserved] = entry.allocator->in_use();
  log.remember({.device = entry.pinned ? -1 : entry.device,
                .rank_runtime = entry.owner->rank_runtime(),
                .bytes = bytes,
                .allocated = allocated,
                .reserved = reserved});
}

void Environment::settle_accounts() {
  if (external_delta > (1 << 20) || external_delta < -(1 << 20)) {
    int64_t ignored;
    const int64_t delta = external_delta;
    external_delta = 0;
    napi_adjust_external_memory(env, delta, &ignored);
  }
  while (!dropped_refs.empty()) {
    napi_delete_reference(env, dropped_refs.back());
    dropped_refs.pop_back();
  }
}

void Environment::expect_completion() {
  if (pending_completions++ == 0) napi_ref_threadsafe_function(env, gate->function);
}

CallFailure& call_failure(napi_env env) { return state_of(env).failure; }

Environment& state_of(napi_env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return *static_cast<Environment*>(data);
}

}  // namespace shardwise
