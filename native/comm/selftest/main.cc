// The self-test of native/comm: prints PASS or FAIL for each group of checks and ends with 0 if all
// passed.
//
//   g++ -std=c++20 -O1 -pthread native/comm/*.cc native/comm/selftest/*.cc
//       native/platform/{posix,linux}.cc -rdynamic -ldl -o build/selftest/comm_selftest
//   build/selftest/comm_selftest             ranks that are threads, then ranks that are processes
//   build/selftest/comm_selftest threads     the first alone: ThreadSanitizer follows no fork
//   build/selftest/comm_selftest remote build/Release/gloo-engine.so     groups whose hosts share no memory, alone
//   build/selftest/comm_selftest bench [n]   times instead, with n ranks
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "selftest.h"

using namespace shardwise::comm;
using namespace shardwise::comm::selftest;

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (strcmp(what, "bench") == 0) {
    const int32_t size = count > 2 ? atoi(arguments[2]) : 4;
    for (Ranks mode : {Ranks::Processes, Ranks::Threads}) bench(mode, size);
    bench_watch(size);
    return 0;
  }
  if (strcmp(what, "remote") == 0) {
    const bool passed = test_remote(count > 2 ? arguments[2] : "gloo-engine.so") && all_passed();
    printf("%s\n", passed ? "all passed" : "FAILED");
    return passed ? 0 : 1;
  }
  const bool threads_only = strcmp(what, "threads") == 0;
  if (!threads_only) {  // forks come before threads
    test_processes();
    test_segments();
  }
  for (Ranks mode : {Ranks::Processes, Ranks::Threads}) {
    if (threads_only && mode == Ranks::Processes) continue;
    test_reductions(mode);
    test_moves(mode);
    test_borders(mode);
    test_messages(mode);
    test_order(mode);
    test_disagreement(mode);
    test_absence(mode);
    test_watch(mode);
  }
  printf("%s\n", all_passed() ? "all passed" : "FAILED");
  return all_passed() ? 0 : 1;
}
