// Calls in words, for the texts of errors.
#pragma once
#include "../include/text.h"
#include "layout.h"

namespace shardwise::comm {

// `all_reduce of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const Note& note);
// `all_reduce (call 7 of group "world")`, `send to rank 1 (group "world")`; of a group that has no name, "": `of the group`, or nothing
void describe_title(Text& text, const Note& note, const char* group);
// ` at a.ts:9`, or nothing
void describe_place(Text& text, const Site& site);
// `, it is in all_reduce of 12 float32 (sum) at a.ts:9 (call 7)`, or what it called last. Null: it has called nothing.
void describe_last_call(Text& text, const Note* last, bool inside);
void describe_last_call(Text& text, const SharedNote& last, bool inside);

// `rank 2 aborted the group: reason`
void describe_abort(Text& text, const char* group, int32_t rank, const char* reason);

// Who reads a text about the rank that writes it.
enum class Reader { This, All };

// The next three say it for programs as well. Title and both calls: of `own` rank, and another.
void describe_difference(Text& text, const char* group, const Note& mine, int32_t own, int32_t rank, const Note& other, Reader reader);
// Of an exchange of all with all, in bytes.
void describe_unexpected(Text& text, const char* group, const Note& mine, int32_t own, int32_t from, int64_t sent, int32_t to,
                         int64_t expected);
// Of a message between two ranks, in bytes.
void describe_misfit(Text& text, const char* group, int32_t from, int64_t sent, const Site& sender, int32_t to, int64_t expected,
                     const Site& receiver);

// For programs, at the end of a text: behind a mark the group, the number of the call, and of each rank that it speaks of the rank, whether
// it is what went wrong (0 or 1), what it called, and where; fields are apart by a mark of their own. lib/eager/collective-failure.ts reads it.
void describe_facts(Text& text, const char* group, const Note& mine, int32_t own);
void describe_rank_facts(Text& text, int32_t rank, bool blamed, const Site* called);
void describe_rank_facts(Text& text, int32_t rank, bool blamed, const SharedNote& last);

}  // namespace shardwise::comm
