// Compares every collective with a plain reference: all dtypes and reductions, 1 to 5 ranks, sizes
// that differ between ranks, chunk borders.
#include <cstring>

#include "selftest.h"

namespace shardwise::comm::selftest {
namespace {

constexpr Reduce kReductions[] = {Reduce::Sum, Reduce::Avg, Reduce::Product, Reduce::Min,
                                  Reduce::Max};
constexpr CallSite kSite = {"collective", "data.cc"};

using Bytes = std::vector<char>;
using Sizes = std::vector<int64_t>;

int64_t total(const Sizes& sizes, int32_t until) {
  int64_t sum = 0;
  for (int32_t i = 0; i < until; i++) sum += sizes[static_cast<size_t>(i)];
  return sum;
}

std::vector<Bytes> inputs_of_all(int32_t size, DType dtype, int64_t count, uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int32_t rank = 0; rank < size; rank++)
    inputs.push_back(random_values(dtype, count, seed * 100 + static_cast<uint64_t>(rank)));
  return inputs;
}

// Empty vectors have no address; calls get one that they must not access.
char* at(Bytes& bytes) { return bytes.empty() ? nullptr : bytes.data(); }

void check_reductions(HostGroup& group, DType dtype, Reduce reduce, int64_t count, uint64_t seed) {
  const int32_t size = group.size(), rank = group.rank(),
                root = static_cast<int32_t>(seed % static_cast<uint64_t>(size));
  const std::vector<Bytes> inputs = inputs_of_all(size, dtype, count, seed);
  const Bytes expected = reference_reduce(inputs, dtype, reduce);
  const auto good = [&](const char* name, const Status& status, const ErrorText& error,
                        const char* result, const char* wanted, int64_t n) {
    CHECK(status.ok(), "%s: %s", name, error.text);
    CHECK(same_values(result, wanted, dtype, n),
          "%s of %lld %s (%s), %d ranks: rank %d got another value", name,
          static_cast<long long>(n), dtype_name(dtype), reduce_name(reduce), size, rank);
  };
  ErrorText error;
  Bytes in = inputs[static_cast<size_t>(rank)], out(in.size(), 42);
  Status status = group.all_reduce(at(in), at(out), count, dtype, reduce, kSite, &error);
  good("all_reduce", status, error, out.data(), expected.data(), count);
  CHECK(in == inputs[static_cast<size_t>(rank)], "all_reduce changed its input");
  status = group.all_reduce(at(in), at(in), count, dtype, reduce, kSite, &error);
  good("all_reduce in place", status, error, in.data(), expected.data(), count);
  CHECK(in == out, "all_reduce gives other bits in place");

  in = inputs[static_cast<size_t>(rank)];
  std::fill(out.begin(), out.end(), 42);
  status = group.reduce(at(in), rank == root ? at(out) : nullptr, count, dtype, reduce, root, kSite,
                        &error);
  if (rank == root)
    good("reduce", status, error, out.data(), expected.data(), count);
  else
    CHECK(status.ok(), "reduce: %s", error.text);

  Bytes both = in;
  status = group.reduce(at(both), at(both), count, dtype, reduce, root, kSite, &error);
  CHECK(both == (rank == root ? out : in), "reduce in place gives other bits: %s", error.text);

  // Splits at random places.
  std::mt19937_64 random(seed + 5);
  Sizes counts;
  int64_t left = count;
  for (int32_t r = 0; r < size; r++) {
    counts.push_back(
        r == size - 1 ? left : static_cast<int64_t>(random() % static_cast<uint64_t>(left + 1)));
    left -= counts.back();
  }
  const int64_t item = item_size(dtype), mine = counts[static_cast<size_t>(rank)],
                begin = total(counts, rank) * item;
  Bytes part(static_cast<size_t>(mine * item), 42);
  status = group.reduce_scatter(at(in), at(part), counts.data(), dtype, reduce, kSite, &error);
  good("reduce_scatter", status, error, part.data(), expected.data() + begin, mine);
}

void check_moves(HostGroup& group, int64_t longest, uint64_t seed) {
  const int32_t size = group.size(), rank = group.rank(),
                root = static_cast<int32_t>(seed % static_cast<uint64_t>(size));
  const size_t me = static_cast<size_t>(rank);
  std::mt19937_64 random(seed);
  Sizes sizes;
  for (int32_t r = 0; r < size; r++)
    sizes.push_back(random() % 4 == 0
                        ? 0
                        : static_cast<int64_t>(random() % static_cast<uint64_t>(longest + 1)));
  const int64_t begin = total(sizes, rank), all = total(sizes, size);
  // the result of a gather: each rank has its shard of it
  const Bytes whole = random_bytes(all, seed + 1);
  const Bytes part(whole.begin() + begin, whole.begin() + begin + sizes[me]);
  const auto good = [&](const char* name, const Status& status, const ErrorText& error,
                        bool equal) {
    CHECK(status.ok(), "%s: %s", name, error.text);
    CHECK(equal, "%s of at most %lld bytes, %d ranks: rank %d got other bytes", name,
          static_cast<long long>(longest), size, rank);
  };
  ErrorText error;

  Bytes in = part, out(whole.size(), 42);
  Status status = group.all_gather(at(in), at(out), sizes.data(), kSite, &error);
  good("all_gather", status, error, out == whole);
  std::fill(out.begin(), out.end(), 42);
  std::copy(part.begin(), part.end(), out.begin() + begin);
  status = group.all_gather(out.data() + begin, at(out), sizes.data(), kSite, &error);
  good("all_gather in place", status, error, out == whole);
  std::fill(out.begin(), out.end(), 42);
  status =
      group.gather(at(in), rank == root ? at(out) : nullptr, sizes.data(), root, kSite, &error);
  good("gather", status, error, rank != root || out == whole);

  out = whole;
  Bytes mine(part.size(), 42);
  status =
      group.scatter(rank == root ? at(out) : nullptr, at(mine), sizes.data(), root, kSite, &error);
  good("scatter", status, error, mine == part);

  out.assign(whole.size(), 42);
  in = whole;
  status = group.broadcast(rank == root ? at(in) : nullptr, at(out), all, root, kSite, &error);
  good("broadcast", status, error, out == whole);
  if (rank != root) in.assign(whole.size(), 42);
  status = group.broadcast(at(in), at(in), all, root, kSite, &error);
  good("broadcast in place", status, error, in == whole);

  // Rank s sends `matrix[s][d]` bytes of its own stream to rank d.
  std::vector<Sizes> matrix(static_cast<size_t>(size), Sizes(static_cast<size_t>(size)));
  for (Sizes& row : matrix)
    for (int64_t& bytes : row)
      bytes = random() % 3 == 0
                  ? 0
                  : static_cast<int64_t>(random() % static_cast<uint64_t>(longest + 1));
  Sizes receives;
  Bytes expected;
  for (int32_t s = 0; s < size; s++) {
    const Sizes& row = matrix[static_cast<size_t>(s)];
    const Bytes sent = random_bytes(total(row, size), seed * 10 + static_cast<uint64_t>(s));
    if (s == rank) in = sent;
    receives.push_back(row[me]);
    expected.insert(expected.end(), sent.begin() + total(row, rank),
                    sent.begin() + total(row, rank) + row[me]);
  }
  out.assign(expected.size(), 42);
  status = group.all_to_all(at(in), matrix[me].data(), at(out), receives.data(), kSite, &error);
  good("all_to_all", status, error, out == expected);
  status = group.barrier(kSite, &error);
  good("barrier", status, error, true);
}

const char* name_of(Ranks mode, const char* threads, const char* processes) {
  return mode == Ranks::Threads ? threads : processes;
}

}  // namespace

void test_reductions(Ranks mode) {
  for (int32_t size = 1; size <= 5; size++) {
    run_ranks(mode, size, {}, [](HostGroup& group) {
      uint64_t seed = 1;
      for (int32_t dtype = 0; dtype < kNumDTypes; dtype++) {
        for (Reduce reduce : kReductions) {
          std::mt19937_64 random(seed);
          for (uint64_t most : {uint64_t{1}, uint64_t{20}, uint64_t{3000},
                                seed % 7 == 0 ? uint64_t{40'000} : uint64_t{300}}) {
            check_reductions(group, static_cast<DType>(dtype), reduce,
                             static_cast<int64_t>(random() % most), seed++);
          }
        }
      }
    });
  }
  end_group(name_of(mode, "reductions of all dtypes", "processes: reductions of all dtypes"));
}

void test_moves(Ranks mode) {
  for (int32_t size = 1; size <= 5; size++) {
    run_ranks(mode, size, {}, [](HostGroup& group) {
      for (uint64_t seed = 1; seed <= 60; seed++)
        check_moves(group, seed % 3 == 0 ? 30'000 : seed % 3 == 1 ? 2000 : 10, seed);
    });
  }
  end_group(name_of(mode, "threads: uneven sizes", "processes: uneven sizes"));
}

void test_borders(Ranks mode) {
  for (int32_t size : {1, 2, 3, 4}) {
    run_ranks(mode, size, {}, [](HostGroup& group) {
      // sizes around cache lines, runs, slots and the limits between paths
      for (int64_t border : {64, 1024, 4096, 8192, 32768, 65536}) {
        for (int64_t off : {-1, 0, 1}) {
          check_reductions(group, DType::Int8, Reduce::Sum, border + off,
                           static_cast<uint64_t>(border + off));
          check_reductions(group, DType::Float32, Reduce::Sum, border / 4 + off,
                           static_cast<uint64_t>(border + off));
        }
      }
    });
  }
  run_ranks(mode, 2, {.slot_bytes = 0}, [](HostGroup& group) {  // the slots of real use
    for (int64_t off : {-1, 0, 1}) {
      const int64_t bytes = (1 << 20) + off;
      check_reductions(group, DType::UInt8, Reduce::Max, bytes, 3);
      check_moves(group, 3 * bytes, static_cast<uint64_t>(bytes));
    }
  });
  run_ranks(mode, kMaxRanks, {.slot_bytes = 0}, [](HostGroup& group) {
    check_reductions(group, DType::Int16, Reduce::Avg, 5000, 9);
    check_moves(group, 700, 9);
  });
  end_group(
      name_of(mode, "threads: chunk borders, many ranks", "processes: chunk borders, many ranks"));
}

void test_messages(Ranks mode) {
  for (int32_t size : {2, 3, 5}) {
    run_ranks(mode, size, {}, [](HostGroup& group) {
      const int32_t size = group.size(), rank = group.rank(), next = (rank + 1) % size,
                    previous = (rank + size - 1) % size;
      ErrorText error;
      for (int64_t bytes : {0, 1, 100, 65535, 65536, 65537, 1'000'000}) {
        Bytes out = random_bytes(bytes, static_cast<uint64_t>(rank + bytes)),
              in(static_cast<size_t>(bytes), 42);
        // Any rank may begin; a short message needs no waiting receiver.
        for (bool sends : {rank == 0 || bytes <= 65536, !(rank == 0 || bytes <= 65536)}) {
          const Status status = sends ? group.send(at(out), bytes, next, kSite, &error)
                                      : group.receive(at(in), bytes, previous, kSite, &error);
          CHECK(status.ok(), "%s", error.text);
        }
        CHECK(in == random_bytes(bytes, static_cast<uint64_t>(previous + bytes)),
              "a message of %lld bytes came as another", static_cast<long long>(bytes));
        CHECK(group.barrier(kSite, &error).ok(), "%s", error.text);
      }
      if (rank < 2) {  // many in one direction, in order
        for (int32_t i = 0; i < 2000; i++) {
          int32_t value = i;
          const Status status = rank == 0 ? group.send(&value, 4, 1, kSite, &error)
                                          : group.receive(&value, 4, 0, kSite, &error);
          CHECK(status.ok() && value == i, "message %d: %s", i, error.text);
        }
      }
    });
  }
  end_group(name_of(mode, "threads: messages", "processes: messages"));
}

// Sums that depend on the order of additions have the same bits on every rank and in every run, on
// every path.
void test_order(Ranks mode) {
  for (int64_t count : {100, 3000, 100'000}) {
    run_ranks(mode, 4, {.slot_bytes = 1 << 16}, [count](HostGroup& group) {
      ErrorText error;
      Bytes in = random_values(DType::Float32, count, static_cast<uint64_t>(group.rank() + 1));
      for (int64_t i = 0; i < count; i++) {
        const float value =
            static_cast<float>(i + 1) / 3.0f * (group.rank() % 2 == 0 ? 1e7f : 1.1f);
        memcpy(in.data() + i * 4, &value, 4);
      }
      Bytes first(in.size()), again(in.size());
      for (int run = 0; run < 10; run++) {
        CHECK(group.all_reduce(at(in), at(again), count, DType::Float32, Reduce::Sum, kSite, &error)
                  .ok(),
              "%s", error.text);
        if (run == 0) first = again;
        CHECK(first == again, "another run gave other bits");
      }
      Bytes all(first.size() * 4);
      const Sizes sizes(4, static_cast<int64_t>(first.size()));
      CHECK(group.all_gather(at(first), at(all), sizes.data(), kSite, &error).ok(), "%s",
            error.text);
      for (size_t r = 0; r < 4; r++)
        CHECK(memcmp(all.data() + r * first.size(), first.data(), first.size()) == 0,
              "rank %zu has other bits", r);
    });
  }
  end_group(
      name_of(mode, "threads: the same bits everywhere", "processes: the same bits everywhere"));
}

}  // namespace shardwise::comm::selftest
