#include "group_registry.h"

#include <algorithm>

#include "messages.h"

namespace shardwise::comm {
namespace {

constexpr int32_t kShownRanks = 16;
constexpr char kAdvice[] =
    ". All ranks make their groups of the same ranks, in one order, also those that they are not "
    "in";

MadeGroup made_group(uint64_t number, const Roster& group, const char* where) {
  MadeGroup made = {};
  made.number = number;
  made.size = std::min<int32_t>(static_cast<int32_t>(group.ranks.size()), kMaxRanks);
  std::copy_n(group.ranks.begin(), made.size, made.ranks);
  snprintf(made.name, sizeof made.name, "%s", group.name.c_str());
  snprintf(made.where, sizeof made.where, "%s", where);
  return made;
}

bool is_same(const MadeGroup& a, const MadeGroup& b) {
  return a.size == b.size && std::equal(a.ranks, a.ranks + a.size, b.ranks);
}

// `[0, 2] at a.ts:9`
void describe(Text& text, const MadeGroup& made) {
  text.add("[");
  for (int32_t i = 0; i < std::min(made.size, kShownRanks); i++)
    text.add(i > 0 ? ", %d" : "%d", made.ranks[i]);
  text.add(made.size > kShownRanks ? ", …]" : "]");
  if (made.where[0] != 0) text.add(" at %s", made.where);
}

bool find(Region& world, int32_t rank, const Roster& group, MadeGroup* out) {
  for (const auto& kept : world.board(rank).groups)
    if (kept.read(out) && group.name == out->name) return true;
  return false;
}

Site site_of(const MadeGroup& made) {
  Site site = {};
  snprintf(site.name, sizeof site.name, "newGroup");
  snprintf(site.where, sizeof site.where, "%s", made.where);
  return site;
}

Status refuse(const MadeGroup& mine, int32_t own, const MadeGroup& other, int32_t rank,
              ErrorText* error) {
  ErrorText message;
  Text text(message);
  text.add("rank %d has made group \"%s\" of the ranks ", rank, mine.name);
  describe(text, other);
  text.add(", this rank of ");
  describe(text, mine);
  text.add("%s", kAdvice);
  const Roster numbers{mine.name, {}};
  Note note = {};
  note.site = site_of(mine);
  const Site made_there = site_of(other);
  Facts facts(numbers, note, own);
  facts.blame(rank, &made_there);
  facts.add_to(text);
  return fail(error, Code::Peer, "%s", message.text);
}

}  // namespace

Status announce_group(Region& world, int32_t rank, uint64_t number, const Roster& group,
                      const char* where, ErrorText* error) {
  const MadeGroup mine = made_group(number, group, where);
  const uint64_t place = number % kKeptGroups;
  world.board(rank).groups[place].write(mine);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int32_t other = 0; other < world.size(); other++) {
    MadeGroup theirs;
    if (other == rank || !world.board(other).groups[place].read(&theirs)) continue;
    if (theirs.number == number && !is_same(theirs, mine))
      return refuse(mine, rank, theirs, other, error);
  }
  return kOk;
}

bool has_made_other(Region& world, int32_t rank, int32_t own, const Roster& group, ErrorText* how) {
  MadeGroup mine, theirs;
  if (!world.has_boards() || !find(world, own, group, &mine) ||
      !find(world, rank, group, &theirs) || is_same(mine, theirs))
    return false;
  if (how == nullptr) return true;
  Text text(*how);
  text.add("has made it of the ranks ");
  describe(text, theirs);
  text.add(", and rank %d of ", own);
  describe(text, mine);
  text.add("%s", kAdvice);
  return true;
}

}  // namespace shardwise::comm
