// What an error says to programs beside its text. Plain data of fixed size: it passes between the
// addon, cuda-backend.so and gloo-engine.so, through the shared memory of ranks, and over the
// sockets between machines.
#pragma once
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace shardwise {

// Ranks `first` to `last`, both included.
struct RankRange {
  int32_t first, last;
};

template <int32_t kMost>
struct RankRanges {
  int32_t count;
  RankRange ranges[kMost];
};

// A call that these ranks made, for example "allReduce" at "train.ts:12:3".
struct CallOfRanks {
  RankRanges<8> ranks;
  char op[40], where[120];
};

// The numbers of the allocator, in bytes, when memory ran out.
struct MemoryDetails {
  int64_t requested, allocated, reserved, free, total;
};

// A collective that failed. Ranks are those of the world.
struct CollectiveDetails {
  char group[80], op[40];  // "" for what is not known
  uint64_t sequence;       // the number of the call in the group; 0 for what is not known
  RankRanges<32> blamed;
  int32_t num_calls;
  CallOfRanks calls[8];
};

enum class DetailsKind : uint32_t { None, Memory, Collective };

struct FailureDetails {
  // Every error that reports a failure carries the id of that failure; 0 until somebody assigns it.
  uint64_t id;
  DetailsKind kind;
  // The text already says which groups the ranks created.
  uint32_t names_creations;
  union {
    MemoryDetails memory;
    CollectiveDetails collective;
  };

  void clear() {
    id = 0;
    kind = DetailsKind::None;
    names_creations = 0;
  }
  // Copies what is in use.
  void set(const FailureDetails& other) {
    id = other.id;
    kind = other.kind;
    names_creations = other.names_creations;
    if (kind == DetailsKind::Memory) memory = other.memory;
    if (kind == DetailsKind::Collective) collective = other.collective;
  }
};

// Unique among the processes of a program, and exact as a double.
inline uint64_t new_failure_id() {
  static std::atomic<uint64_t> next{
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) ^
      static_cast<uint64_t>(getpid()) << 40};
  uint64_t mixed = next.fetch_add(1) * 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return (mixed ^ mixed >> 31) >> 11 | 1;
}

}  // namespace shardwise
