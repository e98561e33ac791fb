// Process groups as JavaScript sees them: small integers. A member's calls (collective_calls.cc) run
// on one stream, in order; joining and leaving are calls too, so that JavaScript never waits for
// other ranks.
#include <algorithm>
#include <string>

#include "../comm/call_record.h"
#include "../comm/group_registry.h"
#include "../comm/host_engine.h"
#include "../comm/messages.h"
#include "../comm/staged_engine.h"
#include "gloo_world.h"
#include "join.h"

namespace shardwise {

namespace {

// The group of the ranks in words[0 .. size).
comm::GroupInfo read_group_info(Environment& state, std::string name, int64_t size) {
  comm::GroupInfo group_info{std::move(name), {}};
  for (int64_t i = 0; i < size && i < kWordBytes / 8; i++)
    group_info.ranks.push_back(static_cast<int32_t>(to_integer(state.words[i])));
  return group_info;
}

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

// localRegion(size, use, group): creates the shared memory of the ranks in words[0 .. size), which
// share this process.
napi_value local_region(napi_env env, napi_callback_info info) {
  int64_t args[3];
  napi_value raw[3] = {};
  if (!read_integers(env, info, 3, args, raw, 1 << 2)) return nullptr;
  if (!is_use(args[1])) return fail_call(env, Code::Invalid, "a group has no such use");
  ErrorText error;
  std::shared_ptr<comm::Region> region;
  Environment& state = state_of(env);
  const auto group_info = read_group_info(state, string_argument(env, raw[2]), args[0]);
  const Status status = comm::Region::in_process(static_cast<int32_t>(args[0]), 0, &region, &error,
                                                 static_cast<comm::Use>(args[1]), group_info);
  if (!status.ok()) return fail_call(env, status.code, error);
  state.regions[state.next_member] = region;
  return number_value(env, static_cast<double>(state.next_member++));
}

napi_value drop_region(napi_env env, napi_callback_info info) {
  int64_t id;
  if (read_integers(env, info, 1, &id)) state_of(env).regions.erase(id);
  return nullptr;
}

// publishGroup(the world's region or member, rank, number, size, name, where): the ranks are in
// words[0 .. size).
napi_value publish_group(napi_env env, napi_callback_info info) {
  int64_t args[6];
  napi_value raw[6] = {};
  if (!read_integers(env, info, 6, args, raw, 0b110000)) return nullptr;
  Environment& state = state_of(env);
  const auto found = state.regions.find(args[0]);
  const auto member = state.members.find(args[0]);
  const auto world = found != state.regions.end()    ? found->second
                     : member != state.members.end() ? member->second->shared()
                                                     : nullptr;
  if (!world || !world->has_registries() || args[1] < 0 || args[1] >= world->size()) return nullptr;
  ErrorText error;
  const auto group_info = read_group_info(state, string_argument(env, raw[4]), args[3]);
  const Status status =
      comm::publish_group(*world, static_cast<int32_t>(args[1]), static_cast<uint64_t>(args[2]),
                          group_info, string_argument(env, raw[5]).c_str(), &error);
  return status.ok() ? nullptr : fail_call(env, status.code, error);
}

// joinLocal(region, rank, size, stream, timeoutMs, the world's region or 0)
napi_value join_local(napi_env env, napi_callback_info info) {
  int64_t args[6];
  if (!read_integers(env, info, 6, args)) return nullptr;
  Environment& state = state_of(env);
  const auto found = state.regions.find(args[0]);
  if (found == state.regions.end())
    return fail_call(env, Code::Closed, "the group's memory is gone");
  auto region = found->second;
  if (region->size() != args[2])
    return fail_call(env, Code::Invalid,
                     "other ranks have made this group of another number of ranks. All ranks make "
                     "their groups of the same ranks, in one order");
  const auto world = state.regions.find(args[5]);
  const comm::Origin origin{world == state.regions.end() ? nullptr : world->second, {}};
  if (!fits(region->group_info(), origin))
    return fail_call(env, Code::Invalid, "a rank is not of the world");
  return new_member(env, args[3], args[1], region->group_info(), args[4], {},
                    [region, origin](Member& member, Stream& s, ErrorText* error) {
                      return join_host(member, s, region, origin, error);
                    });
}

// joinShared(rank, size, stream, timeoutMs, token, use, the world's member or 0, name, group,
// first, where, joinTimeoutMs): for processes of one machine.
napi_value join_shared(napi_env env, napi_callback_info info) {
  int64_t args[12];
  napi_value raw[12] = {};
  if (!read_integers(env, info, 12, args, raw, 0b11110000000)) return nullptr;
  if (!is_use(args[5])) return fail_call(env, Code::Invalid, "a group has no such use");
  const std::string name = string_argument(env, raw[7]);
  const int64_t join_timeout = args[11];
  const auto token = static_cast<uint64_t>(args[4]);
  const auto use = static_cast<comm::Use>(args[5]);
  Environment& state = state_of(env);
  const auto known = state.members.find(args[6]);
  const std::shared_ptr<Member> world = known == state.members.end() ? nullptr : known->second;
  const FirstCall first{string_argument(env, raw[9]), string_argument(env, raw[10])};
  return new_member(
      env, args[2], args[0], read_group_info(state, string_argument(env, raw[8]), args[1]), args[3],
      first, [=](Member& member, Stream& s, ErrorText* error) {
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
        options.timeout_ms = join_timeout;
        options.use = use;
        options.group_info = member.group_info;
        options.origin = &origin;
        std::shared_ptr<comm::Region> region;
        const Status status = comm::Region::between_processes(options, &region, error);
        return status.ok() ? join_host(member, s, region, origin, error) : status;
      });
}

constexpr uint32_t kMostItems = 4096;  // the longest list in a reason

uint32_t length_of(napi_env env, napi_value list) {
  uint32_t length = 0;
  return napi_get_array_length(env, list, &length) == napi_ok ? std::min(length, kMostItems) : 0;
}

int32_t rank_value(napi_env env, napi_value value) {
  double number = 0;
  napi_get_value_double(env, value, &number);
  const int64_t rank = to_integer(number);
  return rank >= 0 && rank <= INT32_MAX ? static_cast<int32_t>(rank) : 0;
}

// Reads what `encodeReason` of lib/native/failure.ts wrote. Elements of arrays are read, because
// reading a property may run JavaScript that throws.
void read_reason(napi_env env, napi_value given, ErrorText* reason) {
  Text text(*reason);
  text.add("%s", string_argument(env, element(env, given, 0)).c_str());
  const napi_value ranks = element(env, given, 3), calls = element(env, given, 4);
  const comm::GroupInfo world{"", {}};
  comm::DetailsWriter details(world);
  for (uint32_t i = 0; i < length_of(env, ranks); i++)
    details.blame(rank_value(env, element(env, ranks, i)), nullptr);
  for (uint32_t i = 0; i < length_of(env, calls); i++) {
    const napi_value call = element(env, calls, i);
    const std::string op = string_argument(env, element(env, call, 1)),
                      where = string_argument(env, element(env, call, 2));
    details.knows(rank_value(env, element(env, call, 0)),
                  comm::site_of({op.c_str(), where.c_str()}));
  }
  if (length_of(env, ranks) + length_of(env, calls) > 0) details.add_to(text);
  double id = 0;
  bool names_creations = false;
  napi_get_value_double(env, element(env, given, 1), &id);
  napi_get_value_bool(env, element(env, given, 2), &names_creations);
  reason->details.id = id > 0 && id < 9007199254740992.0 ? static_cast<uint64_t>(id) : 0;
  reason->details.names_creations = names_creations ? 1 : 0;
}

// abortGroup(member, reason, place of the rank that gives up)
napi_value abort_group(napi_env env, napi_callback_info info) {
  int64_t args[3];
  napi_value raw[3] = {};
  if (!read_integers(env, info, 3, args, raw, 1 << 1)) return nullptr;
  auto member = member_argument(env, args[0]);
  if (!member) return nullptr;
  if (args[2] < 0 || args[2] >= member->size)
    return fail_call(env, Code::Invalid, "the rank is not of the group");
  ErrorText reason;
  read_reason(env, raw[1], &reason);
  member->abort(reason, static_cast<int32_t>(args[2]));
  return nullptr;
}

// leaveGroup(member): leaves after the calls so far.
napi_value leave_group(napi_env env, napi_callback_info info) {
  int64_t id;
  if (!read_integers(env, info, 1, &id)) return nullptr;
  auto member = member_argument(env, id);
  if (!member) return nullptr;
  state_of(env).members.erase(id);
  member->stream->enqueue([member](Stream&) { member->leave(); });
  return nullptr;
}

}  // namespace

std::shared_ptr<Member> member_argument(napi_env env, int64_t id) {
  auto& members = state_of(env).members;
  const auto found = members.find(id);
  if (found != members.end()) return found->second;
  fail_call(env, Code::Closed, "this rank has left the group");
  return nullptr;
}

void joined_host(Member& member, Stream& stream, const CommEngine* engine, void* handle) {
  if (!stream.backend()->asynchronous) return member.joined(engine, handle);
  member.joined(&comm::kStagedEngine,
                comm::staged_member(engine, handle, member.rank, member.size, stream.backend()));
}

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

// Results of a failed group are undefined, and so are values computed from them.
Status Environment::check_groups(int64_t rank_runtime, ErrorText* error) {
  Status worst = kOk;
  for (auto& [id, member] : members) {
    if (member->stream->rank_runtime() != rank_runtime) continue;
    Failure failure;
    failure.status = member->failure(&failure.text);
    if (failure.status.ok()) continue;
    with_id(failure.text);
    failure.first = 1;
    failure.origin = member->stream;
    lose_results(*member->stream, failure);
    mark_reported(failure, rank_runtime);
    member->stream->give_up(failure);
    worst = Status{Code::Peer};
    *error = failure.text;
  }
  return worst;
}

void abort_all_groups(Environment& state, const char* reason) {
  ErrorText why = error_text(reason);
  with_id(why);
  for (auto& [id, member] : state.members) member->abort(why);
  for (auto& [id, member] : state.members)
    member->stream->enqueue([m = member](Stream&) { m->leave(); });
  state.members.clear();
  state.regions.clear();
  state.worlds.clear();
}

void export_groups(napi_env env, napi_value exports) {
  export_function<local_region>(env, exports, "localRegion");
  export_function<drop_region>(env, exports, "dropRegion");
  export_function<publish_group>(env, exports, "publishGroup");
  export_function<join_local>(env, exports, "joinLocal");
  export_function<join_shared>(env, exports, "joinShared");
  export_function<abort_group>(env, exports, "abortGroup");
  export_function<leave_group>(env, exports, "leaveGroup");
}

}  // namespace shardwise
