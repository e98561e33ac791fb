// Tests reductions and scans.
#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

struct Shape {
  std::string label;
  Tensor x;
  int reduced;
};

std::vector<Shape> shapes(DType dtype, double low, double high) {
  const auto x = [&](const Sizes& sizes, uint64_t seed) {
    return uniform(dtype, sizes, seed, low, high);
  };
  return {
      {"row of 1", x({5, 1}, 1), 1},
      {"rows of 7", x({33, 7}, 2), 1},
      {"rows of 64", x({10, 64}, 3), 1},
      {"rows of 1000", x({6, 1000}, 4), 1},
      {"rows of 1001, two outer dims", x({2, 3, 1001}, 5), 1},
      {"rows of 9000", x({3, 9000}, 6), 1},
      {"everything", x({70001}, 7), 1},
      {"everything, 3 dims", x({30, 17, 16}, 8), 3},
      {"columns", x({300, 40}, 9).transpose(0, 1), 1},
      {"long columns", x({5003, 24}, 10).transpose(0, 1), 1},
      {"odd columns", x({300, 37}, 11).transpose(0, 1), 1},
      {"middle dim", x({4, 50, 24}, 12).transpose(1, 2), 1},
      {"outer and inner", x({6, 10, 32}, 13).transpose(0, 1), 2},
      {"transposed, all", x({40, 30}, 14).transpose(0, 1), 2},
      {"slices", x({20, 60}, 15).slice(1, 1, 3, 18), 1},
      {"expanded", x({6, 1}, 16).expand(1, 50), 1},
      {"expanded outer", x({1, 128}, 17).expand(0, 9), 1},
      {"no reduced dim", x({4, 9}, 18), 0},
      {"scalar", x({}, 19), 0},
      {"no outer", x({0, 5}, 20), 1},
  };
}

struct Case {
  std::string label;
  Tensor x;
  Sizes outer;
  int64_t rows, n;
  int reduced;
  double at(int64_t row, int64_t i) const { return x.value(row * n + i); }
};

Case layout(const Shape& s) {
  Case c;
  c.label = s.label;
  c.x = s.x;
  c.reduced = s.reduced;
  const size_t split = s.x.sizes.size() - static_cast<size_t>(s.reduced);
  c.outer.assign(s.x.sizes.begin(), s.x.sizes.begin() + static_cast<long>(split));
  c.rows = 1;
  for (int64_t n : c.outer) c.rows *= n;
  c.n = 1;
  for (size_t d = split; d < s.x.sizes.size(); d++) c.n *= s.x.sizes[d];
  return c;
}

void reduce_case(const std::string& name, const Case& c, DType out, std::vector<double> params,
                 const std::function<double(int64_t)>& reference, double slack = 1) {
  const Tensor y = make(out, c.outer);
  params.insert(params.begin(), c.reduced);
  if (run(name, {c.x}, {y}, params).ok())
    expect(name, c.label + ", " + dtype_name(c.x.dtype), y, reference, slack);
}

bool precedes(double a, double b, bool largest) {  // a wins over a later b
  if (std::isnan(b)) return false;
  if (std::isnan(a)) return true;
  return largest ? a > b : a < b;
}

int64_t arg_of(const Case& c, int64_t row, bool largest) {
  int64_t best = 0;
  for (int64_t i = 1; i < c.n; i++)
    if (precedes(c.at(row, i), c.at(row, best), largest)) best = i;
  return best;
}

void test_any_dtype(const Case& c) {
  const DType wide = is_floating(c.x.dtype) ? c.x.dtype : DType::Int64;
  const auto sum = [&](int64_t row) {
    double s = 0;
    for (int64_t i = 0; i < c.n; i++) s += c.at(row, i);
    return s;
  };
  const double slack = c.x.dtype == DType::Float64 ? 10 : 4;
  reduce_case("reduce_sum", c, wide, {}, sum, slack);
  if (is_floating(c.x.dtype))
    reduce_case(
        "reduce_mean", c, wide, {},
        [&](int64_t row) { return sum(row) / static_cast<double>(c.n); }, slack);
  const auto count = [&](int64_t row) {
    int64_t k = 0;
    for (int64_t i = 0; i < c.n; i++) k += c.at(row, i) != 0;
    return k;
  };
  reduce_case("reduce_any", c, DType::Bool, {},
              [&](int64_t row) { return static_cast<double>(count(row) > 0); });
  reduce_case("reduce_all", c, DType::Bool, {},
              [&](int64_t row) { return static_cast<double>(count(row) == c.n); });
  if (c.n == 0) return;
  for (bool largest : {true, false}) {
    reduce_case(
        largest ? "reduce_amax" : "reduce_amin", c, c.x.dtype, {},
        [&](int64_t row) { return c.at(row, arg_of(c, row, largest)); }, 0);
    reduce_case(largest ? "reduce_argmax" : "reduce_argmin", c, DType::Int64, {},
                [&](int64_t row) { return static_cast<double>(arg_of(c, row, largest)); });
  }
}

void test_floats(const Case& c) {
  const double n = static_cast<double>(c.n);
  const auto mean = [&](int64_t row) {
    double s = 0;
    for (int64_t i = 0; i < c.n; i++) s += c.at(row, i);
    return s / n;
  };
  for (double correction : {0.0, 1.0}) {
    const Tensor y = make(c.x.dtype, c.outer), y2 = make(c.x.dtype, c.outer);
    if (!run("reduce_var", {c.x}, {y, y2}, {static_cast<double>(c.reduced), correction}).ok())
      return;
    expect(
        "reduce_var", c.label, y,
        [&](int64_t row) {
          double s = 0;
          const double m = mean(row);
          for (int64_t i = 0; i < c.n; i++) s += (c.at(row, i) - m) * (c.at(row, i) - m);
          return s / std::fmax(0, n - correction);
        },
        4);
    expect("reduce_var", c.label + " mean", y2, mean, 4);
  }
  for (double order :
       {0.0, 1.0, 2.0, 3.0, static_cast<double>(INFINITY), static_cast<double>(-INFINITY)}) {
    if (c.n == 0 && std::isinf(order)) continue;
    reduce_case(
        "reduce_norm", c, c.x.dtype, {order},
        [&](int64_t row) {
          double s = order == -INFINITY ? INFINITY : 0;
          for (int64_t i = 0; i < c.n; i++) {
            const double a = std::fabs(c.at(row, i));
            s = order == INFINITY    ? std::fmax(s, a)
                : order == -INFINITY ? std::fmin(s, a)
                                     : s + (order == 0 ? a != 0 : std::pow(a, order));
          }
          return order == 0 || std::isinf(order) ? s : std::pow(s, 1 / order);
        },
        4);
  }
  reduce_case(
      "reduce_logsumexp", c, c.x.dtype, {},
      [&](int64_t row) {
        double s = 0;
        for (int64_t i = 0; i < c.n; i++) s += std::exp(c.at(row, i));
        return std::log(s);
      },
      4);
}

void test_special_values() {
  const double inf = INFINITY, nan = NAN;
  const std::vector<std::vector<double>> rows = {{1, nan, 2, nan},
                                                 {-inf, -inf, -inf, -inf},
                                                 {inf, 1, inf, 2},
                                                 {0, -0.0, 0, -0.0},
                                                 {3, 3, -3, -3}};
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
    const Tensor x = make(dtype, {5, 4});
    fill_with(
        x, [&](int64_t i) { return rows[static_cast<size_t>(i / 4)][static_cast<size_t>(i % 4)]; });
    test_any_dtype(layout({"special values", x, 1}));
    const Case c = layout({"special values", x, 1});
    reduce_case("reduce_logsumexp", c, dtype, {}, [&](int64_t row) {
      return row == 0   ? nan
             : row == 1 ? -inf
             : row == 2 ? inf
             : row == 3 ? std::log(4.0)
                        : std::log(2 * (std::exp(3.0) + std::exp(-3.0)));
    });
  }
  for (DType dtype : {DType::Float32, DType::Int32}) {
    const Case empty = layout({"empty rows", make(dtype, {3, 0}), 1});
    test_any_dtype(empty);
    reduce_case("reduce_prod", empty, is_floating(dtype) ? dtype : DType::Int64, {},
                [](int64_t) { return 1.0; });
  }
  test_floats(layout({"empty rows", make(DType::Float32, {3, 0}), 1}));
  // A mean far from 0: the variance must not cancel.
  const Tensor distant = uniform(DType::Float32, {4, 20000}, 31, 10000, 10001);
  const Tensor y = make(DType::Float32, {4}), y2 = make(DType::Float32, {4});
  if (run("reduce_var", {distant}, {y, y2}, {1, 1}).ok())
    expect(
        "reduce_var", "mean of 10000", y,
        [&](int64_t row) {
          double m = 0, s = 0;
          for (int64_t i = 0; i < 20000; i++) m += distant.value(row * 20000 + i) / 20000;
          for (int64_t i = 0; i < 20000; i++)
            s += (distant.value(row * 20000 + i) - m) * (distant.value(row * 20000 + i) - m);
          return s / 19999;
        },
        100);
}

void scan_case(const std::string& label, const Tensor& x, const Tensor& y) {
  const int64_t n = x.sizes.empty() ? 1 : x.sizes.back();
  for (bool product : {false, true}) {
    const char* name = product ? "cumprod" : "cumsum";
    if (!run(name, {x}, {y}, {}).ok()) return;
    double running = 0;
    expect(
        name, label, y,
        [&](int64_t i) {
          if (i % n == 0) running = product ? 1 : 0;
          running = product ? running * x.value(i) : running + x.value(i);
          return running;
        },
        product ? 20 : 20);
  }
}

void test_scans() {
  for (DType dtype :
       {DType::Float32, DType::Float64, DType::BFloat16, DType::Int64, DType::Int32, DType::Bool}) {
    const DType out = is_floating(dtype) ? dtype : DType::Int64;
    // Values near 1, so that products neither vanish nor overflow; sums of low precision get some
    // slack.
    const auto x = [&](const Sizes& sizes, uint64_t seed) {
      Tensor t = uniform(dtype, sizes, seed, 0.999, 1.001);
      if (!is_floating(dtype)) fill_with(t, [](int64_t i) { return i % 3 == 0 ? -1.0 : 1.0; });
      return t;
    };
    for (int64_t n :
         {int64_t(0), int64_t(1), int64_t(5), int64_t(1024), int64_t(3001), int64_t(50000)}) {
      if (is_floating(dtype) && item_size(dtype) == 2 && n > 1024) continue;
      scan_case("1-D of " + std::to_string(n), x({n}, 1), make(out, {n}));
    }
    scan_case("rows", x({7, 300}, 2), make(out, {7, 300}));
    scan_case("scalar", x({}, 2), make(out, {}));
    scan_case("columns", x({300, 70}, 3).transpose(0, 1), make(out, {70, 300}));
    scan_case("columns into columns", x({300, 70}, 4).transpose(0, 1),
              make(out, {300, 70}).transpose(0, 1));
    scan_case("few long columns", x({900, 3}, 5).transpose(0, 1),
              make(out, {900, 3}).transpose(0, 1));
    scan_case("slices", x({5, 90}, 6).slice(1, 1, 4, 20), make(out, {5, 20}));
  }
}

}  // namespace

void test_reductions() {
  for (DType dtype : all_dtypes()) {
    const bool floating = is_floating(dtype);
    for (const Shape& s : shapes(dtype,
                                 floating                ? -2
                                 : dtype == DType::UInt8 ? 0
                                                         : -50,
                                 floating ? 3 : 50)) {
      const Case c = layout(s);
      test_any_dtype(c);
      if (floating) test_floats(c);
    }
    for (const Shape& s : shapes(dtype, floating ? 0.995 : 1, floating ? 1.005 : 2)) {
      const Case c = layout(s);
      if (floating && item_size(dtype) == 2 && c.n > 2000) continue;
      reduce_case(
          "reduce_prod", c, floating ? dtype : DType::Int64, {},
          [&](int64_t row) {
            double p = 1;
            for (int64_t i = 0; i < c.n; i++) p *= c.at(row, i);
            return p;
          },
          200);
    }
  }
  test_special_values();
  const Case big = layout({"large", uniform(DType::Float32, {options.large}, 41, 0, 1), 1});
  test_any_dtype(big);
  test_scans();
}

}  // namespace selftest::bytes
