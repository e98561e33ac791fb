// Failures of groups: mismatched calls, ranks that do not come, leave or abort. Also checks the
// error texts.
#include <unistd.h>

#include <cstring>
#include <thread>

#include "selftest.h"

namespace shardwise::comm::selftest {
namespace {

constexpr CallSite kReduce = {"all_reduce", "a.ts:9"}, kBroadcast = {"broadcast", "b.ts:3"},
                   kBarrier = {"barrier", "c.ts:1"};

bool contains(const ErrorText& error, const char* part) {
  return strstr(error.text, part) != nullptr;
}

Status reduce_floats(HostGroup& group, int64_t count, ErrorText* error, Reduce reduce = Reduce::Sum,
                     DType dtype = DType::Float32) {
  std::vector<char> data(static_cast<size_t>(count * item_size(dtype)), 1);
  return group.all_reduce(data.data(), data.data(), count, dtype, reduce, kReduce, error);
}

Status broadcast_bytes(HostGroup& group, int64_t bytes, ErrorText* error, int32_t root = 0) {
  std::vector<char> data(static_cast<size_t>(bytes), 1);
  return group.broadcast(data.data(), data.data(), bytes, root, kBroadcast, error);
}

// One rank of three makes a different call: all fail with a text that contains these phrases, and
// later calls fail too.
void check_difference(Ranks mode,
                      const std::function<Status(HostGroup&, bool odd, ErrorText*)>& call,
                      const char* part, const char* odd_part) {
  run_ranks(mode, 3, {}, [&](HostGroup& group) {
    const bool odd = group.rank() == 2;
    ErrorText error;
    CHECK(reduce_floats(group, 5, &error).ok(), "%s", error.text);
    Status status = call(group, odd, &error);
    CHECK(status.code == Code::Invalid, "rank %d did not observe the mismatch", group.rank());
    CHECK(contains(error, odd ? odd_part : part), "rank %d says: %s; not: %s", group.rank(),
          error.text, odd ? odd_part : part);
    ErrorText later;
    status = group.barrier(kBarrier, &later);
    CHECK(!status.ok() && contains(later, "has failed before") && contains(later, "rank "),
          "later: %s", later.text);
  });
}

void differing_calls(Ranks mode) {
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) {
        return odd ? broadcast_bytes(g, 8, e) : reduce_floats(g, 12, e);
      },
      "all_reduce (call 2 of the group): rank 2 called broadcast of 8 bytes from rank 0 at b.ts:3, "
      "this rank all_reduce of 12 "
      "float32 "
      "(sum) at a.ts:9",
      "broadcast (call 2 of the group): ranks 0 and 1 called all_reduce of 12 float32 (sum) at "
      "a.ts:9, this rank broadcast of 8 bytes");
  check_difference(
      mode, [](HostGroup& g, bool odd, ErrorText* e) { return reduce_floats(g, odd ? 13 : 12, e); },
      "rank 2 called all_reduce of 13 float32", "ranks 0 and 1 called all_reduce of 12 float32");
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) {
        return reduce_floats(g, 12, e, odd ? Reduce::Max : Reduce::Sum);
      },
      "all_reduce of 12 float32 (max)", "this rank all_reduce of 12 float32 (max)");
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) {
        return reduce_floats(g, 12, e, Reduce::Sum, odd ? DType::Int64 : DType::Float32);
      },
      "12 int64", "this rank all_reduce of 12 int64");
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) { return broadcast_bytes(g, 9, e, odd ? 1 : 0); },
      "rank 2 called broadcast of 9 bytes from rank 1",
      "ranks 0 and 1 called broadcast of 9 bytes from rank 0");
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) { return reduce_floats(g, odd ? 1'000'000 : 3, e); },
      "1000000 float32", "1000000 float32");
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) {
        return odd ? g.barrier(kBarrier, e) : reduce_floats(g, 100'000, e);
      },
      "rank 2 called barrier at c.ts:1", "this rank barrier at c.ts:1");
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) {
        const int64_t sizes[] = {1, odd ? 3 : 2, odd ? 1 : 2};
        char in[3] = {}, out[5];
        return g.all_gather(in, out, sizes, {"all_gather", "d.ts:4"}, e);
      },
      "all_gather of 5 bytes at d.ts:4 with other sizes per rank", "with other sizes per rank");
  check_difference(
      mode,
      [](HostGroup& g, bool odd, ErrorText* e) {
        const int64_t sends[] = {4, 4, 4}, receives[] = {4, odd ? 8 : 4, 4};
        char in[12] = {}, out[16];
        return g.all_to_all(in, sends, out, receives, {"all_to_all", "e.ts:5"}, e);
      },
      "rank 1 sends 4 bytes to rank 2, which expects 8",
      "rank 1 sends 4 bytes to rank 2, which expects 8");
  end_group(mode == Ranks::Threads ? "threads: mismatched calls" : "processes: mismatched calls");
}

void differing_messages(Ranks mode) {
  run_ranks(mode, 3, {}, [](HostGroup& group) {
    ErrorText error;
    char data[16] = {};
    Status status = kOk;
    if (group.rank() == 0) {
      CHECK(group.send(data, 16, 1, {"send", "a.ts:3"}, &error).ok(), "%s",
            error.text);  // is on its way before anybody looks
    } else if (group.rank() == 1) {
      status = group.receive(data, 8, 0, {"receive", "b.ts:9"}, &error);
      CHECK(status.code == Code::Invalid, "a message of another size was taken");
    }
    ErrorText later;
    status = group.barrier(kBarrier, &later);
    CHECK(
        !status.ok() &&
            contains(later,
                     "rank 0 sent 16 bytes to rank 1 at a.ts:3, which receives 8 bytes at b.ts:9"),
        "later: %s", later.text);
  });
  end_group(mode == Ranks::Threads ? "threads: mismatched messages"
                                   : "processes: mismatched messages");
}

// Invalid arguments are refused before other ranks notice, and the group continues.
void bad_arguments(Ranks mode) {
  run_ranks(mode, 2, {}, [](HostGroup& group) {
    ErrorText error;
    char data[4] = {};
    const int64_t sizes[] = {2, -2};
    const Status refused[] = {
        group.broadcast(data, data, 4, -1, kBroadcast, &error),
        group.broadcast(data, data, 4, 2, kBroadcast, &error),
        group.broadcast(data, data, -4, 0, kBroadcast, &error),
        group.gather(data, data, sizes, 0, {"gather", ""}, &error),
        group.send(data, 4, group.rank(), {"send", ""}, &error),
        group.receive(data, 4, 2, {nullptr, nullptr}, &error),
    };
    for (const Status& status : refused)
      CHECK(status.code == Code::Invalid, "a bad argument was taken");
    const std::string longest(500, 'x');
    for (int64_t ms : {INT64_MAX, int64_t{20'000}}) {
      group.set_timeout(ms);
      CHECK(group.barrier({longest.c_str(), longest.c_str()}, &error).ok(), "%s", error.text);
    }
  });
  end_group(mode == Ranks::Threads ? "threads: bad arguments" : "processes: bad arguments");
}

}  // namespace

void test_disagreement(Ranks mode) {
  bad_arguments(mode);
  differing_calls(mode);
  differing_messages(mode);
}

void test_absence(Ranks mode) {
  Progress* registry = new_progress();
  run_ranks(mode, 3, {}, [registry](HostGroup& group) {
    ErrorText error;
    CHECK(broadcast_bytes(group, 8, &error).ok(), "%s", error.text);
    group.set_timeout(300);
    const int64_t begin = now_ns();
    if (group.rank() == 2) wait_for(registry->done, 2);
    const Status status = reduce_floats(group, 12, &error);
    const double seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    CHECK(status.code == Code::Device, "a rank that did not join was not reported");
    CHECK(contains(error,
                   "rank 2 has not come, its last call was broadcast of 8 bytes from rank 0 at "
                   "b.ts:3 (call 1)"),
          "%s", error.text);
    if (group.rank() != 2)
      CHECK(seconds > 0.29 && seconds < 5, "the timeout of 0.3 s took %.2f s", seconds);
    registry->done++;
  });
  run_ranks(mode, 2, {}, [](HostGroup& group) {  // each waits for the other's message
    ErrorText error;
    CHECK(group.barrier(kBarrier, &error).ok(), "%s", error.text);
    group.set_timeout(700);
    char data[4];
    const Status status = group.receive(data, 4, 1 - group.rank(), {"receive", "f.ts:6"}, &error);
    CHECK(!status.ok() && contains(error, "has not come, it is in receive of 4 bytes from rank") &&
              contains(error, "f.ts:6"),
          "%s", error.text);
  });
  end_group(mode == Ranks::Threads ? "threads: timeouts" : "processes: timeouts");

  for (const bool in_time : {true, false}) {
    run_ranks(mode, 3, {}, [in_time](HostGroup& group) {
      ErrorText error;
      CHECK(group.barrier(kBarrier, &error).ok(), "%s", error.text);
      group.set_timeout(300);
      if (group.rank() == 2) {
        auto& compilation = group.region()->rank(2).compilation;
        compilation.write(begin_compilation("the graph of step", true, in_time ? 20'000 : 200));
        usleep(1'200'000);
        compilation.write({});
      }
      const Status status = reduce_floats(group, 12, &error);
      CHECK(status.ok() == in_time, "%s", error.text);
      if (!in_time)
        CHECK(contains(error, "rank 2 has been compiling the graph of step for "), "%s",
              error.text);
    });
  }
  end_group(mode == Ranks::Threads ? "threads: ranks that compile"
                                   : "processes: ranks that compile");

  run_ranks(mode, 3, {}, [](HostGroup& group) {
    ErrorText error;
    CHECK(group.barrier(kBarrier, &error).ok(), "%s", error.text);
    if (group.rank() == 1) return;  // leaves
    const int64_t begin = now_ns();
    const Status status = reduce_floats(group, 12, &error);
    CHECK(!status.ok() &&
              contains(error, "rank 1 has left the group, its last call was barrier at c.ts:1"),
          "%s", error.text);
    CHECK(now_ns() - begin < 5'000'000'000, "it took long to see that a rank has left");
  });
  run_ranks(mode, 3, {.group_info = {"turned", {7, 5, 6}}}, [](HostGroup& group) {
    ErrorText error;
    CHECK(broadcast_bytes(group, 8, &error, 1).ok(), "%s", error.text);
    if (group.rank() == 0) return;
    const Status status = reduce_floats(group, 12, &error);
    CHECK(!status.ok() && contains(error,
                                   "rank 7 has left the group, its last call was broadcast of 8 "
                                   "bytes from rank 5 at b.ts:3"),
          "%s", error.text);
    const CollectiveDetails& details = error.details.collective;
    CHECK(error.details.kind == DetailsKind::Collective && error.details.id != 0 &&
              details.blamed.count == 1 && details.blamed.ranges[0].first == 7 &&
              details.blamed.ranges[0].last == 7 && details.num_calls >= 2 &&
              strcmp(details.group, "turned") == 0,
          "details: kind %d, group %s, %d calls, %d ranges of blamed ranks from %d",
          static_cast<int>(error.details.kind), details.group, details.num_calls,
          details.blamed.count, details.blamed.ranges[0].first);
  });
  run_ranks(mode, 2, {}, [](HostGroup& group) {  // what was sent before outlives the sender
    ErrorText error;
    char data[100] = {};
    if (group.rank() == 0)
      CHECK(group.send(data, 100, 1, {"send", ""}, &error).ok(), "%s", error.text);
    if (group.rank() == 1) usleep(50'000);
    if (group.rank() == 1)
      CHECK(group.receive(data, 100, 0, {"receive", ""}, &error).ok(), "%s", error.text);
  });
  end_group(mode == Ranks::Threads ? "threads: ranks that leave" : "processes: ranks that leave");

  run_ranks(mode, 4, {}, [](HostGroup& group) {
    ErrorText error;
    char data[4];
    std::thread other;
    if (group.rank() == 3) {  // its own call waits as well: a thread beside it aborts
      other = std::thread([&group] {
        usleep(50'000);
        group.abort(error_text("rank 3 has had enough"));
      });
    }
    const int64_t begin = now_ns();
    const Status status = group.rank() == 2   ? group.receive(data, 4, 0, {"receive", ""}, &error)
                          : group.rank() == 0 ? (usleep(200'000), group.barrier(kBarrier, &error))
                                              : reduce_floats(group, 20, &error);
    if (other.joinable()) other.join();
    CHECK(status.code == Code::Closed && contains(error, "rank 3 has had enough"), "%s",
          error.text);
    // The error of each rank names its own call.
    const char* own = group.rank() == 2 ? "receive from rank 0: rank 3"
                                        : "all_reduce (call 1 of the group) at a.ts:9: rank 3";
    if (group.rank() != 0) CHECK(contains(error, own), "%s", error.text);
    CHECK(now_ns() - begin < 5'000'000'000, "it took long to see the abort");
  });
  // Memory returns to the caller while others may access it; sanitizers check.
  for (int turn = 0; turn < 30; turn++) {
    run_ranks(mode, 3, {}, [turn](HostGroup& group) {
      std::thread other;
      if (group.rank() == 0) {
        other = std::thread([&group, turn] {
          usleep(static_cast<useconds_t>(turn * 100));
          group.abort(error_text("midway"));
        });
      }
      for (Status status = kOk; status.ok();) status = reduce_floats(group, 50'000, nullptr);
      if (other.joinable()) other.join();
    });
  }
  end_group(mode == Ranks::Threads ? "threads: abort" : "processes: abort");
}

}  // namespace shardwise::comm::selftest
