// Times collectives: all-reduces of up to 16 MiB (per call, on the device and on the host), and the
// bus bandwidth of large ones, counted as nccl-tests does: bytes / time * 2 (n - 1) / n for
// all-reduce, * (n - 1) / n for the others.
#include <algorithm>

#include "nccl_selftest.h"

namespace selftest {
namespace {

struct Times {
  double device_us, host_us;
};

void must(const Status& status, const ErrorText& error) {
  if (status.ok()) return;
  printf("timing failed: %s\n", error.text);
  fflush(stdout);
  _Exit(2);
}

Times time_calls(Rank& rank, const CollectiveCall& call, int repeats) {
  const Backend& backend = rank.backend;
  ErrorText error;
  void *start = nullptr, *end = nullptr;
  must(backend.event_create(rank.rank, true, &start, &error), error);
  must(backend.event_create(rank.rank, true, &end, &error), error);
  for (int i = 0; i < std::max(3, repeats / 10); i++) must(rank.run(call, &error), error);
  must(rank.run(call_of(Collective::Barrier, DType::Float32, nullptr, nullptr, "barrier"), &error),
       error);
  rank.synchronize();
  must(backend.event_record(start, rank.stream, &error), error);
  const double before = seconds();
  for (int i = 0; i < repeats; i++) must(rank.run(call, &error), error);
  const double host = seconds() - before;
  must(backend.event_record(end, rank.stream, &error), error);
  rank.synchronize();
  double ms = 0;
  must(backend.event_elapsed_ms(start, end, &ms, &error), error);
  must(backend.comm->failure(rank.group, &error), error);
  backend.event_destroy(start);
  backend.event_destroy(end);
  return {ms * 1000 / repeats, host * 1e6 / repeats};
}

void time_latency(Rank& rank) {
  if (rank.rank == 0) printf("\nall_reduce, float32      device us   host us\n");
  for (int64_t bytes = 8; bytes <= int64_t{16} << 20; bytes *= bytes < 4096                 ? 8
                                                               : bytes < int64_t{256} << 10 ? 4
                                                                                            : 2) {
    Buffer in(rank, DType::Float32, bytes / 4), out(rank, DType::Float32, bytes / 4);
    CollectiveCall call =
        call_of(Collective::AllReduce, DType::Float32, in.at(0), out.at(0), "all_reduce");
    call.count = bytes / 4;
    const Times times = time_calls(rank, call, 200);
    if (rank.rank == 0)
      printf("%12lld bytes %15.1f %9.1f\n", static_cast<long long>(bytes), times.device_us,
             times.host_us);
  }
  const Times barrier = time_calls(
      rank, call_of(Collective::Barrier, DType::Float32, nullptr, nullptr, "barrier"), 200);
  if (rank.rank == 0) printf("%18s %15.1f %9.1f\n", "barrier", barrier.device_us, barrier.host_us);
  fflush(stdout);
}

void time_bandwidth(Rank& rank, Collective kind, const char* name, int64_t bytes) {
  const int64_t part = bytes / 2 / rank.size, whole = part * rank.size;  // bfloat16
  const std::vector<int64_t> counts(static_cast<size_t>(rank.size), part);
  ErrorText error;
  void *in = nullptr, *out = nullptr;
  must(rank.backend.allocate(rank.rank, whole * 2, &in, &error), error);
  must(rank.backend.allocate(rank.rank, whole * 2, &out, &error), error);
  CollectiveCall call = call_of(kind, DType::BFloat16, in, out, name);
  call.count = whole;
  call.counts = counts.data();
  const Times times = time_calls(rank, call, bytes > (int64_t{64} << 20) ? 20 : 100);
  const double share = (rank.size - 1.0) / rank.size * (kind == Collective::AllReduce ? 2 : 1);
  if (rank.rank == 0)
    printf("%-15s %6lld MiB %12.1f us %8.1f GB/s\n", name, static_cast<long long>(bytes >> 20),
           times.device_us, static_cast<double>(whole) * 2 * share / times.device_us / 1000);
  fflush(stdout);
  rank.backend.release(rank.rank, in, whole * 2);
  rank.backend.release(rank.rank, out, whole * 2);
}

// Times the creation of a group with the same ranks, by a new id and by a split, until its first
// sum is complete.
void time_groups(const Backend& backend, int32_t size) {
  char ids[2][kCommIdBytes];
  ErrorText named;
  for (char* id : {ids[0], ids[1]}) must(backend.comm_id(id, &named), named);
  run_ranks(backend, size, 60'000, [&](Rank& rank) {
    Buffer in(rank, DType::Float32, 2), out(rank, DType::Float32, 2);
    CollectiveCall call =
        call_of(Collective::AllReduce, DType::Float32, in.at(0), out.at(0), "all_reduce");
    call.count = 2;
    const auto time_group = [&](const char* how,
                                const std::function<Status(void** group, ErrorText* error)>& make) {
      ErrorText error;
      void* group = nullptr;
      must(rank.run(call, &error), error);
      rank.synchronize();
      const double start = seconds();
      must(make(&group, &error), error);
      const double made = seconds();
      must(rank.run_in(group, call, &error), error);
      rank.synchronize();
      if (rank.rank == 0)
        printf("a group %-12s made in %6.1f ms, its first sum %6.1f ms\n", how,
               (made - start) * 1e3, (seconds() - made) * 1e3);
      fflush(stdout);
      rank.backend.comm->destroy(group);
    };
    for (const char* id : {ids[0], ids[1]})
      time_group("by its id", [&](void** group, ErrorText* error) {
        return backend.comm_create(rank.rank, id, rank.rank, rank.size, 60'000, 0, group, error);
      });
    for (int i = 0; i < 2; i++)
      time_group("by a split", [&](void** group, ErrorText* error) {
        return backend.comm_split(rank.group, 0, rank.rank, 60'000, group, error);
      });
  });
}

}  // namespace

void time_all(const Backend& backend, int32_t size) {
  time_groups(backend, size);
  run_ranks(backend, size, 60'000, [](Rank& rank) {
    time_latency(rank);
    if (rank.rank == 0) printf("\nbus bandwidth, bfloat16\n");
    for (const int64_t mib : {16, 256, 1024}) {
      time_bandwidth(rank, Collective::AllReduce, "all_reduce", mib << 20);
      time_bandwidth(rank, Collective::AllGather, "all_gather", mib << 20);
      time_bandwidth(rank, Collective::ReduceScatter, "reduce_scatter", mib << 20);
    }
  });
}

}  // namespace selftest
