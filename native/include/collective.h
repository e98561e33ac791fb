// Collectives at the seam between the addon and the engine of a process group. HostGroup
// (native/comm), gloo (native/gloo) and NCCL (native/cuda/comm) fill the same struct.
#pragma once
#include <cstdint>

#include "dtype.h"
#include "status.h"

namespace shardwise {

enum class Collective : int32_t {
  AllReduce,
  Broadcast,
  AllGather,
  ReduceScatter,
  AllToAll,
  Reduce,
  Gather,
  Scatter,
  Barrier,
  Send,
  Receive
};
constexpr int32_t kNumCollectives = 11;

enum class Reduce : int32_t { Sum = 0, Avg = 1, Product = 2, Min = 3, Max = 4 };
constexpr int32_t kNumReduces = 5;

constexpr const char* reduce_name(Reduce reduce) {
  constexpr const char* names[] = {"sum", "avg", "product", "min", "max"};
  return names[static_cast<int32_t>(reduce)];
}

// The call of one rank. Counts are in elements; memory is dense.
//
//   AllReduce, Reduce       `count` in and out; out of Reduce on the root only. in == out is allowed.
//   Broadcast               `count`; in on the root only. in == out is allowed.
//   AllGather, Gather       in: counts[rank]; out: counts[0], counts[1], … in order (Gather: on the
//                           root only).
//   ReduceScatter, Scatter  in: counts[0], counts[1], … in order (Scatter: on the root only);
//                           out: counts[rank].
//   AllToAll                in: send_counts[0], … in order; out: counts[0], … in order.
//   Send, Receive           `count`, in or out, to or from `root`.
//   Barrier                 nothing.
struct CollectiveCall {
  Collective kind;
  Reduce reduce;
  DType dtype;
  int32_t root;
  const void* in;
  void* out;
  int64_t count;
  const int64_t* counts;
  const int64_t* send_counts;
  const char* name;   // the program's call, for errors
  const char* where;  // its place: "train.ts:12:3", or ""
  void* stream;       // the backend's; null on the CPU
  ErrorText* error;
  // What the ranks must have in common beside the call, such as the placements of a redistribution,
  // as text; a line of advice may follow. Or "".
  const char* about;
};

// True for collectives that distinguish one rank; in messages `root` is the peer.
constexpr bool has_root(Collective kind) {
  return kind == Collective::Broadcast || kind == Collective::Reduce ||
         kind == Collective::Gather || kind == Collective::Scatter;
}
constexpr bool reduces(Collective kind) {
  return kind == Collective::AllReduce || kind == Collective::Reduce ||
         kind == Collective::ReduceScatter;
}
constexpr bool is_message(Collective kind) {
  return kind == Collective::Send || kind == Collective::Receive;
}
// True for collectives with a count for each rank instead of one count.
constexpr bool has_counts(Collective kind) {
  return kind == Collective::AllGather || kind == Collective::Gather ||
         kind == Collective::ReduceScatter || kind == Collective::Scatter ||
         kind == Collective::AllToAll;
}

// The number of elements that a call reads and writes on a rank.
struct CollectiveExtent {
  int64_t in = 0, out = 0;
};

inline CollectiveExtent extent_of(const CollectiveCall& call, int32_t rank, int32_t size) {
  const auto total = [size](const int64_t* counts) {
    int64_t sum = 0;
    for (int32_t i = 0; i < size; i++) sum += counts[i];
    return sum;
  };
  const bool root = rank == call.root;
  switch (call.kind) {
    case Collective::AllReduce:
      return {call.count, call.count};
    case Collective::Reduce:
      return {call.count, root ? call.count : 0};
    case Collective::Broadcast:
      return {root ? call.count : 0, call.count};
    case Collective::AllGather:
      return {call.counts[rank], total(call.counts)};
    case Collective::Gather:
      return {call.counts[rank], root ? total(call.counts) : 0};
    case Collective::ReduceScatter:
      return {total(call.counts), call.counts[rank]};
    case Collective::Scatter:
      return {root ? total(call.counts) : 0, call.counts[rank]};
    case Collective::AllToAll:
      return {total(call.send_counts), total(call.counts)};
    case Collective::Send:
      return {call.count, 0};
    case Collective::Receive:
      return {0, call.count};
    default:
      return {};
  }
}

enum class CommState : int32_t { Launching, Launched, Complete };

// One of the last calls of a member, to compare ranks when one is missing.
struct CommRecord {
  // number of the collective in the group, from 1; Send and Receive have that of the collective
  // before them
  uint64_t sequence;
  Collective kind;
  Reduce reduce;
  DType dtype;
  int32_t root;   // -1: none
  int64_t count;  // elements of this rank
  int64_t total;  // elements of all ranks; -1 if the ranks need not agree
  CommState state;
  char name[40], where[120];
};

// The membership of one rank in a group, created by its engine.
struct CommEngine {
  const char* name;  // "shm", "nccl"
  // Runs a call, in call order, on the native thread of the stream. The CPU's engine waits for the
  // other ranks; a GPU's engine launches, and reports later failures through `failure`.
  Status (*run)(void* member, const CollectiveCall& call);
  // From any thread: the present and later calls fail with this reason, on all ranks that the
  // engine can reach.
  void (*abort)(void* member, const ErrorText& reason);
  // From any thread: Ok, or the failure that made the group unusable (a dead peer, a call beyond
  // the timeout).
  Status (*failure)(void* member, ErrorText* error);
  void (*set_timeout)(void* member, int64_t milliseconds);
  void (*destroy)(void* member);
  // Optional, from any thread: writes up to `most` of the last calls, the latest last, and returns
  // their number.
  int32_t (*recent)(void* member, CommRecord* out, int32_t most);
};

}  // namespace shardwise
