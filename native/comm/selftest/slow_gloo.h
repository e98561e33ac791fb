// Gloo with a pause where a rank begins to wait for another one's frames: what happens in between
// is otherwise seen once in thousands of groups.
#pragma once

namespace shardwise::comm::selftest {

// By the library of the engine, before it is used.
void take_receive(void* engine);

// Of this thread, from now on.
void pause_before_frames(int milliseconds);

// Whether any has.
bool has_paused();

}  // namespace shardwise::comm::selftest
