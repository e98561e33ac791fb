// Groups across machines, through gloo-engine.so. Addresses pass through JavaScript once, when the
// world begins.
#include <dlfcn.h>

#include <algorithm>
#include <string>

#include "../comm/messages.h"
#include "gloo_world.h"
#include "join.h"

namespace shardwise {

namespace {

// openGloo(path): returns nothing, or why it cannot be used.
napi_value open_gloo(napi_env env, napi_callback_info info) {
  napi_value arg = nullptr;
  size_t argc = 1;
  napi_get_cb_info(env, info, &argc, &arg, nullptr, nullptr);
  Devices& devices = Devices::get();
  std::lock_guard<std::mutex> lock(devices.mutex);
  if (devices.gloo.load()) return nullptr;
  void* library = dlopen(string_argument(env, arg).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return text_value(env, dlerror());
  auto entry = reinterpret_cast<const GlooEngine* (*)()>(dlsym(library, "shardwise_gloo_v1"));
  if (!entry) return text_value(env, "it has no symbol shardwise_gloo_v1");
  if (entry()->abi != kGlooAbi)
    return text_value(env, "it was built for another version of the addon");
  devices.gloo.store(entry());
  return nullptr;
}

std::shared_ptr<GlooWorld> world_argument(napi_env env, int64_t id) {
  auto& worlds = state_of(env).worlds;
  const auto found = worlds.find(id);
  if (found != worlds.end()) return found->second;
  fail_call(env, Code::Closed, "this rank has left its world");
  return nullptr;
}

// glooListen(rank, size, timeoutMs, host): returns an address for each other rank; writes the id of
// the world to words[0].
napi_value gloo_listen(napi_env env, napi_callback_info info) {
  int64_t args[4];
  napi_value raw[4] = {}, addresses = nullptr;
  if (!read_integers(env, info, 4, args, raw, 1 << 3)) return nullptr;
  const int64_t rank = args[0], size = args[1];
  const GlooEngine* engine = Devices::get().gloo.load();
  if (!engine) return fail_call(env, Code::Unsupported, "gloo-engine.so is not open");
  if (size < 1 || size > 1 << 20 || rank < 0 || rank >= size || args[2] < 1)
    return fail_call(env, Code::Invalid, "the rank is not of the world, or the timeout is invalid");
  void* bytes = nullptr;
  if (napi_create_arraybuffer(env, static_cast<size_t>(size) * kGlooAddressBytes, &bytes,
                              &addresses) != napi_ok)
    return nullptr;
  auto world =
      std::make_shared<GlooWorld>(engine, static_cast<int32_t>(rank), static_cast<int32_t>(size));
  ErrorText error;
  const Status status =
      engine->listen(string_argument(env, raw[3]).c_str(), world->rank, world->size, args[2],
                     &world->handle, static_cast<char*>(bytes), &error);
  if (!status.ok()) return fail_call(env, status.code, error);
  Environment& state = state_of(env);
  state.words[0] = static_cast<double>(state.next_member);
  state.worlds[state.next_member++] = std::move(world);
  return addresses;
}

// glooConnect(world, stream, addresses): runs on the stream's thread, because it waits for the
// other ranks.
napi_value gloo_connect(napi_env env, napi_callback_info info) {
  int64_t args[3];
  napi_value raw[3] = {};
  if (!read_integers(env, info, 3, args, raw, 1 << 2)) return nullptr;
  auto world = world_argument(env, args[0]);
  if (!world) return nullptr;
  Stream* stream = state_of(env).stream(args[1]);
  void* data = nullptr;
  size_t length = 0;
  if (!stream) return fail_call(env, Code::Closed, "the stream is gone");
  if (napi_get_arraybuffer_info(env, raw[2], &data, &length) != napi_ok ||
      length != static_cast<size_t>(world->size) * kGlooAddressBytes)
    return fail_call(env, Code::Invalid, "the addresses are no ArrayBuffer with one for each rank");
  world->rank_runtime = stream->rank_runtime();
  const std::string addresses(static_cast<const char*>(data), length);
  stream->enqueue([world, addresses](Stream& s) {
    ErrorText error;
    const Status status = world->engine->connect(world->handle, addresses.data(), &error);
    if (!status.ok()) s.set_error(status.code, error);
  });
  return nullptr;
}

// The arguments of the two calls below; the ranks are in words[0 .. size). Records a failure and
// returns false if they are invalid.
struct GroupArguments {
  std::shared_ptr<GlooWorld> world;
  std::string name, label;
  FirstCall first;
  std::vector<int32_t> ranks;
  int64_t rank, size, stream, timeout_ms;

  int64_t join_timeout_ms = 1;  // for glooJoin only
  // For glooDecline only.
  int64_t place = 0;
  std::string reason;

  bool read(napi_env env, napi_callback_info info, bool declines) {
    int64_t args[11];
    napi_value raw[11] = {};
    if (!read_integers(env, info, declines ? 11 : 10, args, raw, 0b10111100000) ||
        !(world = world_argument(env, args[0])))
      return false;
    if (declines)
      place = args[9], reason = string_argument(env, raw[10]);
    else
      join_timeout_ms = args[9];
    rank = args[1], size = args[2], stream = args[3], timeout_ms = args[4];
    name = string_argument(env, raw[5]);
    label = string_argument(env, raw[6]);
    first = {string_argument(env, raw[7]), string_argument(env, raw[8])};
    const double* words = state_of(env).words;
    for (int64_t i = 0; i < size && i < world->size; i++) {
      if (!(words[i] >= 0 && words[i] < world->size)) break;
      ranks.push_back(static_cast<int32_t>(words[i]));
    }
    const bool fits = static_cast<int64_t>(ranks.size()) == size && place >= 0 && place < size &&
                      std::count(ranks.begin(), ranks.end(), world->rank) == 1 && rank >= 0 &&
                      rank < size && ranks[static_cast<size_t>(rank)] == world->rank;
    if (!fits) fail_call(env, Code::Invalid, "the group's ranks are not of the world");
    return fits;
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
};

// glooJoin(world, rank, size, stream, timeoutMs, name, label, first, where, joinTimeoutMs)
napi_value gloo_join(napi_env env, napi_callback_info info) {
  GroupArguments group;
  if (!group.read(env, info, false)) return nullptr;
  return new_member(env, group.stream, group.rank, {group.label, group.ranks}, group.timeout_ms,
                    group.first, [group](Member& member, Stream& s, ErrorText* error) {
                      void* made = nullptr;
                      const auto is_aborted = [](void* joining) {
                        return static_cast<Member*>(joining)->is_aborted();
                      };
                      const Status status = group.world->engine->join(
                          group.world->handle, group.plan(is_aborted, &member), &made, error);
                      if (!status.ok()) {
                        ErrorText reason;
                        if (!member.is_aborted(&reason)) return status;
                        Text text(*error);
                        text.add("group \"%s\": ", group.label.c_str()).add_cause(reason);
                        return status;
                      }
                      member.connected = {group.world->engine, made};
                      joined_host(member, s, group.world->engine->comm, made);
                      return status;
                    });
}

// glooDecline(world, rank, size, stream, timeoutMs, name, label, first, where, place, reason):
// informs ranks that wait there that this rank will not join.
napi_value gloo_decline(napi_env env, napi_callback_info info) {
  GroupArguments group;
  if (!group.read(env, info, true)) return nullptr;
  Stream* stream = state_of(env).stream(group.stream);
  if (stream)
    stream->enqueue([group](Stream&) {
      group.world->engine->decline(group.world->handle, group.plan(nullptr, nullptr),
                                   static_cast<int32_t>(group.place), group.reason.c_str());
    });
  return nullptr;
}

// glooLeave(world, stream): runs after groups that are being created.
napi_value gloo_leave(napi_env env, napi_callback_info info) {
  int64_t args[2];
  if (!read_integers(env, info, 2, args)) return nullptr;
  auto world = world_argument(env, args[0]);
  if (!world) return nullptr;
  state_of(env).worlds.erase(args[0]);
  Stream* stream = state_of(env).stream(args[1]);
  if (stream) stream->enqueue([world = std::move(world)](Stream&) mutable { world.reset(); });
  return nullptr;
}

}  // namespace

void export_gloo(napi_env env, napi_value exports) {
  export_function<open_gloo>(env, exports, "openGloo");
  export_function<gloo_listen>(env, exports, "glooListen");
  export_function<gloo_connect>(env, exports, "glooConnect");
  export_function<gloo_join>(env, exports, "glooJoin");
  export_function<gloo_decline>(env, exports, "glooDecline");
  export_function<gloo_leave>(env, exports, "glooLeave");
}

}  // namespace shardwise
