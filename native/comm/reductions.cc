// Collectives that reduce. Each rank reduces one segment for all ranks. Small data is reduced whole
// by every rank, which saves a rendezvous.
#include <cstring>

#include "exchange.h"
#include "host_group.h"

namespace shardwise::comm {
namespace {

constexpr int64_t kWholeBytes = 8 << 10;

// The segment of a rank, in whole cache lines.
struct Segment {
  int64_t begin, bytes;
};
Segment segment(int64_t total, int32_t rank, int32_t size) {
  const int64_t each = ((total + size - 1) / size + kAlign - 1) / kAlign * kAlign;
  const int64_t begin = std::min(total, rank * each);
  return {begin, std::min(total, begin + each) - begin};
}

}  // namespace

Status HostGroup::all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduce reduce,
                             const CallSite& site, ErrorText* error) {
  const Call call = {Kind::AllReduce, -1, static_cast<int32_t>(dtype), static_cast<int32_t>(reduce),
                     count};
  return reduce_to(call, in, out, site, error);
}

Status HostGroup::reduce(const void* in, void* out, int64_t count, DType dtype, Reduce reduce,
                         int32_t root, const CallSite& site, ErrorText* error) {
  const Call call = {Kind::Reduce, root, static_cast<int32_t>(dtype), static_cast<int32_t>(reduce),
                     count};
  return reduce_to(call, in, out, site, error);
}

Status HostGroup::reduce_to(const Call& call, const void* in, void* out, const CallSite& site,
                            ErrorText* error) {
  Status status = begin_collective(call, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  const DType dtype = static_cast<DType>(call.dtype);
  const Reduce reduce = static_cast<Reduce>(call.reduce);
  const int64_t item = item_size(dtype), bytes = call.amount * item;
  const bool takes = call.root < 0 || call.root == rank_;
  Exchange exchange(*this, in, out, 1, bytes, bytes);
  exchange.expose(0, 0, bytes);

  const char* sources[kMaxRanks];
  char* outputs[kMaxRanks];
  for (int64_t chunk = 0; chunk < exchange.chunks(); chunk++) {
    status = exchange.open(chunk, false, error);
    if (!status.ok()) return status;
    const int64_t length = exchange.length(bytes);
    const bool whole = !exchange.direct() && length <= kWholeBytes;
    if (whole && !takes) continue;
    const Segment mine = whole ? Segment{0, length} : segment(length, rank_, size());
    for (int32_t rank = 0; rank < size(); rank++)
      sources[rank] = exchange.view(rank, 0, 0) + mine.begin;
    int32_t num_outputs = 0;
    if (whole) {
      outputs[num_outputs++] = static_cast<char*>(out) + exchange.begin();
    } else if (!exchange.direct()) {
      outputs[num_outputs++] = exchange.slot(rank_) + mine.begin;
    } else {
      for (int32_t rank = 0; rank < size(); rank++) {
        if (call.root < 0 || call.root == rank)
          outputs[num_outputs++] = exchange.output(rank) + mine.begin;
      }
    }
    // No other rank reads this segment, so it may overwrite the inputs.
    if (mine.bytes > 0)
      reduce_into(sources, size(), outputs, num_outputs, mine.bytes / item, dtype, reduce);
    if (whole || exchange.direct()) continue;
    status = rendezvous(error);
    if (!status.ok()) return status;
    for (int32_t rank = 0; takes && rank < size(); rank++) {
      const Segment part = segment(length, rank, size());
      if (part.bytes == 0) continue;
      memcpy(static_cast<char*>(out) + exchange.begin() + part.begin,
             exchange.slot(rank) + part.begin, static_cast<size_t>(part.bytes));
    }
  }
  return exchange.close(error);
}

Status HostGroup::reduce_scatter(const void* in, void* out, const int64_t* count_of_rank,
                                 DType dtype, Reduce reduce, const CallSite& site,
                                 ErrorText* error) {
  Status status = begin_collective({Kind::ReduceScatter, -1, static_cast<int32_t>(dtype),
                                    static_cast<int32_t>(reduce), 0, count_of_rank},
                                   site, error);
  if (!status.ok()) return status;
  Running running{own()};
  const int64_t item = item_size(dtype);
  int64_t longest = 0, total = 0, own_offset = 0;
  for (int32_t rank = 0; rank < size(); rank++) {
    if (rank == rank_) own_offset = total;
    longest = std::max(longest, count_of_rank[rank] * item);
    total += count_of_rank[rank] * item;
  }
  Exchange exchange(*this, in, out, size(), longest, total);
  for (int64_t rank = 0, offset = 0; rank < size(); offset += count_of_rank[rank++] * item) {
    exchange.expose(static_cast<int32_t>(rank), offset, count_of_rank[rank] * item);
  }
  for (int64_t chunk = 0; chunk < exchange.chunks(); chunk++) {
    status = exchange.open(chunk, false, error);
    if (!status.ok()) return status;
    const int64_t length = exchange.length(count_of_rank[rank_] * item);
    if (length == 0) continue;
    const char* sources[kMaxRanks];
    for (int32_t rank = 0; rank < size(); rank++)
      sources[rank] = exchange.view(rank, rank_, own_offset);
    char* output = static_cast<char*>(out) + exchange.begin();
    reduce_into(sources, size(), &output, 1, length / item, dtype, reduce);
  }
  return exchange.close(error);
}

}  // namespace shardwise::comm
