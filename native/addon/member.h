// One rank's membership in a process group. The engine's part is made on the native thread of the
// stream, and aborted from any other.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include "../comm/messages.h"
#include "../include/gloo_engine.h"
#include "../runtime/stream.h"

namespace shardwise {

namespace comm {
class FarWatch;
class Region;
}  // namespace comm

struct Member;

// What a member has beside its engine if that is the device's own.
struct DevicePart {
  // The same ranks by their hosts, who find each other there; it leaves with this one.
  std::shared_ptr<Member> meeting;
  // of the device's engine, which the member's engine may only watch
  void* handle = nullptr;
  comm::FarWatch* far = nullptr;  // through which the meeting's calls go from then on
};

// A host's connections in a group, where the ranks are on several machines.
struct Connected {
  const GlooEngine* engine = nullptr;  // null: none
  void* handle = nullptr;
};

struct Member {
  Stream* stream;
  int32_t rank, size;   // its place in the group
  comm::Roster roster;  // what errors call that
  int64_t timeout_ms;
  std::unique_ptr<DevicePart> devices;  // null: of host memory
  Connected connected;                  // written as it joins, and read behind that

  void joined(const CommEngine* made_by, void* made) {
    std::lock_guard<std::mutex> lock(mutex);
    engine = made_by;
    handle = made;
    if (engine) engine->set_timeout(handle, timeout_ms);
    if (engine && aborted) engine->abort(handle, reason.text);
  }
  // What a group of hosts shares; null before it has joined, and where it shares nothing.
  void shares(std::shared_ptr<comm::Region> memory) {
    std::lock_guard<std::mutex> lock(mutex);
    region = std::move(memory);
  }
  std::shared_ptr<comm::Region> shared() {
    std::lock_guard<std::mutex> lock(mutex);
    return region;
  }
  // `place`: of another rank that gives up and may not come to say so; -1: this one.
  void abort(const char* why, int32_t place = -1) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!aborted) {
      Text text(reason);
      comm::describe_abort(text, roster, place < 0 ? rank : place, why);
    }
    aborted = true;
    if (engine) engine->abort(handle, reason.text);
    if (devices) devices->meeting->abort(why, place);
  }
  // Before an engine is there: whether to go on joining.
  bool is_aborted(ErrorText* why = nullptr) {
    std::lock_guard<std::mutex> lock(mutex);
    if (aborted) fail(why, Code::Peer, "%s", reason.text);
    return aborted;
  }
  // Why an engine that reports later has given up; once.
  Status failure(ErrorText* error) {
    std::lock_guard<std::mutex> lock(mutex);
    if (!engine || failed) return kOk;
    const Status status = engine->failure(handle, error);
    failed = !status.ok();
    return status;
  }
  // The failure has been told another way.
  void note_told() {
    ErrorText ignored;
    failure(&ignored);
  }
  // On one thread at a time: its stream's, as it joins and leaves there. That of a group of devices
  // runs the calls of its meeting too, once it has taken it over, and leaves it.
  Status run(const CollectiveCall& call) {
    if (engine) return engine->run(handle, call);
    return fail(call.error, Code::Peer, "%s: this rank could not join the group", call.name);
  }
  // Of a group of devices: a collective of its hosts.
  Status run_on_hosts(const CollectiveCall& call);
  void leave() {
    const CommEngine* left = nullptr;
    {
      // To destroy may take long: JavaScript must not wait for the lock meanwhile.
      std::lock_guard<std::mutex> lock(mutex);
      std::swap(left, engine);
      region.reset();
    }
    // the engine takes both with it
    if (devices) devices->far = nullptr, devices->handle = nullptr;
    if (left) left->destroy(handle);
    if (devices) devices->meeting->leave();
  }

 private:
  std::mutex mutex;
  const CommEngine* engine = nullptr;
  void* handle = nullptr;
  std::shared_ptr<comm::Region> region;
  bool aborted = false, failed = false;
  ErrorText reason;
};

}  // namespace shardwise
