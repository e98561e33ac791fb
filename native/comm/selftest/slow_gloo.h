// Gloo with a pause before a rank waits for frames, to test a race that is otherwise seen once in
// thousands of groups.
#pragma once

namespace shardwise::comm::selftest {

// Call with the library of the engine before it is used.
void take_receive(void* engine);

// For this thread, from now on.
void pause_before_frames(int milliseconds);

// True if any thread has paused.
bool has_paused();

}  // namespace shardwise::comm::selftest
