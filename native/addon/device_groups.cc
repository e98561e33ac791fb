// Groups of devices by an engine of their own. Their ranks find each other by a group of their hosts, which compares afterwards what they
// call.
#include <future>
#include <string>

#include "../comm/far_watch.h"
#include "../comm/watch_group.h"
#include "../comm/watched_engine.h"
#include "join.h"

namespace shardwise {

Status Member::run_on_hosts(const CollectiveCall& call) { return devices->far ? devices->far->run(call) : devices->meeting->run(call); }

namespace {

// The name of a new group of devices on its way from rank 0 to all, through the group of their hosts.
struct IdExchange {
  char bytes[1 + kCommIdBytes] = {};  // the first one: whether rank 0 has made one
  ErrorText error;
  std::promise<Status> done;

  void run(Member& host, Stream& s, const Backend& backend) {
    Failed why;
    if (s.skips(&why)) {
      host.abort("a rank failed before it joined a group of devices");
      error = why.text;
      return done.set_value(Status{Code::Peer});
    }
    if (host.rank == 0) bytes[0] = backend.comm_id(bytes + 1, &error).ok() ? 1 : 0;
    CollectiveCall call{};
    call.kind = Collective::Broadcast;
    call.dtype = DType::UInt8;
    call.count = sizeof bytes;
    call.in = call.out = bytes;
    call.name = "the set-up of a group of devices";
    call.where = "";
    ErrorText text;
    call.error = &text;
    const Status status = host.run(call);
    if (!status.ok()) error = text;
    else if (!bytes[0] && host.rank != 0) fail(&error, Code::Peer, "rank 0 could not make a group of devices");
    done.set_value(status.ok() && !bytes[0] ? Status{Code::Peer} : status);
  }
};

// What compares the calls of a group whose hosts have met; null for one of a single rank over nothing.
std::unique_ptr<comm::CallWatch> watch_of(Member& member) {
  DevicePart& part = *member.devices;
  Member& host = *part.meeting;
  const auto region = host.shared();
  if (region && region->watched()) return std::make_unique<comm::WatchGroup>(region, member.rank);
  if (!host.connected.engine) return nullptr;
  auto far = std::make_unique<comm::FarWatch>(host.connected.engine, host.connected.handle, host.connected.label, member.rank, member.size);
  part.far = far.get();
  return far;
}

// Those who wait for this rank, or will, need not.
void decline(Member& host, Status status, const ErrorText& error) {
  const auto region = host.shared();
  if (region && region->watched()) region->fail_group(status.code, error.text);
  else if (host.connected.engine) host.connected.engine->fail(host.connected.handle, status.code, error.text);
}

// A member of the device's engine, or why there is none, and its watch.
Status begin(Member& member, const Backend& backend, Status status, void* made, ErrorText* error) {
  if (!status.ok()) {
    decline(*member.devices->meeting, status, *error);
    return status;
  }
  member.devices->handle = made;
  auto watch = watch_of(member);
  if (watch) member.joined(&comm::kWatchedEngine, comm::watched_member(std::move(watch), backend.comm, made));
  else member.joined(backend.comm, made);
  return status;
}

// A member that takes the meeting over, by its id. `make(member, stream, &handle, error)` runs on the stream's thread.
template <class Make>
napi_value new_device_member(napi_env env, int64_t meeting_id, int64_t stream, int64_t timeout_ms, const Backend* backend, Make make) {
  auto part = std::make_unique<DevicePart>();
  const auto meeting = part->meeting = member_argument(env, meeting_id);
  if (!meeting) return nullptr;
  const auto join = [backend, make](Member& member, Stream& s, ErrorText* error) {
    void* made = nullptr;
    const Status status = make(member, s, &made, error);
    return begin(member, *backend, status, made, error);
  };
  napi_value id = new_member(env, stream, meeting->rank, meeting->size, timeout_ms, join, std::move(part));
  if (id) state_of(env).members.erase(meeting_id);
  return id;
}

// Of the stream's device, with collectives of its own; throws and returns null for another.
const Backend* device_backend(napi_env env, Stream* stream) {
  const Backend* backend = stream ? stream->backend() : nullptr;
  if (backend && backend->comm) return backend;
  throw_error(env, Code::Unsupported, "this device has no collectives of its own");
  return nullptr;
}

// joinDevices(host member, stream, timeoutMs): the same ranks, for memory of the stream's device. It leaves with the new member.
napi_value join_devices(napi_env env, napi_callback_info info) {
  int64_t args[3];
  if (!read_integers(env, info, 3, args)) return nullptr;
  auto host = member_argument(env, args[0]);
  if (!host) return nullptr;
  const Backend* backend = device_backend(env, state_of(env).stream(args[1]));
  if (!backend) return nullptr;
  auto exchange = std::make_shared<IdExchange>();
  host->stream->enqueue([host, exchange, backend](Stream& s) { exchange->run(*host, s, *backend); });
  return new_device_member(env, args[0], args[1], args[2], backend, [exchange, backend](Member& member, Stream& s, void** made, ErrorText* error) {
    const Status known = exchange->done.get_future().get();
    if (known.ok()) return backend->comm_create(s.device(), exchange->bytes + 1, member.rank, member.size, member.timeout_ms, made, error);
    *error = exchange->error;
    return known;
  });
}

}  // namespace

void export_device_groups(napi_env env, napi_value exports) { export_function(env, exports, "joinDevices", join_devices); }

}  // namespace shardwise
