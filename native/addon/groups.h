// Process groups as JavaScript sees them: small integers. A member's calls (collectives.h) run on one
// stream, in order; joining and leaving are calls too, so that JavaScript never waits for other
// ranks.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "member.h"
#include "parameter.h"

namespace shardwise {

using SharedMember = std::shared_ptr<Member>;

// The call for which a group is created; a failure to join is reported as a failure of that call.
// Empty if there is no such call.
struct FirstCall {
  std::string name, where;
};

// A member that is created: `join` runs on the stream's thread.
struct NewMember {
  int64_t stream, timeout_ms;
  std::function<Status(Member& member, Stream& stream, ErrorText* error)> join;
  int64_t rank = 0;
  comm::GroupInfo group_info{};
  FirstCall first{};
  std::unique_ptr<DeviceMembership> devices{};
};

class Groups {
 public:
  explicit Groups(Environment& state) : state_(state) {}

  // Null if the rank has left.
  SharedMember find(int64_t id) const { return find_in(members_, id); }
  // If joining fails, the first call fails.
  Status add(NewMember member, int64_t* id, ErrorText* error);
  // Fails if there is an unreported failure of a group of this rank.
  Status check(int64_t rank_runtime, ErrorText* error);
  // Marks a failure of the group whose stream it comes from.
  void mark_reported(const Failure& failure, int64_t rank_runtime);
  // Fails calls that wait for other ranks; every member leaves.
  void abort_all(const char* reason);

  // Called by JavaScript.

  // Creates the shared memory of the ranks in words[0 .. size), which share this process.
  Status local_region(int64_t size, int64_t use, const std::string& name, int64_t* id,
                      ErrorText* error);
  void drop_region(int64_t id) { regions_.erase(id); }
  // `world`: its region or member. The ranks are in words[0 .. size).
  Status publish(int64_t world, int64_t rank, int64_t number, int64_t size, const std::string& name,
                 const std::string& where, ErrorText* error);
  // `world`: its region, or 0.
  Status join_local(int64_t region, int64_t rank, int64_t size, int64_t stream, int64_t timeout_ms,
                    int64_t world, int64_t* id, ErrorText* error);
  // For processes of one machine. `world`: its member, or 0; `memory`: the name of the shared memory;
  // `first`, `where`: the first call.
  Status join_shared(int64_t rank, int64_t size, int64_t stream, int64_t timeout_ms, int64_t token,
                     int64_t use, int64_t world, const std::string& memory, const std::string& name,
                     const std::string& first, const std::string& where, int64_t join_timeout_ms,
                     int64_t* id, ErrorText* error);
  // `place`: of the rank that gives up.
  Status abort(SharedMember member, Napi::Value reason, int64_t place, ErrorText* error);
  // Leaves after the calls so far.
  void leave(SharedMember member);

  // Creates a group of the same ranks as those of the host member, for memory of the stream's device;
  // `max_ctas` as of comm_create. The host member leaves with the new one.
  Status join_devices(SharedMember host, int64_t stream, int64_t timeout_ms, bool shares_process,
                      int64_t max_ctas, int64_t* id, ErrorText* error);
  // Every rank of the member's group calls it, with the group of the hosts of its subgroup. Host 0:
  // it gets no subgroup, and the call returns 0.
  Status split_devices(SharedMember whole, int64_t host, int64_t stream, int64_t timeout_ms,
                       int64_t color, const std::string& where, int64_t* id, ErrorText* error);

  // The rank of that runtime compiles `what`, for at most so long. No rank of this environment calls
  // anything until compiled().
  void compiling(const std::string& what, int64_t limit_ms, int64_t rank_runtime);
  void compiled();

 private:
  comm::GroupInfo read_group_info(const std::string& name, int64_t size) const;
  // device_groups.cc
  Status add_devices(SharedMember host, NewMember member, int64_t* id, ErrorText* error);
  // compilation.cc
  template <class Write>
  void write_to_groups(Write write);

  Environment& state_;
  // A member and a region never have the same id.
  std::unordered_map<int64_t, SharedMember> members_;
  std::unordered_map<int64_t, std::shared_ptr<comm::Region>> regions_;  // of ranks of this process
  int64_t next_ = 1;
};

Status find_named(Environment& state, int64_t id, SharedMember* member);
template <>
struct Parameter<SharedMember> : Named<SharedMember> {};

// Sets an engine of host memory. On a stream of a GPU the data passes through pinned memory.
void joined_host(Member& member, Stream& stream, const CommEngine* engine, void* handle);

}  // namespace shardwise
