// Collectives that only move data. A rank copies its own bytes directly from input to output.
#include <cstring>

#include "exchange.h"
#include "host_group.h"

namespace shardwise::comm {
namespace {

int64_t sum(const int64_t* sizes, int32_t count) {
  int64_t total = 0;
  for (int32_t i = 0; i < count; i++) total += sizes[i];
  return total;
}

int64_t largest(const int64_t* sizes, int32_t count) {
  int64_t most = 0;
  for (int32_t i = 0; i < count; i++) most = std::max(most, sizes[i]);
  return most;
}

void copy_own(void* out, const void* in, int64_t bytes) {
  if (bytes > 0 && out != in) memcpy(out, in, static_cast<size_t>(bytes));
}

}  // namespace

Status HostGroup::broadcast(const void* in, void* out, int64_t bytes, int32_t root,
                            const CallSite& site, ErrorText* error) {
  Status status =
      begin_collective({.kind = Kind::Broadcast, .root = root, .amount = bytes}, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  Exchange exchange(*this, in, out, 1, bytes, bytes);
  if (rank_ == root) exchange.expose(0, 0, bytes);
  for (int64_t chunk = 0; chunk < exchange.chunks(); chunk++) {
    status = exchange.open(chunk, false, error);
    if (!status.ok()) return status;
    if (rank_ != root) exchange.copy_to(static_cast<char*>(out), root, 0, 0, bytes);
  }
  if (rank_ == root) copy_own(out, in, bytes);
  return exchange.close(error);
}

Status HostGroup::all_gather(const void* in, void* out, const int64_t* bytes_of_rank,
                             const CallSite& site, ErrorText* error) {
  return gather_to({.kind = Kind::AllGather, .sizes = bytes_of_rank}, in, out, site, error);
}

Status HostGroup::gather(const void* in, void* out, const int64_t* bytes_of_rank, int32_t root,
                         const CallSite& site, ErrorText* error) {
  return gather_to({.kind = Kind::Gather, .root = root, .sizes = bytes_of_rank}, in, out, site,
                   error);
}

Status HostGroup::gather_to(const Call& call, const void* in, void* out, const CallSite& site,
                            ErrorText* error) {
  Status status = begin_collective(call, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  const int64_t* bytes = call.sizes;
  const bool takes = call.root < 0 || call.root == rank_;
  Exchange exchange(*this, in, out, 1, largest(bytes, size()), sum(bytes, size()));
  exchange.expose(0, 0, bytes[rank_]);
  for (int64_t chunk = 0; chunk < exchange.chunks(); chunk++) {
    status = exchange.open(chunk, false, error);
    if (!status.ok()) return status;
    if (!takes) continue;
    char* to = static_cast<char*>(out);
    for (int32_t rank = 0; rank < size(); to += bytes[rank++]) {
      if (rank != rank_) exchange.copy_to(to, rank, 0, 0, bytes[rank]);
    }
  }
  if (takes) copy_own(static_cast<char*>(out) + sum(bytes, rank_), in, bytes[rank_]);
  return exchange.close(error);
}

Status HostGroup::scatter(const void* in, void* out, const int64_t* bytes_of_rank, int32_t root,
                          const CallSite& site, ErrorText* error) {
  Status status =
      begin_collective({.kind = Kind::Scatter, .root = root, .sizes = bytes_of_rank}, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  const int64_t offset = sum(bytes_of_rank, rank_), bytes = bytes_of_rank[rank_];
  Exchange exchange(*this, in, out, size(), largest(bytes_of_rank, size()),
                    sum(bytes_of_rank, size()));
  if (rank_ == root) {
    for (int32_t rank = 0; rank < size(); rank++) {
      if (rank != root) exchange.expose(rank, sum(bytes_of_rank, rank), bytes_of_rank[rank]);
    }
  }
  for (int64_t chunk = 0; chunk < exchange.chunks(); chunk++) {
    status = exchange.open(chunk, false, error);
    if (!status.ok()) return status;
    if (rank_ != root) exchange.copy_to(static_cast<char*>(out), root, rank_, offset, bytes);
  }
  if (rank_ == root) copy_own(out, static_cast<const char*>(in) + offset, bytes);
  return exchange.close(error);
}

Status HostGroup::all_to_all(const void* in, const int64_t* send_bytes, void* out,
                             const int64_t* receive_bytes, const CallSite& site, ErrorText* error) {
  Status status = begin_collective({.kind = Kind::AllToAll, .sizes = send_bytes}, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  int64_t longest;
  status = agree_on_exchange(send_bytes, receive_bytes, &longest, error);
  if (!status.ok()) return status;
  // where the bytes for this rank begin in each input; the tables change after the next rendezvous
  int64_t offsets[kMaxRanks];
  for (int32_t rank = 0; rank < size(); rank++)
    offsets[rank] = sum(region_->rank(rank).sends, rank_);
  Exchange exchange(*this, in, out, size(), longest, longest * size());
  for (int32_t rank = 0; rank < size(); rank++) {
    if (rank != rank_) exchange.expose(rank, sum(send_bytes, rank), send_bytes[rank]);
  }
  for (int64_t chunk = 0; chunk < exchange.chunks(); chunk++) {
    status = exchange.open(chunk, true, error);
    if (!status.ok()) return status;
    char* to = static_cast<char*>(out);
    for (int32_t rank = 0; rank < size(); to += receive_bytes[rank++]) {
      if (rank != rank_) exchange.copy_to(to, rank, rank_, offsets[rank], receive_bytes[rank]);
    }
  }
  copy_own(static_cast<char*>(out) + sum(receive_bytes, rank_),
           static_cast<const char*>(in) + sum(send_bytes, rank_), send_bytes[rank_]);
  return exchange.close(error);
}

Status HostGroup::barrier(const CallSite& site, ErrorText* error) {
  Status status = begin_collective({.kind = Kind::Barrier}, site, error);
  if (!status.ok()) return status;
  Running running{own()};
  status = rendezvous(error);
  return status.ok() ? agree(error) : status;
}

}  // namespace shardwise::comm
