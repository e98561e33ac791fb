#include "segment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "layout.h"

namespace shardwise::comm {
namespace {

void path_of(const char* name, int32_t attempt, char* path) {
  if (attempt == 0)
    snprintf(path, kSegmentPath, "/%.100s", name);
  else
    snprintf(path, kSegmentPath, "/%.100s.%d", name, attempt);
}

enum class Found { Foreign, Stale, Other, Ours };

Found inspect(int file, uint64_t token, int32_t* creator) {
  struct stat status;
  if (fstat(file, &status) != 0 || status.st_size < static_cast<int64_t>(sizeof(Header)))
    return Found::Foreign;
  void* memory = mmap(nullptr, sizeof(Header), PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return Found::Foreign;
  const Header& header = *static_cast<const Header*>(memory);
  Found found = Found::Foreign;
  if (header.magic.load(std::memory_order_acquire) == kSegmentMagic) {
    *creator = header.creator.pid;
    found = !is_alive(header.creator) ? Found::Stale
            : header.token == token   ? Found::Ours
                                      : Found::Other;
  }
  munmap(memory, sizeof(Header));
  return found;
}

bool same_file(const char* path, int file) {
  const int other = shm_open(path, O_RDWR | O_CLOEXEC, 0);
  if (other < 0) return false;
  struct stat a, b;
  const bool same =
      fstat(file, &a) == 0 && fstat(other, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev;
  close(other);
  return same;
}

// Creates a file at this path. Returns -1 if the path is taken (`taken`: by a live group with our
// token), or with errno.
int make(const char* path, uint64_t token, int32_t* taken) {
  for (int attempt = 0; attempt < 4; attempt++) {
    const int file = shm_open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0 || errno != EEXIST) return file;
    const int old = shm_open(path, O_RDWR | O_CLOEXEC, 0);
    if (old < 0) {
      if (errno == ENOENT) continue;  // gone meanwhile
      break;                          // another user's
    }
    int32_t creator = 0;
    const Found found = inspect(old, token, &creator);
    if (found == Found::Stale) unlink_segment(path, old);
    close(old);
    if (found == Found::Ours) *taken = creator;
    if (found != Found::Stale) break;
  }
  errno = EEXIST;
  return -1;
}

}  // namespace

Status create_segment(const char* name, uint64_t token, int64_t bytes, int* file, char* path,
                      ErrorText* error) {
  *file = -1;
  for (int32_t attempt = 0; attempt < kSegmentNames && *file < 0; attempt++) {
    int32_t taken = 0;
    path_of(name, attempt, path);
    *file = make(path, token, &taken);
    if (*file < 0 && errno != EEXIST) {
      return fail(error, Code::Device, "shared memory %s cannot be made: %s", path,
                  strerror(errno));
    }
    if (taken != 0) {
      return fail(error, Code::Invalid,
                  "a group with the name %s and the same token is being made by process %d", name,
                  taken);
    }
  }
  if (*file < 0)
    return fail(error, Code::Invalid, "shared memory %s: this name and %d after it are in use",
                name, kSegmentNames - 1);
  int why = ftruncate(*file, bytes) == 0 ? 0 : errno;
  if (why == 0) {
    do why = posix_fallocate(*file, 0, bytes);
    while (why == EINTR);
  }
  if (why == 0) return kOk;
  unlink_segment(path, *file);
  close(*file);
  return fail(error, Code::OutOfMemory, "%s", strerror(why));
}

int find_segment(const char* name, uint64_t token, char* path) {
  for (int32_t attempt = 0; attempt < kSegmentNames; attempt++) {
    path_of(name, attempt, path);
    const int file = shm_open(path, O_RDWR | O_CLOEXEC, 0);
    if (file < 0) continue;
    int32_t creator;
    if (inspect(file, token, &creator) == Found::Ours) return file;
    close(file);
  }
  return -1;
}

void unlink_segment(const char* path, int file) {
  // The lock prevents that a second rank removes the new file in place of the stale one.
  for (int attempt = 0; flock(file, LOCK_EX | LOCK_NB) != 0; attempt++) {
    if (attempt == 50) return;  // a stopped process has it
    usleep(1000);
  }
  if (same_file(path, file)) shm_unlink(path);
  flock(file, LOCK_UN);
}

}  // namespace shardwise::comm
