// Calls in words, for the texts of errors.
#pragma once
#include "layout.h"
#include "text.h"

namespace shardwise::comm {

// `all_reduce of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const Note& note);
// `all_reduce (call 7 of the group)`
void describe_title(Text& text, const Note& note);
// ` at a.ts:9`, or nothing
void describe_place(Text& text, const Site& site);

}  // namespace shardwise::comm
