// Failures of processes only: SIGKILL, SIGSTOP, and segment names that other users or dead runs
// hold.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "selftest.h"

namespace shardwise::comm::selftest {
namespace {

constexpr CallSite kReduce = {"all_reduce", "a.ts:9"}, kReceive = {"receive", "f.ts:6"};
using Segment = std::shared_ptr<Region>;
using Group = std::unique_ptr<HostGroup>;

bool contains(const ErrorText& error, const char* part) {
  return strstr(error.text, part) != nullptr;
}

int fork_and(const std::function<void()>& run) {
  fflush(stdout);
  const int pid = fork();
  if (pid != 0) return pid;
  run();
  fflush(stdout);
  _exit(has_failed_checks() ? 1 : 0);
}

void check_ended(int pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(status == 0, "a process ended with %x", status);
}

void kill_rank(int victim, int64_t count, useconds_t delay_us) {
  Progress* registry = new_progress();
  const auto meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, 3);
    usleep(delay_us);
    kill(pids[static_cast<size_t>(victim)], SIGKILL);
  };
  run_ranks(Ranks::Processes, 3, {.meanwhile = meanwhile, .killed = uint64_t{1} << victim},
            [&](HostGroup& group) {
              std::vector<float> data(static_cast<size_t>(count), 1);
              ErrorText error;
              Status status = kOk;
              int64_t began = 0;
              for (int turn = 0; status.ok(); turn++) {
                if (turn == 2) registry->ready++;
                began = now_ns();
                status = group.all_reduce(data.data(), data.data(), count, DType::Float32,
                                          Reduce::Max, kReduce, &error);
              }
              char part[64];
              snprintf(part, sizeof part, "rank %d has died (process ", victim);
              CHECK(status.code == Code::Device && contains(error, part) &&
                        contains(error, "all_reduce of "),
                    "%s", error.text);
              CHECK(now_ns() - began < 5'000'000'000, "it took long to see that a rank has died");
            });
}

// Most are killed while they write.
void kill_writers() {
  void* memory =
      mmap(nullptr, sizeof(LastCall), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  LastCall* last = static_cast<LastCall*>(memory);
  for (int turn = 0; turn < 50; turn++) {
    memset(memory, 0, sizeof(LastCall));
    const int pid = fork_and([&] {
      CallRecord record = {};
      for (record.print.call = 1;; record.print.call++) {
        record.amount = static_cast<int64_t>(record.print.call);
        last->write(record);
      }
    });
    CallRecord record;
    while (!last->read(&record)) usleep(50);
    usleep(static_cast<useconds_t>(turn * 7));
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    CHECK(last->read(&record) && record.amount == static_cast<int64_t>(record.print.call),
          "the last call of a killed rank cannot be read");
  }
  munmap(memory, sizeof(LastCall));
}

void kill_sender() {
  Progress* registry = new_progress();
  const auto meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, 2);
    kill(pids[0], SIGKILL);
  };
  run_ranks(Ranks::Processes, 2, {.meanwhile = meanwhile, .killed = 1}, [&](HostGroup& group) {
    ErrorText error;
    registry->ready++;
    if (group.rank() == 0) usleep(10'000'000);
    char data[4];
    const Status status = group.receive(data, 4, 0, kReceive, &error);
    CHECK(!status.ok() && contains(error, "rank 0 has died (process "), "%s", error.text);
  });
}

void stop_rank() {
  Progress* registry = new_progress();
  const auto meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, 3);
    kill(pids[2], SIGSTOP);
    wait_for(registry->done, 2);
    kill(pids[2], SIGCONT);
  };
  run_ranks(Ranks::Processes, 3, {.meanwhile = meanwhile}, [&](HostGroup& group) {
    std::vector<float> data(10'000, 1);
    ErrorText error;
    Status status = kOk;
    group.barrier({"barrier", ""}, nullptr);
    group.set_timeout(400);
    for (int turn = 0; status.ok(); turn++) {
      if (turn == 2) registry->ready++;
      status = group.all_reduce(data.data(), data.data(), 10'000, DType::Float32, Reduce::Max,
                                kReduce, &error);
    }
    CHECK(status.code == Code::Device && contains(error, "rank 2 has not come, it"), "%s",
          error.text);
    registry->done++;
  });
}

// All ranks stop for longer than the timeout: no rank reports another as missing.
void stop_all() {
  Progress* registry = new_progress();
  const auto meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, 3);
    for (int signal : {SIGSTOP, SIGCONT}) {
      for (int pid : pids) kill(pid, signal);
      usleep(1'500'000);
    }
    registry->done++;
  };
  run_ranks(Ranks::Processes, 3, {.meanwhile = meanwhile}, [&](HostGroup& group) {
    ErrorText error;
    group.barrier({"barrier", ""}, nullptr);
    group.set_timeout(1'000);
    registry->ready++;
    for (int32_t ended = 0; ended == 0;) {
      const int32_t seen = group.rank() == 0 ? registry->done.load() : 0;
      const Status status =
          group.all_reduce(&seen, &ended, 1, DType::Int32, Reduce::Max, kReduce, &error);
      if (!CHECK(status.ok(), "%s", error.text)) return;
      usleep(group.rank() == 1 ? 20'000 : 0);
    }
  });
}

void kill_all() {
  Progress* registry = new_progress();
  const auto meanwhile = [&](const std::vector<int>& pids) {
    wait_for(registry->ready, 4);
    for (int pid : pids) kill(pid, SIGKILL);
  };
  run_ranks(Ranks::Processes, 4, {.meanwhile = meanwhile, .killed = 15}, [&](HostGroup& group) {
    for (int turn = 0;; turn++) {
      if (turn == 2) registry->ready++;
      group.barrier({"barrier", ""}, nullptr);
    }
  });
}

Status open_segment(const std::string& name, uint64_t token, int32_t size, int32_t rank,
                    Segment* region, ErrorText* error, int64_t timeout_ms = 10'000) {
  return Region::between_processes({name.c_str(), token, size, rank, 4096, timeout_ms}, region,
                                   error);
}

// A sum over the ranks of one group; wrong if ranks of two groups were mixed.
void sum_in_group(const std::string& name, uint64_t token, int32_t size, int32_t rank) {
  Segment region;
  Group group;
  ErrorText error;
  if (!CHECK(open_segment(name, token, size, rank, &region, &error).ok(), "%s", error.text)) return;
  if (!CHECK(HostGroup::join(region, rank, &group, &error).ok(), "%s", error.text)) return;
  group->set_timeout(10'000);
  int64_t value = static_cast<int64_t>(token);
  const Status status =
      group->all_reduce(&value, &value, 1, DType::Int64, Reduce::Sum, kReduce, &error);
  CHECK(status.ok() && value == static_cast<int64_t>(token) * size, "%s: sum %lld", error.text,
        static_cast<long long>(value));
}

void check_group(const std::string& name, uint64_t token, int32_t size) {
  std::vector<int> pids;
  for (int32_t rank = size - 1; rank >= 0; rank--)
    pids.push_back(fork_and([&] { sum_in_group(name, token, size, rank); }));
  for (int pid : pids) check_ended(pid);
}

void stale_segments() {
  const std::string name = segment_name();
  for (uint64_t token : {7, 8}) {  // the dead run may have had the token of the new one
    Progress* registry = new_progress();
    const int pid = fork_and([&] {
      Segment region;
      if (open_segment(name, 7, 2, 0, &region, nullptr).ok()) registry->ready++;
      usleep(20'000'000);
    });
    wait_for(registry->ready, 1);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    CHECK(segments_left() == 1, "a segment whose creator was killed is gone already");
    check_group(name, token, 3);
    CHECK(segments_left() == 0, "%d segments are left", segments_left());
  }
}

void foreign_files() {
  const std::string name = segment_name();
  const int file = shm_open(("/" + name).c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  CHECK(file >= 0 && write(file, "not yours", 9) == 9, "no file to be in the way");
  for (int64_t size : {9, 1 << 20}) {  // the second is zeros, like a segment in the making
    CHECK(ftruncate(file, size) == 0, "no file of that size");
    check_group(name, 5, 2);
    CHECK(segments_left() == 1, "%d files are left beside the foreign one", segments_left() - 1);
  }
  close(file);
  shm_unlink(("/" + name).c_str());
}

void names_that_collide() {
  const std::string name = segment_name();
  std::vector<int> pids;
  for (int turn = 0; turn < 5; turn++) {
    for (int32_t rank : {1, 0, 2}) {
      for (uint64_t token : {100, 2000, 30000})
        pids.push_back(fork_and([&, token, rank] {
          sum_in_group(name, token + static_cast<uint64_t>(turn), 3, rank);
        }));
    }
    if (turn % 2 == 1) usleep(20'000);
  }
  for (int pid : pids) check_ended(pid);
  CHECK(segments_left() == 0, "%d segments are left", segments_left());

  Segment first, second;
  ErrorText error;
  CHECK(open_segment(name, 1, 2, 0, &first, &error).ok(), "%s", error.text);
  Status status = open_segment(name, 1, 2, 0, &second, &error);
  CHECK(status.code == Code::Invalid && contains(error, "is being made by process"), "%s",
        error.text);
  status = open_segment(name, 1, 3, 1, &second, &error);
  CHECK(status.code == Code::Invalid &&
            contains(error, "rank 0 made a group of 2 ranks, rank 1 wants one of 3"),
        "%s", error.text);
  CHECK(open_segment(name, 1, 2, 1, &second, &error).ok(), "%s", error.text);
  Group group, again;
  // Two ranks in one process, each of which waits for the other.
  std::thread other(
      [&] { CHECK(HostGroup::join(second, 1, &group, nullptr).ok(), "rank 1 cannot join"); });
  usleep(20'000);
  CHECK(segments_left() == 1, "the segment is gone before all have joined");
  CHECK(HostGroup::join(second, 1, &again, &error).code == Code::Invalid &&
            contains(error, "its rank 1 is there already"),
        "%s", error.text);
  CHECK(HostGroup::join(second, 2, &again, &error).code == Code::Invalid,
        "a rank beyond the group joined");
  CHECK(HostGroup::join(first, 0, &again, &error).ok(), "%s", error.text);
  other.join();
  CHECK(segments_left() == 0, "the name is still there when all have joined");
}

// Rank 0 of three dies when one rank has attached: that rank sees it, and the other finds no
// segment.
void creator_dies() {
  const std::string name = segment_name();
  Progress* registry = new_progress();
  const auto join = [&](int32_t rank, const char* part) {
    Segment region;
    Group group;
    ErrorText error;
    CHECK(open_segment(name, 1, 3, rank, &region, &error, 10'000).ok(), "%s", error.text);
    registry->ready++;
    CHECK(!HostGroup::join(region, rank, &group, &error).ok() && contains(error, part), "%s",
          error.text);
  };
  const int creator = fork_and([&] { join(0, ""); });
  const int attached = fork_and([&] { join(1, "join: rank 0 has died (process "); });
  wait_for(registry->ready, 2);
  usleep(50'000);
  kill(creator, SIGKILL);
  waitpid(creator, nullptr, 0);
  check_ended(attached);
  Segment region;
  ErrorText error;
  const Status status = open_segment(name, 1, 3, 2, &region, &error, 200);
  CHECK(status.code == Code::Device && contains(error, "rank 0 has not joined group") &&
            contains(error, "200 ms"),
        "%s", error.text);
  CHECK(segments_left() == 0, "%d segments are left", segments_left());
}

void rank_never_joins() {
  const std::string name = segment_name();
  Segment region;
  Group group;
  ErrorText error;
  CHECK(open_segment(name, 1, 2, 0, &region, &error, 100).ok(), "%s", error.text);
  CHECK(HostGroup::join(region, 0, &group, &error).code == Code::Device,
        "a group without its rank 1 began");
  CHECK(contains(error, "join: rank 1 has not joined the group (timeout after "), "%s", error.text);
  region.reset();
  CHECK(segments_left() == 0, "%d segments are left", segments_left());
}

// A rank of the world dies or leaves before it joins another group: its members notice at once,
// even while they look for the segment that it should have created.
void gone_before_joining() {
  for (int32_t victim : {0, 1}) {
    for (bool dies : {true, false}) {
      const std::string part = segment_name();
      Options options;
      options.killed = dies ? uint64_t{1} << victim : 0;
      run_ranks(Ranks::Processes, 3, options, [&](HostGroup& world) {
        if (world.rank() == victim) {
          usleep(100'000);
          if (dies) kill(getpid(), SIGKILL);
          return;
        }
        // Rank 2 is the first or the second rank of the pair.
        const bool comes = world.rank() == 2;
        if (!comes) return void(usleep(600'000));
        const Origin origin{world.region()};
        SegmentOptions segment{part.c_str(), 5, 2, victim == 0 ? 1 : 0};
        segment.group_info = {
            "pair", victim == 0 ? std::vector<int32_t>{0, 2} : std::vector<int32_t>{2, 1}};
        segment.origin = &origin;
        Segment region;
        Group group;
        ErrorText error;
        const int64_t begin = now_ns();
        Status status = Region::between_processes(segment, &region, &error);
        if (status.ok()) status = HostGroup::join(region, segment.rank, &group, &error, origin);
        CHECK(!status.ok() && now_ns() - begin < 2'000'000'000, "it took long");
        CHECK(contains(error, victim == 0 ? "join: rank 0 " : "join: rank 1 ") &&
                  contains(error, dies ? "has died (process " : "has left") &&
                  contains(error, "before it joined group \"pair\""),
              "%s", error.text);
      });
    }
  }
  // Ranks of one process.
  Segment world, pair;
  Group first, second, waiting;
  ErrorText error;
  CHECK(Region::in_process(2, 4096, &world, &error, Use::World, {"world", {}}).ok() &&
            Region::in_process(2, 4096, &pair, &error, Use::Subgroup, {"pair", {}}).ok(),
        "%s", error.text);
  CHECK(HostGroup::join(world, 0, &first, &error).ok() &&
            HostGroup::join(world, 1, &second, &error).ok(),
        "%s", error.text);
  CHECK(HostGroup::join(pair, 0, &waiting, &error, Origin{world}).ok(), "%s", error.text);
  second.reset();
  CHECK(!waiting->barrier({"barrier", "c.ts:1"}, &error).ok(), "a barrier of one rank alone");
  CHECK(contains(error,
                 "barrier (call 1 of group \"pair\") at c.ts:1: rank 1 has left group \"world\" "
                 "before it joined group \"pair\""),
        "%s", error.text);
}

void no_room() {
  Segment region;
  ErrorText error;
  const std::string name = segment_name();
  const Status status =
      Region::between_processes({name.c_str(), 1, 2, 0, int64_t{1} << 44, 100}, &region, &error);
  CHECK(status.code == Code::OutOfMemory, "16 TiB were had");
  for (const char* part :
       {"of 2 ranks needs 6", "MiB of shared memory, and /dev/shm has ", "--shm-size"})
    CHECK(contains(error, part), "%s", error.text);
  CHECK(segments_left() == 0, "%d segments are left", segments_left());
}

}  // namespace

void test_processes() {
  for (int turn = 0; turn < 6; turn++)
    kill_rank(turn % 3, turn % 2 == 0 ? 2 : 300'000, static_cast<useconds_t>(turn * 1700));
  kill_writers();
  kill_sender();
  kill_all();
  end_group("processes: SIGKILL");
  stop_rank();
  stop_all();
  end_group("processes: SIGSTOP");
}

void test_segments() {
  stale_segments();
  foreign_files();
  end_group("segments: stale and foreign segments");
  names_that_collide();
  creator_dies();
  rank_never_joins();
  no_room();
  gone_before_joining();
  end_group("segments: name collisions, dead creator, no room");
}

}  // namespace shardwise::comm::selftest
