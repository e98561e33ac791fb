// The worker pool. Workers spin for a short while after a region, then sleep: kernels follow one
// another closely in a training step.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "../platform/platform.h"
#include "parallel_for.h"
#include "pause.h"
#include "processors.h"
#include "start_thread.h"

namespace shardwise::cpu {

namespace {

constexpr int kMany = 8;
constexpr int kSpins = 8000;
constexpr int kSpinsBeforeSleep = 1000;
constexpr int64_t kChunkGrains = 8;
constexpr int64_t kMaxChunks = int64_t{1} << 16;
constexpr auto kTurn = std::chrono::microseconds(200);
constexpr auto kLongTurn = std::chrono::milliseconds(4);
constexpr int kLongTurnsApart = 16;
constexpr std::chrono::nanoseconds kLongestPause = std::chrono::seconds(1);
thread_local bool inside_region = false;

struct InsideRegion {
  InsideRegion() { inside_region = true; }
  ~InsideRegion() { inside_region = false; }
};

class Pool {
 public:
  Pool() {
    // On machines with many processors one is left to JavaScript: with one thread too many, all
    // others wait for the one that has no processor.
    const char* wanted = std::getenv("SHARDWISE_NUM_THREADS");
    const int processors = usable_processors();
    const int count = std::clamp(wanted                ? std::atoi(wanted)
                                 : processors >= kMany ? processors - 1
                                                       : processors,
                                 1, 256);
    threads_ = count;
    yields_ = count >= processors;
    shares_.reset(new Share[count]);
  }

  int threads() const { return threads_; }

  void run(int64_t count, int64_t grain, void (*fn)(void*, int64_t, int64_t), void* context) {
    const int64_t most = (count + grain - 1) / grain;
    if (inside_region || most <= 1) {
      fn(context, 0, count);
      return;
    }
    const int64_t chunks = chunks_of(most);
    // If another stream uses the pool, the region runs on this thread instead of waiting.
    if (threads_ == 1 || !busy_.try_lock()) {
      run_alone(fn, context, count, chunks);
      return;
    }
    start_workers();
    job_ = {fn, context, count, chunks};
    done_.store(0, std::memory_order_relaxed);
    few_.store(chunks < 4 * threads_, std::memory_order_relaxed);
    for (int t = 0; t < threads_; t++) {
      const int64_t first =
          chunks < threads_ ? std::min<int64_t>(t, chunks) : chunks * t / threads_;
      const int64_t end =
          chunks < threads_ ? std::min<int64_t>(t + 1, chunks) : chunks * (t + 1) / threads_;
      shares_[t].word.store(static_cast<uint64_t>(end) << kEndShift | static_cast<uint64_t>(first),
                            std::memory_order_release);
    }
    regions_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
      std::lock_guard<std::mutex> lock(mutex_);
      wake_.notify_all();
    }
    work(0);
    // Waits only for claimed chunks, not for workers that were late.
    for (int spins = 0; spins < kSpinsBeforeSleep && !is_done(chunks); spins++) pause_briefly();
    if (!is_done(chunks)) sleep_until_done(chunks);
    const std::exception_ptr failure = failure_;
    failure_ = nullptr;
    busy_.unlock();
    if (failure) std::rethrow_exception(failure);
  }

 private:
  struct Job {
    void (*fn)(void*, int64_t, int64_t);
    void* context;
    int64_t count, chunks;
  };

  // The chunks that a thread claims first: the end of the range and the next one in one word, so
  // that one addition claims a chunk of exactly one region. A claim beyond the end (at most one a
  // thread and region) has no effect.
  struct alignas(64) Share {
    std::atomic<uint64_t> word{0};
  };

  // Four chunks a thread even out interruptions, and large regions have short chunks, so that turns
  // can be given between them. With fewer than four, each thread gets the same number.
  int64_t chunks_of(int64_t most) const {
    const int64_t few = 4 * threads_, short_ones = std::min(most / kChunkGrains, kMaxChunks);
    if (most >= few) return std::max(few, short_ones);
    return most >= threads_ ? most / threads_ * threads_ : most;
  }

  static void run_alone(void (*fn)(void*, int64_t, int64_t), void* context, int64_t count,
                        int64_t chunks) {
    const InsideRegion inside;
    for (int64_t i = 0; i < chunks; i++) {
      fn(context, count * i / chunks, count * (i + 1) / chunks);
      give_turn();
    }
  }

  // The caller does the work of workers that the system refuses; the next region tries again.
  void start_workers() {
    while (started_ < threads_ && start_detached([this, i = started_] { loop(i); })) started_++;
  }

  // First the chunks of the thread's own share, whose memory its cache may still hold from the
  // previous region, then those that others have left. With few chunks only the caller takes from
  // others: workers would race for each other's chunks, and wait for memory instead of working.
  void work(int thread) {
    const InsideRegion inside;
    take(shares_[thread]);
    if (thread > 0 && few_.load(std::memory_order_relaxed)) return;
    for (int t = thread + 1; t < threads_; t++) take(shares_[t]);
    for (int t = 0; t < thread; t++) take(shares_[t]);
  }

  void take(Share& share) {
    for (;;) {
      if (!has_more(share.word.load(std::memory_order_relaxed))) return;
      const uint64_t claim = share.word.fetch_add(1, std::memory_order_acq_rel);
      if (!has_more(claim)) return;
      // The region cannot end before this chunk is complete, so the job does not change.
      const auto chunk = static_cast<int64_t>(claim & kFieldMask);
      const int64_t begin = job_.count * chunk / job_.chunks,
                    end = job_.count * (chunk + 1) / job_.chunks;
      if (begin < end) run_chunk(begin, end);
      finish_chunk(job_.chunks);
      give_turn();
    }
  }

  // Afterwards the job may already be the next region's.
  void finish_chunk(int64_t chunks) {
    if (done_.fetch_add(1, std::memory_order_seq_cst) + 1 < chunks ||
        !caller_sleeps_.load(std::memory_order_seq_cst))
      return;
    std::lock_guard<std::mutex> lock(mutex_);
    all_done_.notify_one();
  }

  bool is_done(int64_t chunks) const { return done_.load(std::memory_order_seq_cst) == chunks; }

  // Sleeps instead of yielding: a yield would wait for a whole slice of other programs, though the
  // last chunk may be complete at once.
  void sleep_until_done(int64_t chunks) {
    std::unique_lock<std::mutex> lock(mutex_);
    caller_sleeps_.store(true, std::memory_order_seq_cst);
    all_done_.wait(lock, [&] { return is_done(chunks); });
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }

  static bool has_more(uint64_t word) { return (word & kFieldMask) < word >> kEndShift; }

  // An exception (no memory for a row) must neither end a worker nor leave a region that others
  // still work on.
  void run_chunk(int64_t begin, int64_t end) {
    try {
      job_.fn(job_.context, begin, end);
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  void loop(int thread) {
    platform::yield_to_javascript();
    uint64_t seen = 0;
    const auto nothing_new = [&] { return regions_.load(std::memory_order_seq_cst) == seen; };
    for (;;) {
      int spins = 0;
      while (nothing_new()) {
        if (++spins < kSpins) {
          if (yields_ && spins % 64 == 0)
            std::this_thread::yield();
          else
            pause_briefly();
          continue;
        }
        std::unique_lock<std::mutex> lock(mutex_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return !nothing_new(); });
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      }
      seen = regions_.load(std::memory_order_acquire);
      work(thread);
    }
  }

  static constexpr int kEndShift = 32;
  static constexpr uint64_t kFieldMask = (uint64_t{1} << 32) - 1;

  int threads_ = 1;
  // threads yield while they wait, because others have no processor of their own
  bool yields_ = false;
  int started_ = 1;  // the caller and the workers that exist
  std::mutex busy_, mutex_;
  std::exception_ptr failure_;  // the first exception of the region
  std::condition_variable wake_, all_done_;
  std::unique_ptr<Share[]> shares_;
  alignas(64) std::atomic<uint64_t> regions_{0};  // number of regions begun
  std::atomic<bool> few_{false};
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  Job job_{};
};

Pool& pool() {
  // never destroyed: its threads may still read it while the process ends
  static Pool* instance = new Pool;
  return *instance;
}

constexpr std::align_val_t kScratchAlignment{64};

struct Scratch {
  void* data[4] = {};
  int64_t bytes[4] = {};
  ~Scratch() {
    for (void* each : data) release(each);
  }
  static void release(void* memory) { ::operator delete(memory, kScratchAlignment); }
};

}  // namespace

// The event loop mostly returns the processor within a millisecond. A longer wait is likely another
// program, which takes its slice or more after a yield: then no turns are given for a while.
void give_turn() {
  static thread_local std::chrono::steady_clock::time_point next{};
  const auto now = std::chrono::steady_clock::now();
  if (now < next) return;
  std::this_thread::yield();
  const auto back = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds took = back - now;
  next = back + (took > kLongTurn ? std::min(took * kLongTurnsApart, kLongestPause) : kTurn);
}

int num_threads() { return pool().threads(); }

void parallel_for_raw(int64_t count, int64_t grain, void (*fn)(void*, int64_t, int64_t),
                      void* context) {
  if (count <= 0) return;
  pool().run(count, grain < 1 ? 1 : grain, fn, context);
}

void* scratch(int slot, int64_t bytes) {
  static thread_local Scratch memory;
  if (memory.bytes[slot] < bytes) {
    Scratch::release(memory.data[slot]);
    const int64_t rounded = (bytes + 4095) / 4096 * 4096;
    memory.data[slot] = ::operator new(rounded, kScratchAlignment, std::nothrow);
    memory.bytes[slot] = memory.data[slot] ? rounded : 0;
    if (!memory.data[slot]) throw std::bad_alloc();  // launch() turns it into an error
  }
  return memory.data[slot];
}

}  // namespace shardwise::cpu
