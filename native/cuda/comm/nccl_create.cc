// Creates groups: an id from one rank, a group of all ranks that know it, and groups of a subset of
// another group's ranks.
#include <cstring>

#include "nccl_describe.h"
#include "nccl_member.h"

namespace shardwise::cuda::nccl {
namespace {

// NCCL's default between four H200s is 24; 32 gather 256 MiB at 317 GB/s instead of 303, 64 at 331.
// Only large messages use so many. A group beside computation may ask for fewer.
constexpr int32_t kCtas = 64;

int64_t deadline(int64_t timeout_ms) {
  return now_ns() + std::min<int64_t>(timeout_ms, int64_t{1} << 40) * 1'000'000;
}

Status not_created(Member& member, Result result, const char* what, int64_t timeout_ms,
                   ErrorText* error) {
  ErrorText text;
  Text message(text);
  message.add("%s on cuda:%d", what, member.device);
  if (result == kInProgress)
    message.add(
        ": the other ranks have not all come (timeout after %lld ms): did one fail or not call it, "
        "has it another id, or is it "
        "only slow and needs a longer timeout?",
        static_cast<long long>(timeout_ms));
  else
    describe_result(message, member.api, result);
  std::unique_lock<std::mutex> lock(member.mutex);
  member.fail_group(lock, Code::Device, text);
  return fail_with(error, Code::Device, text);
}

// Ranks connect by a nonblocking communicator, so that a missing rank is detected. But each of its
// calls starts a thread (70 us, where a small all-reduce takes 13 in all): once all ranks have
// connected, they continue with a blocking one, whose collectives occupy `ctas` multiprocessors.
Result make_calling(Member& met, int32_t ctas, int64_t until, Comm* out) {
  Config config;
  config.blocking = 1;
  config.min_ctas = config.max_ctas = ctas;
  // NCCL writes it at the end of its work, possibly after a timeout.
  Comm* child = new Comm(nullptr);
  Result result;
  {
    Turn turn(met);
    result = met.api.split(turn.comm, 0, met.rank, child, &config);
  }
  if (result == kSuccess) result = kInProgress;
  result = settle(met, result, until);
  if (result == kInProgress) return result;
  *out = *child;
  delete child;
  return result;
}

}  // namespace

Status comm_id(char* out, ErrorText* error) {
  static_assert(sizeof(UniqueId) <= kCommIdBytes);
  const Api* api = nullptr;
  const Status status = need(&api, error);
  if (!status.ok()) return status;
  UniqueId id;
  const Result result = api->unique_id(&id);
  if (result == kSuccess) {
    memcpy(out, id.bytes, sizeof id.bytes);
    return kOk;
  }
  ErrorText text;
  Text message(text);
  message.add("naming a group");
  describe_result(message, *api, result);
  return fail_with(error, Code::Device, text);
}

Status comm_create(int32_t device, const char* id, int32_t rank, int32_t size, int64_t timeout_ms,
                   int32_t max_ctas, void** out, ErrorText* error) {
  const Api* api = nullptr;
  Status status = need(&api, error);
  if (status.ok()) status = use_device(device, error);
  if (status.ok()) status = prepare_barriers(device, error);
  if (!status.ok()) return status;
  UniqueId name;
  memcpy(name.bytes, id, sizeof name.bytes);
  Config config;
  config.blocking = 0;
  Comm comm = nullptr;
  const int32_t ctas = max_ctas > 0 ? max_ctas : kCtas;
  const int64_t until = deadline(timeout_ms);
  Result result = api->init(&comm, size, name, rank, &config);
  const auto member = std::make_shared<Member>(*api, comm, device, rank, size, timeout_ms);
  if (comm) result = settle(*member, result, until);
  if (result == kSuccess) result = make_calling(*member, ctas, until, &comm);
  if (result != kSuccess) return not_created(*member, result, "joining a group", timeout_ms, error);
  member->close();
  const auto calling = std::make_shared<Member>(*api, comm, device, rank, size, timeout_ms);
  watch(calling);
  *out = calling.get();
  return kOk;
}

Status comm_split(void* object, int32_t color, int32_t rank, int64_t timeout_ms, void** out,
                  ErrorText* error) {
  Member& parent = *static_cast<Member*>(object);
  const char* what = "splitting a group";
  *out = nullptr;
  const Status status = use_device(parent.device, error);
  if (!status.ok()) return status;
  // NCCL writes it at the end of its work, possibly after a timeout.
  Comm* child = new Comm(nullptr);
  const int64_t until = deadline(timeout_ms);
  Result result;
  {
    Turn turn(parent);
    if (!turn.comm) {
      delete child;
      return parent.refuse(what, error);
    }
    // It may wait for a dead rank: the watchdog ends it.
    parent.expect_end(what, until);
    result = parent.api.split(turn.comm, color < 0 ? kNoColor : color, rank, child, nullptr);
    parent.expect_end(what, 0);
  }
  // Even if the call itself reports success: the state of the parent decides.
  if (result == kSuccess) result = kInProgress;
  result = settle(parent, result, until);
  if (result != kSuccess && parent.failed.load()) return parent.refuse(what, error);
  if (result != kSuccess) return not_created(parent, result, what, timeout_ms, error);
  Comm comm = *child;
  delete child;
  if (color < 0) return kOk;
  int own_rank = rank, size = 0;
  if (result == kSuccess) result = parent.api.count(comm, &size);
  if (result == kSuccess) result = parent.api.user_rank(comm, &own_rank);
  const auto member =
      std::make_shared<Member>(parent.api, comm, parent.device, own_rank, size, timeout_ms);
  if (result == kSuccess) result = settle(*member, kInProgress, until);
  if (result != kSuccess) return not_created(*member, result, what, timeout_ms, error);
  watch(member);
  *out = member.get();
  return kOk;
}

}  // namespace shardwise::cuda::nccl
