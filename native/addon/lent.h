// Memory of ArrayBuffers that tensors show. JavaScript may transfer, and so free, it whenever it
// runs, and Node-API has nothing that keeps it: so no command that is under way points there. What
// reads it reads a copy, or is waited for; what writes it is waited for.
#pragma once
#include <cstdlib>
#include <functional>
#include <memory>

#include "environment.h"

namespace shardwise {

// To copy more takes longer than most work that is under way.
constexpr int64_t kMostLentCopy = 32 << 20;

struct FreeBytes {
  void operator()(char* bytes) const { std::free(bytes); }
};
// Shared, because what is enqueued is copied.
using LentCopy = std::shared_ptr<char>;
Status copy_lent(const void* from, int64_t bytes, LentCopy* copy, ErrorText* error);

// Whether what the stream does and is then given with the storage waits for no other stream.
bool runs_alone(const Stream& stream, const StorageEntry& entry);

// Fails where it stays otherwise for a moment and the stream belongs to a rank that shares the
// process: to wait may be to wait for what JavaScript has yet to do for another rank.
Status may_wait(const Stream& stream, const std::function<bool()>& alone, ErrorText* error);

}  // namespace shardwise
