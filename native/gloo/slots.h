// What messages of a group are told apart by, and how large they are.
#pragma once
#include <cstdint>

namespace shardwise::across {

constexpr uint64_t kWordsSlot = 1, kFrameSlot = 2, kDataSlot = 3, kMessageSlot = 4,
                   kMessageDataSlot = 5;
// Of the world; groups that are made there have theirs of their names.
constexpr uint64_t kWaitsSlot = 1;

// Goes with a frame: less than it takes to ask for it.
constexpr int64_t kInlineBytes = 4 << 10;
// A message up to this size is sent before it is asked for.
constexpr int64_t kParcelBytes = 64 << 10;
// Large data in one operation of gloo's: a rank that gets so much within the timeout makes
// progress.
constexpr int64_t kChunkBytes = 4 << 20;
// What is reduced at once. Memory of this size is kept.
constexpr int64_t kBlockBytes = 64 << 20;
// For last words to be on their way.
constexpr int64_t kGraceMs = 500;

}  // namespace shardwise::across
