// Tests every collective in every dtype, with equal, uneven and empty counts, against values
// computed here.
#include <algorithm>
#include <memory>

#include "../../include/collective_parts.h"
#include "nccl_selftest.h"

namespace selftest {
namespace {

constexpr DType kAll[] = {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16,
                          DType::Int64,   DType::Int32,   DType::Int16,   DType::Int8,
                          DType::UInt8,   DType::Bool};
constexpr Reduce kReduces[] = {Reduce::Sum, Reduce::Avg, Reduce::Product, Reduce::Min, Reduce::Max};

std::string words(const char* name, Reduce reduce, int64_t count, int32_t root = -1) {
  std::string text =
      std::string(name) + " (" + reduce_name(reduce) + ") of " + std::to_string(count);
  return root < 0 ? text : text + " root " + std::to_string(root);
}

bool is_refused(DType dtype, Reduce reduce) {
  return dtype == DType::Int16 || (reduce == Reduce::Avg && !is_floating(dtype));
}

double reduced(DType dtype, Reduce reduce, int32_t size, int64_t index) {
  double result = value_of(dtype, reduce, 0, index);
  for (int32_t r = 1; r < size; r++) {
    const double value = value_of(dtype, reduce, r, index);
    const bool bools = dtype == DType::Bool;
    if (reduce == Reduce::Min || (bools && reduce == Reduce::Product))
      result = std::min(result, value);
    else if (reduce == Reduce::Max || (bools && reduce == Reduce::Sum))
      result = std::max(result, value);
    else
      result = reduce == Reduce::Product ? result * value : result + value;
  }
  return reduce == Reduce::Avg ? result / size : wrapped(dtype, result);
}

double slack(DType dtype, Reduce reduce) { return reduce == Reduce::Avg ? tolerance(dtype) : 0; }

// Makes a call, or checks that it is refused. True if it was made.
bool made(Rank& rank, const CollectiveCall& call, bool refused, const std::string& label) {
  ErrorText error;
  const Status status = rank.run(call, &error);
  if (refused) {
    check(status.code == Code::Unsupported && contains(error, call.name), rank.rank,
          "%s %s: code %d (%s), expected a refusal", label.c_str(), dtype_name(call.dtype),
          static_cast<int>(status.code), error.text);
    return false;
  }
  return check(status.ok(), rank.rank, "%s %s: %s", label.c_str(), dtype_name(call.dtype),
               error.text);
}

void all_reduce(Rank& rank, DType dtype, Reduce reduce, int64_t count, bool in_place) {
  Buffer in(rank, dtype, count), out(rank, dtype, count);
  Buffer& from = in_place ? out : in;
  from.write([&](int64_t i) { return value_of(dtype, reduce, rank.rank, i); });
  CollectiveCall call = call_of(Collective::AllReduce, dtype, from.at(0), out.at(0), "all_reduce");
  call.count = count;
  call.reduce = reduce;
  const std::string label = words(in_place ? "all_reduce in place" : "all_reduce", reduce, count);
  if (!made(rank, call, is_refused(dtype, reduce), label)) return;
  out.expect(
      label, [&](int64_t i) { return reduced(dtype, reduce, rank.size, i); }, slack(dtype, reduce));
}

// Calls of all sizes in a row, by every route, on operands at any address: one call must not read
// the leftovers of another.
void many_sums(Rank& rank, DType dtype) {
  constexpr int32_t kCalls = 200;
  constexpr int64_t kMostBytes = int64_t{9} << 20;
  struct Part {
    int64_t from, to, count;
    std::unique_ptr<Buffer> result;
  };
  Buffer all(rank, dtype, kMostBytes / item_size(dtype) + 8);
  all.write([&](int64_t i) { return value_of(dtype, Reduce::Sum, rank.rank, i); });
  std::vector<Part> parts;
  for (int32_t n = 0; n < kCalls; n++) {
    const int64_t most = n % 20 == 0  ? kMostBytes
                         : n % 3 == 0 ? 40
                         : n % 3 == 1 ? 300 << 10
                                      : 1500 << 10;
    Part part = {n % 4 < 2 ? 0 : n % 5, n % 4 < 2 ? 0 : n % 7,
                 1 + (n + 1) * 104'729 % most / item_size(dtype), nullptr};
    part.result = std::make_unique<Buffer>(rank, dtype, part.to + part.count);
    parts.push_back(std::move(part));
  }
  for (const Part& part : parts) {
    CollectiveCall call = call_of(Collective::AllReduce, dtype, all.at(part.from),
                                  part.result->at(part.to), "all_reduce");
    call.count = part.count;
    if (!made(rank, call, false, "all_reduce in a row")) return;
  }
  for (const Part& part : parts)
    part.result->expect(words("all_reduce in a row", Reduce::Sum, part.count), [&](int64_t i) {
      // 1: unchanged
      return i < part.to ? 1 : reduced(dtype, Reduce::Sum, rank.size, i - part.to + part.from);
    });
}

void reduce_to(Rank& rank, DType dtype, Reduce reduce, int64_t count, int32_t root) {
  Buffer in(rank, dtype, count), out(rank, dtype, count);
  in.write([&](int64_t i) { return value_of(dtype, reduce, rank.rank, i); });
  CollectiveCall call = call_of(Collective::Reduce, dtype, in.at(0),
                                rank.rank == root ? out.at(0) : nullptr, "reduce");
  call.count = count;
  call.reduce = reduce;
  call.root = root;
  const std::string label = words("reduce", reduce, count, root);
  if (!made(rank, call, is_refused(dtype, reduce), label) || rank.rank != root) return;
  out.expect(
      label, [&](int64_t i) { return reduced(dtype, reduce, rank.size, i); }, slack(dtype, reduce));
}

void broadcast(Rank& rank, DType dtype, int64_t count, int32_t root, bool in_place) {
  Buffer in(rank, dtype, count), out(rank, dtype, count);
  (in_place ? out : in).write([&](int64_t i) {
    return value_of(dtype, Reduce::Sum, rank.rank, i);
  });
  const void* from = rank.rank != root ? nullptr : in_place ? out.at(0) : in.at(0);
  CollectiveCall call = call_of(Collective::Broadcast, dtype, from, out.at(0), "broadcast");
  call.count = count;
  call.root = root;
  const std::string label = words("broadcast", Reduce::Sum, count, root);
  if (!made(rank, call, false, label)) return;
  out.expect(label, [&](int64_t i) { return value_of(dtype, Reduce::Sum, root, i); });
}

// ---- counts per rank ---------------------------------------------------------------------------

using Counts = std::vector<int64_t>;

std::vector<Counts> patterns(int32_t size) {
  std::vector<Counts> all;
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{1000}, int64_t{40000}})
    all.emplace_back(size, n);
  Counts rising, holes, last(static_cast<size_t>(size), 0);
  for (int32_t r = 0; r < size; r++)
    rising.push_back(5 + 37 * r), holes.push_back(r % 2 == 0 ? 0 : 3000 + r);
  last.back() = 777;
  all.insert(all.end(), {rising, holes, last});
  return all;
}

int64_t before(const Counts& counts, int32_t rank) {
  int64_t sum = 0;
  for (int32_t r = 0; r < rank; r++) sum += counts[static_cast<size_t>(r)];
  return sum;
}
int64_t total(const Counts& counts) { return before(counts, static_cast<int32_t>(counts.size())); }

std::string words(const char* name, const Counts& counts, int32_t root = -1) {
  std::string text = std::string(name) + " of";
  for (const int64_t count : counts) text += " " + std::to_string(count);
  return root < 0 ? text : text + " root " + std::to_string(root);
}

// The value at an index of the concatenation of all ranks' chunks.
double part_value(DType dtype, const Counts& counts, int64_t index) {
  int32_t rank = 0;
  while (index >= counts[static_cast<size_t>(rank)]) index -= counts[static_cast<size_t>(rank++)];
  return value_of(dtype, Reduce::Sum, rank, index);
}

// `root` -1: all-gather.
void gather(Rank& rank, DType dtype, const Counts& counts, int32_t root, bool in_place) {
  const int64_t own = counts[static_cast<size_t>(rank.rank)], at = before(counts, rank.rank);
  Buffer in(rank, dtype, own), out(rank, dtype, total(counts));
  const bool has_output = root < 0 || rank.rank == root;
  in.write([&](int64_t i) { return value_of(dtype, Reduce::Sum, rank.rank, i); });
  const bool from_output = in_place && has_output;
  if (from_output)
    out.write(
        [&](int64_t i) { return i >= at && i < at + own ? part_value(dtype, counts, i) : 0; });
  const std::string label =
      words(root < 0 ? "all_gather" : "gather", counts, root) + (in_place ? " in place" : "");
  CollectiveCall call =
      call_of(root < 0 ? Collective::AllGather : Collective::Gather, dtype,
              from_output ? out.at(at) : in.at(0), has_output ? out.at(0) : nullptr,
              root < 0 ? "all_gather" : "gather");
  call.counts = counts.data();
  call.root = root;
  if (!made(rank, call, false, label) || !has_output) return;
  out.expect(label, [&](int64_t i) { return part_value(dtype, counts, i); });
}

void scatter(Rank& rank, DType dtype, const Counts& counts, int32_t root) {
  Buffer in(rank, dtype, total(counts)), out(rank, dtype, counts[static_cast<size_t>(rank.rank)]);
  in.write([&](int64_t i) { return part_value(dtype, counts, i); });
  CollectiveCall call = call_of(Collective::Scatter, dtype, rank.rank == root ? in.at(0) : nullptr,
                                out.at(0), "scatter");
  call.counts = counts.data();
  call.root = root;
  const std::string label = words("scatter", counts, root);
  if (!made(rank, call, false, label)) return;
  out.expect(label, [&](int64_t i) { return value_of(dtype, Reduce::Sum, rank.rank, i); });
}

void reduce_scatter(Rank& rank, DType dtype, Reduce reduce, const Counts& counts, bool in_place) {
  const int64_t own = counts[static_cast<size_t>(rank.rank)], at = before(counts, rank.rank);
  Buffer in(rank, dtype, total(counts)), out(rank, dtype, own);
  in.write([&](int64_t i) { return value_of(dtype, reduce, rank.rank, i); });
  CollectiveCall call = call_of(Collective::ReduceScatter, dtype, in.at(0),
                                in_place ? in.at(at) : out.at(0), "reduce_scatter");
  call.counts = counts.data();
  call.reduce = reduce;
  const std::string label =
      words("reduce_scatter", counts) + " " + reduce_name(reduce) + (in_place ? " in place" : "");
  if (!made(rank, call, is_refused(dtype, reduce), label)) return;
  ErrorText error;
  if (in_place)
    rank.backend.copy(rank.stream, out.at(0), in.at(at), own * item_size(dtype),
                      CopyKind::DeviceToDevice, &error);
  out.expect(
      label, [&](int64_t i) { return reduced(dtype, reduce, rank.size, at + i); },
      slack(dtype, reduce));
}

void all_to_all(Rank& rank, DType dtype, int64_t scale) {
  // some counts are 0
  const auto amount = [&](int32_t from, int32_t to) { return scale * ((from * 5 + to * 3) % 7); };
  Counts sends, receives;
  for (int32_t r = 0; r < rank.size; r++)
    sends.push_back(amount(rank.rank, r)), receives.push_back(amount(r, rank.rank));
  const auto element = [&](int32_t from, int32_t to, int64_t i) {
    return value_of(dtype, Reduce::Sum, from * 100 + to, i);
  };
  const auto place = [](const Counts& counts, int64_t i, const auto& use) {
    int32_t r = 0;
    while (i >= counts[static_cast<size_t>(r)]) i -= counts[static_cast<size_t>(r++)];
    return use(r, i);
  };
  Buffer in(rank, dtype, total(sends)), out(rank, dtype, total(receives));
  in.write([&](int64_t i) {
    return place(sends, i, [&](int32_t to, int64_t k) { return element(rank.rank, to, k); });
  });
  CollectiveCall call = call_of(Collective::AllToAll, dtype, in.at(0), out.at(0), "all_to_all");
  call.send_counts = sends.data();
  call.counts = receives.data();
  const std::string label = words("all_to_all", receives);
  if (!made(rank, call, false, label)) return;
  out.expect(label, [&](int64_t i) {
    return place(receives, i, [&](int32_t from, int64_t k) { return element(from, rank.rank, k); });
  });
}

// Gathers or reductions of several sizes in one call, between memory of their own; every other one
// gathers from its output.
void parts(Rank& rank, DType dtype, bool gathers) {
  std::vector<std::unique_ptr<Buffer>> shards, wholes;
  std::vector<CollectivePart> parts;
  const Counts sizes = {40'000, 1, 0, 1003, 8};
  for (const int64_t count : sizes) {
    const auto own = [&, n = shards.size()](int64_t i) {
      return value_of(dtype, Reduce::Sum, rank.rank, static_cast<int64_t>(n) + i);
    };
    const bool in_place = shards.size() % 2 == 1;
    Buffer& shard = *shards.emplace_back(std::make_unique<Buffer>(rank, dtype, count));
    Buffer& whole = *wholes.emplace_back(std::make_unique<Buffer>(rank, dtype, count * rank.size));
    const int64_t at = count * rank.rank;
    shard.write(own);
    whole.write([&](int64_t i) { return !gathers ? own(i) : i < at ? 0 : own(i - at); });
    if (gathers)
      parts.push_back({in_place ? whole.at(at) : shard.at(0), whole.at(0), count});
    else
      parts.push_back({whole.at(0), shard.at(0), count});
  }
  const Counts counts(rank.size, total(sizes));
  PartsCall call = {};
  static_cast<CollectiveCall&>(call) =
      call_of(gathers ? Collective::AllGather : Collective::ReduceScatter, dtype, nullptr, nullptr,
              "several in one call");
  ErrorText error;
  call.counts = counts.data();
  call.root = static_cast<int32_t>(parts.size());
  call.parts = parts.data();
  call.stream = rank.stream;
  call.error = &error;
  const bool done = rank.backend.comm->run(rank.group, call).ok();
  check(done != (!gathers && is_refused(dtype, Reduce::Sum)), rank.rank, "%s", error.text);
  for (size_t n = 0; done && n < parts.size(); n++)
    (gathers ? wholes : shards)[n]->expect(call.name, [&](int64_t i) {
      const int64_t count = sizes[n], first = static_cast<int64_t>(n);
      if (!gathers) return reduced(dtype, Reduce::Sum, rank.size, first + count * rank.rank + i);
      return value_of(dtype, Reduce::Sum, static_cast<int32_t>(i / count), first + i % count);
    });
}

// Each rank sends to the next one, one pair after the other.
void messages(Rank& rank, DType dtype, int64_t count) {
  Buffer in(rank, dtype, count), out(rank, dtype, count);
  in.write([&](int64_t i) { return value_of(dtype, Reduce::Sum, rank.rank, i); });
  for (int32_t from = 0; from + 1 < rank.size; from++) {
    if (rank.rank != from && rank.rank != from + 1) continue;
    const bool sends = rank.rank == from;
    CollectiveCall call =
        call_of(sends ? Collective::Send : Collective::Receive, dtype, sends ? in.at(0) : nullptr,
                sends ? nullptr : out.at(0), sends ? "send" : "receive");
    call.count = count;
    call.root = sends ? from + 1 : from;
    const std::string label = words(call.name, Reduce::Sum, count, call.root);
    if (made(rank, call, false, label) && !sends)
      out.expect(label, [&](int64_t i) { return value_of(dtype, Reduce::Sum, from, i); });
  }
}

void barriers(Rank& rank) {
  for (int i = 0; i < 100; i++)
    made(rank, call_of(Collective::Barrier, DType::Float32, nullptr, nullptr, "barrier"), false,
         "barrier");
  rank.synchronize();
}

}  // namespace

void test_values(const Backend& backend, int32_t size) {
  const auto test = [&](const char* name, const Body& body) {
    run_ranks(backend, size, 60'000, body);
    end_test(name);
  };
  const auto each = [](const auto& body) {
    for (const DType dtype : kAll)
      for (const Reduce reduce : kReduces) body(dtype, reduce);
  };
  test("all_reduce", [&](Rank& rank) {
    each([&](DType dtype, Reduce reduce) {
      // counts of at least 256 KiB, 32'768 of 8 bytes, go by lines between GPUs
      for (const int64_t count : {0, 1, 7, 1000, 32'768, 32'769, 262'144, 300'001})
        all_reduce(rank, dtype, reduce, count, count % 2 != 0);
    });
  });
  test("all_reduce, where its ways end", [&](Rank& rank) {
    for (const DType dtype : kAll)
      for (const int64_t kib : {256, 1024, 4096, 8192}) {
        if (kib > 1024 && dtype != DType::Float64 && dtype != DType::BFloat16) continue;
        for (const int64_t more : {-1, 0, 1})
          all_reduce(rank, dtype, Reduce::Sum, (kib << 10) / item_size(dtype) + more, more == 1);
      }
  });
  test("all_reduce, one behind the other", [](Rank& rank) {
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Int8}) many_sums(rank, dtype);
  });
  test("reduce", [&](Rank& rank) {
    each([&](DType dtype, Reduce reduce) {
      for (int32_t root = 0; root < rank.size; root++) reduce_to(rank, dtype, reduce, 1003, root);
    });
  });
  test("reduce_scatter", [&](Rank& rank) {
    each([&](DType dtype, Reduce reduce) {
      for (const Counts& counts : patterns(rank.size))
        reduce_scatter(rank, dtype, reduce, counts, false);
      reduce_scatter(rank, dtype, reduce, patterns(rank.size)[2], true);
      reduce_scatter(rank, dtype, reduce, patterns(rank.size)[4], true);
    });
  });
  test("several in one call", [](Rank& rank) {
    for (const DType dtype : kAll)
      for (const bool gathers : {true, false}) parts(rank, dtype, gathers);
  });
  test("moves", [&](Rank& rank) {
    for (const DType dtype : kAll) {
      for (int32_t root = 0; root < rank.size; root++)
        broadcast(rank, dtype, 5001, root, root % 2 == 0);
      broadcast(rank, dtype, 0, 0, false);
      for (const Counts& counts : patterns(rank.size))
        for (int32_t root = -1; root < rank.size; root++) {
          gather(rank, dtype, counts, root, false);
          gather(rank, dtype, counts, root, true);
          if (root >= 0) scatter(rank, dtype, counts, root);
        }
      for (const int64_t scale : {0, 1, 1000}) all_to_all(rank, dtype, scale);
      for (const int64_t count : {0, 1, 100'000}) messages(rank, dtype, count);
    }
  });
  test("barrier", barriers);
}

// Few calls of the kernels between GPUs, for tools that make each of them slow.
void test_sums(const Backend& backend, int32_t size) {
  run_ranks(backend, size, 300'000, [](Rank& rank) {
    for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Int64})
      for (const int64_t count : {1, 1000, 32'768, 32'769, 300'001})  // by packets, then by lines
        for (const bool in_place : {false, true})
          all_reduce(rank, dtype, Reduce::Sum, count, in_place);
    for (const Reduce reduce : {Reduce::Avg, Reduce::Max})
      for (const int64_t count : {1000, 100'000})
        all_reduce(rank, DType::Float16, reduce, count, false);
  });
  end_test("sums between GPUs");
}

}  // namespace selftest
