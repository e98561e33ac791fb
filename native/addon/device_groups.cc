// Groups of devices with an engine of their own. The ranks find each other through a group of their
// hosts: they exchange the id of a new group, or split a group into several. The group of hosts
// then compares their calls.
#include <future>
#include <string>
#include <vector>

#include "../comm/remote_watchdog.h"
#include "../comm/shm_watchdog.h"
#include "../comm/watchdog_engine.h"
#include "join.h"

namespace shardwise {

Status Member::run_on_hosts(const CollectiveCall& call) {
  return devices->remote ? devices->remote->run(call) : devices->rendezvous->run(call);
}

namespace {

ErrorText reason_of(const char* what, const ErrorText& cause) {
  ErrorText reason;
  Text(reason).add("%s: ", what).add_cause(cause);
  return reason;
}

// Broadcasts the id of a new group of devices from rank 0, through the group of the hosts.
struct IdExchange {
  char bytes[1 + kCommIdBytes] = {};  // the first byte: whether rank 0 created an id
  ErrorText error;
  std::promise<Status> done;

  void run(Member& host, Stream& s, const Backend& backend) {
    Failed why;
    if (s.skips(&why)) {
      host.abort(reason_of("a rank failed before it joined a group of devices", why.text));
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
    if (!status.ok())
      error = text;
    else if (!bytes[0] && host.rank != 0)
      fail(&error, Code::Peer, "rank %d could not make a group of devices",
           host.group_info.rank_at(0));
    done.set_value(status.ok() && !bytes[0] ? Status{Code::Peer} : status);
  }
};

// Completes when the hosts have joined their group, on the stream of this rank.
struct Rendezvous {
  ErrorText error;
  std::promise<Status> done;

  void run(Member& host, Stream& s) {
    Failed why;
    if (!s.skips(&why)) return done.set_value(kOk);
    host.abort(reason_of("a rank failed before it joined a group of devices", why.text));
    error = why.text;
    done.set_value(Status{Code::Peer});
  }
};

// Splits a group of devices. Each subgroup has a unique color; without a color this rank gets no
// subgroup.
struct Split {
  int64_t color = -1;
  int32_t rank = 0, size = 0;
  int64_t timeout_ms = 0;
  std::string where;
  void* made = nullptr;
  Status status;
  ErrorText error;
  std::promise<void> done;

  // Runs on the stream of the whole group, between its calls: all ranks split it in one order with
  // them.
  void run(Member& whole, Stream& s, const Backend& backend) {
    bool is_needed = false;
    status = agree(whole, s, &is_needed);
    if (status.ok() && is_needed)
      status = backend.comm_split(whole.devices->handle, static_cast<int32_t>(color), rank,
                                  timeout_ms, &made, &error);
    done.set_value();
  }

 private:
  // A device's engine waits forever for a rank that does not come, or hangs later in a subgroup
  // that lacks one. So the hosts exchange first what they want: either all continue or none.
  Status agree(Member& whole, Stream& s, bool* is_needed) {
    Failed why;
    if (s.skips(&why)) {
      whole.abort(reason_of("a rank failed before it split a group of devices", why.text));
      error = why.text;
      return Status{Code::Peer};
    }
    if (!whole.devices->handle)
      return fail(&error, Code::Peer,
                  "DeviceMesh: this rank could not join the group of all ranks");
    const int64_t own[] = {color, size};
    std::vector<int64_t> all(2 * static_cast<size_t>(whole.size)),
        counts(static_cast<size_t>(whole.size), 2);
    CollectiveCall call{};
    call.kind = Collective::AllGather;
    call.dtype = DType::Int64;
    call.in = own;
    call.out = all.data();
    call.counts = counts.data();
    call.name = "DeviceMesh";
    call.where = where.c_str();
    call.error = &error;
    const Status reached = whole.run_on_hosts(call);
    return reached.ok() ? check(whole.group_info, all, is_needed) : reached;
  }

  Status check(const comm::GroupInfo& group_info, const std::vector<int64_t>& all,
               bool* is_needed) {
    for (size_t i = 0; i < all.size(); i += 2) {
      if (all[i] < 0) continue;
      *is_needed = true;
      int64_t came = 0;
      for (size_t j = 0; j < all.size(); j += 2) came += all[j] == all[i];
      if (came == all[i + 1]) continue;
      return fail(
          &error, Code::Peer,
          "DeviceMesh%s%s: the ranks make different meshes: rank %d expects %lld of them in its "
          "group, and %lld make one. Make the same meshes in the same order on all ranks.",
          where.empty() ? "" : " at ", where.c_str(),
          group_info.rank_at(static_cast<int32_t>(i / 2)), static_cast<long long>(all[i + 1]),
          static_cast<long long>(came));
    }
    return kOk;
  }
};

// The watchdog of a group whose hosts have joined; null for a single rank without connections.
std::unique_ptr<comm::Watchdog> watch_of(Member& member) {
  DeviceMembership& part = *member.devices;
  Member& host = *part.rendezvous;
  const auto region = host.shared();
  if (region && region->has_watchdogs())
    return std::make_unique<comm::ShmWatchdog>(region, host.shared_by_world(), member.rank);
  if (!host.connected.engine) return nullptr;
  auto remote = std::make_unique<comm::RemoteWatchdog>(host.connected.engine, host.connected.handle,
                                                       member.group_info, member.rank, member.size);
  part.remote = remote.get();
  return remote;
}

// Fails the group of the hosts, so that no rank waits for this one.
void decline(Member& host, Status status, const ErrorText& error) {
  const auto region = host.shared();
  if (region && region->has_watchdogs())
    region->fail_group(status.code, error);
  else if (host.connected.engine)
    host.connected.engine->fail(host.connected.handle, status.code, error);
}

// Sets the member of the device's engine with its watchdog, or fails.
Status begin(Member& member, const Backend& backend, Status status, void* made, ErrorText* error) {
  if (!status.ok()) {
    decline(*member.devices->rendezvous, status, *error);
    return status;
  }
  member.devices->handle = made;
  auto watch = watch_of(member);
  if (watch)
    member.joined(&comm::kWatchdogEngine,
                  comm::watchdog_member(std::move(watch), backend.comm, made));
  else
    member.joined(backend.comm, made);
  return status;
}

// Creates a member that takes over the group of the hosts, by its id. `make(member, stream,
// &handle, error)` runs on the stream's thread.
template <class Make>
napi_value new_device_member(napi_env env, int64_t rendezvous_id, int64_t stream,
                             int64_t timeout_ms, const Backend* backend, Make make) {
  auto part = std::make_unique<DeviceMembership>();
  const auto rendezvous = part->rendezvous = member_argument(env, rendezvous_id);
  if (!rendezvous) return nullptr;
  const auto join = [backend, make](Member& member, Stream& s, ErrorText* error) {
    void* made = nullptr;
    const Status status = make(member, s, &made, error);
    return begin(member, *backend, status, made, error);
  };
  napi_value id = new_member(env, stream, rendezvous->rank, rendezvous->group_info, timeout_ms, {},
                             join, std::move(part));
  if (id) state_of(env).members.erase(rendezvous_id);
  return id;
}

// The backend of the stream's device, if it has collectives; else null, with a failure recorded.
const Backend* device_backend(napi_env env, Stream* stream) {
  const Backend* backend = stream ? stream->backend() : nullptr;
  if (backend && backend->comm) return backend;
  fail_call(env, Code::Unsupported, "this device has no collectives of its own");
  return nullptr;
}

// joinDevices(host member, stream, timeoutMs, sharesProcess, maxCtas): a group of the same ranks for
// memory of the stream's device; maxCtas as of comm_create. The host member leaves with the new one.
napi_value join_devices(napi_env env, napi_callback_info info) {
  int64_t args[5];
  if (!read_integers(env, info, 5, args)) return nullptr;
  if (args[4] < 0 || args[4] > INT32_MAX)
    return fail_call(env, Code::Invalid, "a group cannot occupy so many multiprocessors");
  auto host = member_argument(env, args[0]);
  if (!host) return nullptr;
  const Backend* backend = device_backend(env, state_of(env).stream(args[1]));
  if (!backend) return nullptr;
  auto exchange = std::make_shared<IdExchange>();
  host->stream->enqueue(
      [host, exchange, backend](Stream& s) { exchange->run(*host, s, *backend); });
  const bool shares_process = args[3] != 0;
  const auto max_ctas = static_cast<int32_t>(args[4]);
  return new_device_member(
      env, args[0], args[1], args[2], backend,
      [exchange, backend, shares_process, max_ctas](Member& member, Stream& s, void** made,
                                                    ErrorText* error) {
        const Status known = exchange->done.get_future().get();
        const Status ready =
            known.ok() && shares_process ? backend->comm_prepare(s.device(), error) : kOk;
        if (!ready.ok()) return ready;
        if (known.ok())
          return backend->comm_create(s.device(), exchange->bytes + 1, member.rank, member.size,
                                      member.timeout_ms, max_ctas, made, error);
        *error = exchange->error;
        return known;
      });
}

// splitDevices(member, host member or 0, stream, timeoutMs, color, where): every rank of the
// member's group calls it, with the group of the hosts of its subgroup. 0: it gets no subgroup, and
// the call returns 0.
napi_value split_devices(napi_env env, napi_callback_info info) {
  int64_t args[6];
  napi_value raw[6] = {};
  if (!read_integers(env, info, 6, args, raw, 1 << 5)) return nullptr;
  auto whole = member_argument(env, args[0]);
  if (!whole) return nullptr;
  const Backend* backend = device_backend(env, whole->stream);
  if (!backend) return nullptr;
  if (!whole->devices || !backend->comm_split)
    return fail_call(env, Code::Unsupported, "the engine of this group does not split it");
  auto split = std::make_shared<Split>();
  split->timeout_ms = args[3];
  split->where = string_argument(env, raw[5]);
  napi_value id = nullptr;
  if (args[1] == 0) {
    id = number_value(env, 0);
  } else {
    auto host = member_argument(env, args[1]);
    if (!host) return nullptr;
    if (args[4] < 0 || args[4] > INT32_MAX)
      return fail_call(env, Code::Invalid, "a part has no such color");
    split->color = args[4];
    split->rank = host->rank;
    split->size = host->size;
    auto rendezvous = std::make_shared<Rendezvous>();
    id = new_device_member(
        env, args[1], args[2], args[3], backend,
        [split, rendezvous, backend](Member&, Stream&, void** made, ErrorText* error) {
          split->done.get_future().get();
          const Status reached = rendezvous->done.get_future().get();
          if (split->status.ok() && !reached.ok()) backend->comm->destroy(split->made);
          const Status status = split->status.ok() ? reached : split->status;
          if (status.ok())
            *made = split->made;
          else
            *error = split->status.ok() ? rendezvous->error : split->error;
          return status;
        });
    if (!id) return nullptr;
    host->stream->enqueue([host, rendezvous](Stream& s) { rendezvous->run(*host, s); });
  }
  whole->stream->enqueue([whole, split, backend](Stream& s) { split->run(*whole, s, *backend); });
  return id;
}

}  // namespace

void export_device_groups(napi_env env, napi_value exports) {
  export_function<join_devices>(env, exports, "joinDevices");
  export_function<split_devices>(env, exports, "splitDevices");
}

}  // namespace shardwise
