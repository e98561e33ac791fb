// Writes the last calls of all ranks of this process to a file: when a group fails, and when the
// process gets a fatal signal. PyTorch has the same as its flight recorder.
#pragma once
#include <string>

#include "../include/status.h"

namespace shardwise {

struct Member;

namespace flight {

// The calls of a member are in the files that are written until it is removed.
void add(Member& member);
void remove(Member& member);

// Writes the file of the failure, once, for a number of failures of the process; a failure without
// an id gets one. Not with the lock of a member.
void write(ErrorText& failure);

// The file of the failure with that id; "" if there is none.
std::string path_of(uint64_t failure);

}  // namespace flight
}  // namespace shardwise
