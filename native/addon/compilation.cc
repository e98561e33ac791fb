// Informs other ranks that JavaScript compiles, and so calls nothing: comm/compilation.h.
#include "../comm/compilation.h"

#include <string>

#include "environment.h"
#include "gloo_world.h"
#include "member.h"

namespace shardwise {

namespace {

// Writes to the memory of each group of the ranks of this environment.
template <class Write>
void write_to_groups(Environment& state, Write write) {
  for (auto& [id, member] : state.members) {
    Member& host = member->devices ? *member->devices->rendezvous : *member;
    if (const auto region = host.shared())
      write(region->rank(host.rank).compilation, *member->stream);
  }
}

// compiling(what, limitMs, rankRuntime): the rank of that runtime compiles `what`, for at most
// limitMs. No rank of this environment calls anything until compiled().
napi_value compiling(napi_env env, napi_callback_info info) {
  int64_t args[3];
  napi_value raw[3] = {};
  if (!read_integers(env, info, 3, args, raw, 1 << 0)) return nullptr;
  Environment& state = state_of(env);
  if (state.members.empty() && state.worlds.empty()) return nullptr;
  const std::string what = string_argument(env, raw[0]);
  const auto begin = [&](bool is_own) {
    return comm::begin_compilation(what.c_str(), is_own, args[1]);
  };
  write_to_groups(state, [&](auto& compilation, const Stream& stream) {
    compilation.write(begin(stream.rank_runtime() == args[2]));
  });
  for (auto& [id, world] : state.worlds)
    world->engine->compiles(world->handle, what.c_str(), world->rank_runtime == args[2], args[1]);
  return nullptr;
}

// compiled()
napi_value compiled(napi_env env, napi_callback_info) {
  Environment& state = state_of(env);
  write_to_groups(state, [](auto& compilation, const Stream&) { compilation.write({}); });
  for (auto& [id, world] : state.worlds) world->engine->compiles(world->handle, nullptr, true, 0);
  return nullptr;
}

}  // namespace

void export_compilation(napi_env env, napi_value exports) {
  export_function<compiling>(env, exports, "compiling");
  export_function<compiled>(env, exports, "compiled");
}

}  // namespace shardwise
