// Groups of devices whose hosts compare calls over gloo, as if each host were a machine.
#include "../remote_watchdog.h"

#include <dlfcn.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>

#include "fake_device.h"
#include "slow_gloo.h"

namespace shardwise::comm::selftest {
namespace {

const GlooEngine* gloo = nullptr;

// One rank of a world over loopback, and of the group of all its ranks. The ranks exchange their
// addresses through `host`.
struct Connection {
  void* world = nullptr;
  void* member = nullptr;

  Connection(HostGroup& host, int64_t timeout_ms) {
    const int32_t rank = host.rank(), size = host.size();
    const auto row = static_cast<size_t>(size) * kGlooAddressBytes;
    std::vector<char> own(row), all(row * static_cast<size_t>(size)), theirs(row);
    ErrorText error;
    CHECK(gloo->listen("127.0.0.1", rank, size, 10'000, &world, own.data(), &error).ok(), "%s",
          error.text);
    const std::vector<int64_t> bytes(static_cast<size_t>(size), static_cast<int64_t>(row));
    CHECK(host.all_gather(own.data(), all.data(), bytes.data(), {"addresses", ""}, &error).ok(),
          "%s", error.text);
    std::vector<int32_t> ranks;
    for (int32_t other = 0; other < size; other++) {
      ranks.push_back(other);
      memcpy(&theirs[static_cast<size_t>(other) * kGlooAddressBytes],
             &all[static_cast<size_t>(other) * row + static_cast<size_t>(rank) * kGlooAddressBytes],
             kGlooAddressBytes);
    }
    CHECK(gloo->connect(world, theirs.data(), &error).ok(), "%s", error.text);
    const GlooGroup plan{
        "remote", "remote", ranks.data(), rank, size, timeout_ms, [](void*) { return false; },
        nullptr};
    CHECK(gloo->join(world, plan, &member, &error).ok(), "%s", error.text);
  }
  ~Connection() {
    gloo->comm->destroy(member);
    gloo->leave(world);
  }
};

void run_remote(Ranks mode, int32_t size,
                const std::function<void(Rank&, RemoteWatchdog&, HostGroup&)>& body,
                int64_t timeout_ms = 20'000, const Options& options = {}) {
  Devices* devices = new_devices();
  run_ranks(mode, size, options, [&](HostGroup& host) {
    Connection connection(host, timeout_ms);
    if (has_failed_checks()) return;
    auto watch = std::make_unique<RemoteWatchdog>(gloo, connection.member, GroupInfo{"remote", {}},
                                                  host.rank(), host.size());
    RemoteWatchdog& remote = *watch;
    Rank rank(std::move(watch), devices, timeout_ms);
    body(rank, remote, host);
  });
}

// The devices run a call although the ranks made different calls: a reader of its result waits, as
// long as a read does, for the mismatch.
void expect_refusal(Rank& rank, uint64_t call, ErrorText* error) {
  int64_t begin = now_ns();
  while (!rank.device.is_done(call) && now_ns() - begin < 5'000'000'000) usleep(100);
  begin = now_ns();
  Status status = kWatchdogEngine.failure(rank.member, error);
  CHECK(!status.ok() || now_ns() - begin > 90'000'000, "an invalid result was reported at once");
  if (status.ok()) rank.wait_for_failure(&status, error);  // on a busy machine
  CHECK(!status.ok(), "an invalid result was reported");
}

void differences(Ranks mode) {
  run_remote(mode, 3, [](Rank& rank, RemoteWatchdog&, HostGroup& host) {
    ErrorText error;
    for (int i = 0; i < 100; i++) CHECK(rank.sum(5 + i, &error).ok(), "%s", error.text);
    CHECK((host.rank() == 2 ? rank.broadcast(2, &error) : rank.sum(12, &error)).ok(), "%s",
          error.text);
    expect_refusal(rank, 101, &error);
    for (const char* part :
         {"(call 101 of group \"remote\")", "broadcast of 2 float32 from rank 0 at b.ts:3",
          "all_reduce of 12 float32 (sum) at a.ts:9"})
      CHECK(contains(error, part), "rank %d gets an error without %s: %s", host.rank(), part,
            error.text);
    CHECK(rank.aborted(), "the device of rank %d still waits", host.rank());
    ErrorText later;
    CHECK(!rank.sum(12, &later).ok() && contains(later, ": the group has failed before: "),
          "later: %s", later.text);
  });
  // A late rank gets the failure too, and a rank that never reads is aborted all the same.
  run_remote(mode, 2, [](Rank& rank, RemoteWatchdog&, HostGroup& host) {
    ErrorText error;
    if (host.rank() == 1) usleep(300'000);
    CHECK(rank.sum(4 + host.rank(), &error).ok(), "%s", error.text);
    for (int i = 0; i < 300 && !rank.aborted(); i++) usleep(10'000);
    CHECK(rank.aborted(), "the device of rank %d still waits", host.rank());
    CHECK(!kWatchdogEngine.failure(rank.member, &error).ok() && contains(error, "of 4 float32") &&
              contains(error, "of 5 float32"),
          "%s", error.text);
  });
  run_remote(mode, 3, [](Rank& rank, RemoteWatchdog&, HostGroup& host) {
    ErrorText error;
    const int64_t sends[] = {1, 2, 3}, receives[] = {1 + host.rank(), 1 + host.rank(),
                                                     host.rank() == 0 ? 4 : 1 + host.rank()};
    CollectiveCall call = {};
    call.kind = Collective::AllToAll;
    call.dtype = DType::Int64;
    call.send_counts = sends;
    call.counts = receives;
    CHECK(rank.run(call, "all_to_all", "e.ts:5", &error).ok(), "%s", error.text);
    expect_refusal(rank, 1, &error);
    CHECK(
        contains(error,
                 "all_to_all (call 1 of group \"remote\") at e.ts:5: rank 2 sends 8 bytes to rank "
                 "0, which expects 32"),
        "%s", error.text);
  });
  end_group(mode == Ranks::Threads ? "threads: remote watchdog: mismatched calls"
                                   : "processes: remote watchdog: mismatched calls");
}

void agreement(Ranks mode) {
  run_remote(mode, 3, [](Rank& rank, RemoteWatchdog& remote, HostGroup& host) {
    ErrorText error;
    const int64_t sizes[] = {1, 2, 3}, sends[] = {1, 2, 3},
                  receives[] = {1 + host.rank(), 1 + host.rank(), 1 + host.rank()};
    for (int i = 0; i < 2000; i++) {
      if (i % 500 == host.rank()) usleep(1000);
      CollectiveCall call = {};
      call.kind = i % 3 == 0   ? Collective::AllGather
                  : i % 3 == 1 ? Collective::AllToAll
                               : Collective::Send;
      call.dtype = DType::Float32;
      call.counts = i % 3 == 0 ? sizes : receives;
      call.send_counts = sends;
      call.root = 1 - std::min(host.rank(), 1);
      if (!CHECK(rank.run(call, "mixed", "m.ts:1", &error).ok(), "%s", error.text)) return;
    }
    // A collective of the hosts follows the calls that were begun.
    std::vector<int32_t> all(3);
    const int32_t own = 7 + host.rank();
    const int64_t one[] = {1, 1, 1};
    CollectiveCall gather = {};
    gather.kind = Collective::AllGather;
    gather.dtype = DType::Int32;
    gather.counts = one;
    gather.in = &own;
    gather.out = all.data();
    gather.name = "hosts", gather.where = "", gather.error = &error;
    CHECK(remote.run(gather).ok() && all[0] == 7 && all[2] == 9, "%s", error.text);
    CHECK(rank.sum(4, &error).ok(), "%s", error.text);
    CHECK(remote.settle(UINT64_MAX, 5'000), "the calls were not compared");
    CHECK(kWatchdogEngine.failure(rank.member, &error).ok(), "%s", error.text);
  });
  end_group(mode == Ranks::Threads ? "threads: remote watchdog: matching calls"
                                   : "processes: remote watchdog: matching calls");
}

void absence(Ranks mode) {
  run_remote(
      mode, 3,
      [](Rank& rank, RemoteWatchdog&, HostGroup& host) {
        ErrorText error;
        CHECK(rank.broadcast(2, &error).ok(), "%s", error.text);
        if (host.rank() == 2) {
          usleep(1'500'000);
          Status status = rank.sum(12, &error);
          if (status.ok()) rank.wait_for_failure(&status, &error);
          CHECK(contains(error, "has failed before"), "%s", error.text);
          return;
        }
        CHECK(rank.sum(12, &error).ok(), "%s", error.text);
        Status status;
        const double seconds = rank.wait_for_failure(&status, &error);
        CHECK(seconds > 0.25 && seconds < 5, "the timeout of 0.3 s took %.2f s", seconds);
        CHECK(contains(error,
                       "all_reduce (call 2 of group \"remote\") at a.ts:9: rank 2 has not come"),
              "%s", error.text);
        CHECK(contains(error, "(timeout after 3") || contains(error, "(timeout after 4"), "%s",
              error.text);
      },
      300);
  run_remote(mode, 3, [](Rank& rank, RemoteWatchdog&, HostGroup& host) {  // one leaves early
    ErrorText error;
    CHECK(rank.sum(2, &error).ok(), "%s", error.text);
    if (host.rank() == 1) return rank.leave();
    CHECK(rank.sum(12, &error).ok(), "%s", error.text);
    usleep(400'000);  // in which the others take their connections along as well
    Status status;
    rank.wait_for_failure(&status, &error);
    CHECK(!status.ok() && contains(error, "call 2 of group \"remote\") at a.ts:9: rank 1 has"),
          "%s", error.text);
  });
  // One rank leaves early. The devices of the others notice first, in their call or before it,
  // without knowing the rank.
  for (const bool before : {false, true})
    run_remote(mode, 3, [before](Rank& rank, RemoteWatchdog&, HostGroup& host) {
      ErrorText error;
      rank.device.devices->closing_ms.store(1500);
      CHECK(rank.sum(2, &error).ok(), "%s", error.text);
      if (host.rank() == 1) return rank.leave();
      while (before && !rank.device.devices->closed.load()) usleep(1000);
      Status status = rank.sum(12, &error);
      if (status.ok()) rank.wait_for_failure(&status, &error);
      CHECK(contains(
                error,
                "call 2 of group \"remote\") at a.ts:9: rank 1 has left the group, its last call "
                "was all_reduce of 2"),
            "%s", error.text);
      usleep(2'000'000);
    });
  run_remote(mode, 2, [](Rank& rank, RemoteWatchdog&, HostGroup& host) {  // one gives up
    ErrorText error;
    CHECK(rank.sum(2, &error).ok(), "%s", error.text);
    if (host.rank() == 1) {
      usleep(200'000);
      return kWatchdogEngine.abort(rank.member, error_text("rank 1 gives up"));
    }
    CHECK(rank.sum(20, &error).ok(), "%s", error.text);
    Status status;
    CHECK(rank.wait_for_failure(&status, &error) < 2, "it took long");
    CHECK(contains(error, "all_reduce (call 2 of group \"remote\") at a.ts:9: rank 1 gives up"),
          "%s", error.text);
  });
  end_group(mode == Ranks::Threads ? "threads: remote watchdog: missing ranks"
                                   : "processes: remote watchdog: missing ranks");
}

// Two ranks leave as soon as they have joined, while the third still joins; its first call reports
// it.
void departure_at_once() {
  run_ranks(Ranks::Threads, 3, {}, [](HostGroup& host) {
    Connection connection(host, 20'000);
    const int32_t ranks[] = {0, 1, 2};
    const GlooGroup plan{
        "brief", "brief", ranks, host.rank(), 3, 20'000, [](void*) { return false; }, nullptr};
    void* member = nullptr;
    ErrorText error;
    const bool is_slow = host.rank() == 0;
    if (is_slow) pause_before_frames(300);
    CHECK(gloo->join(connection.world, plan, &member, &error).ok(), "rank %d: %s", host.rank(),
          error.text);
    pause_before_frames(0);
    if (is_slow && member) {
      CollectiveCall call{};
      call.kind = Collective::Barrier;
      call.name = "barrier";
      call.error = &error;
      CHECK(!gloo->comm->run(member, call).ok() && contains(error, "has left the group"), "%s",
            error.text);
    }
    if (member) gloo->comm->destroy(member);
  });
  // CI has a gloo whose symbols can be replaced; other builds bind their own.
  CHECK(has_paused() || !getenv("CI"),
        "gloo's receive was not taken from this program, so nothing was tried: is it built with "
        "-rdynamic?");
  end_group("threads: gloo groups: ranks leave right after joining");
}

// A rank that left runs no more calls, and does not wait for any.
void departure(Ranks mode) {
  run_remote(mode, 2, [](Rank& rank, RemoteWatchdog& remote, HostGroup&) {
    ErrorText error;
    CHECK(rank.sum(2, &error).ok(), "%s", error.text);
    remote.leave();
    CollectiveCall call{};
    call.kind = Collective::Barrier;
    call.name = "barrier";
    call.error = &error;
    CHECK(!remote.run(call).ok() && contains(error, "has left the group"), "%s", error.text);
  });
  end_group(mode == Ranks::Threads ? "threads: remote watchdog: calls after leaving"
                                   : "processes: remote watchdog: calls after leaving");
}

// The rank dies while others wait for it, and after all ranks reached a call that its device does
// not finish.
void killed(bool comes) {
  Progress* registry = new_progress();
  Options options;
  options.killed = 1 << 1;
  options.meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, 3);
    usleep(200'000);
    kill(pids[1], SIGKILL);
  };
  run_remote(
      Ranks::Processes, 3,
      [registry, comes](Rank& rank, RemoteWatchdog& remote, HostGroup& host) {
        ErrorText error;
        rank.device.devices->never_done.store(2);
        CHECK(rank.sum(2, &error).ok(), "%s", error.text);
        if (host.rank() != 1 || comes) CHECK(rank.sum(20, &error).ok(), "%s", error.text);
        if (comes) CHECK(remote.settle(2, 5'000), "the call was not compared");
        registry->ready++;
        if (host.rank() == 1) usleep(10'000'000);
        Status status;
        rank.wait_for_failure(&status, &error);
        CHECK(
            contains(error,
                     "all_reduce (call 2 of group \"remote\") at a.ts:9: rank 1 has died or cannot "
                     "be reached ("),
            "%s", error.text);
      },
      20'000, options);
  end_group(comes ? "processes: remote watchdog: SIGKILL in a call"
                  : "processes: remote watchdog: SIGKILL before a call");
}

}  // namespace

bool test_remote(const char* library) {
  void* opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  auto entry = opened
                   ? reinterpret_cast<const GlooEngine* (*)()>(dlsym(opened, "shardwise_gloo_v1"))
                   : nullptr;
  if (!entry || entry()->abi != kGlooAbi) {
    printf("%s: %s\n", library, opened ? "not of this version" : dlerror());
    return false;
  }
  gloo = entry();
  take_receive(opened);
  signal(SIGPIPE, SIG_IGN);  // as Node does
  killed(false);
  killed(true);
  test_connecting(gloo);
  for (Ranks mode : {Ranks::Processes, Ranks::Threads}) {
    differences(mode);
    agreement(mode);
    absence(mode);
    departure(mode);
  }
  departure_at_once();
  return true;
}

}  // namespace shardwise::comm::selftest
