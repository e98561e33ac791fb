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

// Title and both calls. `who`: "this rank", or its number where all ranks read the text.
void describe_difference(Text& text, const char* group, const Note& mine, const char* who, int32_t rank, const Note& other);
// Of an exchange of all with all, in bytes.
void describe_unexpected(Text& text, const char* group, const Note& mine, int32_t from, int64_t sent, int32_t to, int64_t expected);
// Of a message between two ranks, in bytes.
void describe_misfit(Text& text, int32_t from, int64_t sent, const Site& sender, int32_t to, int64_t expected, const Site& receiver);

}  // namespace shardwise::comm
