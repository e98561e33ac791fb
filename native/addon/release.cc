// The end of storages: tokens that are collected, and memory that goes back to its allocator.
#include "../runtime/block_return.h"
#include "environment.h"

namespace shardwise {

namespace {

struct LastUse {
  std::shared_ptr<std::atomic<int>> left;
  std::shared_ptr<BlockReturn> block;
  uint64_t sequence;
  void done() {
    if (left->fetch_sub(1) == 1) block->later(sequence);
    delete this;
  }
};

// Returns the block when all streams other than the owner have finished their commands with the
// entry: the last one does it, on its native thread or a thread of the backend. The owner may be
// behind them all.
void return_when_others_are_done(const StorageEntry& entry, std::shared_ptr<BlockReturn> block) {
  const LastUse shared{
      std::make_shared<std::atomic<int>>(static_cast<int>(entry.other_streams.size())),
      std::move(block), entry.owner->claimed()};
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

// The size of one storage that the engine accounts for. The engine answers growth by marking
// everything bit by bit, and what a step shows to a running marking lives until the next one. So
// large storages, which lib/eager/gc-policy.ts counts, hardly count here.
static int64_t reported(const StorageEntry& entry) {
  constexpr int64_t large = 64 << 10, least = 4 << 10, share = 4096;
  return entry.bytes < large ? entry.bytes : least + entry.bytes / share;
}

void Environment::account(StorageEntry& entry) {
  const bool is_collectable = entry.tokens > 0 && !entry.saved;
  if (is_collectable == (entry.token_bytes >= 0)) return;
  const int64_t sign = is_collectable ? 1 : -1;
  if (is_collectable) entry.token_bytes = reported(entry);
  tokens += sign;
  token_bytes += sign * entry.bytes;
  external_delta += sign * entry.token_bytes;
  if (!is_collectable) entry.token_bytes = -1;
}

void Environment::drop_token(int64_t handle) {
  StorageEntry* entry = closed ? nullptr : storages.find(handle);
  if (!entry) return;
  entry->tokens--;
  if (entry->tokens == 0 && !entry->saved)
    release(handle, true);
  else
    account(*entry);
}

bool Environment::set_saved(int64_t handle, bool is_saved, bool collected) {
  StorageEntry* entry = closed ? nullptr : storages.find(handle);
  if (!entry || entry->saved == is_saved) return false;
  entry->saved = is_saved;
  saved += is_saved ? 1 : -1;
  saved_bytes += is_saved ? entry->bytes : -entry->bytes;
  if (!is_saved && entry->tokens == 0) {
    release(handle, collected);
    return true;
  }
  account(*entry);
  return false;
}

void Environment::release(int64_t handle, bool collected) {
  StorageEntry* entry = closed ? nullptr : storages.find(handle);
  if (!entry) return;
  entry->tokens = 0;
  if (entry->saved) {
    saved--;
    saved_bytes -= entry->bytes;
  }
  account(*entry);
  if (entry->adopted) dropped_refs.push_back(static_cast<napi_ref>(entry->adopted));
  release_block(*entry, collected);
  storages.remove(handle);
}

void Environment::release_block(const StorageEntry& entry, bool collected) {
  Block* block = entry.block;
  if (!block) return;
  const int64_t bytes = log.is_open() ? block->bytes : 0;
  CachingAllocator* allocator = entry.allocator;
  Stream& owner = *entry.owner;
  const bool owner_is_last = entry.last_stream == &owner;
  // Each stream that took the memory over waited for the one before: who is behind the last use is
  // behind all of them.
  const bool is_behind =
      entry.other_streams.empty() ||
      (!entry.recorded &&
       (owner_is_last || owner.has_waited_for(*entry.last_stream, entry.last_sequence)));
  if (is_behind) {
    const uint64_t sequence = owner_is_last ? entry.last_sequence : owner.claimed();
    allocator->free(block, collected, owner.progress(), sequence);
  } else {
    const auto returned = std::make_shared<BlockReturn>(block, allocator, owner.progress());
    if (!entry.recorded) owner.return_behind(*entry.last_stream, entry.last_sequence, returned);
    return_when_others_are_done(entry, returned);
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
