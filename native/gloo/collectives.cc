// Collectives that only move data. A rank copies its own bytes directly from input to output.
#include <cstring>

#include "group.h"
#include "slots.h"

namespace shardwise::gloo_engine {
namespace {

struct Bytes {
  std::vector<int64_t> of, before;
  int64_t total = 0;
  Bytes(const int64_t* counts, int32_t size, int64_t item)
      : of(static_cast<size_t>(size)), before(of.size()) {
    for (size_t rank = 0; rank < of.size(); rank++) {
      of[rank] = counts[rank] * item;
      before[rank] = total;
      total += of[rank];
    }
  }
};

char* bytes_of(const void* data) { return static_cast<char*>(const_cast<void*>(data)); }

void copy_own(void* out, const void* in, int64_t bytes) {
  if (bytes > 0 && out != in) memmove(out, in, static_cast<size_t>(bytes));
}

}  // namespace

// Large data goes in chunks, each to one rank and from there to all: the root sends the data twice
// instead of once per rank.
Status Group::broadcast(const CollectiveCall& call) {
  const int64_t bytes = call.count * item_size(call.dtype);
  Status status =
      begin_collective(call, {.kind = comm::Kind::Broadcast, .root = call.root, .amount = bytes});
  if (!status.ok()) return status;
  const bool is_root = rank_ == call.root, whole = bytes <= kInlineBytes || size_ <= 2;
  char* data = bytes_of(is_root ? call.in : call.out);
  Step first(size_);
  for_peers([&](int32_t other) {
    const Chunk chunk = whole ? Chunk{0, bytes} : share(0, bytes, other);
    if (is_root) first.send(other, data + chunk.begin, chunk.count);
  });
  const Chunk own = whole ? Chunk{0, bytes} : share(0, bytes, rank_);
  if (!is_root) first.receive(call.root, data + own.begin, own.count);
  status = exchange_frames(first, call.error);
  if (status.ok() && !whole) {
    Step second(size_);
    for_peers([&](int32_t other) {
      const Chunk chunk = share(0, bytes, other);
      if (other != call.root) second.send(other, data + own.begin, own.count);
      if (!is_root) second.receive(other, data + chunk.begin, chunk.count);
    });
    status = transfer(second, 0, call.error);
  }
  if (status.ok() && is_root) copy_own(call.out, call.in, bytes);
  return status;
}

Status Group::gather(const CollectiveCall& call, bool to_all) {
  const Bytes each(call.counts, size_, item_size(call.dtype));
  Status status =
      begin_collective(call, {.kind = to_all ? comm::Kind::AllGather : comm::Kind::Gather,
                              .root = to_all ? -1 : call.root,
                              .sizes = each.of.data()});
  if (!status.ok()) return status;
  const bool takes = to_all || rank_ == call.root;
  Step step(size_);
  for_peers([&](int32_t other) {
    if (to_all || other == call.root) step.send(other, call.in, each.of[rank_]);
    if (takes) step.receive(other, bytes_of(call.out) + each.before[other], each.of[other]);
  });
  status = exchange_frames(step, call.error);
  if (status.ok() && takes)
    copy_own(bytes_of(call.out) + each.before[rank_], call.in, each.of[rank_]);
  return status;
}

Status Group::scatter(const CollectiveCall& call) {
  const Bytes each(call.counts, size_, item_size(call.dtype));
  Status status = begin_collective(
      call, {.kind = comm::Kind::Scatter, .root = call.root, .sizes = each.of.data()});
  if (!status.ok()) return status;
  Step step(size_);
  if (rank_ == call.root)
    for_peers([&](int32_t other) {
      step.send(other, bytes_of(call.in) + each.before[other], each.of[other]);
    });
  else
    step.receive(call.root, call.out, each.of[rank_]);
  status = exchange_frames(step, call.error);
  if (status.ok() && rank_ == call.root)
    copy_own(call.out, bytes_of(call.in) + each.before[rank_], each.of[rank_]);
  return status;
}

Status Group::all_to_all(const CollectiveCall& call) {
  const int64_t item = item_size(call.dtype);
  const Bytes sent(call.send_counts, size_, item), received(call.counts, size_, item);
  Status status = begin_collective(call, {.kind = comm::Kind::AllToAll, .sizes = sent.of.data()});
  if (!status.ok()) return status;
  Step step(size_);
  for_peers([&](int32_t other) {
    step.send(other, bytes_of(call.in) + sent.before[other], sent.of[other]);
    step.receive(other, bytes_of(call.out) + received.before[other], received.of[other]);
  });
  status = exchange_frames(step, call.error, sent.of.data(), received.of.data());
  if (status.ok())
    copy_own(bytes_of(call.out) + received.before[rank_], bytes_of(call.in) + sent.before[rank_],
             sent.of[rank_]);
  return status;
}

Status Group::barrier(const CollectiveCall& call) {
  const Status status = begin_collective(call, {.kind = comm::Kind::Barrier});
  return status.ok() ? exchange_frames(Step(size_), call.error) : status;
}

}  // namespace shardwise::gloo_engine
