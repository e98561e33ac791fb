// Waits for buffers of gloo. Gloo's timeouts close every connection of the rank, and closing a
// connection wakes no waiter. So waits here have no timeout: they end every 50 ms, and the caller
// checks the other ranks.
#pragma once
#include <gloo/transport/unbound_buffer.h>

#include <string>

namespace shardwise::gloo_engine {

using Buffer = ::gloo::transport::UnboundBuffer;

enum class Direction { Receive, Send };
// Broken: the connection is closed. Gloo notices this for an operation that has not begun, but not
// for one in flight.
enum class Waited { Done, Interrupted, Broken };

Waited wait_a_moment(Buffer& buffer, Direction direction, std::string* why);
// True if the connection of a buffer with a pending receive is closed. Does not wait.
bool is_broken(Buffer& buffer, std::string* why);
// Ends all present waits.
void interrupt_waits();

// The message of a gloo error without the place in gloo's sources.
std::string plain(const char* what);

}  // namespace shardwise::gloo_engine
