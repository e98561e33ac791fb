// The watchdog: one thread of the process that polls the calls in flight of all members. The thread
// never ends; it is parked, and stops polling when the process exits.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>

#include "../../include/start_thread.h"
#include "nccl_describe.h"
#include "nccl_member.h"

namespace shardwise::cuda::nccl {
namespace {

// A failed group is left to its owner for kKeeperMs, and then kStuckMs to a thread that is still in
// a call of NCCL.
constexpr int64_t kLookMs = 50, kKeeperMs = 2000, kStuckMs = 2500;

struct Watch {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<Member>> members;
  bool started = false;
  std::atomic<bool> looking{false}, stopping{false};
};

Watch& watch_of_process() {
  static auto* created = new Watch;  // never destroyed
  return *created;
}

void keep_looking() {
  Watch& watch = watch_of_process();
  for (;;) {
    std::vector<std::shared_ptr<Member>> members;
    {
      std::unique_lock<std::mutex> lock(watch.mutex);
      watch.changed.wait(lock, [&] { return !watch.members.empty(); });
      members = watch.members;
    }
    watch.looking.store(true);
    for (const auto& member : members)
      if (!watch.stopping.load()) member->look();
    members.clear();  // may destroy them
    watch.looking.store(false);
    usleep(kLookMs * 1000);
  }
}

// CUDA must not be called while it shuts down.
void stop_looking() {
  Watch& watch = watch_of_process();
  watch.stopping.store(true);
  for (int i = 0; i < 200 && watch.looking.load(); i++) usleep(1000);
}

}  // namespace

void watch(std::shared_ptr<Member> member) {
  Watch& watch = watch_of_process();
  std::lock_guard<std::mutex> lock(watch.mutex);
  watch.members.push_back(std::move(member));
  watch.changed.notify_all();
  // without a thread the next group tries again
  if (watch.started || !start_detached(keep_looking)) return;
  std::atexit(stop_looking);
  watch.started = true;
}

void unwatch(const Member* member) {
  Watch& watch = watch_of_process();
  std::lock_guard<std::mutex> lock(watch.mutex);
  const auto is_it = [&](const std::shared_ptr<Member>& other) { return other.get() == member; };
  watch.members.erase(std::remove_if(watch.members.begin(), watch.members.end(), is_it),
                      watch.members.end());
}

void Member::look() {
  if (!use_device(device, nullptr).ok()) return;
  std::unique_lock<std::mutex> lock(mutex);
  const int64_t now = now_ns();
  if (failed.load()) return look_at_failed(lock, now);
  // The time during which the process was stopped (Ctrl-Z, a debugger) does not count.
  const int64_t passed = std::min(now - looked_ns, 4 * kLookMs * 1'000'000);
  looked_ns = now;
  if (!failed.load()) reap(lock, INT32_MAX);
  if (!failed.load() && waits_until_ns != 0 && now > waits_until_ns) return end_wait(lock);
  if (failed.load() || flights.empty()) return;
  Flight& oldest = flights.front();
  if (oldest.begun)
    oldest.waited_ns += passed;
  else
    oldest.begun = cudaEventQuery(oldest.before) == cudaSuccess;
  if (oldest.waited_ns / 1'000'000 >= timeout_ms.load()) return time_out(lock, oldest);
  Result state = kSuccess;
  if (inside || !comm || api.async_error(comm, &state) != kSuccess || state == kSuccess ||
      state == kInProgress)
    return;
  ErrorText text;
  Text message(text);
  describe(message, oldest.record);
  message.add(" on cuda:%d", device);
  describe_result(message, api, state);
  fail_group(lock, Code::Device, text);
}

// A call that connects to ranks which never come does not return by itself, and so never ends its
// turn. NCCL allows another thread to abort it.
void Member::look_at_failed(const std::unique_lock<std::mutex>& held, int64_t now) {
  if (!comm) return;
  if (failed_ns == 0) failed_ns = now;
  const int64_t passed_ms = (now - failed_ns) / 1'000'000;
  if (passed_ms > kKeeperMs && !ending) end_calls(held);
  if (passed_ms > kStuckMs && inside) retire(held, true);
}

void Member::expect_end(const char* what, int64_t until_ns) {
  std::lock_guard<std::mutex> lock(mutex);
  waits_in = what;
  waits_until_ns = until_ns;
}

void Member::end_wait(const std::unique_lock<std::mutex>& held) {
  ErrorText text;
  Text(text).add(
      "%s on cuda:%d: the other ranks have not all done their part within the timeout: one is "
      "lost, or fails before it",
      waits_in, device);
  fail_group(held, Code::Peer, text);
}

void Member::time_out(const std::unique_lock<std::mutex>& held, const Flight& oldest) {
  ErrorText text;
  Text message(text);
  describe(message, oldest.record);
  message.add(": cuda:%d has waited %lld ms for it to %s (timeout after %lld ms)", device,
              static_cast<long long>(oldest.waited_ns / 1'000'000),
              oldest.launched ? "finish" : "connect to the other ranks",
              static_cast<long long>(timeout_ms.load()));
  if (flights.size() > 1) message.add(", %zu later calls behind it", flights.size() - 1);
  message.add(
      ": a rank has not come to this call, made another one, or is lost: compare the last calls of "
      "the ranks. If it is only slow, "
      "give the group a longer timeout");
  fail_group(held, Code::Peer, text);
}

}  // namespace shardwise::cuda::nccl
