// Collectives at the seam: what the engine of a process group is asked to do. HostGroup
// (native/comm) and NCCL (native/cuda/nccl.cc) fill the same struct.
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

// One rank's part. Counts are in elements; memory is dense.
//
//   AllReduce, Reduce       in and out of `count`; out of Reduce on the root only. in == out is allowed.
//   Broadcast               `count`; in on the root only. in == out is allowed.
//   AllGather, Gather       in of counts[rank]; out holds counts[0], counts[1], … one behind the other (Gather: on the root only).
//   ReduceScatter, Scatter in holds counts[0], counts[1], … one behind the other (Scatter: on the
//   root only); out of counts[rank].
//   AllToAll                in holds send_counts[0], …, out counts[0], … one behind the other.
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
  const char* name;   // what the program called, for errors
  const char* where;  // and where: "train.ts:12:3", or ""
  void* stream;       // of the backend; null on the CPU
  ErrorText* error;
  // What the ranks must have in common beside the call itself, in words, such as the placements
  // that it is between; a line of advice may follow. Or "".
  const char* about;
};

// Of those that all ranks call, those with one that differs; in messages `root` is the other end.
constexpr bool has_root(Collective kind) {
  return kind == Collective::Broadcast || kind == Collective::Reduce ||
         kind == Collective::Gather || kind == Collective::Scatter;
}
constexpr bool is_message(Collective kind) {
  return kind == Collective::Send || kind == Collective::Receive;
}
// Those with a count for each rank, in place of one.
constexpr bool has_counts(Collective kind) {
  return kind == Collective::AllGather || kind == Collective::Gather ||
         kind == Collective::ReduceScatter || kind == Collective::Scatter ||
         kind == Collective::AllToAll;
}

// How many elements a call reads and writes on a rank.
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

// One of a member's last calls, for comparing ranks when one of them is missing.
struct CommRecord {
  // counts the group's collectives from 1; Send and Receive have the number of the collective
  // before them
  uint64_t sequence;
  Collective kind;
  Reduce reduce;
  DType dtype;
  int32_t root;   // -1: none
  int64_t count;  // the rank's own elements
  int64_t total;  // of all ranks, which must agree in it; -1 where they need not
  CommState state;
  char name[40], where[120];
};

// One rank's membership in a group, made by its engine.
struct CommEngine {
  const char* name;  // "shm", "nccl"
  // In the order of the calls, on the native thread of the stream that runs them. The engine of the
  // CPU waits for the other ranks; that of a GPU launches, and reports what goes wrong later
  // through `failure`.
  Status (*run)(void* member, const CollectiveCall& call);
  // From any thread: present and later calls fail with the reason as it stands, on all ranks where
  // the engine can tell them.
  void (*abort)(void* member, const char* reason);
  // From any thread: Ok, or what has made the group unusable since (a lost peer, a call that took
  // longer than the timeout).
  Status (*failure)(void* member, ErrorText* error);
  void (*set_timeout)(void* member, int64_t milliseconds);
  void (*destroy)(void* member);
  // Optional. From any thread: the last calls, up to `most`, the latest last; how many.
  int32_t (*recent)(void* member, CommRecord* out, int32_t most);
};

}  // namespace shardwise
