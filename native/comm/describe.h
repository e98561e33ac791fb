// Calls in words, for the texts of errors.
#pragma once
#include "layout.h"
#include "text.h"

namespace shardwise::comm {

// `all_reduce of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const Note& note);
// `all_reduce (call 7 of the group)`, or of a group that has a name: `all_reduce (call 7 of group "world")`
void describe_title(Text& text, const Note& note, const char* group = nullptr);
// ` at a.ts:9`, or nothing
void describe_place(Text& text, const Site& site);
// `, its last call was all_reduce of … (call 7)`; `it is in` one that has not returned. Null: it has called nothing.
void describe_last_call(Text& text, const Note* last, bool in_call);

// `all_reduce (call 7 of the group): rank 1 called …, this rank …`. `who`: "this rank", or its number where all ranks read the text.
void describe_difference(Text& text, const Note& mine, const char* who, int32_t rank, const Note& other, const char* group = nullptr);
// Of an exchange of all with all, in bytes.
void describe_unexpected(Text& text, const Note& mine, int32_t from, int64_t sent, int32_t to, int64_t expected,
                         const char* group = nullptr);
// Of a message between two ranks, in bytes.
void describe_misfit(Text& text, int32_t from, int64_t sent, const Site& sender, int32_t to, int64_t expected, const Site& receiver);

}  // namespace shardwise::comm
