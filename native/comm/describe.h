// Calls in words, for the texts of errors.
#pragma once
#include "layout.h"
#include "text.h"

namespace shardwise::comm {

// `all_reduce of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const Note& note);
// `all_reduce (call 7 of group "world")`; `of the group` where it has no name
void describe_title(Text& text, const Note& note, const char* group);
// ` at a.ts:9`, or nothing
void describe_place(Text& text, const Site& site);
// `, it is in all_reduce of 12 float32 (sum) at a.ts:9 (call 7)`, or what it called last
void describe_last_call(Text& text, const SharedNote& note, bool inside);
// Title and both calls. `who`: "this rank", or its number where all ranks read the text.
void describe_difference(Text& text, const char* group, const Note& mine, const char* who, int32_t rank, const Note& other);

}  // namespace shardwise::comm
