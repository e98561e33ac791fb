// Creates members of process groups, for any engine.
#pragma once
#include <string>

#include "environment.h"
#include "member.h"

namespace shardwise {

// Sets an engine of host memory. On a stream of a GPU the data passes through pinned memory.
void joined_host(Member& member, Stream& stream, const CommEngine* engine, void* handle);

// The call for which a group is created; a failure to join is reported as a failure of that call.
// Empty if there is no such call.
struct FirstCall {
  std::string name, where;
};
// Puts the call before the text, and into its details.
void add_first_call(const FirstCall& call, const Member& member, ErrorText* text);

// Null, with a failure recorded, if the rank has left.
std::shared_ptr<Member> member_argument(napi_env env, int64_t id);

// Creates a member that runs `join` on the stream's thread. If joining fails, its first call fails.
template <class Join>
napi_value new_member(napi_env env, int64_t stream_id, int64_t rank, comm::GroupInfo group_info,
                      int64_t timeout_ms, FirstCall first, Join join,
                      std::unique_ptr<DeviceMembership> devices = nullptr) {
  Environment& state = state_of(env);
  Stream* stream = state.stream(stream_id);
  if (!stream) return fail_call(env, Code::Closed, "the stream is gone");
  const auto size = static_cast<int64_t>(group_info.ranks.size());
  if (size < 1 || rank < 0 || rank >= size || timeout_ms < 1)
    return fail_call(env, Code::Invalid, "the rank is not of the group, or the timeout is invalid");
  auto member = std::make_shared<Member>();
  member->stream = stream;
  member->rank = static_cast<int32_t>(rank);
  member->size = static_cast<int32_t>(size);
  member->group_info = std::move(group_info);
  member->timeout_ms = timeout_ms;
  member->devices = std::move(devices);
  stream->enqueue([member, first, join](Stream& s) {
    ErrorText text;
    const Status status = join(*member, s, &text);
    if (!status.ok()) add_first_call(first, *member, &text);
    if (!status.ok())
      s.set_error(status.code == Code::Unsupported ? status.code : Code::Peer, text);
  });
  state.members[state.next_member] = member;
  return number_value(env, static_cast<double>(state.next_member++));
}

}  // namespace shardwise
