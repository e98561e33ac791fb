// The end of storages: tokens that are collected, and memory that goes back to its allocator.
#include "environment.h"

namespace shardwise {

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

}  // namespace shardwise
