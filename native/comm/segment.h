// Names of shared memory: creates a segment, finds the right one, and removes what dead runs
// left.
#pragma once
#include <cstdint>

#include "../include/status.h"
#include "../platform/platform.h"

namespace shardwise::comm {

// A name may belong to another user or to a live run: then all ranks try the next of these names.
constexpr int32_t kSegmentNames = 16;
constexpr int32_t kSegmentPath = 128;
constexpr uint64_t kSegmentMagic = 0x3570756f72677773;  // swgroup5; another layout gets another

// Creates a segment of this size and allocates all of its memory now: a full /dev/shm would kill
// the process later. Returns file and path, or the error of the system if there is no room.
Status create_segment(const char* name, uint64_t token, int64_t bytes, platform::SharedFile* file,
                      char* path, ErrorText* error);

// The segment of a live creator with this token, complete; not `ok` if there is none yet.
platform::SharedFile find_segment(const char* name, uint64_t token, char* path);

// Removes the name if it still means this file.
void unlink_segment(const char* path, platform::SharedFile file);

}  // namespace shardwise::comm
