// A stream: a ring of records and a native thread that executes them in order. The JavaScript
// thread writes records; the native thread runs CPU kernels or launches CUDA work. Without a native
// thread, because the system refuses one, the JavaScript thread executes each record. If the ring is
// full, the JavaScript thread waits; where it must not, because the stream may wait for JavaScript,
// a larger ring follows the full one.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../include/backend.h"

namespace shardwise {

class BlockReturn;
class CachingAllocator;
struct Block;
class SpanLog;

class Stream;

// The first failure since the last one was taken, its origin, and the commands whose results are
// invalid.
struct Failure {
  Status status;
  ErrorText text;
  uint64_t first = 0, last = 0;  // `last` is known once it is taken
  const Stream* origin = nullptr;
  // equal in all streams that inherit the failure; 0: compared by origin
  uint64_t number = 0;
};

// An event that streams of any backend can wait for. Each use records it once.
struct Event {
  const Backend* backend = nullptr;
  int32_t device = 0;
  bool timing = false;
  void* handle = nullptr;             // the backend's event, created at the first record
  std::atomic<uint64_t> recorded{0};  // how often the stream's thread has recorded it
  uint64_t requested = 0;             // how often the JavaScript thread asked for it
  // Data of the last record, for the JavaScript thread: the stream, its rank at that time, and the
  // command.
  Stream* recorder = nullptr;
  int64_t rank_runtime = 0;
  uint64_t sequence = 0;
  std::mutex mutex;
  std::condition_variable changed;
  Failure why;  // guarded by the mutex: the failure at the last record
  ~Event();
  Status create(ErrorText* error);
  void wait_recorded(uint64_t count);
  // Called on the native thread of the stream.
  void record(Stream& stream);
  // Called on the JavaScript thread: waits until the event is recorded; returns the failure by
  // then, as far as the stream knows.
  Failure wait();
};

// A point of a stream's queue that other streams wait for: an event behind every command up to
// `sequence`.
struct Mark {
  uint64_t sequence = 0;
  std::shared_ptr<Event> event;
};

class Stream {
 public:
  // `recorder`: what a profile records of its commands.
  Stream(const Backend* backend, int32_t device, uint32_t id, int32_t priority, SpanLog& recorder);
  ~Stream();

  const Backend* backend() const { return backend_; }
  int32_t device() const { return device_; }
  // the device code of JavaScript: 0 is the CPU
  int32_t device_code() const { return backend_->asynchronous ? device_ + 1 : 0; }
  uint32_t id() const { return id_; }

  // True if nothing is queued and nothing runs on the native thread.
  bool idle() const {
    return waits_.empty() && completed_.load(std::memory_order_acquire) == submitted_;
  }
  uint64_t submitted() const { return submitted_; }
  const std::atomic<uint64_t>* progress() const { return &completed_; }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

  // The rank that owns the stream if ranks share the process: a number per rank, 0 for the program
  // itself. Set while nothing is queued.
  void set_rank_runtime(int64_t rank_runtime) { rank_runtime_ = rank_runtime; }
  int64_t rank_runtime() const { return rank_runtime_; }
  // The writer continues in a larger ring when this one is full: a rank's stream may wait for
  // JavaScript of another rank.
  bool unbounded() const { return rank_runtime_ != 0; }

  // Copies the call with its operands into the ring. Fails if the record is larger than the ring.
  Status enqueue_kernel(const KernelCall& call, ErrorText* error);
  // Runs a kernel on the caller's thread. Only if idle() and the backend is synchronous.
  Status run_now(KernelCall& call, ErrorText* error);
  // Starts the native thread. Commands that wait for other ranks need it; without one, commands run
  // on the caller's thread. Fails if the system refuses a thread.
  Status require_thread(ErrorText* error);
  // Runs fn on the native thread, in order. A profile records what has a name, which is static.
  void enqueue(std::function<void(Stream&)> fn, const char* name = nullptr);
  // The methods of marks are called on the JavaScript thread, for streams of asynchronous backends.
  // Marks the end of the queue, if commands were submitted since the last mark.
  void mark();
  // Lets this stream wait for the earliest mark of `other` behind that command. `then` runs on the
  // native thread once the mark is recorded, in order; it may be empty. A stream of an asynchronous
  // backend gets the wait with its next command: waking its thread for a wait alone costs more than
  // a kernel.
  void wait_for(Stream& other, uint64_t sequence, std::function<void(Stream&)> then);
  // Enqueues the waits that are left for the next command.
  void flush_waits();
  // Whether the next command comes behind that command of `other`.
  bool has_waited_for(const Stream& other, uint64_t sequence) const;
  // The same without a mark: the caller has enqueued a wait for the command.
  void remember_wait(const Stream& other, uint64_t sequence);
  // Returns memory of this stream to its pool as soon as the stream has waited for that command of
  // `other`, which used it last.
  void return_behind(const Stream& other, uint64_t sequence, std::shared_ptr<BlockReturn> block);
  // The sequence of the last command, or of the waits that come with the next one.
  uint64_t claimed() const { return submitted_ + (waits_.empty() ? 0 : 1); }
  // True if only kernels are in flight, which wait for no other stream or rank.
  bool only_kernels_pending() const { return completed() >= last_function_; }

  void wait(uint64_t sequence);  // until the thread has executed that many records

  // After a failure every command is skipped until the JavaScript thread has taken it. Commands
  // submitted by then stay skipped, and their outputs have no value.
  void set_error(Code code, const ErrorText& error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // On the native thread: takes over a failure of `other` up to that command, because commands here
  // use its results.
  void inherit_failure(Stream& other, uint64_t sequence);
  // On the JavaScript thread, without waiting: takes a failure that was reported elsewhere, if this
  // stream has it too. False: it does not.
  bool take(const Failure& reported, Failure* failure);
  // Skips everything submitted so far, and commands that wait for it: the failure has been
  // reported.
  void give_up(const Failure& reported);
  // The failure that invalidated a command, if known; of reported failures only the last is kept.
  bool failure_of(uint64_t sequence, Failure* failure);
  // On the native thread: whether the current command must be skipped, and why.
  bool skips() const;
  bool skips(Failure* why);
  bool skips(Failed* why);
  // On the JavaScript thread: waits for the device. Takes the failure if there is one.
  Status synchronize(Failure* failure);
  // Commands up to this one are known to have succeeded.
  uint64_t verified() const { return verified_.load(std::memory_order_relaxed); }
  void verify(uint64_t sequence);

  // On the JavaScript thread: lets the native thread end when it is idle. References to the stream
  // stay valid, and the next command starts the thread again.
  void park();
  // Releases the resources of a parked thread that has ended, without waiting; parks a thread that
  // was started again.
  void reap();

  int32_t priority() const { return priority_; }
  void* native() const { return native_; }
  // The allocator of memory used on this stream.
  CachingAllocator* allocator() const { return allocator_; }
  uint32_t pool() const { return pool_; }
  // Called on the native thread after it was idle for a while; set before the first command.
  std::function<void()> on_idle;
  // creates the backend's stream; called before first use
  Status open(CachingAllocator& allocator, ErrorText* error);

 private:
  struct Record;
  struct Ring;
  void* reserve(int64_t bytes);
  bool fits(int64_t bytes);  // in the ring, with room for the mark that ends it
  void grow();
  void publish(int64_t bytes);
  bool start();
  void loop();
  void work_off_next();
  void work_off_here();
  void process(Record* record);
  void process_recorded(Record* record);
  Status run_recorded(KernelCall& call);
  struct Worked {
    int32_t records;
    int64_t bytes;
  };
  Worked work_off(Record* first);
  Worked work_off_together(Record* first);
  Status give_scratch(int64_t bytes, void** out, ErrorText* error);

  static constexpr int64_t kRingBytes = 4 << 20;

  const Backend* backend_;
  int32_t device_;
  uint32_t id_;
  int32_t priority_;
  void* native_ = nullptr;
  SpanLog* log_;
  CachingAllocator* allocator_ = nullptr;
  // The pool of tensors, for the JavaScript thread: later commands may use freed memory at once.
  // Scratch memory is taken by the native thread for a command that may be much earlier, so it has
  // a pool of its own.
  uint32_t pool_ = 0, scratch_pool_ = 0;
  Block* scratch_ = nullptr;

  // Each group of fields has its own cache lines: what one thread writes constantly must not slow
  // the other.
  std::unique_ptr<Ring> reading_;              // the thread's ring; it owns those that follow
  alignas(64) std::atomic<uint64_t> head_{0};  // bytes written
  Ring* writing_ = nullptr;
  int64_t rank_runtime_ = 0;
  uint64_t submitted_ = 0;
  uint64_t last_function_ = 0;                 // the last record that is not a kernel
  bool running_ = false;                       // the native thread exists and was not asked to end
  uint64_t known_tail_ = 0;                    // the writer's last value of tail_
  alignas(64) std::atomic<uint64_t> tail_{0};  // bytes executed
  std::atomic<uint64_t> completed_{0};
  alignas(64) std::atomic<bool> sleeping_{false};
  std::atomic<int> waiters_{0};
  std::atomic<bool> stop_{false};
  // guarded by mutex_: the native thread reads no more records
  bool ended_ = false;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::thread thread_;

  // More than a program is ahead of the device. Who waits for a forgotten one waits for the next.
  static constexpr size_t kMostMarks = 1024;
  const Mark& mark_behind(uint64_t sequence);
  std::shared_ptr<Event> unused_event();
  std::deque<Mark> marks_;  // of rising sequence
  std::vector<std::function<void(Stream&)>> waits_;
  // What this stream has waited for of each other stream, and its memory that they used last.
  struct Waited {
    uint64_t sequence = 0;
    std::deque<std::pair<uint64_t, std::shared_ptr<BlockReturn>>> blocks;
  };
  std::unordered_map<const Stream*, Waited> waited_for_;
  void return_blocks(Waited& waited);

  std::atomic<uint64_t> skip_until_{0};
  std::atomic<uint64_t> verified_{0};
  std::mutex failure_mutex_;
  Failure failure_, taken_;
  void fail_with(const Failure& failure);
  void take_failure();
};

// As a profile names it.
constexpr const char* copy_name(CopyKind kind) {
  constexpr const char* names[] = {"Memcpy HtoH", "Memcpy HtoD", "Memcpy DtoH", "Memcpy DtoD"};
  return names[static_cast<int32_t>(kind)];
}

// `index_select(float32[10, 4], int64[3])`, for errors.
void describe_call(const KernelCall& call, const Backend& backend, char* out, int64_t size);

}  // namespace shardwise
