#include "group_registry.h"

#include <algorithm>

#include "messages.h"

namespace shardwise::comm {
namespace {

constexpr int32_t kShownRanks = 16;
constexpr char kAdvice[] =
    ". All ranks make their groups of the same ranks, in one order, also those that they are not "
    "in";

CreatedGroup created_group(uint64_t number, const GroupInfo& group, const char* where) {
  CreatedGroup made = {};
  made.number = number;
  made.size = std::min<int32_t>(static_cast<int32_t>(group.ranks.size()), kMaxRanks);
  std::copy_n(group.ranks.begin(), made.size, made.ranks);
  snprintf(made.name, sizeof made.name, "%s", group.name.c_str());
  snprintf(made.where, sizeof made.where, "%s", where);
  return made;
}

bool is_same(const CreatedGroup& a, const CreatedGroup& b) {
  return a.size == b.size && std::equal(a.ranks, a.ranks + a.size, b.ranks);
}

// `[0, 2] at a.ts:9`
void describe(Text& text, const CreatedGroup& made) {
  text.add("[");
  for (int32_t i = 0; i < std::min(made.size, kShownRanks); i++)
    text.add(i > 0 ? ", %d" : "%d", made.ranks[i]);
  text.add(made.size > kShownRanks ? ", …]" : "]");
  if (made.where[0] != 0) text.add(" at %s", made.where);
}

bool find(Region& world, int32_t rank, const GroupInfo& group, CreatedGroup* out) {
  for (const auto& kept : world.registry(rank).groups)
    if (kept.read(out) && group.name == out->name) return true;
  return false;
}

Site site_of(const CreatedGroup& made) {
  Site site = {};
  snprintf(site.name, sizeof site.name, "newGroup");
  snprintf(site.where, sizeof site.where, "%s", made.where);
  return site;
}

Status refuse(const CreatedGroup& mine, int32_t own, const CreatedGroup& other, int32_t rank,
              ErrorText* error) {
  ErrorText message;
  Text text(message);
  text.add("rank %d created group \"%s\" of the ranks ", rank, mine.name);
  describe(text, other);
  text.add(", this rank of ");
  describe(text, mine);
  text.add("%s", kAdvice);
  const GroupInfo numbers{mine.name, {}};
  CallRecord record = {};
  record.site = site_of(mine);
  const Site made_there = site_of(other);
  DetailsWriter details(numbers, record, own);
  details.blame(rank, &made_there);
  details.add_to(text);
  message.details.names_creations = 1;
  return fail_with(error, Code::Peer, message);
}

}  // namespace

Status publish_group(Region& world, int32_t rank, uint64_t number, const GroupInfo& group,
                     const char* where, ErrorText* error) {
  const CreatedGroup mine = created_group(number, group, where);
  const uint64_t place = number % kKeptGroups;
  world.registry(rank).groups[place].write(mine);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int32_t other = 0; other < world.size(); other++) {
    CreatedGroup theirs;
    if (other == rank || !world.registry(other).groups[place].read(&theirs)) continue;
    if (theirs.number == number && !is_same(theirs, mine))
      return refuse(mine, rank, theirs, other, error);
  }
  return kOk;
}

bool created_differently(Region& world, int32_t rank, int32_t own, const GroupInfo& group,
                         ErrorText* how) {
  CreatedGroup mine, theirs;
  if (!world.has_registries() || !find(world, own, group, &mine) ||
      !find(world, rank, group, &theirs) || is_same(mine, theirs))
    return false;
  if (how == nullptr) return true;
  Text text(*how);
  text.add("has created it of the ranks ");
  describe(text, theirs);
  text.add(", and rank %d of ", own);
  describe(text, mine);
  text.add("%s", kAdvice);
  return true;
}

}  // namespace shardwise::comm
