// Runs ranks and counts failures.
#include <dirent.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <thread>

#include "selftest.h"

namespace shardwise::comm::selftest {
namespace {

std::atomic<int> checks_failed{0};
int groups_failed = 0;
int segments_named = 0;
int64_t group_began = now_ns();

void run_threads(int32_t size, const Options& options, const Body& body) {
  std::shared_ptr<Region> region;
  ErrorText error;
  if (!CHECK(Region::in_process(size, options.slot_bytes, &region, &error, options.use,
                                options.group_info)
                 .ok(),
             "%s", error.text))
    return;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < size; rank++) {
    threads.emplace_back([&, rank] {
      std::unique_ptr<HostGroup> group;
      ErrorText why;
      if (!CHECK(HostGroup::join(region, rank, &group, &why).ok(), "%s", why.text)) return;
      group->set_timeout(options.timeout_ms);
      body(*group);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void run_process(const SegmentOptions& segment, const Options& options, const Body& body) {
  std::shared_ptr<Region> region;
  std::unique_ptr<HostGroup> group;
  ErrorText error;
  if (!CHECK(Region::between_processes(segment, &region, &error).ok(), "%s", error.text)) return;
  if (!CHECK(HostGroup::join(region, segment.rank, &group, &error).ok(), "%s", error.text)) return;
  region.reset();
  group->set_timeout(options.timeout_ms);
  body(*group);
}

}  // namespace

bool check(bool condition, const char* file, int line, const char* format, ...) {
  if (condition) return true;
  if (checks_failed.fetch_add(1) >= 5) return false;
  char text[800];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  printf("%s:%d: %s\n", file, line, text);
  return false;
}

void end_group(const char* name) {
  const int failed = checks_failed.exchange(0);
  groups_failed += failed > 0;
  printf("%s %s (%.1f s)\n", failed > 0 ? "FAIL" : "PASS", name,
         static_cast<double>(now_ns() - group_began) * 1e-9);
  group_began = now_ns();
}

bool has_failed_checks() { return checks_failed.load() > 0; }

bool all_passed() { return groups_failed == 0; }

std::string segment_name() {
  return "shardwise-selftest-" + std::to_string(getpid()) + "-" + std::to_string(segments_named++);
}

int segments_left() {
  const std::string prefix = "shardwise-selftest-" + std::to_string(getpid()) + "-";
  int found = 0;
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return 0;
  for (dirent* entry; (entry = readdir(folder)) != nullptr;)
    found += strncmp(entry->d_name, prefix.c_str(), prefix.size()) == 0;
  closedir(folder);
  return found;
}

void run_ranks(Ranks mode, int32_t size, const Options& options, const Body& body) {
  if (mode == Ranks::Threads) return run_threads(size, options, body);
  const std::string name = segment_name();
  std::vector<int> pids;
  fflush(stdout);
  for (int32_t rank = 0; rank < size; rank++) {
    const int pid = fork();
    if (pid == 0) {
      checks_failed.store(0);
      run_process({name.c_str(), 7, size, rank, options.slot_bytes, 20'000, options.use,
                   options.group_info},
                  options, body);
      fflush(stdout);
      _exit(has_failed_checks() ? 1 : 0);
    }
    pids.push_back(pid);
  }
  if (options.meanwhile) options.meanwhile(pids);
  for (int32_t rank = 0; rank < size; rank++) {
    int status = 0;
    waitpid(pids[static_cast<size_t>(rank)], &status, 0);
    if ((options.killed >> rank & 1) == 0)
      CHECK(status == 0, "the process of rank %d ended with %x", rank, status);
  }
  CHECK(segments_left() == 0, "%d segments are left in /dev/shm", segments_left());
}

Progress* new_progress() {
  void* memory =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Progress{};
}

bool wait_for(const std::atomic<int>& count, int target) {
  const int64_t until = now_ns() + 10'000'000'000;
  while (count.load() < target && now_ns() < until) usleep(500);
  return CHECK(count.load() >= target, "the ranks did not reach the target");
}

}  // namespace shardwise::comm::selftest
