#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace shardwise::comm {
namespace {

uint64_t own_namespace() {
  struct stat found;
  return stat("/proc/self/ns/pid", &found) == 0 ? found.st_ino : 0;
}

// State and start time of a process; false if /proc does not have them.
bool read_stat(int32_t pid, char* state, uint64_t* start) {
  char path[48], text[1024];
  // That of the first thread, because qemu makes up its own /proc/PID/stat.
  snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return false;
  text[length] = 0;
  const char* at = strrchr(text, ')');  // the name before it may hold blanks and parentheses
  if (at == nullptr || at[1] != ' ') return false;
  *state = at[2];
  // The state is field 3, the start field 22: each blank from here leads to the next field.
  for (int field = 2; field < 22; field++) {
    at = strchr(at + 1, ' ');
    if (at == nullptr) return false;
  }
  *start = strtoull(at, nullptr, 10);
  return true;
}

}  // namespace

ProcessId this_process() {
  ProcessId id = {getpid(), 0, 0, own_namespace()};
  char state;
  if (!read_stat(id.pid, &state, &id.start)) id.start = 0;
  return id;
}

bool is_alive(const ProcessId& process) {
  if (process.pid_namespace != own_namespace()) return true;
  if (kill(process.pid, 0) != 0 && errno == ESRCH) return false;
  char state;
  uint64_t start;
  if (process.start == 0 || !read_stat(process.pid, &state, &start)) return true;
  return start == process.start && state != 'Z' && state != 'X';
}

}  // namespace shardwise::comm
