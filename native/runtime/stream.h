// A stream: a ring of records and a native thread that works them off in order. The JavaScript
// thread writes and the thread runs CPU kernels or launches CUDA work. While the ring is full the
// JavaScript thread waits; where it must not, because the stream may wait for what JavaScript has
// yet to do, a larger ring follows the full one.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "../include/backend.h"

namespace shardwise {

class CachingAllocator;
struct Block;

class Stream;

// The first failure since the last look, the commands of a stream whose results it took with it,
// and where it happened.
struct Failure {
  Status status;
  ErrorText text;
  uint64_t first = 0, last = 0;  // the last one is known once it is taken
  const Stream* origin = nullptr;
  // other streams have the same one of it; 0: it is known by its origin
  uint64_t number = 0;
};

// An event that streams of any backend can wait for. Recorded once each time it is used.
struct Event {
  const Backend* backend = nullptr;
  int32_t device = 0;
  bool timing = false;
  void* handle = nullptr;             // the backend's event, made when first recorded
  std::atomic<uint64_t> recorded{0};  // how often the stream's thread has recorded it
  uint64_t requested = 0;             // how often the JavaScript thread asked for it
  // Of the last record, the JavaScript thread's: by whom, whose the stream was then, and which
  // command it is.
  Stream* recorder = nullptr;
  int64_t home = 0;
  uint64_t sequence = 0;
  std::mutex mutex;
  std::condition_variable changed;
  Failure why;  // with the mutex: what had failed when it was recorded last
  ~Event();
  Status create(ErrorText* error);
  void wait_recorded(uint64_t count);
  // On the native thread of the stream.
  void record(Stream& stream);
  // On the JavaScript thread: waits until it was recorded; what had failed by then, as far as the
  // stream knows.
  Failure wait();
};

class Stream {
 public:
  Stream(const Backend* backend, int32_t device, uint32_t id, int32_t priority);
  ~Stream();

  const Backend* backend() const { return backend_; }
  int32_t device() const { return device_; }
  // as JavaScript counts: 0 is the CPU
  int32_t device_code() const { return backend_->asynchronous ? device_ + 1 : 0; }
  uint32_t id() const { return id_; }

  // Nothing is queued and nothing runs on the native thread.
  bool idle() const { return completed_.load(std::memory_order_acquire) == submitted_; }
  uint64_t submitted() const { return submitted_; }
  const std::atomic<uint64_t>* progress() const { return &completed_; }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }

  // Whose it is where ranks share the process: a number for each of them, 0 for the program itself.
  // Set while nothing is queued.
  void set_home(int64_t home) { home_ = home; }
  int64_t home() const { return home_; }
  // The writer goes on in a larger ring when this one is full: a rank's stream may wait for what
  // JavaScript has yet to do for another.
  bool unbounded() const { return home_ != 0; }

  // Copies the call with its operands into the ring. Fails when the record is larger than the ring
  // holds.
  Status enqueue_kernel(const KernelCall& call, ErrorText* error);
  // Runs a kernel on the caller's thread; only when idle() and the backend is synchronous.
  Status run_now(KernelCall& call, ErrorText* error);
  // Runs fn on the native thread, in order.
  void enqueue(std::function<void(Stream&)> fn);
  // What is under way are kernels, which wait for no other stream and no rank.
  bool only_kernels_pending() const { return completed() >= last_function_; }

  void wait(uint64_t sequence);  // until the thread has worked off that many records

  // After a failure every command is skipped until the JavaScript thread has taken it; those
  // submitted by then stay skipped, and what they should have written has no value.
  void set_error(Code code, const char* text);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // On the native thread: what `other` was given up to there failed, so what is computed from it
  // here would be wrong.
  void inherit_failure(Stream& other, uint64_t sequence);
  // On the JavaScript thread, without waiting: takes a failure that has been told, if it is here
  // too. False: it is not.
  bool take(const Failure& told, Failure* failure);
  // What was submitted so far is worth nothing, which has been told: it is skipped, and so is what
  // waits for it.
  void give_up(const Failure& told);
  // What took the results of a command with it, if that is known; of those that were told, only the
  // last is.
  bool failure_of(uint64_t sequence, Failure* failure);
  // On the native thread: whether the current command is to be skipped, and why.
  bool skips() const;
  bool skips(Failure* why);
  bool skips(Failed* why);
  // On the JavaScript thread: until the device is done. Takes the failure if there is one.
  Status synchronize(Failure* failure);
  // Commands up to this one are known to have succeeded.
  uint64_t verified() const { return verified_.load(std::memory_order_relaxed); }
  void verify(uint64_t sequence);

  // On the JavaScript thread: lets the native thread end when it has nothing left to do. Everything
  // that names the stream stays valid, and a next command starts the thread again.
  void park();
  // Takes back what a parked thread that has ended keeps, without waiting; parks one that was
  // started again.
  void reap();

  int32_t priority() const { return priority_; }
  void* native() const { return native_; }
  // Where memory used on this stream comes from.
  CachingAllocator* allocator() const { return allocator_; }
  uint32_t pool() const { return pool_; }
  // Called on the native thread when it has had nothing to do for a while; set before the first
  // command.
  std::function<void()> on_idle;
  // makes the backend's stream; called before first use
  Status open(CachingAllocator& allocator, ErrorText* error);

 private:
  struct Record;
  struct Ring;
  void* reserve(int64_t bytes);
  bool fits(int64_t bytes);  // into the ring, beside the mark that ends it
  void grow();
  void publish(int64_t bytes);
  void start();
  void loop();
  void process(Record* record);
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
  CachingAllocator* allocator_ = nullptr;
  // Tensors come from the first, on the JavaScript thread, and are free for later commands as soon
  // as they are freed there. Scratch is taken by the native thread for a command that may be much
  // earlier, so it has a pool of its own.
  uint32_t pool_ = 0, scratch_pool_ = 0;
  Block* scratch_ = nullptr;

  // Each group of fields has cache lines of its own: what one thread writes all the time must not
  // slow the other.
  std::unique_ptr<Ring> reading_;              // the thread's; it owns those that follow it
  alignas(64) std::atomic<uint64_t> head_{0};  // bytes written
  Ring* writing_ = nullptr;
  int64_t home_ = 0;
  uint64_t submitted_ = 0;
  uint64_t last_function_ = 0;                 // the last record that is no kernel
  bool running_ = false;                       // the native thread is there and not asked to end
  uint64_t known_tail_ = 0;                    // what the writer last saw of tail_
  alignas(64) std::atomic<uint64_t> tail_{0};  // bytes worked off
  std::atomic<uint64_t> completed_{0};
  alignas(64) std::atomic<bool> sleeping_{false};
  std::atomic<int> waiters_{0};
  std::atomic<bool> stop_{false};
  // with mutex_: the native thread will look at nothing any more
  bool ended_ = false;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::thread thread_;

  std::atomic<uint64_t> skip_until_{0};
  std::atomic<uint64_t> verified_{0};
  std::mutex failure_mutex_;
  Failure failure_, taken_;
  void fail_with(const Failure& failure);
  void take_failure();
};

// `index_select(float32[10, 4], int64[3])`: what a failure is reported with.
void describe_call(const KernelCall& call, const Backend& backend, char* out, int64_t size);

}  // namespace shardwise
