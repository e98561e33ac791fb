// Collectives of memory of the host between ranks of one machine: threads of a process, or
// processes. One HostGroup for each rank; its calls come one at a time, from any thread, and wait
// for the other ranks.
//
// Every collective is the same on all ranks: its fingerprint (name, dtype, sizes, reduction, root)
// is compared before results are written, and a difference fails the call on every rank. A group
// that has failed in any way (a difference, a rank that does not come or dies, abort) stays so: all
// calls fail with the first cause.
//
// An input may be the output's memory where it says so; otherwise they must not overlap. Sizes per
// rank are in the order of ranks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "../include/dtype.h"
#include "../include/status.h"
#include "call_record.h"
#include "messages.h"
#include "reduce_kernels.h"
#include "region.h"

namespace shardwise::comm {

constexpr int64_t kDefaultTimeoutMs = 30 * 60'000;

class HostGroup {
 public:
  // Processes wait for each other here, as long as the segment's options say: a group that begins
  // is complete. Ranks of one process do not, so that one thread may join several. Who is gone in
  // the origin is not waited for.
  static Status join(std::shared_ptr<Region> region, int32_t rank, std::unique_ptr<HostGroup>* out,
                     ErrorText* error, Origin origin = {});
  ~HostGroup();  // the rank leaves: those that wait for it fail

  int32_t rank() const { return rank_; }
  int32_t size() const { return region_->size(); }
  const std::shared_ptr<Region>& region() const { return region_; }

  // in == out is allowed in the three of these.
  Status all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduce reduce,
                    const CallSite& site, ErrorText* error);
  // Only the root's output is written; the others' may be null.
  Status reduce(const void* in, void* out, int64_t count, DType dtype, Reduce reduce, int32_t root,
                const CallSite& site, ErrorText* error);
  // Only the root's input is read; the others' may be null.
  Status broadcast(const void* in, void* out, int64_t bytes, int32_t root, const CallSite& site,
                   ErrorText* error);
  // The input may be the rank's own place in the output.
  Status all_gather(const void* in, void* out, const int64_t* bytes_of_rank, const CallSite& site,
                    ErrorText* error);
  Status gather(const void* in, void* out, const int64_t* bytes_of_rank, int32_t root,
                const CallSite& site, ErrorText* error);
  // The output may be the rank's own place in the input.
  Status scatter(const void* in, void* out, const int64_t* bytes_of_rank, int32_t root,
                 const CallSite& site, ErrorText* error);
  Status reduce_scatter(const void* in, void* out, const int64_t* count_of_rank, DType dtype,
                        Reduce reduce, const CallSite& site, ErrorText* error);
  Status all_to_all(const void* in, const int64_t* send_bytes, void* out,
                    const int64_t* receive_bytes, const CallSite& site, ErrorText* error);
  Status barrier(const CallSite& site, ErrorText* error);

  // Between two ranks, in order. A send returns once the message is in the channel, which holds
  // some of it: no wait for the receiver if it is short. Sizes that differ fail the group, at the
  // latest in the sender's next call.
  Status send(const void* data, int64_t bytes, int32_t to, const CallSite& site, ErrorText* error);
  Status receive(void* data, int64_t bytes, int32_t from, const CallSite& site, ErrorText* error);

  // From any thread, also while a call waits: the present and later calls of every rank fail with
  // the reason, which says who gives it.
  void abort(const char* reason);
  // How long a call waits for a rank that makes no progress.
  void set_timeout(int64_t ms) {
    timeout_ms_.store(std::min(ms, kLongestTimeoutMs), std::memory_order_relaxed);
  }

 private:
  friend class Exchange;

  // A call that has begun, until it returns.
  struct Running {
    RankBlock& block;
    ~Running() { block.in_call.store(0, std::memory_order_release); }
  };

  HostGroup(std::shared_ptr<Region> region, int32_t rank, Origin origin);

  // check_call.cc
  Status begin_collective(const Call& call, const CallSite& site, ErrorText* error);
  Status begin_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site,
                       ErrorText* error);
  Status begin(const Note& note, ErrorText* error);
  Status agree(ErrorText* error);  // all ranks have met: are their fingerprints the same?
  Status agree_on_exchange(const int64_t* sends, const int64_t* receives, int64_t* longest,
                           ErrorText* error);

  // barrier.cc
  Status wait_for_all(ErrorText* error);
  Status meet(ErrorText* error);
  // Until the counter has come to the target. `peer` is waited for; -1: all that have not come to
  // the meeting.
  Status wait(Counter& counter, uint32_t target, int32_t peer, ErrorText* error);
  uint64_t missing(int32_t peer);
  uint64_t absent();                   // those that have not joined
  uint64_t find_left(uint64_t ranks);  // those of them that have left, here or before they came
  uint64_t find_lost(uint64_t ranks);  // or have died
  Status report_lost(uint64_t ranks, ErrorText* error);
  Status time_out(uint64_t ranks, int64_t waited_ms, ErrorText* error);
  Status fail_for(const Missing& missing, const char* limit, ErrorText* error);

  // failure.cc
  bool failed() { return region_->failed(); }
  Status fail_group(Code code, const char* text, ErrorText* error);
  Status failure(ErrorText* error);
  Status refuse(const Note& note, ErrorText* error);  // a call of a group that has failed before
  // A difference reads from each rank's own side; those that did not look at it get `for_all`.
  Status refuse_difference(const ErrorText& seen_here, const ErrorText& for_all, ErrorText* error);

  // collectives.cc, reductions.cc: to the root, to all without one
  Status gather_to(const Call& call, const void* in, void* out, const CallSite& site,
                   ErrorText* error);
  Status reduce_to(const Call& call, const void* in, void* out, const CallSite& site,
                   ErrorText* error);

  const Roster& roster() { return region_->roster(); }
  Header& header() { return region_->header(); }
  RankBlock& own() { return region_->rank(rank_); }

  std::shared_ptr<Region> region_;
  int32_t rank_;
  Origin origin_;
  int64_t spin_ns_;
  std::atomic<int64_t> timeout_ms_{kDefaultTimeoutMs};
  uint64_t calls_ = 0;   // collectives begun
  uint32_t staged_ = 0;  // slots filled: the next one's parity
  Note note_ = {};       // the present call
  Status refused_;       // a difference as this rank saw it
  ErrorText refused_text_;
};

}  // namespace shardwise::comm
