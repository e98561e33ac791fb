#include "segment.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "layout.h"

namespace shardwise::comm {

using platform::Open, platform::SharedFile;

namespace {

void path_of(const char* name, int32_t attempt, char* path) {
  if (attempt == 0)
    snprintf(path, kSegmentPath, "/%.100s", name);
  else
    snprintf(path, kSegmentPath, "/%.100s.%d", name, attempt);
}

enum class Found { Foreign, Stale, Other, Ours };

Found inspect(SharedFile file, uint64_t token, int32_t* creator) {
  if (platform::shared_bytes(file) < static_cast<int64_t>(sizeof(Header))) return Found::Foreign;
  void* memory = platform::map_shared(file, sizeof(Header));
  if (!memory) return Found::Foreign;
  const Header& header = *static_cast<const Header*>(memory);
  Found found = Found::Foreign;
  if (header.magic.load(std::memory_order_acquire) == kSegmentMagic) {
    *creator = header.creator.pid;
    found = !platform::is_alive(header.creator) ? Found::Stale
            : header.token == token             ? Found::Ours
                                                : Found::Other;
  }
  platform::unmap_shared(memory, sizeof(Header));
  return found;
}

bool same_file(const char* path, SharedFile file) {
  const SharedFile other = platform::open_shared(path, Open::Existing);
  if (!other.ok()) return false;
  const bool same = platform::is_same_shared(file, other);
  platform::close_shared(other);
  return same;
}

// Creates a file at this path. Without success errno says why: EEXIST if the path is taken
// (`taken`: by a live group with our token).
SharedFile make(const char* path, uint64_t token, int32_t* taken) {
  for (int attempt = 0; attempt < 4; attempt++) {
    const SharedFile file = platform::open_shared(path, Open::New);
    if (file.ok() || errno != EEXIST) return file;
    const SharedFile old = platform::open_shared(path, Open::Existing);
    if (!old.ok()) {
      if (errno == ENOENT) continue;  // gone meanwhile
      break;                          // another user's
    }
    int32_t creator = 0;
    const Found found = inspect(old, token, &creator);
    if (found == Found::Stale) unlink_segment(path, old);
    platform::close_shared(old);
    if (found == Found::Ours) *taken = creator;
    if (found != Found::Stale) break;
  }
  errno = EEXIST;
  return {};
}

}  // namespace

Status create_segment(const char* name, uint64_t token, int64_t bytes, SharedFile* file, char* path,
                      ErrorText* error) {
  *file = {};
  for (int32_t attempt = 0; attempt < kSegmentNames && !file->ok(); attempt++) {
    int32_t taken = 0;
    path_of(name, attempt, path);
    *file = make(path, token, &taken);
    if (!file->ok() && errno != EEXIST) {
      return fail(error, Code::Device, "shared memory %s cannot be made: %s", path,
                  strerror(errno));
    }
    if (taken != 0) {
      return fail(error, Code::Invalid,
                  "a group with the name %s and the same token is being made by process %d", name,
                  taken);
    }
  }
  if (!file->ok())
    return fail(error, Code::Invalid, "shared memory %s: this name and %d after it are in use",
                name, kSegmentNames - 1);
  const int why = platform::reserve_shared(*file, bytes);
  if (why == 0) return kOk;
  unlink_segment(path, *file);
  platform::close_shared(*file);
  return fail(error, Code::OutOfMemory, "%s", strerror(why));
}

SharedFile find_segment(const char* name, uint64_t token, char* path) {
  for (int32_t attempt = 0; attempt < kSegmentNames; attempt++) {
    path_of(name, attempt, path);
    const SharedFile file = platform::open_shared(path, Open::Existing);
    if (!file.ok()) continue;
    int32_t creator;
    if (inspect(file, token, &creator) == Found::Ours) return file;
    platform::close_shared(file);
  }
  return {};
}

void unlink_segment(const char* path, SharedFile file) {
  // The lock prevents that a second rank removes the new file in place of the stale one.
  for (int attempt = 0; !platform::lock_shared(file); attempt++) {
    if (attempt == 50) return;  // a stopped process has it
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (same_file(path, file)) platform::remove_shared(path);
  platform::unlock_shared(file);
}

}  // namespace shardwise::comm
