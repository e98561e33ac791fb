#include "failure.h"

#include "flight_recorder.h"
#include "values.h"

namespace shardwise {

namespace {

// Calls `visit` with each rank.
template <int32_t kMost, class Visit>
void for_ranks(const RankRanges<kMost>& ranks, Visit visit) {
  for (int32_t i = 0; i < ranks.count; i++)
    for (int32_t rank = ranks.ranges[i].first; rank <= ranks.ranges[i].last; rank++) visit(rank);
}

Napi::Object memory_value(Napi::Env env, const MemoryDetails& memory) {
  return object_of(env, {{"requestedBytes", to_value(env, memory.requested)},
                         {"allocatedBytes", to_value(env, memory.allocated)},
                         {"reservedBytes", to_value(env, memory.reserved)},
                         {"freeBytes", to_value(env, memory.free)},
                         {"totalBytes", to_value(env, memory.total)}});
}

Napi::Object call_value(Napi::Env env, const CallOfRanks& call, int32_t rank) {
  return object_of(env, {{"rank", to_value(env, rank)},
                         {"op", to_value(env, call.op)},
                         {"where", to_value(env, call.where)}});
}

Napi::Object collective_value(Napi::Env env, const CollectiveDetails& details) {
  std::vector<int32_t> blamed;
  for_ranks(details.blamed, [&](int32_t rank) { blamed.push_back(rank); });
  std::vector<Napi::Object> calls;
  for (int32_t i = 0; i < details.num_calls; i++)
    for_ranks(details.calls[i].ranks,
              [&](int32_t rank) { calls.push_back(call_value(env, details.calls[i], rank)); });
  return object_of(env,
                   {{"op", to_value(env, details.op)},
                    {"group", to_value(env, details.group)},
                    {"sequence", to_value(env, details.sequence)},
                    {"ranks", list_of(env, blamed.size(), [&](size_t i) { return blamed[i]; })},
                    {"calls", list_of(env, calls.size(), [&](size_t i) { return calls[i]; })}});
}

}  // namespace

Napi::Object failure_value(Napi::Env env, Code code, const ErrorText& error) {
  constexpr const char* names[] = {"SW_OK",     "SW_INVALID",  "SW_OUT_OF_MEMORY",
                                   "SW_INDEX",  "SW_DEVICE",   "SW_UNSUPPORTED",
                                   "SW_CLOSED", "SW_NO_VALUE", "SW_PEER"};
  const FailureDetails& details = error.details;
  Napi::Object object =
      object_of(env, {{"code", to_value(env, names[static_cast<int>(code)])},
                      {"message", to_value(env, error.text)},
                      {"id", to_value(env, details.id)},
                      {"namesCreations", to_value(env, details.names_creations != 0)}});
  if (details.kind == DetailsKind::Memory) set(object, "memory", memory_value(env, details.memory));
  if (details.kind == DetailsKind::Collective)
    set(object, "collective", collective_value(env, details.collective));
  if (const std::string path = flight::path_of(details.id); !path.empty())
    set(object, "flightRecord", to_value(env, path));
  return object;
}

}  // namespace shardwise
