#include "cupti.h"

#include <cxxabi.h>

#include <cstdlib>
#include <limits>

#include "../platform/platform.h"
#include "cupti_records.h"

namespace shardwise {

using namespace cupti;

namespace {

constexpr int32_t kSuccess = 0;
constexpr uint32_t kFlushForced = 1;
constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr int kClockTries = 10;
constexpr int32_t kKinds[] = {kConcurrentKernel,     kMemcpy,      kMemset,
                              kMemcpyBetweenDevices, kRuntimeCall, kDriverCall,
                              kExternalCorrelation};

const char* name_of_copy(uint8_t kind) {
  constexpr const char* names[] = {"Memcpy",      "Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA",
                                   "Memcpy AtoH", "Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA",
                                   "Memcpy DtoD", "Memcpy HtoH", "Memcpy PtoP"};
  return kind < std::size(names) ? names[kind] : names[0];
}

}  // namespace

Cupti& Cupti::get() {
  static Cupti* cupti = new Cupti;  // its callbacks may come while the process ends
  return *cupti;
}

std::string Cupti::text_of(Result result) const {
  const char* text = nullptr;
  if (api_.text && api_.text(result, &text) == kSuccess && text) return text;
  return "CUPTI error " + std::to_string(result);
}

std::string Cupti::open(const char* candidates) {
  std::string reason = "no libcupti was found";
  const std::string list = candidates;
  for (size_t at = 0; at < list.size() && !library_;) {
    const size_t end = std::min(list.find('\n', at), list.size());
    const std::string path = list.substr(at, end - at);
    const char* why = nullptr;
    library_ = platform::open_library(path.c_str(), &why);
    if (!library_) reason = why;
    at = end + 1;
  }
  if (!library_) return reason;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        platform::find_symbol(library_, name));
    complete = complete && function;
  };
  find(api_.enable, "cuptiActivityEnable");
  find(api_.disable, "cuptiActivityDisable");
  find(api_.register_callbacks, "cuptiActivityRegisterCallbacks");
  find(api_.flush_all, "cuptiActivityFlushAll");
  find(api_.next_record, "cuptiActivityGetNextRecord");
  find(api_.push, "cuptiActivityPushExternalCorrelationId");
  find(api_.pop, "cuptiActivityPopExternalCorrelationId");
  find(api_.timestamp, "cuptiGetTimestamp");
  find(api_.text, "cuptiGetResultString");
  if (complete) return "";
  library_ = nullptr;
  return "the libcupti that was found lacks functions";
}

std::string Cupti::start(const char* candidates, const SpanLog* user) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (user_) return "another thread of this process uses CUPTI";
  const std::string missing = library_ ? "" : open(candidates);
  if (!missing.empty()) return missing;
  Result result = api_.register_callbacks(on_request, on_complete);
  for (size_t i = 0; i < std::size(kKinds) && result == kSuccess; i++)
    result = api_.enable(kKinds[i]);
  if (result != kSuccess) {
    for (const int32_t kind : kKinds) api_.disable(kind);
    return text_of(result);
  }
  user_ = user;
  started_ = taken_ = now();
  return "";
}

void Cupti::stop(const SpanLog* user) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (user_ != user) return;
  user_ = nullptr;
  for (const int32_t kind : kKinds) api_.disable(kind);
}

void Cupti::begin(uint32_t command) { api_.push(kCustomCorrelation, command); }

void Cupti::end() {
  uint64_t ignored = 0;
  api_.pop(kCustomCorrelation, &ignored);
}

// Of several tries the one that took the host the least time.
Cupti::Moment Cupti::now() const {
  Moment best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kClockTries; i++) {
    const int64_t before = host_nanoseconds();
    uint64_t time = 0;
    if (api_.timestamp(&time) != kSuccess) continue;
    const int64_t passed = host_nanoseconds() - before;
    if (passed >= least) continue;
    least = passed;
    best = {static_cast<double>(time), static_cast<double>(before + passed / 2)};
  }
  return best;
}

// Both clocks run evenly between two moments.
double Cupti::host_time(uint64_t time) const {
  const double passed = taken_.cupti - started_.cupti;
  const double rate = passed > 0 ? (taken_.host - started_.host) / passed : 1;
  return started_.host + (static_cast<double>(time) - started_.cupti) * rate;
}

void Cupti::on_request(uint8_t** buffer, size_t* size, size_t* records) {
  *buffer = static_cast<uint8_t*>(std::malloc(kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *records = 0;
}

// The lock is not that of start and take, in which CUPTI calls this.
void Cupti::on_complete(void*, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  Cupti& self = get();
  std::lock_guard<SpinLock> lock(self.buffers_mutex_);
  self.buffers_.push_back({buffer, valid});
}

void Cupti::take(std::vector<Activity>* activities) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!user_) return;
  api_.flush_all(kFlushForced);
  taken_ = now();
  std::vector<Buffer> buffers;
  {
    std::lock_guard<SpinLock> buffers_lock(buffers_mutex_);
    buffers.swap(buffers_);
  }
  const size_t first = activities->size();
  commands_.clear();
  correlations_.clear();
  for (const Buffer& buffer : buffers) {
    read(buffer, activities);
    std::free(buffer.data);
  }
  for (size_t i = first; i < activities->size(); i++) {
    const auto found = commands_.find(correlations_[i - first]);
    if (found != commands_.end()) (*activities)[i].command = found->second;
  }
}

void Cupti::read(const Buffer& buffer, std::vector<Activity>* activities) {
  uint8_t* record = nullptr;
  while (api_.next_record(buffer.data, buffer.valid, &record) == kSuccess)
    read_record(record, activities);
}

void Cupti::read_record(const uint8_t* record, std::vector<Activity>* activities) {
  // Names of kernels are C strings of CUPTI, which keeps them.
  const auto add = [&](const auto& r, Activity::Kind kind, const char* name, uint64_t bytes) {
    if (r.start == 0 || r.end < r.start) return;  // not complete
    Activity activity;
    activity.kind = kind;
    activity.device = static_cast<int32_t>(r.device) + 1;
    activity.queue = r.stream;
    activity.name = name;
    activity.start = static_cast<int64_t>(host_time(r.start));
    activity.end = static_cast<int64_t>(host_time(r.end));
    activity.bytes = static_cast<int64_t>(bytes);
    activities->push_back(activity);
    correlations_.push_back(r.correlation);
  };
  switch (*reinterpret_cast<const int32_t*>(record)) {
    case kConcurrentKernel: {
      const auto& r = *reinterpret_cast<const cupti::Kernel*>(record);
      return add(r, Activity::Kernel, name_of(r.name), 0);
    }
    case kMemcpy: {
      const auto& r = *reinterpret_cast<const Memcpy*>(record);
      return add(r, Activity::Copy, name_of_copy(r.copy_kind), r.bytes);
    }
    case kMemcpyBetweenDevices: {
      const auto& r = *reinterpret_cast<const MemcpyBetweenDevices*>(record);
      return add(r, Activity::Copy, "Memcpy PtoP", r.bytes);
    }
    case kMemset: {
      const auto& r = *reinterpret_cast<const Memset*>(record);
      return add(r, Activity::Fill, "Memset", r.bytes);
    }
    case kExternalCorrelation: {
      const auto& r = *reinterpret_cast<const ExternalCorrelation*>(record);
      if (r.external_kind == kCustomCorrelation)
        commands_[r.correlation] = static_cast<uint32_t>(r.external);
      return;
    }
    default:
      return;
  }
}

// The name as C++ writes it; kept for as long as the process.
const char* Cupti::name_of(const char* mangled) {
  if (!mangled) return "kernel";
  const auto [known, is_new] = names_.try_emplace(mangled, nullptr);
  if (!is_new) return known->second;
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  known->second = texts_.insert(status == 0 && plain ? plain : mangled).first->c_str();
  std::free(plain);
  return known->second;
}

}  // namespace shardwise
