// Moves the data of one call between ranks. A rank exposes runs of its input: one run for all
// ranks, or one for each rank. Between processes, and for small data, the runs pass through the
// slots of the rank chunk by chunk; a rank fills one slot while others still read the other one. In
// one process the ranks read (and reduce into) each other's memory directly, in one chunk.
#pragma once
#include <algorithm>

#include "host_group.h"

namespace shardwise::comm {

class Exchange {
 public:
  // `longest`: the largest run of any rank, in bytes. `total`: the most bytes that one rank moves;
  // it selects slots or direct access. All ranks pass the same values.
  Exchange(HostGroup& group, const void* in, void* out, int32_t runs, int64_t longest,
           int64_t total);
  ~Exchange();
  Exchange(const Exchange&) = delete;

  void expose(int32_t run, int64_t offset, int64_t bytes) {
    offset_[run] = offset;
    bytes_[run] = bytes;
  }

  // Returns when all ranks have exposed this chunk. The first chunk compares the calls unless the
  // caller has compared them.
  Status open(int64_t chunk, bool agreed, ErrorText* error);
  int64_t chunks() const { return chunks_; }

  // The open chunk: where it begins in a run, and its length in a run of `bytes`.
  int64_t begin() const { return begin_; }
  int64_t length(int64_t bytes) const {
    return std::clamp<int64_t>(bytes - begin_, 0, chunk_bytes_);
  }
  // The open chunk of a run of `rank`. `offset` is where the run begins in the input of that rank.
  const char* view(int32_t rank, int32_t run, int64_t offset) const;
  void copy_to(char* out, int32_t rank, int32_t run, int64_t offset, int64_t bytes) const;

  // True if ranks access each other's memory.
  bool direct() const { return direct_; }
  char* output(int32_t rank) const { return static_cast<char*>(group_.region_->rank(rank).out); }
  char* slot(int32_t rank) const { return group_.region_->slot(rank, parity_); }

  // Returns when the other ranks no longer use the memory of this rank.
  Status close(ErrorText* error);

 private:
  void leave() { group_.own().inside.store(0, std::memory_order_seq_cst); }

  HostGroup& group_;
  const char* in_;
  int32_t runs_;
  bool direct_, opened_ = false;
  uint32_t parity_ = 0;
  int64_t chunk_bytes_, chunks_, begin_ = 0;
  int64_t offset_[kMaxRanks], bytes_[kMaxRanks];
};

}  // namespace shardwise::comm
