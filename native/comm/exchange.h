// The data of one call on its way between ranks. A rank exposes runs of its input: one that all may
// read, or one for each rank. Between processes, and when little is sent, they go through the
// rank's slots, chunk by chunk, into one while the others may still read the other. In one process
// the ranks read (and reduce into) each other's memory, in one chunk.
#pragma once
#include <algorithm>

#include "host_group.h"

namespace shardwise::comm {

class Exchange {
 public:
  // `longest`: the most bytes of a run, on any rank. `total`: what goes through one rank at most,
  // by which the way is chosen. Both are the same on all ranks.
  Exchange(HostGroup& group, const void* in, void* out, int32_t runs, int64_t longest,
           int64_t total);
  ~Exchange();
  Exchange(const Exchange&) = delete;

  void expose(int32_t run, int64_t offset, int64_t bytes) {
    offset_[run] = offset;
    bytes_[run] = bytes;
  }

  // Ends with all ranks having exposed this chunk. The first one compares the calls, unless the
  // caller has done so.
  Status open(int64_t chunk, bool agreed, ErrorText* error);
  int64_t chunks() const { return chunks_; }

  // Of the open chunk: where it begins in a run, and its length in a run of `bytes`.
  int64_t begin() const { return begin_; }
  int64_t length(int64_t bytes) const {
    return std::clamp<int64_t>(bytes - begin_, 0, chunk_bytes_);
  }
  // What `rank` exposes there. `offset` is where the run begins in that rank's input.
  const char* view(int32_t rank, int32_t run, int64_t offset) const;
  void copy_to(char* out, int32_t rank, int32_t run, int64_t offset, int64_t bytes) const;

  // Ranks reach each other's memory.
  bool direct() const { return direct_; }
  char* output(int32_t rank) const { return static_cast<char*>(group_.region_->rank(rank).out); }
  char* slot(int32_t rank) const { return group_.region_->slot(rank, parity_); }

  // The others are done with this rank's memory.
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
