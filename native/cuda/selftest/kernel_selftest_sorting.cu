// Tests sort, topk, nonzero and nonzero_rows.
#include <algorithm>
#include <numeric>

#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

// The stable order of a row: NaN is largest.
std::vector<int64_t> order_of(const Tensor& x, int64_t row, int64_t n, bool descending) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    if (!is_floating(x.dtype)) {
      const int64_t a = x.integer(row * n + i), b = x.integer(row * n + j);
      return descending ? a > b : a < b;
    }
    const double a = x.value(row * n + i), b = x.value(row * n + j);
    if (std::isnan(a) || std::isnan(b))
      return descending ? std::isnan(a) && !std::isnan(b) : !std::isnan(a) && std::isnan(b);
    return descending ? a > b : a < b;
  });
  return order;
}

void compare(const std::string& kernel, const std::string& label, const Tensor& x,
             const Tensor& values, const Tensor& indices, int64_t k, bool descending) {
  const int64_t n = x.sizes.empty() ? 1 : x.sizes.back(), rows = n > 0 ? x.numel() / n : 0;
  std::vector<int64_t> expected;
  for (int64_t row = 0; row < rows; row++) {
    const auto order = order_of(x, row, n, descending);
    expected.insert(expected.end(), order.begin(), order.begin() + static_cast<long>(k));
  }
  expect_integers(kernel, label + " indices", indices,
                  [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
  expect(
      kernel, label + " values", values,
      [&](int64_t i) { return x.value(i / k * n + expected[static_cast<size_t>(i)]); }, 0);
}

void sort_case(const std::string& label, const Tensor& x, const Tensor& values,
               const Tensor& indices) {
  for (bool descending : {false, true})
    if (run("sort", {x}, {values, indices}, {descending ? 1.0 : 0.0}).ok())
      compare("sort", label + (descending ? " descending" : ""), x, values, indices,
              x.sizes.empty() ? 1 : x.sizes.back(), descending);
}

void topk_case(const std::string& label, const Tensor& x, int64_t k) {
  Sizes sizes = x.sizes;
  sizes.back() = k;
  for (bool largest : {false, true}) {
    const Tensor values = make(x.dtype, sizes), indices = make(DType::Int64, sizes);
    if (run("topk", {x}, {values, indices}, {static_cast<double>(k), largest ? 1.0 : 0.0}).ok())
      compare("topk", label + " k " + std::to_string(k) + (largest ? " largest" : " smallest"), x,
              values, indices, k, largest);
  }
}

// Many equal values; for floats also NaN, infinities and both zeros.
Tensor ties(DType dtype, const Sizes& sizes, uint64_t seed) {
  Random random(seed);
  const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -1.5, 2};
  return fill_with(make(dtype, sizes), [&](int64_t) {
    return is_floating(dtype) ? special[random.integer(0, 8)]
                              : static_cast<double>(random.integer(0, 4));
  });
}

}  // namespace

void test_sort() {
  for (DType dtype : all_dtypes()) {
    const double low = dtype == DType::UInt8 ? 0 : -100;
    for (int64_t n : ends_of<int64_t>({33, 0, 1, 2, 256, 257, 1000, 1024, 1025, 2048, 2049, 9001}))
      sort_case("rows of " + std::to_string(n), uniform(dtype, {3, n}, 1, low, 100),
                make(dtype, {3, n}), make(DType::Int64, {3, n}));
    // The longest rows that blocks of 256, 512 and 1024 threads can hold, and longer ones.
    for (int64_t n : ends_of<int64_t>({1025, 4096, 4097, 8192, 8193, 16384, 20011, 16385}))
      sort_case("rows of " + std::to_string(n), uniform(dtype, {2, n}, 6, low, 100),
                make(dtype, {2, n}), make(DType::Int64, {2, n}));
    for (int64_t n : ends_of<int64_t>({500, 5000, 17001}))
      sort_case("ties of " + std::to_string(n), ties(dtype, {3, n}, 2), make(dtype, {3, n}),
                make(DType::Int64, {3, n}));
    sort_case("no rows", make(dtype, {0, 5000}), make(dtype, {0, 5000}),
              make(DType::Int64, {0, 5000}));
    sort_case("columns", uniform(dtype, {2500, 3}, 4, low, 100).transpose(0, 1),
              make(dtype, {2500, 3}).transpose(0, 1), make(DType::Int64, {3, 2500}));
    sort_case("scalar", uniform(dtype, {}, 4), make(dtype, {}), make(DType::Int64, {}));
  }
  sort_case("large", uniform(DType::Float32, {options.large}, 5, -1, 1),
            make(DType::Float32, {options.large}), make(DType::Int64, {options.large}));
}

void test_topk() {
  for (DType dtype : all_dtypes()) {
    if (dtype == DType::Bool || dtype == DType::Int8 || dtype == DType::Int16) continue;
    const double low = dtype == DType::UInt8 ? 0 : -100;
    for (int64_t k : ends_of<int64_t>({1, 0, 5, 100})) {
      topk_case("short rows", uniform(dtype, {5, 300}, 1, low, 100), k);
      topk_case("long rows", uniform(dtype, {3, 7000}, 2, low, 100), k);
      topk_case("one row", uniform(dtype, {40001}, 3, low, 100), k);
      topk_case("ties", ties(dtype, {2, 20000}, 4), k);
    }
    for (int64_t k : ends_of<int64_t>({512, 300, 513}))
      topk_case("long rows", uniform(dtype, {3, 7000}, 2, low, 100), k);
    // one of the two orders puts the selected elements last, so that every element passes the
    // threshold
    for (int64_t step : {-1, 1}) {
      const auto steps = [&](int64_t i) {
        return static_cast<double>((step < 0 ? 8999 - i % 9000 : i % 9000) / 100);
      };
      topk_case(step < 0 ? "falling" : "rising", fill_with(make(dtype, {2, 9000}), steps), 70);
    }
    // Equal elements in several batches; the first batch is not read first.
    topk_case(
        "two values",
        fill_with(make(dtype, {2, 9000}), [](int64_t i) { return i % 9000 < 4500 ? 0.0 : 1.0; }),
        100);
    topk_case("no rows", make(dtype, {0, 5000}), 3);
    topk_case("many rows", uniform(dtype, {600, 2100}, 8, low, 100), 7);
    topk_case("many", uniform(dtype, {2, 6000}, 5, low, 100), 3000);
    topk_case("columns", uniform(dtype, {5000, 3}, 6, low, 100).transpose(0, 1), 20);
  }
  topk_case("large", uniform(DType::Float32, {options.large}, 7, -1, 1), 1000);
}

namespace {

void nonzero_case(const std::string& label, const Tensor& x, int64_t tile = 4096) {
  const int64_t ndim = static_cast<int64_t>(x.sizes.size()), numel = x.numel();
  std::vector<int64_t> rows_of, before(static_cast<size_t>((numel + tile - 1) / tile + 1)),
      words(static_cast<size_t>((numel + 63) / 64));
  int64_t found = 0;
  for (int64_t i = 0; i < numel; i++) {
    if (i % tile == 0) before[static_cast<size_t>(i / tile)] = found;
    if (!(x.value(i) != 0)) continue;
    found++;
    words[static_cast<size_t>(i / 64)] |= int64_t(1) << (i % 64);
    int64_t rest = i;
    const size_t at = rows_of.size();
    rows_of.resize(at + static_cast<size_t>(ndim));
    for (int64_t d = ndim - 1; d >= 0; d--)
      rows_of[at + static_cast<size_t>(d)] = rest % x.sizes[static_cast<size_t>(d)],
                   rest /= x.sizes[static_cast<size_t>(d)];
  }
  before.back() = found;
  const Tensor starts = make(DType::Int64, {static_cast<int64_t>(before.size())}),
               flags = make(DType::Int64, {static_cast<int64_t>(words.size())});
  if (!run("nonzero", {x}, {starts, flags}, {static_cast<double>(tile)}).ok()) return;
  const auto expect_list = [&](const char* kernel, const char* what, const Tensor& got,
                               const std::vector<int64_t>& list) {
    expect_integers(kernel, label + what, got,
                    [&](int64_t i) { return list[static_cast<size_t>(i)]; });
  };
  expect_list("nonzero", " starts", starts, before);
  expect_list("nonzero", " flags", flags, words);
  Tensor shape = x;  // has no data
  shape.storage = nullptr;
  // The exact number of rows, and fewer than the flags ask for: nothing is written past the end.
  for (int64_t count : {found, found / 2})
    for (int64_t start : {0, 1}) {
      const Tensor rows = shifted(DType::Int64, {count, ndim}, start);
      if (run("nonzero_rows", {shape, starts, flags}, {rows}, {static_cast<double>(tile)}).ok())
        expect_list("nonzero_rows", "", rows, rows_of);
    }
}

// Elements that are nonzero with the given probability.
Tensor some_set(DType dtype, const Sizes& sizes, double probability, int64_t start = 0) {
  Random random(5);
  const double value = dtype == DType::Bool ? 1 : -3;
  return fill_with(shifted(dtype, sizes, start),
                   [&](int64_t) { return random.uniform(0, 1) < probability ? value : -0.0; });
}

}  // namespace

void test_nonzero() {
  for (DType dtype : all_dtypes()) {
    const Tensor x = ties(dtype, {30, 41, 5}, 1);
    nonzero_case("3 dims", x);
    nonzero_case("transposed", x.transpose(0, 2));
    nonzero_case("every other", x.slice(1, 1, 2, 20), 128);
    nonzero_case("stretched", uniform(dtype, {7, 1, 11}, 2).expand(1, 300), 256);
    nonzero_case("empty", make(dtype, {0, 3}));
    nonzero_case("scalar", uniform(dtype, {}, 2, 1, 2));
    nonzero_case("scalar of 0", some_set(dtype, {}, 0));
    nonzero_case("2 dims", some_set(dtype, {67, 129}, 0.3));
    nonzero_case("4 dims", some_set(dtype, {3, 5, 70, 7}, 0.3).transpose(1, 3));
    nonzero_case("5 dims", some_set(dtype, {2, 3, 40, 5, 6}, 0.3), 64);
    for (double probability : ends_of({0.0, 0.01, 1.0, 0.5}))
      for (int64_t n :
           ends_of<int64_t>({65, 1, 63, 64, 255, 257, 511, 513, 4095, 4096, 4097, 12289}))
        for (int64_t tile : ends_of<int64_t>({64, 192, 8192, 4096}))
          nonzero_case(std::to_string(n) + " in tiles of " + std::to_string(tile),
                       some_set(dtype, {n}, probability), tile);
    nonzero_case("not aligned", some_set(dtype, {5000}, 0.5, 1));
  }
  nonzero_case("many tiles", some_set(DType::Bool, {64 * 20000 + 5}, 0.5), 64);
  nonzero_case("large", ties(DType::Float32, {options.large}, 3), 8192);
}

}  // namespace selftest::bytes
