// Formats collective calls for error messages. Takes ranks of the group, prints ranks of the world.
#pragma once
#include <string>
#include <vector>

#include "../include/text.h"
#include "group_info.h"
#include "layout.h"
#include "mismatch.h"

namespace shardwise::comm {

// `all_reduce of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const GroupInfo& group, const CallRecord& record);
// `all_reduce (call 7 of group "world")`, `send to rank 1 (group "world")`. A group without a name
// gives `of the group`, or nothing for a message.
void describe_title(Text& text, const GroupInfo& group, const CallRecord& record);
// The title and the place of the call: the start of an error.
void describe_heading(Text& text, const GroupInfo& group, const CallRecord& record);
// The call that rank `own` waits in, as all ranks read it. For a message it names the rank too.
void describe_waiting(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own);
// ` at a.ts:9`, or nothing
void describe_place(Text& text, const Site& site);
// `, it is in all_reduce of 12 float32 (sum) at a.ts:9 (call 7)`, or the last call. Null: the rank
// has called nothing.
void describe_last_call(Text& text, const GroupInfo& group, const LastCall& last, bool inside);

// `rank 2 aborted the group: reason`
void describe_abort(Text& text, const GroupInfo& group, int32_t rank, const ErrorText& reason);

// A call of a group that has failed before: `all_reduce (call 8 of group "world") at a.ts:10: the
// group has failed before: …`
void describe_refused(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own,
                      const ErrorText& cause);

// The ranks that read the text: the rank that writes it, or all.
enum class Reader { This, All };

// The next three also write the details. The text has the title and two calls: of rank `own`, and
// of the first rank that differs.
void describe_mismatch(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own,
                       const Mismatch& found, const CallRecord& other, Reader reader);
// An all-to-all whose sizes in bytes differ. The records may be null: no longer known.
void describe_unexpected(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own,
                         int32_t from, int64_t sent, const CallRecord* sender, int32_t to,
                         int64_t expected, const CallRecord* receiver);
// A message whose sizes differ.
void describe_misfit(Text& text, const GroupInfo& group, int32_t from, const Load& sent,
                     const Site& sender, int32_t to, const Load& expected, const Site& receiver);

// Ranks of the world: `rank 3`, `ranks 1 to 15 and 20`.
std::string format_ranks(const std::vector<int32_t>& ranks);

// Collects what an error says to programs: the group, the number of the call, what the program
// called, the ranks to blame, and the calls that are known.
class DetailsWriter {
 public:
  DetailsWriter(const GroupInfo& group, const CallRecord& mine, int32_t own);
  explicit DetailsWriter(const GroupInfo& group) : group_(group) {}  // without a call of this rank

  // The rank is the cause. Null: its call is not known.
  void blame(int32_t rank, const Site* called);
  void blame(int32_t rank, const LastCall& last);
  // Blames these ranks of the world instead; some may be in other groups.
  void blame_instead(std::vector<int32_t> ranks) { instead_ = std::move(ranks); }
  void knows(int32_t rank, const Site& called);
  // Merges with the details of the cause that the text already has. The cause names the ranks to
  // blame; the present call is this one. Calls that find no room are left out.
  void add_to(Text& text) const;

 private:
  struct Called {
    std::vector<int32_t> ranks;
    Site site;
  };
  const GroupInfo& group_;
  std::string op_;
  uint64_t call_ = 0;
  std::vector<int32_t> blamed_, instead_;
  std::vector<Called> calls_;
};

// Ranks that are missing, grouped by the reason.
class Missing {
 public:
  // `has`: a phrase about the rank that begins with "has". `called`: its last call; null: it has
  // called nothing.
  void add(int32_t rank, const char* has, const CallRecord* called, bool inside);
  void add(int32_t rank, const char* has, const LastCall& called, bool inside);
  // Its calls are unknown.
  void add(int32_t rank, const char* has);
  bool empty() const { return absences_.empty(); }
  // `ranks 1 to 15 have not come, their last call was …; rank 16 has …`; `aside` follows the first
  // group.
  void describe(Text& text, const GroupInfo& group, const char* aside = "") const;
  void blame(DetailsWriter& details) const;

 private:
  struct Absence {
    std::string has;
    bool is_known, inside, has_called;
    CallRecord called;
    std::vector<int32_t> ranks;
  };
  void add(Absence absence, int32_t rank);
  std::vector<Absence> absences_;
};

}  // namespace shardwise::comm
