#include "stream.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#if defined(__x86_64__)
#define SW_PREFETCH_TO_WRITE(address) __asm__ volatile("prefetchw %0" : : "m"(*(address)))
#else
#define SW_PREFETCH_TO_WRITE(address) __builtin_prefetch(address, 1)
#endif

#include "../include/pause.h"
#include "../include/start_thread.h"
#include "../include/text.h"
#include "../platform/platform.h"
#include "asymmetric_fence.h"
#include "caching_allocator.h"
#include "span_log.h"

namespace shardwise {

namespace {
constexpr auto kIdle = std::chrono::milliseconds(40);  // before free memory is returned
constexpr int kSpins = 2000;  // some tens of microseconds, before the native thread sleeps
// some hundreds, before a waiting thread sleeps: waking it may take as long
constexpr int kWaitSpins = 20000;
constexpr uint64_t kPrefetched = 512;  // about the size of a record
constexpr int64_t kMark = 16;          // a Wrap or a Jump
constexpr int64_t align16(int64_t n) { return (n + 15) & ~int64_t{15}; }

// The threads that are waited for may need this processor.
inline void pause_or_yield(int spins) {
  if (spins % 64)
    pause_briefly();
  else
    std::this_thread::yield();
}

// Wrap: the ring continues at its start. Jump: it continues in the next ring.
enum class Kind : int32_t { Kernel, Function, Wrap, Jump };

// elements; a smaller command ends before the next is inspected
constexpr int64_t kLarge = 1 << 15;
constexpr int32_t kMostTogether = 8;

// A kernel reads a whole parameter struct; missing words are 0.
void give_all_params(KernelCall& call, double (&params)[kMinParams]) {
  if (call.num_params >= kMinParams) return;
  std::memcpy(params, call.params, call.num_params * sizeof(double));
  call.params = params;
}
}  // namespace

struct Stream::Record {
  int64_t bytes;
  Kind kind;
  uint32_t command;  // its number in a profile; 0 without one
  std::function<void(Stream&)>* function;
  union {
    KernelCall call;
    const char* name;  // of a function that is recorded
  };
};

struct Stream::Ring {
  Ring(int64_t size, uint64_t first) : capacity(size), begin(first), data(new char[size]) {}
  char* at(uint64_t position) {
    return data.get() + ((position - begin) & static_cast<uint64_t>(capacity - 1));
  }
  int64_t to_end(char* record) const { return capacity - (record - data.get()); }

  const int64_t capacity;  // a power of two
  const uint64_t begin;    // bytes written before it, to any ring
  const std::unique_ptr<char[]> data;
  std::unique_ptr<Ring> next;  // written before the Jump to it
};

Stream::Stream(const Backend* backend, int32_t device, uint32_t id, int32_t priority,
               SpanLog& recorder)
    : backend_(backend), device_(device), id_(id), priority_(priority), log_(&recorder) {}

Stream::~Stream() {
  waits_.clear();
  if (thread_.joinable()) {
    wait(submitted_);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_one();
    thread_.join();
  }
  if (!native_) return;
  backend_->stream_destroy(native_);
  allocator_->close_pool(pool_);
  allocator_->close_pool(scratch_pool_);
}

Status Stream::open(CachingAllocator& allocator, ErrorText* error) {
  const auto give = [](void* self, int64_t bytes, void** out, ErrorText* e) {
    return static_cast<Stream*>(self)->give_scratch(bytes, out, e);
  };
  const Status status = backend_->stream_create(device_, priority_, {this, give}, &native_, error);
  if (!status.ok()) return status;
  allocator_ = &allocator;
  pool_ = allocator.open_pool();
  scratch_pool_ = allocator.open_pool();
  return kOk;
}

Status Stream::give_scratch(int64_t bytes, void** out, ErrorText* error) {
  if (scratch_) allocator_->free_scratch(scratch_);
  scratch_ = nullptr;
  *out = nullptr;
  if (bytes == 0) return kOk;
  const Status status = allocator_->allocate_scratch(bytes, scratch_pool_, &scratch_, error);
  if (status.ok()) *out = scratch_->data;
  return status;
}

// Whether the native thread exists, or could be started.
bool Stream::start() {
  AsymmetricFence::prepare();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(false);
    running_ = thread_.joinable() && !ended_;
    if (running_) return true;
    ended_ = false;
  }
  if (thread_.joinable()) thread_.join();
  if (!reading_) {
    reading_ = std::make_unique<Ring>(kRingBytes, head_.load(std::memory_order_relaxed));
    writing_ = reading_.get();
  }
  running_ = start_thread(&thread_, [this] {
    // it runs the kernels; that of a GPU only launches them
    if (!backend_->asynchronous) platform::yield_to_javascript();
    loop();
  });
  return running_;
}

Status Stream::require_thread(ErrorText* error) {
  return running_ || start() ? kOk : fail(error, Code::Device, "%s", kNoThread);
}

void Stream::park() {
  flush_waits();
  if (!running_) return;
  running_ = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_one();
}

void Stream::reap() {
  if (running_) return park();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!ended_) return;
  }
  if (thread_.joinable()) thread_.join();
}

bool Stream::fits(int64_t bytes) {
  const uint64_t head = head_.load(std::memory_order_relaxed);
  const int64_t to_end = writing_->to_end(writing_->at(head));
  const int64_t needed = (bytes <= to_end ? bytes : to_end + bytes) + kMark;
  const uint64_t oldest = std::max(known_tail_, writing_->begin);
  return head + static_cast<uint64_t>(needed) - oldest <= static_cast<uint64_t>(writing_->capacity);
}

// Room for one record, contiguous in the ring; waits while the ring is full.
void* Stream::reserve(int64_t bytes) {
  if (!running_) start();
  while (!fits(bytes)) {
    known_tail_ = tail_.load(std::memory_order_acquire);
    if (fits(bytes)) break;
    if (sleeping_.load()) {
      std::lock_guard<std::mutex> lock(mutex_);
      wake_.notify_one();
    }
    if (unbounded())
      grow();
    else
      std::this_thread::yield();
  }
  const uint64_t head = head_.load(std::memory_order_relaxed);
  char* at = writing_->at(head);
  const int64_t to_end = writing_->to_end(at);
  if (bytes <= to_end) return at;
  auto* skip = reinterpret_cast<Record*>(at);
  skip->bytes = to_end;
  skip->kind = Kind::Wrap;
  head_.store(head + to_end, std::memory_order_release);
  return writing_->at(head + to_end);
}

// Every record leaves room for the mark.
void Stream::grow() {
  const uint64_t head = head_.load(std::memory_order_relaxed);
  writing_->next = std::make_unique<Ring>(2 * writing_->capacity, head + kMark);
  auto* jump = reinterpret_cast<Record*>(writing_->at(head));
  jump->bytes = kMark;
  jump->kind = Kind::Jump;
  writing_ = writing_->next.get();
  head_.store(head + kMark, std::memory_order_release);
}

void Stream::publish(int64_t bytes) {
  submitted_++;
  const uint64_t head = head_.load(std::memory_order_relaxed) + bytes;
  head_.store(head, std::memory_order_release);
  if (!running_) return work_off_here();
  AsymmetricFence::light();
  if (sleeping_.load(std::memory_order_relaxed)) {
    std::lock_guard<std::mutex> lock(mutex_);
    wake_.notify_one();
  }
  // The other thread has the cache lines of the next record; prefetched while JavaScript prepares
  // it.
  for (uint64_t line = 0; line < kPrefetched; line += 64)
    SW_PREFETCH_TO_WRITE(writing_->at(head + line));
}

Status Stream::enqueue_kernel(const KernelCall& call, ErrorText* error) {
  flush_waits();
  const int32_t count = call.num_inputs + call.num_outputs;
  int64_t dims = 0;
  for (int32_t i = 0; i < count; i++) dims += 2 * call.tensors[i].ndim;
  const int64_t bytes =
      align16(sizeof(Record) + count * sizeof(TensorView) + dims * 8 + call.num_params * 8);
  if (bytes > kRingBytes / 4)
    return fail(error, Code::Invalid, "a command of %lld bytes is too large for the ring",
                static_cast<long long>(bytes));
  auto* record = static_cast<Record*>(reserve(bytes));
  record->bytes = bytes;
  record->kind = Kind::Kernel;
  record->command = log_->is_open() ? log_->issue(*this) : 0;
  record->call = call;
  auto* views = reinterpret_cast<TensorView*>(record + 1);
  auto* at = reinterpret_cast<int64_t*>(views + count);
  for (int32_t i = 0; i < count; i++) {
    views[i] = call.tensors[i];
    const int32_t n = views[i].ndim;
    std::memcpy(at, call.tensors[i].sizes, n * 8);
    std::memcpy(at + n, call.tensors[i].strides, n * 8);
    views[i].sizes = at;
    views[i].strides = at + n;
    at += 2 * n;
  }
  auto* params = reinterpret_cast<double*>(at);
  std::memcpy(params, call.params, call.num_params * 8);
  record->call.tensors = views;
  record->call.params = params;
  record->call.stream = native_;
  record->call.error = nullptr;
  publish(bytes);
  return kOk;
}

Status Stream::run_now(KernelCall& call, ErrorText* error) {
  call.stream = native_;
  call.error = error;
  if (!log_->is_open()) return backend_->launch(call);
  return run_recorded(call);
}

Status Stream::run_recorded(KernelCall& call) {
  const uint32_t command = log_->issue(*this);
  if (command == 0) return backend_->launch(call);
  Span span{.command = command,
            .is_kernel = true,
            .at_once = true,
            .name = backend_->kernels[call.kernel].name};
  log_->begin(*this, span);
  const Status status = backend_->launch(call);
  log_->end(*this, span);
  return status;
}

void Stream::enqueue(std::function<void(Stream&)> fn, const char* name) {
  flush_waits();
  const int64_t bytes = align16(sizeof(Record));
  auto* record = static_cast<Record*>(reserve(bytes));
  record->bytes = bytes;
  record->kind = Kind::Function;
  record->command = name && log_->is_open() ? log_->issue(*this) : 0;
  record->name = name;
  record->function = new std::function<void(Stream&)>(std::move(fn));
  publish(bytes);
  last_function_ = submitted_;
}

void Stream::loop() {
  for (;;) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    int spins = 0;
    while (head_.load(std::memory_order_acquire) == tail) {
      if (++spins < kSpins) {
        pause_or_yield(spins);
        continue;
      }
      std::unique_lock<std::mutex> lock(mutex_);
      sleeping_.store(true, std::memory_order_relaxed);
      AsymmetricFence::heavy();
      const auto woken = [&] {
        return stop_.load() || head_.load(std::memory_order_acquire) != tail;
      };
      if (!wake_.wait_for(lock, kIdle, woken)) {
        lock.unlock();
        if (on_idle) on_idle();
        lock.lock();
        wake_.wait(lock, woken);
      }
      sleeping_.store(false, std::memory_order_relaxed);
      if (stop_.load() && head_.load(std::memory_order_acquire) == tail) {
        ended_ = true;
        reading_.reset();
        return;
      }
    }
    work_off_next();
  }
}

// Executes the record at the tail, and maybe others behind it.
void Stream::work_off_next() {
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  auto* record = reinterpret_cast<Record*>(reading_->at(tail));
  if (record->kind == Kind::Wrap || record->kind == Kind::Jump) {
    const uint64_t after = tail + static_cast<uint64_t>(record->bytes);
    if (record->kind == Kind::Jump) reading_ = std::move(reading_->next);
    tail_.store(after, std::memory_order_release);
    return;
  }
  const Worked worked = work_off(record);
  tail_.store(tail + worked.bytes, std::memory_order_release);
  completed_.store(completed_.load(std::memory_order_relaxed) + worked.records,
                   std::memory_order_release);
  AsymmetricFence::light();
  if (waiters_.load(std::memory_order_relaxed) > 0) {
    std::lock_guard<std::mutex> lock(mutex_);
    done_.notify_all();
  }
}

// The system refuses a thread: the caller works in its place.
void Stream::work_off_here() {
  while (tail_.load(std::memory_order_relaxed) != head_.load(std::memory_order_relaxed))
    work_off_next();
}

Stream::Worked Stream::work_off(Record* first) {
  if (first->kind == Kind::Kernel && backend_->launch_together && first->call.num_outputs == 1 &&
      first->call.output(0).numel >= kLarge && !skips()) {
    const Worked together = work_off_together(first);
    if (together.records > 0) return together;
  }
  if (first->command == 0)
    process(first);
  else
    process_recorded(first);
  return {1, first->bytes};
}

// Commands behind a large one may run faster together with it.
Stream::Worked Stream::work_off_together(Record* first) {
  auto* const start = reinterpret_cast<char*>(first);
  const auto queued = static_cast<int64_t>(head_.load(std::memory_order_acquire) -
                                           tail_.load(std::memory_order_relaxed));
  const int64_t reach = std::min(queued, reading_->to_end(start));
  KernelCall calls[kMostTogether];
  const KernelCall* list[kMostTogether];
  double params[kMostTogether][kMinParams] = {};
  int64_t ends[kMostTogether];
  uint32_t commands[kMostTogether];
  int32_t count = 0;
  for (int64_t at = 0; at < reach && count < kMostTogether; count++) {
    const auto* record = reinterpret_cast<const Record*>(start + at);
    if (record->kind != Kind::Kernel) break;
    calls[count] = record->call;
    give_all_params(calls[count], params[count]);
    list[count] = &calls[count];
    commands[count] = record->command;
    ends[count] = at += record->bytes;
  }
  const int64_t began = first->command ? host_nanoseconds() : 0;
  const int32_t ran = count > 1 ? backend_->launch_together(list, count) : 0;
  if (began) log_->add_together(*this, list, commands, ran, began);
  return ran > 0 ? Worked{ran, ends[ran - 1]} : Worked{0, 0};
}

void Stream::process_recorded(Record* record) {
  const bool is_kernel = record->kind == Kind::Kernel;
  Span span{.command = record->command,
            .is_kernel = is_kernel,
            .name = is_kernel ? backend_->kernels[record->call.kernel].name : record->name};
  log_->begin(*this, span);
  process(record);
  log_->end(*this, span);
}

void Stream::process(Record* record) {
  if (record->kind == Kind::Function) {
    (*record->function)(*this);
    delete record->function;
    return;
  }
  if (skips()) return;  // its results would be invalid; the next synchronisation reports why
  double params[kMinParams] = {};
  give_all_params(record->call, params);
  ErrorText text;
  record->call.error = &text;
  const Status status = backend_->launch(record->call);
  if (status.ok()) return;
  char where[256];
  describe_call(record->call, *backend_, where, sizeof where);
  ErrorText message;
  Text(message).add("%s: ", where).add_cause(text);
  set_error(status.code, message);
}

void Stream::wait(uint64_t sequence) {
  for (int i = 0; i < kWaitSpins; i++) {
    if (completed() >= sequence) return;
    pause_or_yield(i);
  }
  waiters_.fetch_add(1);
  AsymmetricFence::heavy();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [&] { return completed() >= sequence; });
  }
  waiters_.fetch_sub(1);
}

void describe_call(const KernelCall& call, const Backend& backend, char* out, int64_t size) {
  int64_t at = snprintf(out, size, "%s(", backend.kernels[call.kernel].name);
  for (int32_t i = 0; i < call.num_inputs && at < size - 40; i++) {
    const TensorView& t = call.tensors[i];
    at += snprintf(out + at, size - at, "%s%s[", i ? ", " : "",
                   t.is_immediate ? "number" : dtype_name(t.dtype));
    for (int32_t d = 0; d < t.ndim && at < size - 40; d++)
      at += snprintf(out + at, size - at, "%s%lld", d ? ", " : "",
                     static_cast<long long>(t.sizes[d]));
    at += snprintf(out + at, size - at, "]");
  }
  snprintf(out + at, size - at, ") on %s", backend.name);
}

}  // namespace shardwise
