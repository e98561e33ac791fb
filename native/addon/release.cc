// The end of storages: memory that goes back to its allocator.
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

void Storages::free(StorageEntry& entry, int64_t handle, bool collected) {
  state_.tokens.freed(entry);
  release_block(entry, collected);
  table_.remove(handle);
}

void Storages::release_block(const StorageEntry& entry, bool collected) {
  Block* block = entry.block;
  if (!block) return;
  const int64_t bytes = state_.profile.log.is_open() ? block->bytes : 0;
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

void Storages::remember(const StorageEntry& entry, int64_t bytes) {
  const auto [allocated, reserved] = entry.allocator->in_use();
  state_.profile.log.remember({.device = entry.pinned ? -1 : entry.device,
                               .rank_runtime = entry.owner->rank_runtime(),
                               .bytes = bytes,
                               .allocated = allocated,
                               .reserved = reserved});
}

void Storages::close() {
  for_each([&](int64_t, StorageEntry& entry) {
    if (entry.block) entry.allocator->free(entry.block, true);
  });
  if (pinned_pool_ >= 0)
    Devices::get().pinned_allocator()->close_pool(static_cast<uint32_t>(pinned_pool_));
  table_ = StorageTable{};
}

}  // namespace shardwise
