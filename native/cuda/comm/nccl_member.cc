#include "nccl_member.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

#include "../../include/start_thread.h"
#include "nccl_describe.h"

namespace shardwise::cuda::nccl {
namespace {

// How long destroy waits for calls in flight, and then for NCCL, which may wait for other ranks to
// leave too.
constexpr int64_t kFlightsMs = 10'000, kLeaveMs = 5'000;
constexpr int64_t kYieldNs = 200'000;

void sleep_ns(int64_t ns) {
  const timespec time = {static_cast<time_t>(ns / 1'000'000'000),
                         static_cast<long>(ns % 1'000'000'000)};
  nanosleep(&time, nullptr);
}

}  // namespace

int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void Backoff::rest() {
  const int64_t waited = now_ns() - begun_ns_;
  if (waited < kYieldNs)
    sched_yield();
  else
    sleep_ns(std::clamp<int64_t>(waited / 16, 20'000, 1'000'000));
}

// ---- turns -------------------------------------------------------------------------------------

Turn::Turn(Member& member) : member_(member) {
  std::lock_guard<std::mutex> lock(member.mutex);
  comm = member.failed.load() ? nullptr : member.comm;
  member.inside = comm != nullptr;
}

Turn::~Turn() {
  if (!comm) return;
  std::unique_lock<std::mutex> lock(member_.mutex);
  member_.inside = false;
  if (member_.ending) member_.retire(lock, true);
}

Result settle(Member& member, Result result, int64_t until_ns) {
  for (Backoff backoff; result == kInProgress; backoff.rest()) {
    if (until_ns != 0 && now_ns() > until_ns) break;
    Turn turn(member);
    if (!turn.comm) break;
    const Result asked = member.api.async_error(turn.comm, &result);
    if (asked != kSuccess) result = asked;
    if (result != kInProgress) break;
  }
  return result;
}

// ---- calls in flight ---------------------------------------------------------------------------

Status Member::take_event(cudaEvent_t* out, ErrorText* error) {
  if (events.empty()) {
    SW_TRY(error, cudaEventCreateWithFlags(out, cudaEventDisableTiming));
    return kOk;
  }
  *out = events.back();
  events.pop_back();
  return kOk;
}

Status Member::begin(const CollectiveCall& call, cudaStream_t stream) {
  Flight flight = {};
  flight.record = record_of(call, rank, size);
  if (failed.load()) {
    flight.record.sequence = is_message(call.kind) ? sequence : ++sequence;
    ErrorText what;
    Text words(what);
    describe(words, flight.record);
    return refuse(what.text, call.error);
  }
  std::unique_lock<std::mutex> lock(mutex);
  reap(lock, 4);  // more than one call adds, so few accumulate between two polls of the watchdog
  Status status = take_event(&flight.before, call.error);
  if (status.ok()) status = take_event(&flight.after, call.error);
  if (!status.ok()) return status;
  SW_TRY(call.error, cudaEventRecord(flight.before, stream));
  if (!is_message(call.kind)) sequence++;
  flight.record.sequence = sequence;
  flight.index = calls++;
  records[flight.index % kRecentCalls] = flight.record;
  flights.push_back(flight);
  return kOk;
}

Status Member::finish(cudaStream_t stream, ErrorText* error) {
  std::unique_lock<std::mutex> lock(mutex);
  // calls are added one at a time, and only launched ones are removed
  Flight& flight = flights.back();
  SW_TRY(error, cudaEventRecord(flight.after, stream));
  flight.launched = true;
  records[flight.index % kRecentCalls].state = CommState::Launched;
  return kOk;
}

// Removes completed calls from the front.
void Member::reap(const std::unique_lock<std::mutex>& held, int32_t most) {
  for (; most > 0 && !flights.empty() && flights.front().launched; most--) {
    Flight& flight = flights.front();
    const cudaError_t code = cudaEventQuery(flight.after);
    if (code == cudaErrorNotReady || code == cudaErrorCudartUnloading) return;
    if (code != cudaSuccess) {
      cudaGetLastError();
      ErrorText text;
      Text message(text);
      describe(message, flight.record);
      message.add(": the GPU reports %s (CUDA error %d), of this call or of a kernel before it",
                  cudaGetErrorString(code), static_cast<int>(code));
      // NCCL cannot free anything in a lost context, and the process has to restart.
      comm = nullptr;
      return fail_group(held, Code::Device, text);
    }
    if (calls - flight.index <= kRecentCalls)
      records[flight.index % kRecentCalls].state = CommState::Complete;
    events.push_back(flight.before);
    events.push_back(flight.after);
    flights.pop_front();
  }
}

// ---- failure -----------------------------------------------------------------------------------

// The group's owner or the watchdog aborts the calls in flight: a kernel that NCCL aborts continues
// to write, so that the kernels of other ranks end as if they had succeeded, and those ranks have
// to learn of the failure first.
void Member::fail_group(const std::unique_lock<std::mutex>&, Code code, const ErrorText& why) {
  if (failed.load()) return;
  cause = fail_with(&cause_text, code, why);
  with_id(cause_text);
  failed.store(true);
}

void Member::end_calls(const std::unique_lock<std::mutex>& held) {
  ending = true;
  if (peers) peers->stop();
  if (!inside) retire(held, true);
}

Status Member::failure(ErrorText* error) {
  if (!failed.load()) return kOk;
  std::lock_guard<std::mutex> lock(mutex);
  return fail_with(error, cause.code, cause_text);
}

Status Member::refuse(const char* what, ErrorText* error) {
  ErrorText why;
  const Status status = failure(&why);
  if (error) Text(*error).add("%s: the group has failed before: ", what).add_cause(why);
  return status;
}

// ---- the end -----------------------------------------------------------------------------------

// Frees the communicator on a thread of its own: abort waits for kernels to end, destroy for other
// ranks.
void Member::retire(const std::unique_lock<std::mutex>&, bool abort) {
  Comm last = comm;
  comm = nullptr;
  if (!last) return;
  if (abort && peers) {
    peers->stop();
    peers.release();  // a call may be about to use them
  }
  retiring++;
  const bool started =
      start_detached([self = shared_from_this(), kept = std::move(peers), last, abort]() mutable {
        if (use_device(self->device, nullptr).ok()) {
          abort ? self->api.abort(last) : self->api.destroy(last);
          if (kept) Peers::leave(std::move(kept));
        }
        self->retiring--;
      });
  if (!started) retiring--;  // no thread is available: the communicator leaks
}

// Waits until all calls are complete, or one has failed or takes too long.
void Member::wait_for_calls() {
  const int64_t until = now_ns() + kFlightsMs * 1'000'000;
  for (Backoff backoff; !failed.load(); backoff.rest()) {
    look();
    std::unique_lock<std::mutex> lock(mutex);
    if (flights.empty()) return;
    if (now_ns() < until) continue;
    ErrorText text;
    Text message(text);
    describe(message, flights.front().record);
    message.add(": the group was destroyed before this call was done");
    return fail_group(lock, Code::Closed, text);
  }
}

void Member::close() {
  wait_for_calls();
  {
    std::unique_lock<std::mutex> lock(mutex);
    Result state = kSuccess;
    // A destroy that NCCL refuses would leave its group calls open on the thread.
    const bool well =
        !failed.load() && comm && api.async_error(comm, &state) == kSuccess && state == kSuccess;
    if (!failed.load()) {
      cause = fail(&cause_text, Code::Closed, "the group was destroyed");
      failed.store(true);
    }
    if (!inside) retire(lock, !well);
  }
  const int64_t until = now_ns() + kLeaveMs * 1'000'000;
  for (Backoff backoff; retiring.load() > 0 && now_ns() < until;) backoff.rest();
}

Member::~Member() {
  if (!use_device(device, nullptr).ok()) return;
  for (const Flight& flight : flights) {
    cudaEventDestroy(flight.before);
    cudaEventDestroy(flight.after);
  }
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  cudaGetLastError();
}

// ---- the engine --------------------------------------------------------------------------------

namespace {

Member& member_of(void* object) { return *static_cast<Member*>(object); }

Status run(void* object, const CollectiveCall& call) { return member_of(object).run(call); }

void abort(void* object, const ErrorText& reason) {
  Member& member = member_of(object);
  std::unique_lock<std::mutex> lock(member.mutex);
  member.fail_group(lock, Code::Closed, reason);
  member.end_calls(lock);
}

Status failure(void* object, ErrorText* error) { return member_of(object).failure(error); }

void set_timeout(void* object, int64_t milliseconds) {
  member_of(object).timeout_ms.store(milliseconds);
}

void destroy(void* object) {
  const std::shared_ptr<Member> member = member_of(object).shared_from_this();
  unwatch(member.get());
  member->close();
}

}  // namespace

const CommEngine* engine() {
  static const CommEngine filled = {"nccl", run, abort, failure, set_timeout, destroy, recent};
  return &filled;
}

int32_t recent(void* object, CommRecord* out, int32_t most) {
  Member& member = member_of(object);
  std::unique_lock<std::mutex> lock(member.mutex);
  if (!member.failed.load() && use_device(member.device, nullptr).ok())
    member.reap(lock, INT32_MAX);
  const uint64_t kept = std::min<uint64_t>(member.calls, std::min(std::max(most, 0), kRecentCalls));
  for (uint64_t i = 0; i < kept; i++)
    out[i] = member.records[(member.calls - kept + i) % kRecentCalls];
  return static_cast<int32_t>(kept);
}

}  // namespace shardwise::cuda::nccl
