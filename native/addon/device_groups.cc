// Groups of devices with an engine of their own. The ranks find each other through a group of their
// hosts: they exchange the id of a new group, or split a group into several. The group of hosts
// then compares their calls.
#include <future>
#include <string>
#include <vector>

#include "../comm/remote_watchdog.h"
#include "../comm/shm_watchdog.h"
#include "../comm/watchdog_engine.h"
#include "environment.h"

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
  // Waits until the subgroup and the group of its hosts are there; leaves none of them without the
  // other.
  Status take(Rendezvous& hosts, const Backend& backend, ErrorText* why) {
    done.get_future().get();
    const Status reached = hosts.done.get_future().get();
    if (!status.ok()) return fail_with(why, status.code, error);
    if (reached.ok()) return reached;
    backend.comm->destroy(made);
    return fail_with(why, reached.code, hosts.error);
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

// The backend of the stream's device, if it has collectives.
Status find_backend(Stream* stream, const Backend** backend, ErrorText* error) {
  *backend = stream ? stream->backend() : nullptr;
  if (*backend && (*backend)->comm) return kOk;
  return fail(error, Code::Unsupported, "this device has no collectives of its own");
}

}  // namespace

// Adds a member that takes over the group of the hosts.
Status Groups::add_devices(SharedMember host, NewMember member, int64_t* id, ErrorText* error) {
  member.devices = std::make_unique<DeviceMembership>();
  member.devices->rendezvous = host;
  member.rank = host->rank;
  member.group_info = host->group_info;
  const Status status = add(std::move(member), id, error);
  if (status.ok()) members_.erase(host->id);
  return status;
}

Status Groups::join_devices(SharedMember host, int64_t stream, int64_t timeout_ms,
                            bool shares_process, int64_t max_ctas, int64_t* id, ErrorText* error) {
  if (max_ctas < 0 || max_ctas > INT32_MAX)
    return fail(error, Code::Invalid, "a group cannot occupy so many multiprocessors");
  const Backend* backend = nullptr;
  const Status found = find_backend(state_.streams.find(stream), &backend, error);
  if (!found.ok()) return found;
  auto exchange = std::make_shared<IdExchange>();
  host->stream->enqueue(
      [host, exchange, backend](Stream& s) { exchange->run(*host, s, *backend); });
  const auto create = [=](Member& member, Stream& s, void** made, ErrorText* why) {
    const Status known = exchange->done.get_future().get();
    if (!known.ok()) return fail_with(why, known.code, exchange->error);
    const Status ready = shares_process ? backend->comm_prepare(s.device(), why) : kOk;
    if (!ready.ok()) return ready;
    return backend->comm_create(s.device(), exchange->bytes + 1, member.rank, member.size,
                                member.timeout_ms, static_cast<int32_t>(max_ctas), made, why);
  };
  const auto join = [backend, create](Member& member, Stream& s, ErrorText* why) {
    void* made = nullptr;
    const Status status = create(member, s, &made, why);
    return begin(member, *backend, status, made, why);
  };
  return add_devices(host, {stream, timeout_ms, join}, id, error);
}

Status Groups::split_devices(SharedMember whole, int64_t host_id, int64_t stream,
                             int64_t timeout_ms, int64_t color, const std::string& where,
                             int64_t* id, ErrorText* error) {
  const Backend* backend = nullptr;
  const Status found = find_backend(whole->stream, &backend, error);
  if (!found.ok()) return found;
  if (!whole->devices || !backend->comm_split)
    return fail(error, Code::Unsupported, "the engine of this group does not split it");
  auto split = std::make_shared<Split>();
  split->timeout_ms = timeout_ms;
  split->where = where;
  *id = 0;
  if (host_id != 0) {
    SharedMember host;
    const Status known = find_named(state_, host_id, &host);
    if (!known.ok()) return known;
    if (color < 0 || color > INT32_MAX)
      return fail(error, Code::Invalid, "a part has no such color");
    split->color = color;
    split->rank = host->rank;
    split->size = host->size;
    auto rendezvous = std::make_shared<Rendezvous>();
    const auto join = [split, rendezvous, backend](Member& member, Stream&, ErrorText* why) {
      const Status status = split->take(*rendezvous, *backend, why);
      return begin(member, *backend, status, split->made, why);
    };
    const Status added = add_devices(host, {stream, timeout_ms, join}, id, error);
    if (!added.ok()) return added;
    host->stream->enqueue([host, rendezvous](Stream& s) { rendezvous->run(*host, s); });
  }
  whole->stream->enqueue([whole, split, backend](Stream& s) { split->run(*whole, s, *backend); });
  return kOk;
}

}  // namespace shardwise
