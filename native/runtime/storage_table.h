// Handles of storages: generation * 2^24 + index, so that a freed handle differs from the next one
// of its slot. Each environment has a table, used on its thread only.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "caching_allocator.h"
#include "stream.h"

namespace shardwise {

struct StorageEntry {
  char* data = nullptr;
  int64_t bytes = 0;
  Block* block = nullptr;  // null for adopted memory and for empty storages
  CachingAllocator* allocator = nullptr;
  int32_t device = 0;             // device code
  Stream* owner = nullptr;        // freed memory is reusable on this stream
  Stream* last_stream = nullptr;  // stream of the last command that used it
  uint64_t last_sequence = 0;
  Stream* writer = nullptr;  // stream of the last command that wrote it
  uint64_t written = 0;
  std::vector<Stream*> other_streams;           // other streams that used it
  bool recorded = false;                        // by recordStream: other streams use it unseen
  std::shared_ptr<const std::string> no_value;  // the failure that left it without a value
  void* adopted = nullptr;                      // napi_ref of the ArrayBuffer whose memory this is
  int64_t token_bytes = -1;                     // reported to the engine; -1 if nothing is
  uint32_t generation = 0;
  int32_t tokens = 0;   // live tokens; the last one frees it, unless it is saved
  bool saved = false;   // an autograd graph needs it
  bool pinned = false;  // host memory that a GPU accesses directly
  bool live = false;
};

class StorageTable {
 public:
  static constexpr int64_t kIndexBits = 24;

  // Returns the handle; resets the entry except its generation.
  int64_t add(StorageEntry** out) {
    uint32_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      if (count_ >> kIndexBits) return 0;
      index = count_++;
      if (index % kChunk == 0) chunks_.emplace_back(new StorageEntry[kChunk]);
    }
    StorageEntry& entry = at(index);
    const uint32_t generation = entry.generation + 1 < (1u << 28) ? entry.generation + 1 : 1;
    entry = StorageEntry{};
    entry.generation = generation;
    entry.live = true;
    *out = &entry;
    return (static_cast<int64_t>(generation) << kIndexBits) | index;
  }

  // Null for a handle that is not in the table.
  StorageEntry* find(int64_t handle) {
    if (handle <= 0) return nullptr;
    const uint64_t index = static_cast<uint64_t>(handle) & ((1u << kIndexBits) - 1);
    if (index >= count_) return nullptr;
    StorageEntry& entry = at(static_cast<uint32_t>(index));
    if (!entry.live || entry.generation != static_cast<uint64_t>(handle) >> kIndexBits)
      return nullptr;
    return &entry;
  }

  void remove(int64_t handle) {
    const uint32_t index = static_cast<uint32_t>(handle & ((1u << kIndexBits) - 1));
    at(index).live = false;
    free_.push_back(index);
  }

  template <class F>
  void for_each(F&& fn) {
    for (uint32_t i = 0; i < count_; i++)
      if (at(i).live) fn((static_cast<int64_t>(at(i).generation) << kIndexBits) | i, at(i));
  }

 private:
  static constexpr uint32_t kChunk = 1024;
  StorageEntry& at(uint32_t index) { return chunks_[index / kChunk][index % kChunk]; }

  // entries never move: commands hold pointers to them
  std::vector<std::unique_ptr<StorageEntry[]>> chunks_;
  uint32_t count_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace shardwise
