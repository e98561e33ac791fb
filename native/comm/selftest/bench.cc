// Measures a small all_reduce, a barrier, a message round trip, and the bandwidth of large
// collectives, beside memcpy.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "selftest.h"

namespace shardwise::comm::selftest {
namespace {

constexpr CallSite kSite = {"bench", "bench.cc"};

// The median time of `runs` runs, in microseconds.
template <class F>
double median_us(int runs, F&& run) {
  std::vector<double> times;
  for (int i = 0; i < runs; i++) {
    const int64_t begin = now_ns();
    run();
    times.push_back(static_cast<double>(now_ns() - begin) * 1e-3);
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[static_cast<size_t>(runs / 2)];
}

}  // namespace

void bench(Ranks mode, int32_t size) {
  printf("%d ranks, %s, %d processors\n", size, mode == Ranks::Threads ? "threads" : "processes",
         platform::allowed_processors());
  run_ranks(mode, size, {.slot_bytes = 0}, [](HostGroup& group) {
    const bool prints = group.rank() == 0;
    double small[2] = {1, 2}, result[2];
    group.barrier(kSite, nullptr);
    for (int turn = 0; turn < 2; turn++) {  // the first warms up
      const double barrier = median_us(2000, [&] { group.barrier(kSite, nullptr); });
      const double reduce = median_us(2000, [&] {
        group.all_reduce(small, result, 1, DType::Float64, Reduce::Sum, kSite, nullptr);
      });
      if (prints && turn == 1)
        printf("  barrier %.2f us, all_reduce of 8 bytes %.2f us\n", barrier, reduce);
    }
    if (group.rank() < 2 && group.size() > 1) {
      const double both = median_us(2000, [&] {
        if (prints) group.send(small, 8, 1, kSite, nullptr);
        group.receive(result, 8, 1 - group.rank(), kSite, nullptr);
        if (!prints) group.send(small, 8, 0, kSite, nullptr);
      });
      if (prints) printf("  message of 8 bytes there and back %.2f us\n", both);
    }
    for (int64_t bytes : {64 << 10, 1 << 20, 64 << 20}) {
      std::vector<char> in(static_cast<size_t>(bytes), 1), out(in.size(), 2);
      const int runs = bytes > (8 << 20) ? 7 : 60;
      group.barrier(kSite, nullptr);
      const double copy = median_us(runs, [&] { memcpy(out.data(), in.data(), in.size()); });
      const double reduce = median_us(runs, [&] {
        group.all_reduce(in.data(), out.data(), bytes / 4, DType::Float32, Reduce::Sum, kSite,
                         nullptr);
      });
      const double broadcast = median_us(
          runs, [&] { group.broadcast(in.data(), out.data(), bytes, 0, kSite, nullptr); });
      const std::vector<int64_t> sizes(static_cast<size_t>(group.size()), bytes / group.size());
      const double gather = median_us(
          runs, [&] { group.all_gather(in.data(), out.data(), sizes.data(), kSite, nullptr); });
      const auto rate = [&](double us) { return static_cast<double>(bytes) / us * 1e-3; };
      if (prints) {
        printf(
            "  %5lld KiB: all_reduce %.2f GB/s, broadcast %.2f, all_gather %.2f, memcpy on all "
            "ranks at once %.2f\n",
            static_cast<long long>(bytes >> 10), rate(reduce), rate(broadcast), rate(gather),
            rate(copy));
      }
    }
  });
}

}  // namespace shardwise::comm::selftest
