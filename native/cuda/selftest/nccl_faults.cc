// Tests groups split from groups, and failures: a missing rank, abort, destroy and exit with calls
// in flight, and a missing NCCL library.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "nccl_selftest.h"

namespace selftest {
namespace {

CollectiveCall sum_of(Buffer& buffer, const char* name) {
  CollectiveCall call =
      call_of(Collective::AllReduce, DType::Float32, buffer.at(0), buffer.at(0), name);
  call.count = buffer.count();
  return call;
}

// Numbers of float32 elements: one for each route, by packets between GPUs, by lines between GPUs,
// and through NCCL.
constexpr int64_t kFew = 1000, kMany = 100'000, kMost = 5'000'000;

void expect_sum(Rank& rank, void* group, double own, double wanted, const char* name,
                int64_t count = kFew) {
  Buffer buffer(rank, DType::Float32, count);
  buffer.write([&](int64_t) { return own; });
  ErrorText error;
  if (check(rank.run_in(group, sum_of(buffer, name), &error).ok(), rank.rank, "%s: %s", name,
            error.text))
    buffer.expect(name, [&](int64_t) { return wanted; });
}

// Polls until the group has failed. Returns the seconds that took, or -1 after `most` seconds.
double wait_for_failure(Rank& rank, double most, Status* status, ErrorText* error) {
  const double start = seconds();
  while ((*status = rank.backend.comm->failure(rank.group, error)).ok()) {
    if (seconds() - start > most) return -1;
    usleep(1000);
  }
  return seconds() - start;
}

// After a failure the stream completes, and further calls fail at once.
void expect_ended(Rank& rank) {
  const double start = seconds();
  rank.synchronize();
  check(seconds() - start < 10, rank.rank, "the stream ended %.1f s after the failure",
        seconds() - start);
  Buffer buffer(rank, DType::Float32, 8);
  ErrorText error;
  const double before = seconds();
  const Status status = rank.run(sum_of(buffer, "too_late"), &error);
  check(!status.ok() && contains(error, "too_late (call ") &&
            contains(error, ": the group has failed before"),
        rank.rank, "a call after the failure: code %d, %s", static_cast<int>(status.code),
        error.text);
  check(seconds() - before < 0.5, rank.rank, "a call after the failure took %.2f s",
        seconds() - before);
}

// ---- splits ------------------------------------------------------------------------------------

void split_by_parity(Rank& rank) {
  void* half = nullptr;
  ErrorText error;
  const Status status =
      rank.backend.comm_split(rank.group, rank.rank % 2, rank.rank / 2, 20'000, &half, &error);
  if (!check(status.ok() && half, rank.rank, "comm_split: %s", error.text)) return;
  double wanted = 0;
  for (int32_t r = rank.rank % 2; r < rank.size; r += 2) wanted += r + 1;
  expect_sum(rank, half, rank.rank + 1, wanted, "sum in the half");
  expect_sum(rank, rank.group, 1, rank.size, "sum in the whole");
  expect_sum(rank, half, 2, 2.0 * ((rank.size - rank.rank % 2 + 1) / 2), "sum in the half again");
  rank.synchronize();
  rank.backend.comm->destroy(half);
  expect_sum(rank, rank.group, 2, 2 * rank.size, "sum in the whole after the half is gone");
}

// The last rank gets no group; the others join in the opposite order.
void split_without_last(Rank& rank) {
  void* part = nullptr;
  ErrorText error;
  const bool last = rank.size > 1 && rank.rank == rank.size - 1;
  const Status status = rank.backend.comm_split(rank.group, last ? -1 : 0, rank.size - rank.rank,
                                                20'000, &part, &error);
  if (!check(status.ok() && (part == nullptr) == last, rank.rank,
             "comm_split without the last: %s, %p", error.text, part) ||
      !part)
    return;
  const int32_t size = std::max(1, rank.size - 1);
  Buffer buffer(rank, DType::Int32, 1);
  buffer.write([&](int64_t) { return rank.rank; });
  CollectiveCall call =
      call_of(Collective::Broadcast, DType::Int32, buffer.at(0), buffer.at(0), "broadcast");
  call.count = 1;
  call.root = 0;
  check(rank.run_in(part, call, &error).ok(), rank.rank, "broadcast in the part: %s", error.text);
  buffer.expect("broadcast from the part's first rank", [&](int64_t) { return size - 1; });
  rank.backend.comm->destroy(part);
}

// New groups reuse the mailboxes of destroyed ones; their contents must not count.
void split_again(Rank& rank) {
  for (int turn = 0; turn < 6; turn++) {
    void* again = nullptr;
    ErrorText error;
    const Status status = rank.backend.comm_split(rank.group, 0, rank.rank, 20'000, &again, &error);
    if (!check(status.ok(), rank.rank, "comm_split, again: %s", error.text)) return;
    for (int i = 0; i < 20; i++) {
      const double own = rank.rank + 100 * turn + i,
                   wanted = rank.size * (100.0 * turn + i + (rank.size - 1) / 2.0);
      expect_sum(rank, again, own, wanted, "sum in a group made again", i % 3 == 0 ? kMany : kFew);
    }
    rank.synchronize();
    rank.backend.comm->destroy(again);
  }
}

// ---- a record of calls -------------------------------------------------------------------------

void remember(Rank& rank) {
  const CommEngine& engine = *rank.backend.comm;
  CommRecord records[64];
  check(engine.recent(rank.group, records, 64) == 0, rank.rank, "a new group remembers calls");
  Buffer buffer(rank, DType::Float32, 10);
  ErrorText error;
  for (int i = 0; i < 40; i++)
    check(rank.run(sum_of(buffer, i == 39 ? "the_last" : "sum"), &error).ok(), rank.rank, "sum: %s",
          error.text);
  rank.synchronize();
  usleep(200'000);
  const int32_t kept = engine.recent(rank.group, records, 64);
  if (!check(kept == 32, rank.rank, "%d records, expected 32", kept)) return;
  const CommRecord &first = records[0], &last = records[31];
  check(first.sequence == 9 && last.sequence == 40, rank.rank, "records %d to %d, expected 9 to 40",
        static_cast<int>(first.sequence), static_cast<int>(last.sequence));
  check(last.state == CommState::Complete && std::strcmp(last.name, "the_last") == 0 &&
            last.count == 10 && last.total == 10 && last.kind == Collective::AllReduce &&
            std::strcmp(last.where, "selftest.ts:1:1") == 0,
        rank.rank, "the last record: %s of %d at %s, state %d", last.name,
        static_cast<int>(last.count), last.where, static_cast<int>(last.state));
  check(engine.recent(rank.group, records, 3) == 3 && records[2].sequence == 40, rank.rank,
        "recent(3) ends with %d", static_cast<int>(records[2].sequence));
}

// ---- timeouts ----------------------------------------------------------------------------------

void last_does_not_come(Rank& rank, int64_t count) {
  expect_sum(rank, rank.group, 1, rank.size, "all come");
  if (rank.rank == rank.size - 1) {
    usleep(6'000'000);
    return;
  }
  Buffer buffer(rank, DType::Float32, count);
  const std::string size = std::to_string(count) + " float32";
  ErrorText error;
  const double start = seconds();
  Status status = rank.run(sum_of(buffer, "grad_sync"), &error);
  for (int i = 0; i < 3 && status.ok(); i++) status = rank.run(sum_of(buffer, "behind_it"), &error);
  const bool launched = status.ok();
  const double waited = launched ? wait_for_failure(rank, 10, &status, &error) : 0;
  const double after = seconds() - start;
  check(waited >= 0 && after > 1.9 && after < 4, rank.rank, "failed after %.2f s, expected 2: %s",
        after, error.text);
  for (const char* part : {"grad_sync", "call 2 of the group", size.c_str(), "selftest.ts:1:1",
                           "timeout after 2000 ms"})
    check(contains(error, part), rank.rank, "the text does not say \"%s\": %s", part, error.text);
  if (rank.rank == 0) printf("  %s\n", error.text);
  expect_ended(rank);
}

void join_without_last(const Backend& backend, int32_t size) {
  char id[kCommIdBytes];
  ErrorText named;
  check(backend.comm_id(id, &named).ok(), 0, "comm_id: %s", named.text);
  run_ranks(backend, size, 20'000, [&](Rank& rank) {
    if (rank.rank == rank.size - 1) return;
    void* group = nullptr;
    ErrorText error;
    const double start = seconds();
    const Status status =
        backend.comm_create(rank.rank, id, rank.rank, rank.size, 2000, 0, &group, &error);
    check(!status.ok() && contains(error, "timeout after 2000 ms"), rank.rank,
          "joining without the last: code %d, %s", static_cast<int>(status.code), error.text);
    check(seconds() - start > 1.9 && seconds() - start < 4, rank.rank,
          "joining without the last took %.2f s", seconds() - start);
    if (rank.rank == 0) printf("  %s\n", error.text);
  });
}

// The stream is busy for longer than the timeout before the call begins.
void busy_before(Rank& rank) {
  constexpr int64_t kCopied = int64_t{1} << 30;
  Buffer small(rank, DType::Float32, 100);
  void* memory = nullptr;
  ErrorText error;
  if (!check(rank.backend.allocate(rank.rank, 2 * kCopied, &memory, &error).ok(), rank.rank,
             "allocate: %s", error.text))
    return;
  expect_sum(rank, rank.group, 1, rank.size, "before");
  const auto copies = [&](int count) {
    for (int i = 0; i < count; i++)
      rank.backend.copy(rank.stream, static_cast<char*>(memory) + kCopied, memory, kCopied,
                        CopyKind::DeviceToDevice, &error);
  };
  double start = seconds();
  copies(50);
  rank.synchronize();
  const double each = (seconds() - start) / 50;
  rank.backend.comm->set_timeout(rank.group, 700);
  start = seconds();
  copies(std::min(900, static_cast<int>(2.0 / each) + 1));
  check(rank.run(sum_of(small, "after the copies"), &error).ok(), rank.rank, "behind copies: %s",
        error.text);
  rank.synchronize();
  usleep(150'000);
  const Status status = rank.backend.comm->failure(rank.group, &error);
  check(status.ok(), rank.rank, "a stream busy for %.2f s before the call, timeout 0.7 s: %s",
        seconds() - start, error.text);
  rank.backend.release(rank.rank, memory, 2 * kCopied);
}

// ---- abort and destroy -------------------------------------------------------------------------

void abort_in_flight(Rank& rank, int64_t count) {
  expect_sum(rank, rank.group, 1, rank.size, "all come");
  const bool is_last = rank.rank == rank.size - 1;
  if (is_last) {
    usleep(2'000'000);
    rank.backend.comm->abort(rank.group, shardwise::error_text("the end"));
  } else {
    Buffer buffer(rank, DType::Float32, count);
    ErrorText error;
    check(rank.run(sum_of(buffer, "sum"), &error).ok(), rank.rank, "sum: %s", error.text);
    usleep(500'000);
    rank.backend.comm->abort(rank.group, shardwise::error_text("no more of it"));
    rank.synchronize();
  }
  ErrorText error;
  const Status status = rank.backend.comm->failure(rank.group, &error);
  check(status.code == Code::Closed && contains(error, is_last ? "the end" : "no more of it"),
        rank.rank, "after abort: code %d, %s", static_cast<int>(status.code), error.text);
  expect_ended(rank);
}

// run_ranks destroys the group while a call that cannot complete is in flight.
void destroy_in_flight(Rank& rank, int64_t count) {
  expect_sum(rank, rank.group, 1, rank.size, "all come");
  if (rank.rank == rank.size - 1) return;
  Buffer buffer(rank, DType::Float32, count);
  ErrorText error;
  check(rank.run(sum_of(buffer, "sum"), &error).ok(), rank.rank, "sum: %s", error.text);
  rank.backend.comm->destroy(rank.group);
  rank.group = nullptr;
  rank.synchronize();
}

}  // namespace

void test_splits(const Backend& backend, int32_t size) {
  run_ranks(backend, size, 60'000, [](Rank& rank) {
    split_by_parity(rank);
    split_without_last(rank);
    split_again(rank);
  });
  end_test("splits");
}

void test_faults(const Backend& backend, int32_t size) {
  run_ranks(backend, size, 60'000, remember);
  end_test("the last calls are remembered");
  run_ranks(backend, size, 20'000, busy_before);
  end_test("a busy stream does not count as waiting");
  if (size < 2) return;
  join_without_last(backend, size);
  end_test("a rank does not join");
  const auto in_both_modes = [&](int64_t timeout_ms, void (*body)(Rank&, int64_t),
                                 const char* name) {
    for (const int64_t count : {kFew, kMany, kMost}) {
      run_ranks(backend, size, timeout_ms, [&](Rank& rank) { body(rank, count); });
      end_test((std::string(name) + ", " + std::to_string(count) + " elements").c_str());
    }
  };
  in_both_modes(2000, last_does_not_come, "a rank does not come");
  in_both_modes(60'000, abort_in_flight, "abort");
  in_both_modes(60'000, destroy_in_flight, "destroy with a call in flight");
}

void test_absence(const Backend& backend) {
  const char* nowhere = "/nonexistent/libnccl.so.2";
  setenv("SHARDWISE_NCCL_PATH", nowhere, 1);
  char id[kCommIdBytes];
  ErrorText error;
  const Status status = backend.comm_id(id, &error);
  printf("  %s\n", error.text);
  check(status.code == Code::Unsupported, 0, "code %d, expected %d", static_cast<int>(status.code),
        static_cast<int>(Code::Unsupported));
  for (const char* part :
       {"libnccl2", "nvidia-nccl-cu13", "SHARDWISE_NCCL_PATH", nowhere, "No such file"})
    check(contains(error, part), 0, "the text does not say \"%s\"", part);
  end_test("no library");
}

void leave_without_destroy(const Backend& backend, int32_t size) {
  run_ranks(backend, size, 60'000, [](Rank& rank) {
    expect_sum(rank, rank.group, 1, rank.size, "sum");
    rank.group = nullptr;
  });
}

}  // namespace selftest
