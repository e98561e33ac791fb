#include "span_log.h"

#include <chrono>
#include <limits>
#include <set>

#include "cupti.h"
#include "stream.h"

namespace shardwise {

namespace {
constexpr int kOriginTries = 10;
}  // namespace

int64_t host_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

SpanLog::~SpanLog() {
  for (auto& [device, events] : events_)
    for (void* event : events) device_backend_->event_destroy(event);
  for (auto& [device, origin] : origins_)
    if (origin.event) device_backend_->event_destroy(origin.event);
}

void SpanLog::open(int64_t rank_runtime, int32_t* words, DeviceTimer timer, bool host_commands) {
  ranks_.insert(rank_runtime);
  if (words_) return;
  words_ = words;
  timer_ = timer;
  host_commands_ = host_commands;
  // Clocks drift apart.
  std::lock_guard<SpinLock> lock(mutex_);
  for (const auto& [device, origin] : origins_)
    if (origin.event) events_[device].push_back(origin.event);
  origins_.clear();
}

void SpanLog::close(int64_t rank_runtime) {
  ranks_.erase(rank_runtime);
  if (ranks_.empty()) words_ = nullptr;
}

uint32_t SpanLog::issue(const Stream& stream) {
  if (!records(stream.rank_runtime())) return 0;
  if (stream.backend()->asynchronous ? timer_ == DeviceTimer::None : !host_commands_) return 0;
  ops_.push_back(static_cast<uint32_t>(words_[0]));
  words_[1] = static_cast<int32_t>(next_);
  std::lock_guard<SpinLock> lock(mutex_);
  running_[stream.rank_runtime()]++;
  return next_++;
}

void SpanLog::remember(MemoryChange change) {
  if (!records(change.rank_runtime)) return;
  change.op = static_cast<uint32_t>(words_[0]);
  change.time = host_nanoseconds();
  changes_.push_back(change);
}

void SpanLog::begin(const Stream& stream, Span& span) {
  if (stream.backend()->asynchronous && timer_ == DeviceTimer::Events) {
    find_origin(stream);
    span.before = take_event(stream);
  }
  if (stream.backend()->asynchronous && timer_ == DeviceTimer::Cupti)
    Cupti::get().begin(span.command);
  span.start = host_nanoseconds();
}

void SpanLog::end(const Stream& stream, Span& span) {
  span.end = host_nanoseconds();
  if (span.before) span.after = take_event(stream);
  if (stream.backend()->asynchronous && timer_ == DeviceTimer::Cupti) Cupti::get().end();
  add(stream, span);
}

void SpanLog::add(const Stream& stream, Span& span) {
  span.device = stream.device_code();
  span.stream = stream.id();
  span.rank_runtime = stream.rank_runtime();
  std::lock_guard<SpinLock> lock(mutex_);
  spans_.push_back(span);
  running_[span.rank_runtime]--;
}

// Kernels that pass the same elements in turn have no times of their own.
void SpanLog::add_together(const Stream& stream, const KernelCall* const* calls,
                           const uint32_t* commands, int32_t count, int64_t start) {
  const auto passed = static_cast<double>(host_nanoseconds() - start);
  double total = 0, before = 0;
  for (int32_t i = 0; i < count; i++) total += static_cast<double>(calls[i]->output(0).numel);
  for (int32_t i = 0; i < count; i++) {
    Span span{.command = commands[i],
              .is_kernel = true,
              .together = count,
              .name = stream.backend()->kernels[calls[i]->kernel].name};
    span.start = start + static_cast<int64_t>(passed * before / total);
    before += static_cast<double>(calls[i]->output(0).numel);
    span.end = start + static_cast<int64_t>(passed * before / total);
    if (span.command) add(stream, span);
  }
}

// Records an event behind what the stream has launched; null if the device has none left.
void* SpanLog::take_event(const Stream& stream) {
  const Backend& backend = *stream.backend();
  void* event = nullptr;
  {
    std::lock_guard<SpinLock> lock(mutex_);
    std::vector<void*>& unused = events_[stream.device_code()];
    if (!unused.empty()) {
      event = unused.back();
      unused.pop_back();
    }
  }
  ErrorText ignored;
  if (!event && !backend.event_create(stream.device(), true, &event, &ignored).ok()) return nullptr;
  if (backend.event_record(event, stream.native(), &ignored).ok()) return event;
  backend.event_destroy(event);
  return nullptr;
}

// Of several tries the one in which the host knows best when the device was there.
void SpanLog::find_origin(const Stream& stream) {
  {
    std::lock_guard<SpinLock> lock(mutex_);
    device_backend_ = stream.backend();
    if (!origins_.try_emplace(stream.device_code()).second) return;
  }
  Origin best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kOriginTries; i++) {
    const int64_t before = host_nanoseconds();
    void* event = take_event(stream);
    ErrorText ignored;
    if (!event || !stream.backend()->event_synchronize(event, &ignored).ok()) continue;
    const int64_t passed = host_nanoseconds() - before;
    void* spare = event;
    if (passed < least) {
      spare = best.event;
      best = {event, before + passed / 2};
      least = passed;
    }
    std::lock_guard<SpinLock> lock(mutex_);
    if (spare) events_[stream.device_code()].push_back(spare);
  }
  std::lock_guard<SpinLock> lock(mutex_);
  origins_[stream.device_code()] = best;
}

bool SpanLog::done(int64_t rank_runtime) {
  std::lock_guard<SpinLock> lock(mutex_);
  for (const auto& [rank, running] : running_)
    if (running > 0 && (rank_runtime == 0 || rank == rank_runtime)) return false;
  std::set<uint32_t> seen;
  for (auto span = spans_.rbegin(); span != spans_.rend(); ++span) {
    if (rank_runtime != 0 && span->rank_runtime != rank_runtime) continue;
    if (!span->after || !seen.insert(span->stream).second) continue;
    bool passed = true;
    ErrorText ignored;
    // An event that cannot be asked is as done as it will be.
    if (device_backend_->event_query(span->after, &passed, &ignored).ok() && !passed) return false;
  }
  return true;
}

// Durations come from the events around a command: over a long time the number of milliseconds
// since the origin is less exact.
void SpanLog::time_by_events(const std::vector<Span>& spans, std::vector<Activity>* activities) {
  for (const Span& span : spans) {
    if (!span.before) continue;
    const auto origin = origins_.find(span.device);
    double since = 0, passed = 0;
    ErrorText ignored;
    if (span.after && origin != origins_.end() && origin->second.event &&
        device_backend_->event_elapsed_ms(origin->second.event, span.before, &since, &ignored)
            .ok() &&
        device_backend_->event_elapsed_ms(span.before, span.after, &passed, &ignored).ok()) {
      Activity activity;
      activity.command = span.command;
      activity.device = span.device;
      activity.kind = span.is_kernel ? Activity::Kernel : Activity::Copy;
      activity.name = span.name;
      activity.start = origin->second.at + static_cast<int64_t>(since * 1e6);
      activity.end = activity.start + static_cast<int64_t>(passed * 1e6);
      activities->push_back(activity);
    }
    std::vector<void*>& unused = events_[span.device];
    unused.push_back(span.before);
    if (span.after) unused.push_back(span.after);
  }
}

SpanLog::Contents SpanLog::take() {
  Contents contents;
  std::lock_guard<SpinLock> lock(mutex_);
  contents.spans.swap(spans_);
  contents.memory.swap(changes_);
  for (Span& span : contents.spans) span.op = ops_[span.command - first_];
  int64_t running = 0;
  for (const auto& [rank, count] : running_) running += count;
  // Otherwise another rank of this process still records.
  if (running == 0) {
    ops_.clear();
    first_ = next_;
    running_.clear();
  }
  time_by_events(contents.spans, &contents.activities);
  if (timer_ == DeviceTimer::Cupti) Cupti::get().take(&contents.activities);
  return contents;
}

}  // namespace shardwise
