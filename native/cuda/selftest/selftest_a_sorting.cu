// sort, topk, nonzero.
#include <algorithm>
#include <numeric>

#include "harness.h"

namespace selftest {
namespace {

// Stable order of a row: NaN is largest.
std::vector<int64_t> order_of(const Tensor& x, int64_t row, int64_t n, bool descending) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    if (!is_floating(x.dtype)) {
      const int64_t a = x.integer(row * n + i), b = x.integer(row * n + j);
      return descending ? a > b : a < b;
    }
    const double a = x.value(row * n + i), b = x.value(row * n + j);
    if (std::isnan(a) || std::isnan(b)) return descending ? std::isnan(a) && !std::isnan(b) : !std::isnan(a) && std::isnan(b);
    return descending ? a > b : a < b;
  });
  return order;
}

void compare(const std::string& kernel, const std::string& label, const Tensor& x, const Tensor& values, const Tensor& indices,
             int64_t k, bool descending) {
  const int64_t n = x.sizes.empty() ? 1 : x.sizes.back(), rows = n > 0 ? x.numel() / n : 0;
  std::vector<int64_t> expected;
  for (int64_t row = 0; row < rows; row++) {
    const auto order = order_of(x, row, n, descending);
    expected.insert(expected.end(), order.begin(), order.begin() + static_cast<long>(k));
  }
  expect_integers(kernel, label + " indices", indices, [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
  expect(kernel, label + " values", values, [&](int64_t i) { return x.value(i / k * n + expected[static_cast<size_t>(i)]); }, 0);
}

void sort_case(const std::string& label, const Tensor& x, const Tensor& values, const Tensor& indices) {
  for (bool descending : {false, true})
    if (run("sort", {x}, {values, indices}, {descending ? 1.0 : 0.0}).ok())
      compare("sort", label + (descending ? " descending" : ""), x, values, indices, x.sizes.empty() ? 1 : x.sizes.back(),
              descending);
}

void topk_case(const std::string& label, const Tensor& x, int64_t k) {
  Sizes sizes = x.sizes;
  sizes.back() = k;
  for (bool largest : {false, true}) {
    const Tensor values = make(x.dtype, sizes), indices = make(DType::Int64, sizes);
    if (run("topk", {x}, {values, indices}, {static_cast<double>(k), largest ? 1.0 : 0.0}).ok())
      compare("topk", label + " k " + std::to_string(k) + (largest ? " largest" : " smallest"), x, values, indices, k, largest);
  }
}

// Many equal values; for floats also NaN, infinities and both zeros.
Tensor ties(DType dtype, const Sizes& sizes, uint64_t seed) {
  Random random(seed);
  const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -1.5, 2};
  return fill_with(make(dtype, sizes), [&](int64_t) {
    return is_floating(dtype) ? special[random.integer(0, 8)] : static_cast<double>(random.integer(0, 4));
  });
}

void test_sort() {
  for (DType dtype : kAll) {
    const double low = dtype == DType::UInt8 ? 0 : -100;
    for (int64_t n :
         {int64_t(0), int64_t(1), int64_t(2), int64_t(33), int64_t(1000), int64_t(2048), int64_t(2049), int64_t(9001)})
      sort_case("rows of " + std::to_string(n), uniform(dtype, {3, n}, 1, low, 100), make(dtype, {3, n}),
                make(DType::Int64, {3, n}));
    sort_case("ties", ties(dtype, {4, 500}, 2), make(dtype, {4, 500}), make(DType::Int64, {4, 500}));
    sort_case("long ties", ties(dtype, {2, 5000}, 3), make(dtype, {2, 5000}), make(DType::Int64, {2, 5000}));
    sort_case("columns", uniform(dtype, {2500, 3}, 4, low, 100).transpose(0, 1), make(dtype, {2500, 3}).transpose(0, 1),
              make(DType::Int64, {3, 2500}));
    sort_case("scalar", uniform(dtype, {}, 4), make(dtype, {}), make(DType::Int64, {}));
  }
  sort_case("large", uniform(DType::Float32, {large}, 5, -1, 1), make(DType::Float32, {large}), make(DType::Int64, {large}));
}

void test_topk() {
  for (DType dtype :
       {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64, DType::Int32, DType::UInt8}) {
    const double low = dtype == DType::UInt8 ? 0 : -100;
    for (int64_t k : {int64_t(0), int64_t(1), int64_t(5), int64_t(100)}) {
      topk_case("short rows", uniform(dtype, {5, 300}, 1, low, 100), k);
      topk_case("long rows", uniform(dtype, {3, 7000}, 2, low, 100), k);
      topk_case("one row", uniform(dtype, {40001}, 3, low, 100), k);
      topk_case("ties", ties(dtype, {2, 20000}, 4), k);
    }
    topk_case("many", uniform(dtype, {2, 6000}, 5, low, 100), 3000);
    topk_case("columns", uniform(dtype, {5000, 3}, 6, low, 100).transpose(0, 1), 20);
  }
  topk_case("large", uniform(DType::Float32, {large}, 7, -1, 1), 1000);
}

void nonzero_case(const std::string& label, const Tensor& x) {
  const int64_t ndim = static_cast<int64_t>(x.sizes.size());
  const Tensor count = make(DType::Int64, {1}), rows = make(DType::Int64, {x.numel(), ndim});
  if (!run("nonzero", {x}, {count, rows}, {}).ok()) return;
  std::vector<int64_t> expected;
  int64_t found = 0;
  for (int64_t i = 0; i < x.numel(); i++) {
    if (!(x.value(i) != 0)) continue;
    found++;
    int64_t rest = i;
    const size_t at = expected.size();
    expected.resize(at + static_cast<size_t>(ndim));
    for (int64_t d = ndim - 1; d >= 0; d--)
      expected[at + static_cast<size_t>(d)] = rest % x.sizes[static_cast<size_t>(d)], rest /= x.sizes[static_cast<size_t>(d)];
  }
  expect_integers("nonzero", label + " count", count, [&](int64_t) { return found; });
  Tensor filled = rows;
  filled.sizes[0] = std::min(found, x.numel());
  expect_integers("nonzero", label, filled, [&](int64_t i) { return expected[static_cast<size_t>(i)]; });
}

void test_nonzero() {
  for (DType dtype : kAll) {
    const Tensor x = ties(dtype, {30, 41, 5}, 1);
    nonzero_case("3 dims", x);
    nonzero_case("transposed", x.transpose(0, 2));
    nonzero_case("empty", make(dtype, {0, 3}));
    nonzero_case("scalar", uniform(dtype, {}, 2, 1, 2));
    nonzero_case("none", fill_with(make(dtype, {100}), [](int64_t) { return 0.0; }));
  }
  nonzero_case("large", ties(DType::Float32, {large}, 3));
}

}  // namespace

void test_sorting() {
  test_sort();
  test_topk();
  test_nonzero();
}

}  // namespace selftest
