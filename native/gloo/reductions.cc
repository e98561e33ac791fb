// Collectives that reduce. They work in blocks, so that memory for the data of the others stays
// bounded.
#include "../comm/reduce_kernels.h"
#include "group.h"
#include "slots.h"

namespace shardwise::gloo_engine {

// The chunk of a rank in a range that all ranks share.
Group::Chunk Group::share(int64_t begin, int64_t count, int32_t rank) const {
  const int64_t each = count / size_, more = count % size_;
  const int64_t before = rank * each + std::min<int64_t>(rank, more);
  return {begin + before, each + (rank < more ? 1 : 0)};
}

Status Group::reduce_chunks(const CollectiveCall& call, const char* in,
                            const std::vector<Chunk>& chunks, char* out, bool is_first) {
  const int64_t item = item_size(call.dtype), own = chunks[rank_].count;
  char* scratch = scratch_.of(own * item * size_);
  std::vector<const char*> sources(static_cast<size_t>(size_));
  Step step(size_);
  for_peers([&](int32_t other) {
    step.send(other, in + chunks[other].begin * item, chunks[other].count * item);
    step.receive(other, scratch + other * own * item, own * item);
    sources[other] = scratch + other * own * item;
  });
  sources[rank_] = in + chunks[rank_].begin * item;
  const Status status =
      is_first ? exchange_frames(step, call.error) : transfer(step, 0, call.error);
  if (status.ok() && own > 0)
    comm::reduce_into(sources.data(), size_, &out, 1, own, call.dtype, call.reduce);
  return status;
}

// Small data goes whole to each rank that needs it, in the frames.
Status Group::reduce_whole(const CollectiveCall& call, bool to_all) {
  const int64_t bytes = call.count * item_size(call.dtype);
  const bool takes = to_all || rank_ == call.root;
  char* scratch = scratch_.of(bytes * size_);
  std::vector<const char*> sources(static_cast<size_t>(size_));
  Step step(size_);
  for_peers([&](int32_t other) {
    if (to_all || other == call.root) step.send(other, call.in, bytes);
    if (takes) step.receive(other, scratch + other * bytes, bytes);
    sources[other] = scratch + other * bytes;
  });
  sources[rank_] = static_cast<const char*>(call.in);
  const Status status = exchange_frames(step, call.error);
  char* out = static_cast<char*>(call.out);
  if (status.ok() && takes && call.count > 0)
    comm::reduce_into(sources.data(), size_, &out, 1, call.count, call.dtype, call.reduce);
  return status;
}

Status Group::all_reduce(const CollectiveCall& call) {
  Status status =
      begin_collective(call, {comm::Kind::AllReduce, -1, static_cast<int32_t>(call.dtype),
                              static_cast<int32_t>(call.reduce), call.count});
  if (!status.ok()) return status;
  const int64_t item = item_size(call.dtype), block = kBlockBytes / item;
  if (call.count * item <= kInlineBytes || size_ == 1) return reduce_whole(call, true);
  char* out = static_cast<char*>(call.out);
  std::vector<Chunk> chunks(static_cast<size_t>(size_));
  for (int64_t begin = 0; status.ok() && begin < call.count; begin += block) {
    for (int32_t rank = 0; rank < size_; rank++)
      chunks[rank] = share(begin, std::min(block, call.count - begin), rank);
    const Chunk own = chunks[rank_];
    status = reduce_chunks(call, static_cast<const char*>(call.in), chunks, out + own.begin * item,
                           begin == 0);
    if (!status.ok()) break;
    Step step(size_);
    for_peers([&](int32_t other) {
      step.send(other, out + own.begin * item, own.count * item);
      step.receive(other, out + chunks[other].begin * item, chunks[other].count * item);
    });
    status = transfer(step, 0, call.error);
  }
  return status;
}

Status Group::reduce(const CollectiveCall& call) {
  Status status =
      begin_collective(call, {comm::Kind::Reduce, call.root, static_cast<int32_t>(call.dtype),
                              static_cast<int32_t>(call.reduce), call.count});
  if (!status.ok()) return status;
  const int64_t item = item_size(call.dtype), block = kBlockBytes / item;
  if (call.count * item <= kInlineBytes || size_ == 1) return reduce_whole(call, false);
  const bool is_root = rank_ == call.root;
  std::vector<Chunk> chunks(static_cast<size_t>(size_));
  for (int64_t begin = 0; status.ok() && begin < call.count; begin += block) {
    for (int32_t rank = 0; rank < size_; rank++)
      chunks[rank] = share(begin, std::min(block, call.count - begin), rank);
    const Chunk own = chunks[rank_];
    char* out = is_root ? static_cast<char*>(call.out) : nullptr;
    char* result = is_root ? out + own.begin * item : result_.of(own.count * item);
    status = reduce_chunks(call, static_cast<const char*>(call.in), chunks, result, begin == 0);
    if (!status.ok()) break;
    Step step(size_);
    if (is_root)
      for_peers([&](int32_t other) {
        step.receive(other, out + chunks[other].begin * item, chunks[other].count * item);
      });
    else
      step.send(call.root, result, own.count * item);
    status = transfer(step, 0, call.error);
  }
  return status;
}

Status Group::reduce_scatter(const CollectiveCall& call) {
  Status status =
      begin_collective(call, {comm::Kind::ReduceScatter, -1, static_cast<int32_t>(call.dtype),
                              static_cast<int32_t>(call.reduce), 0, call.counts});
  if (!status.ok()) return status;
  const int64_t item = item_size(call.dtype),
                block = std::max<int64_t>(1, kBlockBytes / item / size_);
  const int64_t longest = *std::max_element(call.counts, call.counts + size_);
  std::vector<Chunk> chunks(static_cast<size_t>(size_));
  for (int64_t begin = 0; status.ok() && (begin == 0 || begin < longest); begin += block) {
    int64_t offset = 0;
    for (int32_t rank = 0; rank < size_; offset += call.counts[rank++]) {
      chunks[rank] = {offset + begin, std::clamp<int64_t>(call.counts[rank] - begin, 0, block)};
    }
    status = reduce_chunks(call, static_cast<const char*>(call.in), chunks,
                           static_cast<char*>(call.out) + begin * item, begin == 0);
  }
  return status;
}

}  // namespace shardwise::gloo_engine
