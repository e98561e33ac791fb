// Memory of ArrayBuffers that tensors borrow. JavaScript may transfer, and so free, it whenever it
// runs, and Node-API cannot keep it. So no command in flight points there: a command that reads
// uses a copy or is waited for, and a command that writes is waited for.
#pragma once
#include <cstdlib>
#include <functional>
#include <memory>

#include "environment.h"

namespace shardwise {

// A larger copy takes longer than most work in flight.
constexpr int64_t kMostBorrowedCopy = 32 << 20;

struct FreeBytes {
  void operator()(char* bytes) const { std::free(bytes); }
};
// Shared, because enqueued functions are copied.
using BorrowedCopy = std::shared_ptr<char>;
Status copy_borrowed(const void* from, int64_t bytes, BorrowedCopy* copy, ErrorText* error);

// True if the stream's work, and the next command with this storage, wait for no other stream.
bool runs_alone(const Stream& stream, const StorageEntry& entry);

// Fails if the memory of an adopted ArrayBuffer was transferred.
Status check_adopted(Napi::Env env, const StorageEntry& entry, ErrorText* error);

// Fails if that stays false for a moment and the stream belongs to a rank that shares the process:
// waiting could block on JavaScript of another rank.
Status may_wait(const Stream& stream, const std::function<bool()>& alone, ErrorText* error);

}  // namespace shardwise
