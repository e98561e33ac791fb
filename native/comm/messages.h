// Calls in words, for the texts of errors. Ranks are given by their places in the group, and told
// as the roster numbers them.
#pragma once
#include <string>
#include <vector>

#include "../include/text.h"
#include "group_info.h"
#include "layout.h"
#include "mismatch.h"

namespace shardwise::comm {

// `all_reduce of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const Roster& group, const Note& note);
// `all_reduce (call 7 of group "world")`, `send to rank 1 (group "world")`; of a group that has no
// name, "": `of the group`, or nothing
void describe_title(Text& text, const Roster& group, const Note& note);
// The title and its place: what errors of a call begin with.
void describe_heading(Text& text, const Roster& group, const Note& note);
// The call that rank `own` waits in, as all ranks read it: a message is not of all of them, so it
// says whose it is.
void describe_waiting(Text& text, const Roster& group, const Note& mine, int32_t own);
// ` at a.ts:9`, or nothing
void describe_place(Text& text, const Site& site);
// `, it is in all_reduce of 12 float32 (sum) at a.ts:9 (call 7)`, or what it called last. Null: it
// has called nothing.
void describe_last_call(Text& text, const Roster& group, const SharedNote& last, bool inside);

// `rank 2 aborted the group: reason`
void describe_abort(Text& text, const Roster& group, int32_t rank, const char* reason);

// A call of a group that has failed before, and why: `all_reduce (call 8 of group "world") at
// a.ts:10: the group has failed before: …`
void describe_refused(Text& text, const Roster& group, const Note& mine, int32_t own,
                      const ErrorText& cause);

// Who reads a text about the rank that writes it.
enum class Reader { This, All };

// The next three say it for programs as well. Title and both calls: of `own` rank, and of the first
// of those that differ.
void describe_difference(Text& text, const Roster& group, const Note& mine, int32_t own,
                         const Difference& found, const Note& other, Reader reader);
// Of an exchange of all with all, in bytes. The calls of both may be null: not known any more.
void describe_unexpected(Text& text, const Roster& group, const Note& mine, int32_t own,
                         int32_t from, int64_t sent, const Note* sender, int32_t to,
                         int64_t expected, const Note* receiver);
// Of a message between two ranks.
void describe_misfit(Text& text, const Roster& group, int32_t from, const Load& sent,
                     const Site& sender, int32_t to, const Load& expected, const Site& receiver);

// Ranks of the world in words: `rank 3`, `ranks 1 to 15 and 20`.
std::string words_of_ranks(const std::vector<int32_t>& ranks);

// What a text says for programs as well, behind a mark: the group, the number of the call, what the
// program called, the ranks that it is about ("1-15,20"), and of each call that is known its ranks,
// name and place; fields are apart by a mark of their own. lib/eager/collective-failure.ts reads
// it.
class Facts {
 public:
  Facts(const Roster& group, const Note& mine, int32_t own);
  explicit Facts(const Roster& group) : group_(group) {}  // of no call of this rank

  // It is what went wrong. Null: what it called is not known.
  void blame(int32_t rank, const Site* called);
  void blame(int32_t rank, const SharedNote& last);
  // Instead of those, ranks of the world, of which some may be in other groups.
  void blame_instead(std::vector<int32_t> ranks) { instead_ = std::move(ranks); }
  void knows(int32_t rank, const Site& called);
  // Behind all words of the text, which make room. Calls are left out where there is none, ranks
  // are not.
  void add_to(Text& text) const;

 private:
  struct Called {
    std::vector<int32_t> ranks;
    Site site;
  };
  const Roster& group_;
  std::string op_;
  uint64_t call_ = 0;
  std::vector<int32_t> blamed_, instead_;
  std::vector<Called> calls_;
};

// Ranks that are missing, of which those that fare alike are told together.
class Missing {
 public:
  // What has become of it, beginning with "has". `called`: its last call; null: none yet.
  void add(int32_t rank, const char* has, const Note* called, bool inside);
  void add(int32_t rank, const char* has, const SharedNote& called, bool inside);
  // Nothing is known of its calls.
  void add(int32_t rank, const char* has);
  bool empty() const { return fates_.empty(); }
  // `ranks 1 to 15 have not come, their last call was …; rank 16 has …`; `aside` stands behind the
  // first.
  void describe(Text& text, const Roster& group, const char* aside = "") const;
  void blame(Facts& facts) const;

 private:
  struct Fate {
    std::string has;
    bool is_known, inside, has_called;
    Note called;
    std::vector<int32_t> ranks;
  };
  void add(Fate fate, int32_t rank);
  std::vector<Fate> fates_;
};

}  // namespace shardwise::comm
