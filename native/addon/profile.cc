#include "profile.h"

#include <unordered_map>

#include "../runtime/cupti.h"
#include "environment.h"

namespace shardwise {

void Profile::end() { Cupti::get().stop(&log); }

Status Profile::start(int64_t rank_runtime, Napi::Value words, bool host_commands,
                      int64_t device_timer, const std::string& candidates,
                      std::string* why_no_cupti, ErrorText* error) {
  const bool fits =
      words.IsArrayBuffer() && words.As<Napi::ArrayBuffer>().ByteLength() >= 2 * sizeof(int32_t);
  if (!fits || device_timer < 0 || device_timer > 2)
    return fail(error, Code::Invalid, "malformed profile");
  auto buffer = words.As<Napi::ArrayBuffer>();
  auto timer = static_cast<DeviceTimer>(device_timer);
  if (!log.is_open()) {
    why_no_cupti_.clear();
    if (timer == DeviceTimer::Cupti) why_no_cupti_ = Cupti::get().start(candidates.c_str(), &log);
    if (!why_no_cupti_.empty()) timer = DeviceTimer::Events;
  }
  if (words_.IsEmpty()) words_ = Napi::Reference<Napi::ArrayBuffer>::New(buffer, 1);
  log.open(rank_runtime, static_cast<int32_t*>(buffer.Data()), timer, host_commands);
  *why_no_cupti = why_no_cupti_;
  return kOk;
}

// CUPTI gives what is complete: the streams must be idle.
bool Profile::devices_done(int64_t rank_runtime) {
  if (log.timer() != DeviceTimer::Cupti) return true;
  for (const auto& stream : state_.streams.all()) {
    if (rank_runtime != 0 && stream->rank_runtime() != rank_runtime) continue;
    bool done = true;
    ErrorText ignored;
    if (stream->backend()->asynchronous && stream->native() &&
        stream->backend()->stream_query(stream->native(), &done, &ignored).ok() && !done)
      return false;
  }
  return true;
}

bool Profile::done(int64_t rank_runtime) {
  for (const auto& stream : state_.streams.all()) stream->flush_waits();
  return log.done(rank_runtime) && devices_done(rank_runtime);
}

namespace {

// Numbers for the texts of a profile.
class Texts {
 public:
  double number(const char* text) {
    const auto [known, is_new] = numbers_.try_emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return static_cast<double>(known->second);
  }
  Napi::Value list(Napi::Env env) const {
    return list_of(env, texts_.size(), [this](size_t i) { return texts_[i]; });
  }

 private:
  std::vector<const char*> texts_;
  std::unordered_map<const char*, size_t> numbers_;
};

// In microseconds, as trace files have them.
double microseconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

}  // namespace

Napi::Value Profile::take() {
  const Napi::Env env = state_.env;
  const SpanLog::Contents contents = log.take();
  if (!log.is_open()) Cupti::get().stop(&log);
  Texts texts;
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
  return object_of(env, {{"names", texts.list(env)},
                         {"commands", buffer_of(env, commands)},
                         {"activities", buffer_of(env, activities)},
                         {"memory", buffer_of(env, memory)}});
}

double Profile::clock() { return microseconds(host_nanoseconds()); }

}  // namespace shardwise
