// The layout of the memory that the ranks of a group share: memory of one process, or a segment
// that each process maps at its own address. Data that one rank reads while another writes is
// atomic. All other data is written before a rendezvous of all ranks and read after it.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>

#include "../include/status.h"
#include "../platform/platform.h"
#include "wait.h"

namespace shardwise::comm {

constexpr int32_t kMaxRanks = 64;  // a set of ranks is a uint64_t
constexpr int64_t kAlign = 64;     // a cache line
constexpr int32_t kChannelChunks = 4;

enum class Kind : int32_t {
  None,
  AllReduce,
  Broadcast,
  AllGather,
  ReduceScatter,
  AllToAll,
  Reduce,
  Gather,
  Scatter,
  Barrier,
  Send,
  Receive,
};

// What must be equal in the calls of all ranks. Has no padding: it is compared as bytes.
struct Fingerprint {
  Kind kind;
  int32_t dtype, reduce, root;  // -1 if the call has none
  int64_t amount;               // elements if there is a dtype, else bytes
  uint64_t sizes;               // hash of the sizes per rank
  uint64_t name;                // hash of the name that the caller gave
  uint64_t about;               // hash of CollectiveCall::about
  uint64_t call;                // number of the collective in the group
};
static_assert(sizeof(Fingerprint) == 56);

// The place of a call in the program.
struct Site {
  char name[40], where[120];
};

// A call as error messages show it.
struct CallRecord {
  Fingerprint print;
  int64_t amount;  // of this rank; 0 in the fingerprint where ranks may differ
  int32_t peer;
  int32_t reserved;
  Site site;
  char about[264], advice[232];  // see CollectiveCall
};

// A value that one rank writes and others may read at any time. A reader tries again if the value
// changed meanwhile.
template <class T>
class Shared {
 public:
  void write(const T& record) {
    uint64_t words[kWords];
    memcpy(words, &record, sizeof record);
    const uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    // Each release keeps the odd version before the word, each acquire below the word before the
    // second look.
    for (int i = 0; i < kWords; i++) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }
  // Differs after each write.
  uint32_t version() const { return version_.load(std::memory_order_acquire); }
  bool read(T* record) const {
    for (int attempt = 0; attempt < 1000; attempt++) {
      uint64_t words[kWords];
      const uint32_t version = version_.load(std::memory_order_acquire);
      for (int i = 0; i < kWords; i++) words[i] = words_[i].load(std::memory_order_acquire);
      if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
      memcpy(record, words, sizeof *record);
      return version != 0;
    }
    return false;
  }

 private:
  static constexpr int kWords = sizeof(T) / 8;
  static_assert(sizeof(T) % 8 == 0);
  std::atomic<uint32_t> version_;
  std::atomic<uint64_t> words_[kWords];
};

using SharedCallRecord = Shared<CallRecord>;

// The last call of a rank. It stays readable if the rank is killed while it writes: the value before
// stays until the next one is whole.
class LastCall {
 public:
  void write(const CallRecord& record) {
    const uint32_t next = count_.load(std::memory_order_relaxed) + 1;
    values_[next % 2].write(record);
    count_.store(next, std::memory_order_release);
  }
  bool read(CallRecord* record) const {
    for (int attempt = 0; attempt < 1000; attempt++) {
      const uint32_t count = count_.load(std::memory_order_acquire);
      if (count == 0) return false;
      if (values_[count % 2].read(record) && count_.load(std::memory_order_acquire) == count)
        return true;
    }
    return false;
  }

 private:
  std::atomic<uint32_t> count_;
  SharedCallRecord values_[2];
};

// One group that a rank of the world created; the registry keeps the last ones of each rank.
struct CreatedGroup {
  uint64_t number;  // from 1, in the order of the program
  int32_t size, reserved;
  int32_t ranks[kMaxRanks];
  char name[40], where[120];
};
constexpr uint64_t kKeptGroups = 32;
struct alignas(kAlign) GroupRegistry {
  Shared<CreatedGroup> groups[kKeptGroups];
};

// What the program of a rank compiles: compilation.h.
struct Compilation {
  int64_t since_ns;  // 0: it compiles nothing
  int64_t limit_ms;  // the longest time that ranks wait for it
  int32_t is_own;    // 0: another rank of the process compiles, and this one cannot run meanwhile
  char what[108];
};

enum class Presence : uint32_t { Absent, Joined, Left };

// The calls of a rank in a group of devices, which other ranks read without waiting:
// shm_watchdog.h. A rank may be as many calls ahead as a device queues, so many calls leave a stamp
// of one word, and the last few a whole record.
constexpr uint64_t kKeptStamps = 1024, kKeptRecords = 32, kKeptExchanges = 8;
struct alignas(kAlign) WatchdogBlock {
  std::atomic<uint64_t> calls;  // the number of its last collective
  std::atomic<uint32_t> left;
  LastCall last;  // collective or message
  std::atomic<uint64_t> stamps[kKeptStamps];
  SharedCallRecord records[kKeptRecords];
  // all_to_all: bytes to and from each rank. `number` is 0 while they change.
  struct Exchange {
    std::atomic<uint64_t> number;
    std::atomic<int64_t> sends[kMaxRanks], receives[kMaxRanks];
  } exchanges[kKeptExchanges];
};

struct alignas(kAlign) RankBlock {
  std::atomic<uint32_t> claimed;
  std::atomic<Presence> presence;
  std::atomic<uint32_t> barriers;  // that this rank has reached
  std::atomic<uint32_t> in_call;
  platform::ProcessId process;
  LastCall record;
  Shared<Compilation> compilation;
  // The place, plus 1, of a rank that compiles and that this one waits for; 0: it waits for none.
  std::atomic<int32_t> awaits_compilation;
  // for even and odd calls: a rank may be one call ahead of the slowest reader
  Fingerprint prints[2];

  // Ranks of one process only: the memory that other ranks may use in this call.
  const void* in;
  void* out;
  std::atomic<uint32_t> inside;  // this rank uses memory of others now

  // all_to_all: bytes to and from each rank.
  int64_t sends[kMaxRanks], receives[kMaxRanks];
};

// The content of a message; the dtype is -1 if it is unknown.
struct Load {
  int64_t bytes;
  int64_t dtype;
  bool operator==(const Load& other) const { return bytes == other.bytes && dtype == other.dtype; }
};

// A ring of chunks from one rank to another.
struct alignas(kAlign) Channel {
  Counter written;
  alignas(kAlign) Counter taken;
  struct Label {
    Load load;  // size of the whole message, in the label of its first chunk
    Site site;
  } labels[kChannelChunks];
};

// The purpose of a group's memory. The world moves most data. Subgroups get less, because a program
// may have many. Groups of devices only use it for rendezvous and to compare calls.
enum class Use : int32_t { World, Subgroup, Rendezvous };

struct Header {
  std::atomic<uint64_t> magic;  // written last by the creator
  uint64_t token;
  int64_t slot_bytes;
  int32_t size;
  Use use;
  platform::ProcessId creator;
  Counter joined;

  // Rendezvous of all ranks: the last one to arrive advances the generation.
  alignas(kAlign) std::atomic<uint32_t> arrived;
  alignas(kAlign) Counter generation;
  std::atomic<uint32_t> failed;  // 0: no; 1: the failure is being written; 2: yes

  alignas(kAlign) int32_t failure_code;
  ErrorText failure;
};

}  // namespace shardwise::comm
