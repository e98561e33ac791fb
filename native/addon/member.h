// The membership of a rank in a process group. The engine's member is created on the native thread
// of the stream; any thread may abort it.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../comm/messages.h"
#include "../comm/watchdog_engine.h"
#include "../include/collective_parts.h"
#include "../include/gloo_engine.h"
#include "../runtime/stream.h"
#include "flight_record.h"
#include "flight_recorder.h"

namespace shardwise {

namespace comm {
class RemoteWatchdog;
class Region;
}  // namespace comm

struct Member;

// The state of a member with an engine of its device.
struct DeviceMembership {
  // The group of the hosts of these ranks, through which they find each other; leaves with this
  // member.
  std::shared_ptr<Member> rendezvous;
  // the member of the device's engine; the watchdog engine may wrap it
  void* handle = nullptr;
  comm::RemoteWatchdog* remote = nullptr;  // runs the calls of the hosts from then on
};

// The member of a group across machines.
struct Connected {
  const GlooEngine* engine = nullptr;  // null if there are no connections
  void* handle = nullptr;
};

struct Member {
  Member() = default;
  ~Member() { flight::remove(*this); }
  Member(const Member&) = delete;

  int64_t id;  // for JavaScript
  Stream* stream;
  int32_t rank, size;          // the rank in the group
  comm::GroupInfo group_info;  // for errors
  int64_t timeout_ms;
  std::unique_ptr<DeviceMembership> devices;  // null for host memory
  Connected connected;                        // written while joining, read afterwards
  FlightRecord record;

  void joined(const CommEngine* made_by, void* made) {
    std::lock_guard<std::mutex> lock(mutex);
    engine = made_by;
    handle = made;
    if (engine) engine->set_timeout(handle, timeout_ms);
    if (engine && aborted) engine->abort(handle, reason);
  }
  // Shared memory of a group of hosts, and of its world; null before it has joined, and if it
  // shares none.
  void shares(std::shared_ptr<comm::Region> memory, std::shared_ptr<comm::Region> of_world) {
    std::lock_guard<std::mutex> lock(mutex);
    region = std::move(memory);
    world = std::move(of_world);
  }
  std::shared_ptr<comm::Region> shared() {
    std::lock_guard<std::mutex> lock(mutex);
    return region;
  }
  std::shared_ptr<comm::Region> shared_by_world() {
    std::lock_guard<std::mutex> lock(mutex);
    return world;
  }
  // The memory that the ranks share, if any; with `at_once` also not if another thread has the lock.
  template <class Visit>
  void visit_memory(bool at_once, Visit visit) {
    std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
    if (at_once ? !lock.try_lock() : (lock.lock(), false)) return;
    if (region) visit(*region);
  }
  // `place`: another rank that gives up, if it may not come to say so; -1: this rank.
  void abort(const ErrorText& why, int32_t place = -1) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!aborted) {
      Text text(reason);
      comm::describe_abort(text, group_info, place < 0 ? rank : place, why);
      with_id(reason);
    }
    aborted = true;
    if (engine) engine->abort(handle, reason);
    if (devices) devices->rendezvous->abort(why, place);
  }
  // Polled while joining: true gives up.
  bool is_aborted(ErrorText* why = nullptr) {
    std::lock_guard<std::mutex> lock(mutex);
    if (aborted) fail_with(why, Code::Peer, reason);
    return aborted;
  }
  // The failure of an engine that reports later; returned once.
  Status failure(ErrorText* error) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!engine || failed) return kOk;
    const Status status = engine->failure(handle, error);
    failed = !status.ok();
    return status;
  }
  // Marks the failure as reported in another way.
  void mark_reported() {
    ErrorText ignored;
    failure(&ignored);
  }
  // Called on one thread at a time, its stream's. The stream of a group of devices also runs the
  // calls of its hosts once it has taken them over. `limit_ms`: how long this call waits for other
  // ranks, if not as long as all calls; only for engines that wait in `run`. `shown` is recorded.
  Status run(const CollectiveCall& call, int64_t limit_ms = 0, const ShownCall* shown = nullptr) {
    if (!engine)
      return fail(call.error, Code::Peer, "%s: this rank could not join the group", call.name);
    if (limit_ms == 0) return run_parts(call, shown);
    engine->set_timeout(handle, limit_ms);
    const Status status = run_parts(call, shown);
    engine->set_timeout(handle, timeout_ms);
    return status;
  }
  // Runs a collective of the hosts of a group of devices.
  Status run_on_hosts(const CollectiveCall& call);
  void leave() {
    const CommEngine* left = nullptr;
    {
      // destroy may take long: JavaScript must not wait for the lock meanwhile.
      std::lock_guard<std::mutex> lock(mutex);
      std::swap(left, engine);
      region.reset();
      world.reset();
    }
    // the engine destroys both
    if (devices) devices->remote = nullptr, devices->handle = nullptr;
    if (left) left->destroy(handle);
    if (devices) devices->rendezvous->leave();
  }

 private:
  // Only the engines of devices, behind a watchdog, take several parts at once.
  Status run_parts(const CollectiveCall& call, const ShownCall* shown) {
    if (count_parts(call) == 0 || engine == &comm::kWatchdogEngine) return run_one(call, shown);
    std::vector<int64_t> counts(size);
    return run_each_part(call, size, counts.data(),
                         [&](const CollectiveCall& part) { return run_one(part, shown); });
  }
  Status run_one(const CollectiveCall& call, const ShownCall* shown) {
    if (!shown) return engine->run(handle, call);
    record.begin(call, *shown);
    const Status status = engine->run(handle, call);
    if (status.ok()) record.end();
    return status;
  }

  std::mutex mutex;
  const CommEngine* engine = nullptr;
  void* handle = nullptr;
  std::shared_ptr<comm::Region> region, world;
  bool aborted = false, failed = false;
  ErrorText reason;
};

}  // namespace shardwise
