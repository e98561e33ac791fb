// Groups of devices whose calls the hosts compare in shared memory.
#include "../shm_watchdog.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>

#include "fake_device.h"

namespace shardwise::comm::selftest {
namespace {

std::unique_ptr<Watchdog> watch_in(HostGroup& host) {
  return std::make_unique<ShmWatchdog>(host.region(), nullptr, host.rank());
}

void run_watchdog(Ranks mode, int32_t size, const std::function<void(Rank&, HostGroup&)>& body,
                  int64_t timeout_ms = 20'000, Options options = {}) {
  Devices* devices = new_devices();
  options.slot_bytes = 0;
  options.use = Use::Rendezvous;
  run_ranks(mode, size, options, [&](HostGroup& host) {
    Rank rank(watch_in(host), devices, timeout_ms);
    body(rank, host);
  });
}

const char* label(Ranks mode, const char* what) {
  static char text[80];
  snprintf(text, sizeof text, "%s: %s", mode == Ranks::Threads ? "threads" : "processes", what);
  return text;
}

// One rank makes a different call after calls that agree: it fails before the launch, the others at
// once, with both places.
void differences(Ranks mode) {
  for (int turn = 0; turn < 9; turn++) {
    run_watchdog(mode, 3, [turn](Rank& rank, HostGroup& host) {
      ErrorText error;
      for (int i = 0; i < 100; i++) CHECK(rank.sum(5 + i, &error).ok(), "%s", error.text);
      host.barrier({"barrier", ""},
                   &error);  // or one would observe the mismatch before it is through these
      const bool odd = host.rank() == 2;
      if (turn % 3 == 1 && odd)
        usleep(30'000);  // the others are ahead by more calls than the log has
      if (turn % 3 == 2 && !odd) usleep(20'000);
      Status status = odd ? rank.broadcast(2, &error) : rank.sum(12, &error);
      // A rank that did not see the mismatch has launched, and continues until it gets the failure.
      for (int i = 0; i < (turn % 3 == 1 ? 60 : 1) && status.ok() && !odd; i++)
        status = rank.sum(12, &error);
      if (status.ok())
        CHECK(rank.wait_for_failure(&status, &error) < 5, "rank %d got no failure", host.rank());
      const bool many_ahead = turn % 3 == 1;
      for (const char* part : {"(call 101 of the group)", "b.ts:3", many_ahead ? "rank" : "a.ts:9"})
        CHECK(contains(error, part), "rank %d gets an error without %s: %s", host.rank(), part,
              error.text);
      CHECK(rank.aborted(), "the device of rank %d still waits", host.rank());
      ErrorText later;
      status = rank.sum(12, &later);
      CHECK(!status.ok() && contains(later, ": the group has failed before: "), "later: %s",
            later.text);
    });
  }
  // In the first call, while the other ranks still connect.
  Devices* connecting = new_devices();
  connecting->connects.store(true);
  run_ranks(mode, 3, {.slot_bytes = 0, .use = Use::Rendezvous}, [&](HostGroup& host) {
    Rank rank(watch_in(host), connecting, 20'000);
    ErrorText error;
    if (host.rank() == 2) usleep(100'000);
    const int64_t begin = now_ns();
    CHECK(!(host.rank() == 2 ? rank.broadcast(2, &error) : rank.sum(12, &error)).ok(),
          "rank %d did not fail", host.rank());
    CHECK(now_ns() - begin < 2'000'000'000, "it took long");
    CHECK(contains(error, "(call 1 of the group)") && contains(error, "a.ts:9") &&
              contains(error, "b.ts:3"),
          "%s", error.text);
  });
  run_watchdog(mode, 2, [](Rank& rank, HostGroup& host) {
    ErrorText error;
    const int64_t sizes[] = {1 + host.rank(), 2 - host.rank()};
    CollectiveCall call = {};
    call.kind = Collective::AllGather;
    call.dtype = DType::Float64;
    call.counts = sizes;
    Status status = rank.run(call, "all_gather", "c.ts:1", &error);
    if (status.ok()) rank.wait_for_failure(&status, &error);
    CHECK(contains(error, "all_gather of 3 float64 at c.ts:1 with other sizes per rank"), "%s",
          error.text);
  });
  run_watchdog(mode, 3, [](Rank& rank, HostGroup& host) {
    ErrorText error;
    const int64_t sends[] = {1, 2, 3}, receives[] = {1 + host.rank(), 1 + host.rank(),
                                                     host.rank() == 0 ? 4 : 1 + host.rank()};
    CollectiveCall call = {};
    call.kind = Collective::AllToAll;
    call.dtype = DType::Int64;
    call.send_counts = sends;
    call.counts = receives;
    Status status = rank.run(call, "all_to_all", "e.ts:5", &error);
    if (status.ok()) rank.wait_for_failure(&status, &error);
    CHECK(contains(error,
                   "all_to_all (call 1 of the group) at e.ts:5: rank 2 sends 8 bytes to rank 0, "
                   "which expects 32"),
          "%s", error.text);
  });
  end_group(label(mode, "shm watchdog: mismatched calls"));
}

// Calls that move the same bytes agree, as between hosts; so do operations that no device supports,
// and sizes that may differ per rank.
void agreement(Ranks mode) {
  run_watchdog(mode, 3, [](Rank& rank, HostGroup& host) {
    ErrorText error;
    for (int i = 0; i < 3000; i++) {
      if (i % 1000 == host.rank()) usleep(1000);
      if (!CHECK(rank.sum(1 + i % 7, &error).ok(), "%s", error.text)) return;
    }
    CHECK(rank.sum(4, &error, DType::Int16).code == Code::Unsupported, "int16 was taken");
    CollectiveCall call = {};
    const int64_t sends[] = {1, 2, 3},
                  receives[] = {1 + host.rank(), 1 + host.rank(), 1 + host.rank()};
    call.kind = Collective::AllToAll;
    call.send_counts = sends;
    call.counts = receives;
    call.dtype = DType::Float32;
    for (int i = 0; i < 50; i++)
      CHECK(rank.run(call, "all_to_all", "", &error).ok(), "%s", error.text);
    CHECK(rank.sum(4, &error).ok(), "%s", error.text);
    usleep(150'000);
    CHECK(kWatchdogEngine.failure(rank.member, &error).ok(), "%s", error.text);
  });
  end_group(label(mode, "shm watchdog: matching calls"));
}

// The ranks 7, 5 and 6 of the world.
void numbers(Ranks mode) {
  Options options;
  options.group_info = {"turned", {7, 5, 6}};
  run_watchdog(
      mode, 3,
      [](Rank& rank, HostGroup& host) {
        ErrorText error;
        const bool odd = host.rank() == 2;
        Status status = odd ? rank.broadcast(2, &error) : rank.sum(12, &error);
        if (status.ok())
          CHECK(rank.wait_for_failure(&status, &error) < 5, "rank %d got no failure", host.rank());
        for (const char* part :
             {"(call 1 of group \"turned\")", "broadcast of 2 float32 from rank 7 at b.ts:3"})
          CHECK(contains(error, part), "%s", error.text);
        CHECK(contains(error, "rank 6 called") || contains(error, "rank 6 broadcast") ||
                  (odd && contains(error, "this rank broadcast")),
              "%s", error.text);
      },
      20'000, options);
  run_watchdog(
      mode, 3,
      [](Rank& rank, HostGroup& host) {
        ErrorText error;
        CHECK(rank.broadcast(2, &error).ok(), "%s", error.text);
        if (host.rank() == 0) return rank.leave();
        Status status = rank.sum(12, &error);
        CHECK(!status.ok() || rank.wait_for_failure(&status, &error) < 2, "it took long");
        CHECK(contains(error,
                       "rank 7 has left the group, its last call was broadcast of 2 float32 from "
                       "rank 7 at"),
              "%s", error.text);
      },
      20'000, options);
  end_group(label(mode, "shm watchdog: world ranks in errors"));
}

// Ranks that reach the second call later must not use what the rank sent for it.
void early_leave(Ranks mode) {
  run_watchdog(
      mode, 2,
      [](Rank& rank, HostGroup& host) {
        ErrorText error;
        CHECK(rank.sum(12, &error).ok(), "%s", error.text);
        if (host.rank() == 1) usleep(800'000);
        Status status = rank.sum(12, &error);
        if (host.rank() == 0) return rank.leave();
        if (status.ok()) rank.wait_for_failure(&status, &error);
        CHECK(contains(error,
                       "rank 0 has left the group, and the others have not all come to this call "
                       "within 200 ms"),
              "%s", error.text);
        CHECK(contains(error, "(call 2 of the group) at a.ts:9"), "%s", error.text);
      },
      200);
  end_group(label(mode, "shm watchdog: a rank leaves early"));
}

void absence(Ranks mode) {
  run_watchdog(
      mode, 3,
      [](Rank& rank, HostGroup& host) {
        ErrorText error;
        CHECK(rank.broadcast(2, &error).ok(), "%s", error.text);
        Status status = kOk;
        if (host.rank() == 2)
          usleep(1'500'000);
        else
          status = rank.sum(12, &error);
        CHECK(status.ok(), "%s", error.text);
        if (host.rank() == 2) {
          CHECK(!rank.sum(12, &error).ok() && contains(error, "has failed before"), "%s",
                error.text);
        } else {
          const double seconds = rank.wait_for_failure(&status, &error);
          CHECK(seconds > 0.25 && seconds < 5, "the timeout of 0.3 s took %.2f s", seconds);
        }
        const char* part =
            "all_reduce (call 2 of the group) at a.ts:9: rank 2 has not come, its last call was "
            "broadcast of 2 float32 from rank 0 at "
            "b.ts:3 (call 1) (timeout after 300 ms)";
        CHECK(contains(error, part), "%s", error.text);
      },
      300);
  Devices* stuck = new_devices();
  stuck->never_done.store(1);
  run_ranks(mode, 2, {.slot_bytes = 0, .use = Use::Rendezvous}, [&](HostGroup& host) {
    Rank rank(watch_in(host), stuck, 200);
    ErrorText error;
    Status status = rank.sum(12, &error);
    rank.wait_for_failure(&status, &error);
    CHECK(contains(error, "all ranks have come to it, but it is not done") ||
              contains(error, "rank 1 has not come") || contains(error, "rank 0 has not come"),
          "%s", error.text);
  });
  run_watchdog(mode, 3, [](Rank& rank, HostGroup& host) {
    ErrorText error;
    CHECK(rank.sum(2, &error).ok(), "%s", error.text);
    if (host.rank() == 1) return rank.leave();
    Status status = rank.sum(12, &error);
    CHECK(!status.ok() || rank.wait_for_failure(&status, &error) < 2, "it took long");
    CHECK(contains(error,
                   "rank 1 has left the group, its last call was all_reduce of 2 float32 (sum) at "
                   "a.ts:9 (call 1)"),
          "%s", error.text);
  });
  end_group(label(mode, "shm watchdog: missing ranks"));
}

void aborts(Ranks mode) {
  run_watchdog(mode, 4, [](Rank& rank, HostGroup& host) {
    ErrorText error;
    Status status = kOk;
    if (host.rank() != 3) status = rank.sum(20, &error);
    CHECK(status.ok() || contains(error, "had enough"), "%s", error.text);
    if (host.rank() == 3) kWatchdogEngine.abort(rank.member, error_text("rank 3 has had enough"));
    if (status.ok()) CHECK(rank.wait_for_failure(&status, &error) < 2, "it took long");
    CHECK(status.code == Code::Closed && contains(error, "rank 3 has had enough"), "%s",
          error.text);
  });
  // The error names the call that waits.
  run_watchdog(mode, 2, [](Rank& rank, HostGroup& host) {
    ErrorText error;
    Status status = kOk;
    CHECK(rank.sum(2, &error).ok(), "%s", error.text);
    if (host.rank() == 0) {
      CHECK(rank.sum(20, &error).ok(), "%s", error.text);
      CHECK(rank.wait_for_failure(&status, &error) < 2, "it took long");
      CHECK(contains(error, "all_reduce (call 2 of the group) at a.ts:9: rank 1 gives up"), "%s",
            error.text);
    } else {
      usleep(200'000);
      kWatchdogEngine.abort(rank.member, error_text("rank 1 gives up"));
    }
  });
  // Finished calls stay valid when another rank gives up afterwards.
  run_watchdog(mode, 2, [](Rank& rank, HostGroup& host) {
    ErrorText error;
    CHECK(rank.sum(2, &error).ok(), "%s", error.text);
    usleep(100'000);
    if (host.rank() == 1) kWatchdogEngine.abort(rank.member, error_text("rank 1 gives up"));
    usleep(300'000);
    if (host.rank() == 0) {
      CHECK(kWatchdogEngine.failure(rank.member, &error).ok(),
            "a result that was there is lost: %s", error.text);
      CHECK(!rank.sum(2, &error).ok() && contains(error, "has failed before: rank 1 gives up"),
            "%s", error.text);
    }
  });
  run_watchdog(mode, 2, [](Rank& rank, HostGroup&) {  // a device that fails
    ErrorText error;
    Status status = rank.sum(2, &error, DType::Bool);
    CHECK(!status.ok() && contains(error, "on rank ") && contains(error, "broken"), "%s",
          error.text);
  });
  end_group(label(mode, "shm watchdog: abort"));
}

void killed() {
  Progress* registry = new_progress();
  const auto meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, 3);
    kill(pids[1], SIGKILL);
  };
  Options options;
  options.meanwhile = meanwhile;
  options.killed = 1 << 1;
  run_watchdog(
      Ranks::Processes, 3,
      [registry](Rank& rank, HostGroup& host) {
        ErrorText error;
        CHECK(rank.sum(2, &error).ok(), "%s", error.text);
        if (host.rank() != 1) CHECK(rank.sum(20, &error).ok(), "%s", error.text);
        registry->ready++;
        if (host.rank() == 1) usleep(10'000'000);
        const int64_t begin = now_ns();
        Status status = kOk;
        rank.wait_for_failure(&status, &error);
        CHECK(now_ns() - begin < 1'000'000'000, "it took long to see that a rank has died");
        CHECK(contains(error,
                       "all_reduce (call 2 of the group) at a.ts:9: rank 1 has died (process ") &&
                  contains(error, "(call 1)"),
              "%s", error.text);
      },
      20'000, options);
  end_group("processes: shm watchdog: SIGKILL");
}

}  // namespace

void test_watch(Ranks mode) {
  differences(mode);
  agreement(mode);
  numbers(mode);
  early_leave(mode);
  absence(mode);
  aborts(mode);
  if (mode == Ranks::Processes) killed();
}

void bench_watch(int32_t size) {
  run_ranks(Ranks::Processes, size, {.slot_bytes = 0, .use = Use::Rendezvous}, [](HostGroup& host) {
    ShmWatchdog watch(host.region(), nullptr, host.rank());
    ErrorText error;
    CollectiveCall call = {};
    call.kind = Collective::AllReduce;
    call.count = 1 << 20;
    call.name = "allReduce";
    call.where = "/home/user/project/train.ts:120:14";
    call.error = &error;
    constexpr int calls = 200'000;
    const int64_t begin = now_ns();
    for (int i = 0; i < calls; i++) CHECK(watch.begin(call, &error).ok(), "%s", error.text);
    const double each = static_cast<double>(now_ns() - begin) / calls;
    if (host.rank() == 0)
      printf("a call of a group of %d devices noted and compared in %.0f ns\n", host.size(), each);
  });
}

}  // namespace shardwise::comm::selftest
