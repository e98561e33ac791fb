// Profiles: JavaScript opens the log of its environment, and takes what was recorded as numbers.
#include <cstring>
#include <unordered_map>

#include "../runtime/cupti.h"
#include "environment.h"

namespace shardwise {

namespace {

// profileStart(rank runtime, words, host commands, device timer, candidates): the reason why CUPTI is
// not used, or ''.
napi_value profile_start(napi_env env, napi_callback_info info) {
  int64_t args[5];
  napi_value raw[5] = {};
  if (!read_integers(env, info, 5, args, raw, 1 << 1 | 1 << 4)) return nullptr;
  void* words = nullptr;
  size_t length = 0;
  if (napi_get_arraybuffer_info(env, raw[1], &words, &length) != napi_ok ||
      length < 2 * sizeof(int32_t) || args[3] < 0 || args[3] > 2)
    return fail_call(env, Code::Invalid, "malformed profile");
  Environment& state = state_of(env);
  auto timer = static_cast<DeviceTimer>(args[3]);
  if (!state.log.is_open()) {
    std::string& reason = state.why_no_cupti;
    reason.clear();
    if (timer == DeviceTimer::Cupti)
      reason = Cupti::get().start(string_argument(env, raw[4]).c_str(), &state.log);
    if (!reason.empty()) timer = DeviceTimer::Events;
  }
  if (!state.profile_words) napi_create_reference(env, raw[1], 1, &state.profile_words);
  state.log.open(args[0], static_cast<int32_t*>(words), timer, args[2] != 0);
  return text_value(env, state.why_no_cupti.c_str());
}

// profileStop(rank runtime): no more of its commands get a number.
napi_value profile_stop(napi_env env, napi_callback_info info) {
  int64_t rank_runtime;
  if (read_integers(env, info, 1, &rank_runtime)) state_of(env).log.close(rank_runtime);
  return nullptr;
}

// CUPTI gives what is complete: the streams must be idle.
bool devices_done(Environment& state, int64_t rank_runtime) {
  if (state.log.timer() != DeviceTimer::Cupti) return true;
  for (const auto& stream : state.streams) {
    if (rank_runtime != 0 && stream->rank_runtime() != rank_runtime) continue;
    bool done = true;
    ErrorText ignored;
    if (stream->backend()->asynchronous && stream->native() &&
        stream->backend()->stream_query(stream->native(), &done, &ignored).ok() && !done)
      return false;
  }
  return true;
}

// profileDone(rank runtime): whether all of its commands that are recorded have run.
napi_value profile_done(napi_env env, napi_callback_info info) {
  int64_t rank_runtime;
  if (!read_integers(env, info, 1, &rank_runtime)) return nullptr;
  Environment& state = state_of(env);
  for (const auto& stream : state.streams) stream->flush_waits();
  return boolean_value(env, state.log.done(rank_runtime) && devices_done(state, rank_runtime));
}

class Texts {
 public:
  explicit Texts(napi_env env) : env_(env) { napi_create_array(env, &list_); }

  double number(const char* text) {
    const auto [known, is_new] = numbers_.try_emplace(text, numbers_.size());
    if (is_new)
      napi_set_element(env_, list_, static_cast<uint32_t>(known->second), text_value(env_, text));
    return static_cast<double>(known->second);
  }
  napi_value list() const { return list_; }

 private:
  napi_env env_;
  napi_value list_ = nullptr;
  std::unordered_map<const char*, size_t> numbers_;
};

napi_value buffer_of(napi_env env, const std::vector<double>& numbers) {
  void* data = nullptr;
  napi_value buffer = nullptr;
  const size_t bytes = numbers.size() * sizeof(double);
  if (napi_create_arraybuffer(env, bytes, &data, &buffer) == napi_ok && bytes > 0)
    std::memcpy(data, numbers.data(), bytes);
  return buffer;
}

// In microseconds, as trace files have them.
double microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

napi_value profile_take(napi_env env, napi_callback_info) {
  Environment& state = state_of(env);
  const SpanLog::Contents contents = state.log.take();
  if (!state.log.is_open()) Cupti::get().stop(&state.log);
  Texts texts(env);
  std::vector<double> commands, activities, memory;
  for (const Span& span : contents.spans)
    commands.insert(
        commands.end(),
        {static_cast<double>(span.command), static_cast<double>(span.op), texts.number(span.name),
         span.is_kernel ? 1.0 : 0.0, span.at_once ? 1.0 : 0.0, static_cast<double>(span.together),
         static_cast<double>(span.device), static_cast<double>(span.stream),
         static_cast<double>(span.rank_runtime), microseconds(span.start), microseconds(span.end)});
  for (const Activity& each : contents.activities)
    activities.insert(
        activities.end(),
        {static_cast<double>(each.command), static_cast<double>(each.kind), texts.number(each.name),
         static_cast<double>(each.device), static_cast<double>(each.queue),
         static_cast<double>(each.bytes), microseconds(each.start), microseconds(each.end)});
  for (const MemoryChange& each : contents.memory)
    memory.insert(memory.end(),
                  {static_cast<double>(each.op), static_cast<double>(each.device),
                   static_cast<double>(each.rank_runtime), static_cast<double>(each.bytes),
                   static_cast<double>(each.allocated), static_cast<double>(each.reserved),
                   microseconds(each.time)});
  napi_value result = nullptr;
  napi_create_object(env, &result);
  set_property(env, result, "names", texts.list());
  set_property(env, result, "commands", buffer_of(env, commands));
  set_property(env, result, "activities", buffer_of(env, activities));
  set_property(env, result, "memory", buffer_of(env, memory));
  return result;
}

napi_value profile_clock(napi_env env, napi_callback_info) {
  return number_value(env, microseconds(host_nanoseconds()));
}

}  // namespace

void export_profile(napi_env env, napi_value exports) {
  export_function<profile_start>(env, exports, "profileStart");
  export_function<profile_stop>(env, exports, "profileStop");
  export_function<profile_done>(env, exports, "profileDone");
  export_function<profile_take>(env, exports, "profileTake");
  export_function<profile_clock>(env, exports, "profileClock");
}

}  // namespace shardwise
