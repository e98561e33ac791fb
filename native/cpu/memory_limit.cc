// The system gives more memory than a control group allows, and kills the process at the first write
// behind the limit. So memory is counted here before it is mapped.
#include "memory_limit.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace shardwise::cpu {

namespace {

// Left to the JavaScript heap, stacks and page tables, which grow without being asked here.
constexpr int64_t kLeastSpare = int64_t{16} << 20, kMostSpare = int64_t{256} << 20;
constexpr int64_t kSpareShare = 32;
// A measurement reads files, so it is good for this share of what it found.
constexpr int64_t kMeasuredShare = 16;

std::atomic<int64_t> reserved{0};

// ---- SHARDWISE_CPU_MEMORY_LIMIT, for tests of exhausted memory ----

const char* given_limit() { return std::getenv("SHARDWISE_CPU_MEMORY_LIMIT"); }

// -1: what was given is no number of bytes.
int64_t read_given_limit() {
  const char* given = given_limit();
  if (!given || !*given) return INT64_MAX;
  char* end = nullptr;
  errno = 0;
  const long long bytes = std::strtoll(given, &end, 10);
  return *end || errno || bytes < 0 ? int64_t{-1} : static_cast<int64_t>(bytes);
}

int64_t memory_limit() {
  static const int64_t limit = read_given_limit();
  return limit;
}

// ---- control groups ----

struct Line {
  char name[64];
  int64_t value;
};

// The lines `name value` of a file.
template <class Visit>
void for_lines(const std::string& path, Visit visit) {
  FILE* file = std::fopen(path.c_str(), "re");
  if (!file) return;
  Line line;
  while (std::fscanf(file, "%63s %" SCNd64, line.name, &line.value) == 2) visit(line);
  std::fclose(file);
}

// The number in a file; `otherwise` without the file, or for the word "max".
int64_t number_in(const std::string& path, int64_t otherwise) {
  int64_t value = otherwise;
  if (FILE* file = std::fopen(path.c_str(), "re")) {
    if (std::fscanf(file, "%" SCNd64, &value) != 1) value = otherwise;
    std::fclose(file);
  }
  return value;
}

// The files of a version of control groups.
struct Version {
  const char *folder, *limit, *used;
  const char* caches[2];  // in memory.stat: pages of files, which the system takes back
};
constexpr Version kVersions[] = {
    {"", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"/unified", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"/memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}},
};

// A control group of this process that has less memory than the host.
struct ControlGroup {
  const Version* version;
  std::string folder;
  int64_t limit;

  int64_t free() const {
    int64_t used = number_in(folder + version->used, 0);
    for_lines(folder + "memory.stat", [&](const Line& line) {
      for (const char* cache : version->caches)
        if (!std::strcmp(line.name, cache)) used -= line.value;
    });
    return std::max<int64_t>(limit - used, 0);
  }
};

int64_t host_total() {
  const int64_t total = platform::physical_memory().total;
  return total > 0 ? total : INT64_MAX;
}

// SHARDWISE_CONTROL_GROUPS names another folder, for tests.
std::string groups_folder() {
  const char* given = std::getenv("SHARDWISE_CONTROL_GROUPS");
  return given && *given ? given : "/sys/fs/cgroup";
}

// The paths of this process: lines `0::path` and `number:controllers:path`.
std::vector<std::string> own_paths(bool has_controllers) {
  std::vector<std::string> paths;
  char line[4096];
  FILE* file = std::fopen("/proc/self/cgroup", "re");
  while (file && std::fgets(line, sizeof line, file)) {
    line[std::strcspn(line, "\n")] = 0;
    const char* controllers = std::strchr(line, ':');
    const char* path = controllers ? std::strchr(controllers + 1, ':') : nullptr;
    if (!path) continue;
    const std::string names(controllers + 1, path);
    if (has_controllers ? ("," + names + ",").find(",memory,") != std::string::npos : names.empty())
      paths.emplace_back(path + 1);
  }
  if (file) std::fclose(file);
  if (paths.empty()) paths.emplace_back("/");
  return paths;
}

// The groups of this process and those around them, as far as they are mounted here.
std::vector<ControlGroup> find_groups() {
  std::vector<ControlGroup> found;
  const int64_t most = host_total();
  for (const Version& version : kVersions) {
    const std::string root = groups_folder() + version.folder;
    for (std::string path : own_paths(!std::strcmp(version.folder, "/memory"))) {
      for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        const std::string folder = root + path + "/";
        const int64_t limit = number_in(folder + version.limit, INT64_MAX);
        if (limit < most) found.push_back({&version, folder, limit});
        if (path.empty()) break;
        path.erase(path.rfind('/'));
      }
    }
  }
  return found;
}

const std::vector<ControlGroup>& groups() {
  static const auto* found = new std::vector<ControlGroup>(find_groups());
  return *found;
}

// Reserved bytes that were never written: the system counts them later.
int64_t unwritten_bytes() {
  static const int64_t at_start = platform::resident_bytes();
  const int64_t written = std::max<int64_t>(platform::resident_bytes() - at_start, 0);
  return std::max<int64_t>(reserved.load() - written, 0);
}

int64_t free_of_groups() {
  int64_t least = INT64_MAX;
  for (const ControlGroup& group : groups()) {
    const int64_t spare = std::clamp(group.limit / kSpareShare, kLeastSpare, kMostSpare);
    least = std::min(least, group.free() - spare);
  }
  return std::max<int64_t>(least == INT64_MAX ? least : least - unwritten_bytes(), 0);
}

// Whether the groups have room for memory that is to be reserved.
bool fits_groups(int64_t bytes) {
  static std::atomic<int64_t> measured{0};
  if (groups().empty() || measured.fetch_sub(bytes) >= bytes) return true;
  const int64_t left = free_of_groups() - bytes;
  measured.store(std::max<int64_t>(left, 0) / kMeasuredShare);
  return left >= 0;
}

}  // namespace

platform::MemorySize host_memory() {
  if (memory_limit() >= 0 && memory_limit() != INT64_MAX)
    return {memory_limit(), memory_limit() - reserved.load()};
  platform::MemorySize found = platform::physical_memory();
  for (const ControlGroup& group : groups()) found.total = std::min(found.total, group.limit);
  found.free = std::min(found.free, free_of_groups());
  return found;
}

Status reserve_memory(int64_t bytes, ErrorText* error) {
  if (memory_limit() < 0) {
    const char* given = given_limit();
    return fail(
        error, Code::Invalid,
        "SHARDWISE_CPU_MEMORY_LIMIT is '%.100s': expected a whole number of bytes, or nothing",
        given ? given : "");
  }
  const bool fits = fits_groups(bytes);
  if (reserved.fetch_add(bytes) + bytes <= memory_limit() && fits) return kOk;
  return_memory(bytes);
  return fail(error, Code::OutOfMemory, "%s is reached",
              fits ? "the limit set by SHARDWISE_CPU_MEMORY_LIMIT"
                   : "the memory limit of the control group");
}

void return_memory(int64_t bytes) { reserved.fetch_sub(bytes); }

}  // namespace shardwise::cpu
