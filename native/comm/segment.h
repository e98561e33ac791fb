// Names of POSIX shared memory: making one, finding the one that is meant, and taking away what
// dead runs left.
#pragma once
#include <cstdint>

#include "../include/status.h"

namespace shardwise::comm {

// Somebody else's file, or a live run's, may have a name already: then the next of these is tried,
// by all ranks.
constexpr int32_t kSegmentNames = 16;
constexpr int32_t kSegmentPath = 128;
constexpr uint64_t kSegmentMagic = 0x3370756f72677773;  // swgroup3; another layout gets another

// Makes a new segment of this size, all of its memory taken now (a full /dev/shm would kill the
// process later). Gives file and path; where there is no room, the system's word for it.
Status create_segment(const char* name, uint64_t token, int64_t bytes, int* file, char* path,
                      ErrorText* error);

// The segment of a live creator with this token, complete; -1 if there is none yet.
int find_segment(const char* name, uint64_t token, char* path);

// Takes the name away if it still means this file.
void unlink_segment(const char* path, int file);

}  // namespace shardwise::comm
