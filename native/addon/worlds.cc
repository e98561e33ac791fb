#include "worlds.h"

#include <algorithm>

#include "../comm/messages.h"
#include "../platform/platform.h"
#include "environment.h"

namespace shardwise {

Status find_named(Environment& state, int64_t id, SharedWorld* world) {
  *world = state.worlds.find(id);
  return *world ? kOk : fail(error_of(state), Code::Closed, "this rank has left its world");
}

void Worlds::compiles(const char* what, int64_t limit_ms, int64_t rank_runtime) {
  for (auto& [id, world] : worlds_)
    world->engine->compiles(world->handle, what, !what || world->rank_runtime == rank_runtime,
                            limit_ms);
}

Napi::Value Worlds::open_gloo(const std::string& path) {
  const auto refused = [this](const char* reason) { return to_value(state_.env, reason); };
  Devices& devices = Devices::get();
  std::lock_guard<std::mutex> lock(devices.mutex);
  if (devices.gloo.load()) return {};
  const char* reason = nullptr;
  void* library = platform::open_library(path.c_str(), &reason);
  if (!library) return refused(reason);
  using Entry = const GlooEngine* (*)();
  auto entry = reinterpret_cast<Entry>(platform::find_symbol(library, "shardwise_gloo_v1"));
  if (!entry) return refused("it has no symbol shardwise_gloo_v1");
  if (entry()->abi != kGlooAbi) return refused("it was built for another version of the addon");
  devices.gloo.store(entry());
  return {};
}

Status Worlds::listen(int64_t rank, int64_t size, int64_t timeout_ms, const std::string& host,
                      Napi::Value* addresses, ErrorText* error) {
  const GlooEngine* engine = Devices::get().gloo.load();
  if (!engine) return fail(error, Code::Unsupported, "gloo-engine.so is not open");
  if (size < 1 || size > 1 << 20 || rank < 0 || rank >= size || timeout_ms < 1)
    return fail(error, Code::Invalid, "the rank is not of the world, or the timeout is invalid");
  auto buffer = Napi::ArrayBuffer::New(state_.env, static_cast<size_t>(size) * kGlooAddressBytes);
  if (buffer.IsEmpty()) return kOk;  // this worker is being stopped
  auto world =
      std::make_shared<GlooWorld>(engine, static_cast<int32_t>(rank), static_cast<int32_t>(size));
  const Status status = engine->listen(host.c_str(), world->rank, world->size, timeout_ms,
                                       &world->handle, static_cast<char*>(buffer.Data()), error);
  if (!status.ok()) return status;
  world->id = next_++;
  state_.words[0] = static_cast<double>(world->id);
  worlds_[world->id] = std::move(world);
  *addresses = buffer;
  return kOk;
}

Status Worlds::connect(SharedWorld world, Stream& stream, Napi::Value given, ErrorText* error) {
  auto buffer = given.IsArrayBuffer() ? given.As<Napi::ArrayBuffer>() : Napi::ArrayBuffer();
  const size_t expected = static_cast<size_t>(world->size) * kGlooAddressBytes;
  if (buffer.IsEmpty() || buffer.ByteLength() != expected)
    return fail(error, Code::Invalid, "the addresses are no ArrayBuffer with one for each rank");
  const Status started = stream.require_thread(error);
  if (!started.ok()) return started;
  world->rank_runtime = stream.rank_runtime();
  const std::string addresses(static_cast<const char*>(buffer.Data()), expected);
  stream.enqueue([world, addresses](Stream& s) {
    ErrorText why;
    const Status status = world->engine->connect(world->handle, addresses.data(), &why);
    if (!status.ok()) s.set_error(status.code, why);
  });
  return kOk;
}

namespace {

// A group of ranks of a world.
struct WorldGroup {
  SharedWorld world;
  std::string name, label;
  int64_t rank, size;
  int64_t join_timeout_ms = 1;
  std::vector<int32_t> ranks{};

  Status read_ranks(const double* words, ErrorText* error) {
    for (int64_t i = 0; i < size && i < world->size; i++) {
      if (!(words[i] >= 0 && words[i] < world->size)) break;
      ranks.push_back(static_cast<int32_t>(words[i]));
    }
    const bool fits = static_cast<int64_t>(ranks.size()) == size && rank >= 0 && rank < size &&
                      std::count(ranks.begin(), ranks.end(), world->rank) == 1 &&
                      ranks[static_cast<size_t>(rank)] == world->rank;
    return fits ? kOk : fail(error, Code::Invalid, "the group's ranks are not of the world");
  }
  GlooGroup plan(bool (*is_aborted)(void*), void* context) const {
    return {name.c_str(),
            label.c_str(),
            ranks.data(),
            static_cast<int32_t>(rank),
            static_cast<int32_t>(size),
            join_timeout_ms,
            is_aborted,
            context};
  }
  // Joins on the stream's thread.
  Status operator()(Member& member, Stream& s, ErrorText* error) const {
    const auto is_aborted = [](void* joining) {
      return static_cast<Member*>(joining)->is_aborted();
    };
    void* made = nullptr;
    const Status status =
        world->engine->join(world->handle, plan(is_aborted, &member), &made, error);
    if (!status.ok()) {
      ErrorText reason;
      if (!member.is_aborted(&reason)) return status;
      Text text(*error);
      text.add("group \"%s\": ", label.c_str()).add_cause(reason);
      return status;
    }
    member.connected = {world->engine, made};
    joined_host(member, s, world->engine->comm, made);
    return status;
  }
};

}  // namespace

Status Worlds::join(SharedWorld world, int64_t rank, int64_t size, int64_t stream,
                    int64_t timeout_ms, const std::string& name, const std::string& label,
                    const std::string& first, const std::string& where, int64_t join_timeout_ms,
                    int64_t* id, ErrorText* error) {
  WorldGroup group{std::move(world), name, label, rank, size, join_timeout_ms};
  const Status status = group.read_ranks(state_.words, error);
  if (!status.ok()) return status;
  return state_.groups.add({stream, timeout_ms, group, rank, {label, group.ranks}, {first, where}},
                           id, error);
}

Status Worlds::decline(SharedWorld world, int64_t rank, int64_t size, int64_t stream_id, int64_t,
                       const std::string& name, const std::string& label, const std::string&,
                       const std::string&, int64_t place, const std::string& reason,
                       ErrorText* error) {
  WorldGroup group{std::move(world), name, label, rank, size};
  const Status status = group.read_ranks(state_.words, error);
  if (!status.ok()) return status;
  if (place < 0 || place >= size)
    return fail(error, Code::Invalid, "the group's ranks are not of the world");
  Stream* stream = state_.streams.find(stream_id);
  if (stream)
    stream->enqueue([group, place, reason](Stream&) {
      group.world->engine->decline(group.world->handle, group.plan(nullptr, nullptr),
                                   static_cast<int32_t>(place), reason.c_str());
    });
  return kOk;
}

void Worlds::leave(SharedWorld world, int64_t stream_id) {
  worlds_.erase(world->id);
  Stream* stream = state_.streams.find(stream_id);
  if (stream) stream->enqueue([world = std::move(world)](Stream&) mutable { world.reset(); });
}

}  // namespace shardwise
