#include "processors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace shardwise::cpu {

namespace {

int allowed_by_affinity() {
#if defined(__linux__)
  // Large machines need a larger set than cpu_set_t.
  for (int most = 1024; most <= 1 << 16; most *= 4) {
    cpu_set_t* set = CPU_ALLOC(most);
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known) return count;
  }
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

// The first words of a file as numbers; "max" and what else is no number is negative.
bool read_numbers(const char* path, double* first, double* second) {
  FILE* file = std::fopen(path, "r");
  if (!file) return false;
  char words[2][32] = {"", ""};
  const int found = std::fscanf(file, "%31s %31s", words[0], words[1]);
  std::fclose(file);
  if (found < 1 || std::sscanf(words[0], "%lf", first) != 1) *first = -1;
  if (second && (found < 2 || std::sscanf(words[1], "%lf", second) != 1)) *second = -1;
  return true;
}

// Of the control group, or of one around it; 0 where there is none. Version 2 has "quota period" in one file, version 1 two files.
int paid_by_quota() {
  char path[512], line[400], file_name[480];
  FILE* groups = std::fopen("/proc/self/cgroup", "r");
  if (!groups) return 0;
  double least = 0;
  const auto note = [&least](double quota, double period) {
    if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
  };
  while (std::fgets(line, sizeof line, groups)) {
    line[std::strcspn(line, "\n")] = 0;
    char* const controllers = std::strchr(line, ':');
    char* group = controllers ? std::strchr(controllers + 1, ':') : nullptr;
    if (!group) continue;
    *group++ = 0;
    const bool second_version = controllers[1] == 0;
    if (!second_version && !std::strstr(controllers, "cpu")) continue;
    const char* const root = second_version ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    for (char* end = group + std::strlen(group);; end = std::strrchr(group, '/')) {
      if (!end) break;
      *end = 0;
      double quota = -1, period = -1;
      snprintf(file_name, sizeof file_name, "%s%s", root, group);
      if (second_version) {
        snprintf(path, sizeof path, "%s/cpu.max", file_name);
        read_numbers(path, &quota, &period);
      } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", file_name);
        read_numbers(path, &quota, nullptr);
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", file_name);
        read_numbers(path, &period, nullptr);
      }
      note(quota, period);
      if (*group == 0) break;
    }
  }
  std::fclose(groups);
  return static_cast<int>(std::ceil(least));
}

}  // namespace

int usable_processors() {
  static const int count = [] {
    const int allowed = std::max(1, allowed_by_affinity()), paid = paid_by_quota();
    return paid > 0 ? std::min(allowed, paid) : allowed;
  }();
  return count;
}

}  // namespace shardwise::cpu
