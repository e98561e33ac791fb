#include "processors.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "../platform/platform.h"

namespace shardwise::cpu {

namespace {

// The first or second word of a file as a number; negative if it is "max" or missing.
double number_in(const std::string& path, bool second = false) {
  FILE* file = std::fopen(path.c_str(), "r");
  if (!file) return -1;
  char words[2][32] = {"", ""};
  const bool found = std::fscanf(file, "%31s %31s", words[0], words[1]) > 0;
  std::fclose(file);
  double number = -1;
  return found && std::sscanf(words[second], "%lf", &number) == 1 ? number : -1;
}

// Processors that the quota of one control group allows; infinite without one. Version 2 has both
// numbers in one file.
double paid_in(const std::string& folder, bool second_version) {
  const double quota =
      second_version ? number_in(folder + "/cpu.max") : number_in(folder + "/cpu.cfs_quota_us");
  const double period = second_version ? number_in(folder + "/cpu.max", true)
                                       : number_in(folder + "/cpu.cfs_period_us");
  return quota > 0 && period > 0 ? quota / period : HUGE_VAL;
}

// The smallest quota of the process's control groups and their parents.
double paid_by_quota() {
  double least = HUGE_VAL;
  FILE* groups = std::fopen("/proc/self/cgroup", "r");
  if (!groups) return least;
  char line[400];
  // number:controllers:group; version 2 names no controllers
  while (std::fgets(line, sizeof line, groups)) {
    line[std::strcspn(line, "\n")] = 0;
    const char* const controllers = std::strchr(line, ':');
    const char* const separator = controllers ? std::strchr(controllers + 1, ':') : nullptr;
    if (!separator) continue;
    const std::string names = "," + std::string(controllers + 1, separator) + ",";
    const bool second_version = names == ",,";
    if (!second_version && names.find(",cpu,") == std::string::npos) continue;
    const std::string root = second_version ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    std::string group = separator + 1;
    for (;;) {
      least = std::min(least, paid_in(root + group, second_version));
      const size_t parent = group.rfind('/');
      if (parent == std::string::npos) break;
      group.resize(parent);
    }
  }
  std::fclose(groups);
  return least;
}

}  // namespace

int usable_processors() {
  static const int count = [] {
    const double paid = std::ceil(paid_by_quota());
    return std::max(1, static_cast<int>(std::min<double>(platform::allowed_processors(), paid)));
  }();
  return count;
}

}  // namespace shardwise::cpu
