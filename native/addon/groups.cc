#include "groups.h"

#include <algorithm>

#include "../comm/call_record.h"
#include "../comm/group_registry.h"
#include "../comm/host_engine.h"
#include "../comm/messages.h"
#include "../comm/staged_engine.h"
#include "environment.h"

namespace shardwise {

Status find_named(Environment& state, int64_t id, SharedMember* member) {
  *member = state.groups.find(id);
  return *member ? kOk : fail(error_of(state), Code::Closed, "this rank has left the group");
}

// The group of the ranks in words[0 .. size).
comm::GroupInfo Groups::read_group_info(const std::string& name, int64_t size) const {
  comm::GroupInfo group_info{name, {}};
  for (int64_t i = 0; i < size && i < kMostWords; i++)
    group_info.ranks.push_back(static_cast<int32_t>(to_integer(state_.words[i])));
  return group_info;
}

namespace {

// Puts the call before the text, and into its details.
void add_first_call(const FirstCall& call, const Member& member, ErrorText* text) {
  if (call.name.empty()) return;
  const ErrorText why = *text;
  Text message(*text);
  const comm::Site site = comm::site_of({call.name.c_str(), call.where.c_str()});
  message.add("%s", site.name);
  comm::describe_place(message, site);
  message.add(": ").add_cause(why);
  comm::CallRecord record = {};
  record.print.call = 1;
  record.site = site;
  // the text already names the group
  const comm::GroupInfo group_info{"", member.group_info.ranks};
  comm::DetailsWriter(group_info, record, member.rank).add_to(message);
}

}  // namespace

Status Groups::add(NewMember made, int64_t* id, ErrorText* error) {
  Stream* stream = state_.streams.find(made.stream);
  if (!stream) return fail(error, Code::Closed, "the stream is gone");
  const auto size = static_cast<int64_t>(made.group_info.ranks.size());
  if (size < 1 || made.rank < 0 || made.rank >= size || made.timeout_ms < 1)
    return fail(error, Code::Invalid, "the rank is not of the group, or the timeout is invalid");
  const Status started = stream->require_thread(error);
  if (!started.ok()) return started;
  auto member = std::make_shared<Member>();
  member->id = *id = next_++;
  member->stream = stream;
  member->rank = static_cast<int32_t>(made.rank);
  member->size = static_cast<int32_t>(size);
  member->group_info = std::move(made.group_info);
  member->timeout_ms = made.timeout_ms;
  member->devices = std::move(made.devices);
  flight::add(*member);
  stream->enqueue([member, first = made.first, join = made.join](Stream& s) {
    ErrorText text;
    const Status status = join(*member, s, &text);
    if (status.ok()) return;
    add_first_call(first, *member, &text);
    if (status.code != Code::Unsupported) flight::write(text);
    s.set_error(status.code == Code::Unsupported ? status.code : Code::Peer, text);
  });
  members_[*id] = std::move(member);
  return kOk;
}

namespace {

bool fits(const comm::GroupInfo& group_info, const comm::Origin& origin) {
  for (int32_t rank : group_info.ranks)
    if (origin.region && (rank < 0 || rank >= origin.region->size())) return false;
  return true;
}

Status join_host(Member& member, Stream& stream, const std::shared_ptr<comm::Region>& region,
                 comm::Origin origin, ErrorText* error) {
  std::unique_ptr<comm::HostGroup> group;
  const auto world = origin.region;
  const Status status =
      comm::HostGroup::join(region, member.rank, &group, error, std::move(origin));
  if (!status.ok()) return status;
  member.shares(region, world);
  joined_host(member, stream, &comm::kHostEngine, group.release());
  return status;
}

bool is_use(int64_t use) { return use >= 0 && use <= static_cast<int64_t>(comm::Use::Rendezvous); }

}  // namespace

Status Groups::local_region(int64_t size, int64_t use, const std::string& name, int64_t* id,
                            ErrorText* error) {
  if (!is_use(use)) return fail(error, Code::Invalid, "a group has no such use");
  std::shared_ptr<comm::Region> region;
  const Status status =
      comm::Region::in_process(static_cast<int32_t>(size), 0, &region, error,
                               static_cast<comm::Use>(use), read_group_info(name, size));
  if (!status.ok()) return status;
  *id = next_++;
  regions_[*id] = std::move(region);
  return kOk;
}

Status Groups::publish(int64_t world_id, int64_t rank, int64_t number, int64_t size,
                       const std::string& name, const std::string& where, ErrorText* error) {
  std::shared_ptr<comm::Region> world = find_in(regions_, world_id);
  if (const SharedMember member = find(world_id); !world && member) world = member->shared();
  if (!world || !world->has_registries() || rank < 0 || rank >= world->size()) return kOk;
  return comm::publish_group(*world, static_cast<int32_t>(rank), static_cast<uint64_t>(number),
                             read_group_info(name, size), where.c_str(), error);
}

Status Groups::join_local(int64_t region_id, int64_t rank, int64_t size, int64_t stream,
                          int64_t timeout_ms, int64_t world, int64_t* id, ErrorText* error) {
  const auto region = find_in(regions_, region_id);
  if (!region) return fail(error, Code::Closed, "the group's memory is gone");
  if (region->size() != size)
    return fail(error, Code::Invalid,
                "other ranks have made this group of another number of ranks. All ranks make "
                "their groups of the same ranks, in one order");
  const comm::Origin origin{find_in(regions_, world), {}};
  if (!fits(region->group_info(), origin))
    return fail(error, Code::Invalid, "a rank is not of the world");
  const auto join = [region, origin](Member& member, Stream& s, ErrorText* why) {
    return join_host(member, s, region, origin, why);
  };
  return add({stream, timeout_ms, join, rank, region->group_info()}, id, error);
}

namespace {

// What a rank of several processes joins.
struct SharedMemory {
  std::string name;
  uint64_t token;
  comm::Use use;
  int64_t timeout_ms;
  SharedMember world;

  Status operator()(Member& member, Stream& s, ErrorText* error) const {
    const auto has_given_up = [&member](ErrorText* why) {
      ErrorText reason;
      if (!member.is_aborted(&reason)) return false;
      Text text(*why);
      text.add("group \"%s\": ", member.group_info.name.c_str()).add_cause(reason);
      return true;
    };
    const comm::Origin origin{world ? world->shared() : nullptr, has_given_up};
    if (!fits(member.group_info, origin))
      return fail(error, Code::Invalid, "a rank is not of the world");
    comm::SegmentOptions options;
    options.name = name.c_str();
    options.token = token;
    options.size = member.size;
    options.rank = member.rank;
    options.timeout_ms = timeout_ms;
    options.use = use;
    options.group_info = member.group_info;
    options.origin = &origin;
    std::shared_ptr<comm::Region> region;
    const Status status = comm::Region::between_processes(options, &region, error);
    return status.ok() ? join_host(member, s, region, origin, error) : status;
  }
};

}  // namespace

Status Groups::join_shared(int64_t rank, int64_t size, int64_t stream, int64_t timeout_ms,
                           int64_t token, int64_t use, int64_t world, const std::string& memory,
                           const std::string& name, const std::string& first,
                           const std::string& where, int64_t join_timeout_ms, int64_t* id,
                           ErrorText* error) {
  if (!is_use(use)) return fail(error, Code::Invalid, "a group has no such use");
  const SharedMemory join{memory, static_cast<uint64_t>(token), static_cast<comm::Use>(use),
                          join_timeout_ms, find(world)};
  return add({stream, timeout_ms, join, rank, read_group_info(name, size), {first, where}}, id,
             error);
}

namespace {

constexpr uint32_t kMostItems = 4096;  // the longest list in a reason

uint32_t length_of(Napi::Value list) {
  return list.IsArray() ? std::min(list.As<Napi::Array>().Length(), kMostItems) : 0;
}

int32_t rank_of(Napi::Value value) {
  const int64_t rank = to_integer(value);
  return rank >= 0 && rank <= INT32_MAX ? static_cast<int32_t>(rank) : 0;
}

// Reads what `encodeReason` of lib/native/failure.ts wrote. Elements of arrays are read, because
// reading a property may run JavaScript that throws.
void read_reason(Napi::Value given, ErrorText* reason) {
  Text text(*reason);
  text.add("%s", text_of(element(given, 0)).c_str());
  const Napi::Value ranks = element(given, 3), calls = element(given, 4);
  const comm::GroupInfo world{"", {}};
  comm::DetailsWriter details(world);
  for (uint32_t i = 0; i < length_of(ranks); i++)
    details.blame(rank_of(element(ranks, i)), nullptr);
  for (uint32_t i = 0; i < length_of(calls); i++) {
    const Napi::Value call = element(calls, i);
    const std::string op = text_of(element(call, 1)), where = text_of(element(call, 2));
    details.knows(rank_of(element(call, 0)), comm::site_of({op.c_str(), where.c_str()}));
  }
  if (length_of(ranks) + length_of(calls) > 0) details.add_to(text);
  reason->details.id = static_cast<uint64_t>(std::max<int64_t>(to_integer(element(given, 1)), 0));
  reason->details.names_creations = to_integer(element(given, 2)) == 1 ? 1 : 0;
}

}  // namespace

Status Groups::abort(SharedMember member, Napi::Value given, int64_t place, ErrorText* error) {
  if (place < 0 || place >= member->size)
    return fail(error, Code::Invalid, "the rank is not of the group");
  ErrorText reason;
  read_reason(given, &reason);
  member->abort(reason, static_cast<int32_t>(place));
  return kOk;
}

void Groups::leave(SharedMember member) {
  members_.erase(member->id);
  member->stream->enqueue([member](Stream&) { member->leave(); });
}

void joined_host(Member& member, Stream& stream, const CommEngine* engine, void* handle) {
  if (!stream.backend()->asynchronous) return member.joined(engine, handle);
  member.joined(&comm::kStagedEngine,
                comm::staged_member(engine, handle, member.rank, member.size, stream.backend()));
}

// Results of a failed group are undefined, and so are values computed from them.
Status Groups::check(int64_t rank_runtime, ErrorText* error) {
  Status worst = kOk;
  for (auto& [id, member] : members_) {
    if (member->stream->rank_runtime() != rank_runtime) continue;
    Failure failure;
    failure.status = member->failure(&failure.text);
    if (failure.status.ok()) continue;
    flight::write(with_id(failure.text));
    failure.first = 1;
    failure.origin = member->stream;
    state_.storages.lose_results(*member->stream, failure);
    state_.streams.mark_reported(failure, rank_runtime);
    member->stream->give_up(failure);
    worst = Status{Code::Peer};
    *error = failure.text;
  }
  return worst;
}

void Groups::mark_reported(const Failure& failure, int64_t rank_runtime) {
  for (auto& [id, member] : members_)
    if (member->stream == failure.origin && member->stream->rank_runtime() == rank_runtime)
      member->mark_reported();
}

void Groups::abort_all(const char* reason) {
  ErrorText why = error_text(reason);
  with_id(why);
  for (auto& [id, member] : members_) member->abort(why);
  for (auto& [id, member] : members_)
    member->stream->enqueue([m = member](Stream&) { m->leave(); });
  members_.clear();
  regions_.clear();
}

}  // namespace shardwise
