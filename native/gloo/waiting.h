// Waiting for gloo's buffers. Its own timeouts close every connection of the rank and its own close
// wakes nobody, so waits here have none: they end now and then, and who waits looks what has become
// of the others.
#pragma once
#include <gloo/transport/unbound_buffer.h>

#include <string>

namespace shardwise::across {

using Buffer = ::gloo::transport::UnboundBuffer;

enum class Way { Receive, Send };
// Broken: the connection is lost. Gloo notices where an operation has not begun, not where it is
// under way.
enum class Waited { Done, Interrupted, Broken };

Waited wait_a_moment(Buffer& buffer, Way way, std::string* why);
// Whether the connection is lost that the buffer has a receive pending on. Does not wait.
bool is_broken(Buffer& buffer, std::string* why);
// Present waits end at once.
void interrupt_waits();

// What gloo says without the place in its sources.
std::string plain(const char* what);

}  // namespace shardwise::across
