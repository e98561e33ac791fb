// What the ranks of a group share, as it lies in memory: of one process, or of a segment that each
// process maps elsewhere. Whatever a rank may read while another writes is atomic; the rest is
// written before a meeting of all ranks and read behind it.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstring>

#include "../include/status.h"
#include "process.h"
#include "wait.h"

namespace shardwise::comm {

constexpr int32_t kMaxRanks = 64;  // a set of ranks is a uint64_t
constexpr int64_t kAlign = 64;     // a cache line
constexpr int32_t kChannelPieces = 4;

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

// What the calls of all ranks must agree in. Without padding: compared as bytes.
struct Fingerprint {
  Kind kind;
  int32_t dtype, reduce, root;  // -1: not of this call
  int64_t amount;               // elements with a dtype, else bytes
  uint64_t sizes;               // hash of what each rank gets or gives
  uint64_t name;                // hash of the name that the caller gave
  uint64_t about;               // hash of what the caller said of it
  uint64_t call;                // counts the collectives of the group
};
static_assert(sizeof(Fingerprint) == 56);

// Where a call stands in the caller's program.
struct Site {
  char name[40], where[120];
};

// A call as errors show it.
struct Note {
  Fingerprint print;
  int64_t amount;  // the rank's own; the fingerprint's is 0 where ranks may differ
  int32_t peer;
  int32_t reserved;
  Site site;
  char about[264], advice[232];  // see CollectiveCall
};

// What one rank writes and others may read at any time: taken again when it was changed meanwhile.
template <class T>
class Shared {
 public:
  void write(const T& note) {
    uint64_t words[kWords];
    memcpy(words, &note, sizeof note);
    const uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    // Each release keeps the odd version before the word, each acquire below the word before the
    // second look.
    for (int i = 0; i < kWords; i++) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }
  bool read(T* note) const {
    for (int attempt = 0; attempt < 1000; attempt++) {
      uint64_t words[kWords];
      const uint32_t version = version_.load(std::memory_order_acquire);
      for (int i = 0; i < kWords; i++) words[i] = words_[i].load(std::memory_order_acquire);
      if (version % 2 != 0 || version_.load(std::memory_order_relaxed) != version) continue;
      memcpy(note, words, sizeof *note);
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

using SharedNote = Shared<Note>;

// A group that a rank of the world has made, and the last ones of each rank.
struct MadeGroup {
  uint64_t number;  // from 1, in the order of the program
  int32_t size, reserved;
  int32_t ranks[kMaxRanks];
  char name[40], where[120];
};
constexpr uint64_t kKeptGroups = 32;
struct alignas(kAlign) GroupBoard {
  Shared<MadeGroup> groups[kKeptGroups];
};

enum class Presence : uint32_t { Absent, Joined, Left };

// What a rank does in a group of devices, for the others to look at without waiting: shm_watchdog.h.
// A rank may be ahead of another by as many calls as a device takes in advance, so a word of each
// is kept for long, and the whole note of the last few.
constexpr uint64_t kKeptStamps = 1024, kKeptNotes = 32, kKeptExchanges = 8;
struct alignas(kAlign) WatchBlock {
  std::atomic<uint64_t> calls;  // the number of its last collective
  std::atomic<uint32_t> left;
  SharedNote last;  // of whatever kind
  std::atomic<uint64_t> stamps[kKeptStamps];
  SharedNote notes[kKeptNotes];
  // all_to_all: bytes to and from each rank. The number is 0 while they change.
  struct Exchange {
    std::atomic<uint64_t> number;
    std::atomic<int64_t> sends[kMaxRanks], receives[kMaxRanks];
  } exchanges[kKeptExchanges];
};

struct alignas(kAlign) RankBlock {
  std::atomic<uint32_t> claimed;
  std::atomic<Presence> presence;
  std::atomic<uint32_t> meetings;  // that it has come to
  std::atomic<uint32_t> in_call;
  ProcessId process;
  SharedNote note;
  // of even and odd calls: a rank may be one call ahead of the slowest reader
  Fingerprint prints[2];

  // Ranks of one process only: the memory that others may use in this call.
  const void* in;
  void* out;
  std::atomic<uint32_t> inside;  // uses memory of others now

  // all_to_all: bytes to and from each rank.
  int64_t sends[kMaxRanks], receives[kMaxRanks];
};

// What a message holds; the dtype is -1 where nobody has said it.
struct Load {
  int64_t bytes;
  int64_t dtype;
  bool operator==(const Load& other) const { return bytes == other.bytes && dtype == other.dtype; }
};

// From one rank to another: a ring of pieces.
struct alignas(kAlign) Channel {
  Counter written;
  alignas(kAlign) Counter taken;
  struct Label {
    Load load;  // of the whole message, with its first piece
    Site site;
  } labels[kChannelPieces];
};

// What a group's memory is for. Most is moved in the world; where a program has many groups, each
// gets less; ranks of devices only meet in theirs, and look there what the others have called.
enum class Use : int32_t { World, Part, Meeting };

struct Header {
  std::atomic<uint64_t> magic;  // written last by the creator
  uint64_t token;
  int64_t slot_bytes;
  int32_t size;
  Use use;
  ProcessId creator;
  Counter joined;

  // All ranks meet here: the last to arrive moves the generation on.
  alignas(kAlign) std::atomic<uint32_t> arrived;
  alignas(kAlign) Counter generation;
  std::atomic<uint32_t> failed;  // 0, 1: the text is being written, 2

  alignas(kAlign) int32_t failure_code;
  char failure_text[kErrorBytes];
};

}  // namespace shardwise::comm
