#include "environment.h"

#include <atomic>

#include "memory.h"

namespace shardwise {

// Environments that have not ended.
static std::atomic<int> environments{0};

Environment::Environment(Napi::Env e) : env(e) {
  // A worker may be stopped while it loads the addon: from then on the engine creates no values.
  auto buffer = Napi::ArrayBuffer::New(env, kWordBytes);
  if (buffer.IsEmpty()) return;
  words = static_cast<double*>(buffer.Data());
  words_buffer = Napi::Reference<Napi::ArrayBuffer>::New(buffer, 1);
  environments++;
  completions.open();
}

void Environment::close() {
  completions.close();
  profile.end();
  groups.abort_all("the program of another rank has ended");
  worlds.close();
  // Drains all before the first is destroyed: commands of one may wait for another.
  shutdown(*this);
  storages.close();
  // closes their pools: the allocators belong to the process, and keep no pointer to this
  streams.close();
  plans.close();
  tokens.close();
  // For other threads that continue; a process that ends needs nothing.
  if (--environments > 0) trim_heap();
}

Napi::Value take_failure(Environment& state) {
  return failure_value(state.env, state.failure.code, state.failure.error);
}

void set_blocking(Environment& state, bool blocking) { state.blocking = blocking; }

void shutdown(Environment& state) {
  Failure ignored;
  for (const auto& stream : state.streams.all()) stream->synchronize(&ignored);
}

}  // namespace shardwise
