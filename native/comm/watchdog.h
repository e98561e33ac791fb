// Compares the calls of a group of devices between the hosts. A device's engine only launches, and
// a launch that other ranks do not match hangs, or ends as if it had succeeded. shm_watchdog.h
// compares on one machine, remote_watchdog.h across machines.
#pragma once
#include "../include/collective.h"
#include "../include/text.h"
#include "messages.h"

namespace shardwise::comm {

// The time that a leaving rank waits for ranks that have not reached its last call, and for the end
// of its device's engine.
constexpr int64_t kLeaveMs = 10'000;

class Watchdog {
 public:
  virtual ~Watchdog() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  virtual const GroupInfo& group_info() const = 0;
  virtual uint64_t calls() const = 0;  // collectives begun; only for the thread that begins them

  // Called before each launch, on one thread at a time. Waits for no rank. Fails if another rank is
  // known to have made a different call, and after any failure.
  virtual Status begin(const CollectiveCall& call, ErrorText* error) = 0;
  // True if all ranks are known to make the same calls up to this one. Waits up to `limit_ms` for
  // that or for a failure.
  virtual bool settle(uint64_t call, int64_t limit_ms) = 0;
  // This rank makes no more calls.
  virtual void leave() = 0;

  // Fails the group on all ranks, from any thread.
  virtual void fail_group(Code code, const ErrorText& why) = 0;
  virtual bool failed() = 0;
  // The time after a failure in which other ranks may not know it yet.
  virtual int64_t grace_ms() const = 0;
  virtual Status cause(ErrorText* error) = 0;
  // True if the cause concerns calls that were launched: their results are invalid.
  virtual bool has_mismatch() = 0;

  // True if a peer left or died before it finished our last call. Polled while that call is in
  // flight.
  virtual bool has_dead_peer() = 0;
  // `: rank 2 has died (process 7), its last call was …`: the ranks that has_dead_peer found.
  virtual void describe_dead_peers(Text& text) = 0;
  // True if ranks that have not reached the collective, or the `peer` of a message, compile: the
  // time since the last check does not count.
  virtual bool is_delayed(uint64_t call, int32_t peer) = 0;
  // The ranks that have not reached a collective, or the `peer` of a message; false: all have.
  virtual bool describe_missing(Text& text, uint64_t call, int32_t peer) = 0;
  // Blames the ranks that were described last.
  virtual void blame(DetailsWriter& details) = 0;

 protected:
  // Fails a call because the group has failed before.
  Status refuse(const CallRecord& mine, ErrorText* error) {
    ErrorText why;
    const Status status = cause(&why);
    Text text(*error);
    describe_refused(text, group_info(), mine, rank(), why);
    return status;
  }
};

}  // namespace shardwise::comm
