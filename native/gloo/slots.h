// The slots that distinguish the messages of a group, and the size limits of messages.
#pragma once
#include <cstdint>

namespace shardwise::gloo_engine {

constexpr uint64_t kFinalSlot = 1, kFrameSlot = 2, kDataSlot = 3, kMessageSlot = 4,
                   kMessageDataSlot = 5;
// Slots of the world; a group's slot is derived from its name.
constexpr uint64_t kWaitsSlot = 1, kCompilationSlot = 2;

// Data up to this size travels in the frame: less than a request for it would cost.
constexpr int64_t kInlineBytes = 4 << 10;
// A message up to this size is sent before the receiver asks for it.
constexpr int64_t kParcelBytes = 64 << 10;
// The size of one operation of gloo: a rank that receives this much within the timeout makes
// progress.
constexpr int64_t kChunkBytes = 4 << 20;
// The size of one reduction step. Memory of this size is kept.
constexpr int64_t kBlockBytes = 64 << 20;
// The time for final messages to be sent.
constexpr int64_t kGraceMs = 500;

}  // namespace shardwise::gloo_engine
