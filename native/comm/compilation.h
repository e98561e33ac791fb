// Ranks that compile. The program of such a rank calls nothing until it is done, so the ranks that
// wait for it do not count that time.
#pragma once
#include <memory>

#include "../include/text.h"
#include "group_info.h"
#include "region.h"

namespace shardwise::comm {

// The start of a compilation, to be published. `what`: `the graph of step`. `is_own`: the rank
// compiles it; else another rank of its process does.
Compilation begin_compilation(const char* what, bool is_own, int64_t limit_ms);
// A rank that began this `elapsed_ms` ago: `has been compiling the graph of step for 31 s`
void describe_compilation(Text& has, const Compilation& compilation, int64_t elapsed_ms);

// The ranks that a waiting rank waits for. Publishes a wait for a rank that compiles in the world's
// memory: whoever waits for this rank waits for that one too.
class Compilations {
 public:
  // `world`: null if the group is its own world, or if the world shares no memory. `own`: the place
  // of this rank in the group.
  Compilations(Region& region, Region* world, const GroupInfo& group, int32_t size, int32_t own)
      : memory_(world != nullptr ? *world : region),
        group_(group),
        in_world_(world != nullptr),
        size_(size),
        own_(place(own)) {}
  ~Compilations() { publish(-1); }
  Compilations(const Compilations&) = delete;

  // Whether one of these ranks of the group compiles, has compiled since the last call, or waits
  // for a rank that compiles.
  bool delay(uint64_t ranks);
  // Says why a rank of the group has not come, if it compiles or waits for a rank that does.
  bool describe(int32_t rank, Text& has) const;

 private:
  // Where the memory has a rank of the group.
  int32_t place(int32_t rank) const { return in_world_ ? group_.rank_at(rank) : rank; }
  bool compiles(int32_t place) const;
  // The place of the rank for which that one waits; -1 if it waits for no compilation.
  int32_t awaited_by(int32_t place) const;
  void publish(int32_t place);

  Region& memory_;
  const GroupInfo& group_;
  const bool in_world_;
  const int32_t size_, own_;
  int32_t published_ = -1;
  uint64_t known_ = 0;  // places whose version was read
  uint32_t versions_[kMaxRanks];
};

}  // namespace shardwise::comm
