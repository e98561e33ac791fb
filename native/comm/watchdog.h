// What the ranks of a group of devices call, compared between their hosts: a device's engine only
// launches, and a launch that the other ranks do not match hangs, or ends as if it were well. On
// one machine through shared memory (shm_watchdog.h), else through messages (remote_watchdog.h).
#pragma once
#include "../include/collective.h"
#include "../include/text.h"
#include "messages.h"

namespace shardwise::comm {

// How long one that leaves waits for ranks that have not come to its last call: as long as a
// device's engine waits for its end.
constexpr int64_t kLeaveMs = 10'000;

class CallWatch {
 public:
  virtual ~CallWatch() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;
  virtual const Roster& roster() const = 0;
  virtual uint64_t calls() const = 0;  // collectives begun, for the thread that begins them

  // Of each call that is about to be launched, on one thread at a time. Waits for no rank. Fails
  // where another is known to have called something else, and after any failure.
  virtual Status begin(const CollectiveCall& call, ErrorText* error) = 0;
  // Whether all ranks are known to call what this one does, up to that collective; waits so long to
  // know it, or of a failure.
  virtual bool settle(uint64_t call, int64_t limit_ms) = 0;
  // This rank calls nothing any more.
  virtual void leave() = 0;

  // Of all ranks: from any thread.
  virtual void fail_group(Code code, const char* text) = 0;
  virtual bool failed() = 0;
  // How long after a failure a rank must expect that others have not heard of it.
  virtual int64_t telling_ms() const = 0;
  virtual Status cause(ErrorText* error) = 0;
  // The cause is about calls that were launched, so that what they have written is worth nothing.
  virtual bool has_refuted() = 0;

  // Whether a rank is gone that may not have done its part of this one's last call. Asked now and
  // then while that is not done.
  virtual bool has_lost() = 0;
  // `: rank 2 has died (process 7), its last call was …`: those that has_lost has found.
  virtual void describe_lost(Text& text) = 0;
  // The ranks that have not come to a collective, or a `peer` that has not come to a message;
  // false: all have.
  virtual bool describe_missing(Text& text, uint64_t call, int32_t peer) = 0;
  // The ranks that were described last, for programs.
  virtual void blame(Facts& facts) = 0;

 protected:
  // A call of a group that has failed before.
  Status refuse(const Note& mine, ErrorText* error) {
    ErrorText why;
    const Status status = cause(&why);
    Text text(*error);
    describe_refused(text, roster(), mine, rank(), why);
    return status;
  }
};

}  // namespace shardwise::comm
