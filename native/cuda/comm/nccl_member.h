// One rank of a group: its communicator, the calls in flight, its failure and its end.
//
// NCCL allows one thread at a time in a communicator, and the watchdog must be able to end it: a
// thread that calls NCCL is `inside` (Turn), and the mutex is held only to begin and end that turn.
// If the group fails meanwhile, the end of the turn retires the communicator.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "../devices.h"
#include "nccl.h"
#include "nccl_api.h"
#include "nccl_peers.h"

namespace shardwise::cuda::nccl {

int64_t now_ns();

// A call in flight. Its time starts when the watchdog sees that the stream has reached it.
struct Flight {
  CommRecord record;
  uint64_t index;  // among all calls of the member
  cudaEvent_t before, after;
  bool launched;  // `after` is recorded
  bool begun;     // the watchdog has seen `before` complete
  int64_t waited_ns;
};

struct Member : std::enable_shared_from_this<Member> {
  Member(const Api& api, Comm comm, int32_t device, int32_t rank, int32_t size, int64_t timeout_ms)
      : api(api), device(device), rank(rank), size(size), timeout_ms(timeout_ms), comm(comm) {}
  ~Member();

  // nccl_run.cc
  Status run(const CollectiveCall& call);
  Peers* find_peers(cudaStream_t stream, Result* result, cudaError_t* cuda);

  // nccl_member.cc
  Status begin(const CollectiveCall& call, cudaStream_t stream);
  Status finish(cudaStream_t stream, ErrorText* error);
  void reap(const std::unique_lock<std::mutex>& held, int32_t most);
  void fail_group(const std::unique_lock<std::mutex>& held, Code code, const ErrorText& why);
  void end_calls(const std::unique_lock<std::mutex>& held);
  Status failure(ErrorText* error);
  Status refuse(const char* what, ErrorText* error);
  void close();

  // nccl_watch.cc
  void look();
  void look_at_failed(const std::unique_lock<std::mutex>& held, int64_t now);
  void time_out(const std::unique_lock<std::mutex>& held, const Flight& oldest);
  // Announces to the watchdog a call of NCCL that waits for other ranks and is not one of the
  // program's; `until_ns` 0: it has returned.
  void expect_end(const char* what, int64_t until_ns);
  void end_wait(const std::unique_lock<std::mutex>& held);

  const Api& api;
  const int32_t device, rank, size;
  std::atomic<int64_t> timeout_ms;
  std::atomic<bool> failed{false};  // written under the mutex

  std::mutex mutex;
  Comm comm;  // null after it is retired
  bool inside = false;
  bool has_looked_for_peers =
      false;                     // whether find_peers has run; only the stream's thread reads it
  std::unique_ptr<Peers> peers;  // written under the mutex
  std::atomic<int32_t> retiring{0};
  Status cause;
  ErrorText cause_text;
  std::deque<Flight> flights;
  std::vector<cudaEvent_t> events;  // unused ones
  int64_t looked_ns = 0;            // time of the watchdog's last poll
  bool ending = false;              // failed, and no thread waits for the calls in flight
  int64_t failed_ns = 0;            // when the watchdog first saw the failure
  const char* waits_in = "";        // set by expect_end
  int64_t waits_until_ns = 0;
  uint64_t calls = 0, sequence = 0;
  CommRecord records[kRecentCalls] = {};

 private:
  Status take_event(cudaEvent_t* out, ErrorText* error);
  void retire(const std::unique_lock<std::mutex>& held, bool abort);
  void wait_for_calls();
  friend class Turn;
};

// The right to call NCCL with a member's communicator, which is null if the group has failed.
class Turn {
 public:
  explicit Turn(Member& member);
  ~Turn();
  Comm comm;

 private:
  Member& member_;
};

// Waits until NCCL has finished its work on a communicator, and returns its result; kInProgress if
// the member has failed or the time `until_ns` (unless 0) has passed.
Result settle(Member& member, Result result, int64_t until_ns);

// Pause between polls of something that is expected soon: yields first, then sleeps longer and
// longer.
class Backoff {
 public:
  void rest();

 private:
  int64_t begun_ns_ = now_ns();
};

// nccl_run.cc: allocates the buffer of Barrier on a device, before the first one.
Status prepare_barriers(int32_t device, ErrorText* error);

// nccl_watch.cc
void watch(std::shared_ptr<Member> member);
void unwatch(const Member* member);

}  // namespace shardwise::cuda::nccl
