// Collectives on host memory between ranks of one machine: threads of a process, or processes. Each
// rank has one HostGroup. Its calls come one at a time, from any thread, and wait for the other
// ranks.
//
// All ranks must make the same collective. Its fingerprint (name, dtype, sizes, reduction, root) is
// compared before results are written, and a mismatch fails the call on every rank. A group that
// has failed (a mismatch, a rank that does not come or dies, an abort) stays failed: all later
// calls fail with the first cause.
//
// Input and output must not overlap unless a function allows it. Sizes per rank are in rank order.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "../include/dtype.h"
#include "../include/status.h"
#include "call_record.h"
#include "compilation.h"
#include "messages.h"
#include "reduce_kernels.h"
#include "region.h"

namespace shardwise::comm {

constexpr int64_t kDefaultTimeoutMs = 30 * 60'000;

class HostGroup {
 public:
  // Processes wait here for all ranks, up to the timeout of the segment: a group that begins is
  // complete. Ranks of one process do not wait, so one thread may join several. Ranks that left the
  // origin are not waited for.
  static Status join(std::shared_ptr<Region> region, int32_t rank, std::unique_ptr<HostGroup>* out,
                     ErrorText* error, Origin origin = {});
  ~HostGroup();  // the rank leaves; ranks that wait for it fail

  int32_t rank() const { return rank_; }
  int32_t size() const { return region_->size(); }
  const std::shared_ptr<Region>& region() const { return region_; }

  // The next three functions allow in == out.
  Status all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduce reduce,
                    const CallSite& site, ErrorText* error);
  // Only the root's output is written; the others' may be null.
  Status reduce(const void* in, void* out, int64_t count, DType dtype, Reduce reduce, int32_t root,
                const CallSite& site, ErrorText* error);
  // Only the root's input is read; the others' may be null.
  Status broadcast(const void* in, void* out, int64_t bytes, int32_t root, const CallSite& site,
                   ErrorText* error);
  // The input may be this rank's place in the output.
  Status all_gather(const void* in, void* out, const int64_t* bytes_of_rank, const CallSite& site,
                    ErrorText* error);
  Status gather(const void* in, void* out, const int64_t* bytes_of_rank, int32_t root,
                const CallSite& site, ErrorText* error);
  // The output may be this rank's place in the input.
  Status scatter(const void* in, void* out, const int64_t* bytes_of_rank, int32_t root,
                 const CallSite& site, ErrorText* error);
  Status reduce_scatter(const void* in, void* out, const int64_t* count_of_rank, DType dtype,
                        Reduce reduce, const CallSite& site, ErrorText* error);
  Status all_to_all(const void* in, const int64_t* send_bytes, void* out,
                    const int64_t* receive_bytes, const CallSite& site, ErrorText* error);
  Status barrier(const CallSite& site, ErrorText* error);

  // Messages between two ranks, in order. A send returns when the message is in the channel; a
  // short message does not wait for the receiver. Different sizes fail the group, at the latest in
  // the next call of the sender.
  Status send(const void* data, int64_t bytes, int32_t to, const CallSite& site, ErrorText* error);
  Status receive(void* data, int64_t bytes, int32_t from, const CallSite& site, ErrorText* error);

  // From any thread, also while a call waits: the present and later calls of every rank fail with
  // the reason, which names the rank that aborts.
  void abort(const ErrorText& reason);
  // The time that a call waits for a rank that makes no progress.
  void set_timeout(int64_t ms) {
    timeout_ms_.store(std::min(ms, kLongestTimeoutMs), std::memory_order_relaxed);
  }

 private:
  friend class Exchange;

  // Marks the rank as inside a call until the call returns.
  struct Running {
    RankBlock& block;
    ~Running() { block.in_call.store(0, std::memory_order_release); }
  };

  HostGroup(std::shared_ptr<Region> region, int32_t rank, Origin origin);

  // check_call.cc
  Status begin_collective(const Call& call, const CallSite& site, ErrorText* error);
  Status begin_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site,
                       ErrorText* error);
  Status begin(const CallRecord& record, ErrorText* error);
  Status agree(ErrorText* error);  // after a rendezvous: compares the fingerprints of all ranks
  Status agree_on_exchange(const int64_t* sends, const int64_t* receives, int64_t* longest,
                           ErrorText* error);

  // barrier.cc
  Status wait_for_all(ErrorText* error);
  Status rendezvous(ErrorText* error);
  // Waits until the counter reaches the target. `peer`: the rank to wait for; -1 for all ranks that
  // have not reached the rendezvous.
  Status wait(Counter& counter, uint32_t target, int32_t peer, ErrorText* error);
  uint64_t missing(int32_t peer);
  uint64_t absent();  // ranks that have not joined
  Compilations compilations_of_ranks();
  // ranks that left here, or left the origin before they joined
  uint64_t find_left(uint64_t ranks);
  uint64_t find_dead_peers(uint64_t ranks);  // also ranks that died
  Status report_dead_peers(uint64_t ranks, ErrorText* error);
  Status time_out(uint64_t ranks, int64_t waited_ms, ErrorText* error);
  Status fail_for(const Missing& missing, const char* limit, ErrorText* error);

  // failure.cc
  bool failed() { return region_->failed(); }
  Status fail_group(Code code, const ErrorText& why, ErrorText* error);
  Status failure(ErrorText* error);
  Status refuse(const CallRecord& record,
                ErrorText* error);  // fails a call because the group has failed before
  // Each rank reads a mismatch from its own side; ranks that did not see it get `for_all`.
  Status refuse_mismatch(ErrorText& seen_here, ErrorText& for_all, ErrorText* error);

  // collectives.cc, reductions.cc: results go to the root, or to all ranks without a root
  Status gather_to(const Call& call, const void* in, void* out, const CallSite& site,
                   ErrorText* error);
  Status reduce_to(const Call& call, const void* in, void* out, const CallSite& site,
                   ErrorText* error);

  const GroupInfo& group_info() { return region_->group_info(); }
  Header& header() { return region_->header(); }
  RankBlock& own() { return region_->rank(rank_); }

  std::shared_ptr<Region> region_;
  int32_t rank_;
  Origin origin_;
  int64_t spin_ns_;
  std::atomic<int64_t> timeout_ms_{kDefaultTimeoutMs};
  uint64_t calls_ = 0;      // collectives begun
  uint32_t staged_ = 0;     // slots filled; gives the parity of the next slot
  CallRecord record_ = {};  // the present call
  Status refused_;          // a mismatch as this rank saw it
  ErrorText refused_text_;
};

}  // namespace shardwise::comm
