// Ranks that end while a world over gloo connects: the other ranks report that rank and no other.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../../include/gloo_engine.h"
#include "../wait.h"
#include "selftest.h"

namespace shardwise::comm::selftest {
namespace {

constexpr int32_t kRanks = 4;
constexpr int64_t kTimeoutMs = 1'000;

struct Trial {
  const GlooEngine* gloo;
  int32_t culprit;
  int signal;
  int delay_us;          // of the signal, after all ranks have begun
  int32_t late = -1;     // connects only after the others have given up
  bool connects = true;  // whether the culprit begins at all
};

// True if the text names this rank and no other.
bool names_only(const char* text, int32_t culprit) {
  bool is_named = false;
  for (const char* at = text; (at = strstr(at, "rank ")) != nullptr; at++) {
    if (atoi(at + 5) != culprit) return false;
    is_named = true;
  }
  return is_named;
}

void connect_world(const Trial& trial, Progress* registry, HostGroup& host) {
  const int32_t rank = host.rank();
  const auto row = static_cast<size_t>(kRanks) * kGlooAddressBytes;
  std::vector<char> own(row), all(row * kRanks), theirs(row);
  void* world = nullptr;
  ErrorText error;
  CHECK(trial.gloo->listen("127.0.0.1", rank, kRanks, kTimeoutMs, &world, own.data(), &error).ok(),
        "%s", error.text);
  const std::vector<int64_t> bytes(kRanks, static_cast<int64_t>(row));
  CHECK(host.all_gather(own.data(), all.data(), bytes.data(), {"addresses", ""}, &error).ok(), "%s",
        error.text);
  for (int32_t other = 0; other < kRanks; other++) {
    const auto at = static_cast<size_t>(other);
    memcpy(&theirs[at * kGlooAddressBytes],
           &all[at * row + static_cast<size_t>(rank) * kGlooAddressBytes], kGlooAddressBytes);
  }
  registry->ready++;
  wait_for(registry->ready, kRanks);
  if (rank == trial.culprit && !trial.connects) pause();
  if (rank == trial.late) usleep(600'000);
  const int64_t begin = now_ns();
  const Status status = trial.gloo->connect(world, theirs.data(), &error);
  if (rank == trial.culprit) pause();
  const double seconds = static_cast<double>(now_ns() - begin) / 1e9;
  CHECK(status.ok() || names_only(error.text, trial.culprit), "rank %d gets another cause: %s",
        rank, error.text);
  CHECK(trial.connects || !status.ok(), "rank %d is connected to a rank that never joined", rank);
  CHECK(seconds < 3.5, "rank %d gets the failure after %.1f s: %s", rank, seconds, error.text);
  registry->done++;
  wait_for(registry->done, kRanks - 1);
  trial.gloo->leave(world);
}

void run_trial(const Trial& trial) {
  Progress* registry = new_progress();
  Options options;
  options.killed = uint64_t{1} << trial.culprit;
  options.meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, kRanks);
    usleep(static_cast<useconds_t>(trial.delay_us));
    kill(pids[static_cast<size_t>(trial.culprit)], trial.signal);
    wait_for(registry->done, kRanks - 1);
    kill(pids[static_cast<size_t>(trial.culprit)], SIGKILL);
  };
  run_ranks(Ranks::Processes, kRanks, options,
            [&](HostGroup& host) { connect_world(trial, registry, host); });
}

}  // namespace

void test_connecting(const GlooEngine* gloo) {
  for (int32_t culprit = 0; culprit < kRanks; culprit++) {
    for (const int signal : {SIGKILL, SIGSTOP}) run_trial({gloo, culprit, signal, 0, -1, false});
  }
  end_group("processes: gloo world: ranks do not connect");
  for (int32_t culprit = 0; culprit < kRanks; culprit++)
    run_trial({gloo, culprit, SIGKILL, 0, (culprit + 1) % kRanks, false});
  end_group("processes: gloo world: a rank comes after the others gave up");
  for (int i = 0; i < 40; i++)
    run_trial({gloo, i % kRanks, i % 8 == 7 ? SIGSTOP : SIGKILL, 150 * (i / 4)});
  end_group("processes: gloo world: ranks end while connecting");
}

}  // namespace shardwise::comm::selftest
