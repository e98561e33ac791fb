// Tests softmax and cross entropy against float64 on the CPU.
#include "kernel_selftest_rows.h"

namespace selftest::floats {
namespace {

// The memory layout of the operands of a row kernel.
enum class Layout { Contiguous, Padded, Shifted, ShiftedApart, Transposed, MiddleDim };
const char* name_of(Layout l) {
  constexpr const char* names[] = {"contiguous",    "padded",     "shifted",
                                   "shifted apart", "transposed", "middle dim"};
  return names[static_cast<int>(l)];
}

// Rows of n as a view; `which` numbers the operands of a call.
Tensor rows_tensor(DType dtype, int64_t rows, int64_t n, Layout layout, int which) {
  switch (layout) {
    case Layout::Padded:
      return Tensor(dtype, {rows, n}, {n + 16, 1});
    case Layout::Shifted:
      return Tensor(dtype, {rows, n}, {n, 1}, 3);
    case Layout::ShiftedApart:
      return Tensor(dtype, {rows, n}, {n + 1, 1}, which);
    case Layout::Transposed:
      return Tensor(dtype, {rows, n}, {1, rows});
    case Layout::MiddleDim:
      return Tensor(dtype, {2, rows, n}, {rows * n, 1, rows});
    default:
      return Tensor(dtype, {rows, n});
  }
}

void softmax_reference(const Tensor& x, int64_t n, bool log_form, std::vector<double>* y) {
  const int64_t rows = n > 0 ? x.numel() / n : 0;
  y->resize(static_cast<size_t>(x.numel()));
  for (int64_t r = 0; r < rows; r++) {
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) largest = std::fmax(largest, x.get(r * n + i));
    for (int64_t i = 0; i < n; i++) sum += std::exp(x.get(r * n + i) - largest);
    for (int64_t i = 0; i < n; i++) {
      const double v = x.get(r * n + i) - largest;
      (*y)[static_cast<size_t>(r * n + i)] = log_form ? v - std::log(sum) : std::exp(v) / sum;
    }
  }
}

// The lowest finite number, which masks use to hide elements.
double lowest(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return std::numeric_limits<double>::lowest();
    case DType::Float32:
      return std::numeric_limits<float>::lowest();
    case DType::Float16:
      return -65504;
    default:
      return -0x1.fep127;
  }
}

// Special: infinities and NaN. Hidden: rows with the lowest number in all elements but the first,
// in the first vectors, in all, in every second one, or in the second half.
enum class Values { Plain, Special, Hidden };

bool is_hidden(int64_t row, int64_t i, int64_t n) {
  const bool hidden[] = {i > 0, i < 16, true, i % 2 == 1, i >= n / 2};
  return hidden[row % 5];
}

void softmax_case(DType dtype, int64_t rows, int64_t n, Layout layout, bool log_form,
                  Values values) {
  const std::string what = shape_text({rows, n}) + " " + name_of(layout) +
                           (log_form ? " log" : "") + (values == Values::Hidden ? " hidden" : "");
  Tensor x = rows_tensor(dtype, rows, n, layout, 0), y = rows_tensor(dtype, rows, n, layout, 1);
  x.normal(3);
  if (values == Values::Hidden)
    x.fill([&](int64_t at) {
      return is_hidden(at / n, at % n, n) ? lowest(dtype) : random_source().normal() * 3;
    });
  if (values == Values::Special && rows >= 4) {
    for (int64_t i = 0; i < n; i++) x.set(i, -INFINITY);
    x.set(n + n / 2, NAN);
    x.set(2 * n, INFINITY);
    for (int64_t i = 0; i < n; i += 2) x.set(3 * n + i, -INFINITY);
    if (n > 1) x.set(3 * n + 1, 4);
    x.upload();
  }
  std::vector<double> want;
  softmax_reference(x, n, log_form, &want);
  run(what, log_form ? "log_softmax" : "softmax", {&x}, {&y}, NoParams{});
  const double rtol = relative_tolerance(dtype);
  compare(what, y, want, rtol * 2, log_form ? rtol * 4 : rtol * 0.01);

  if (values != Values::Plain) return;
  Tensor out = rows_tensor(dtype, rows, n, layout, 0), g = rows_tensor(dtype, rows, n, layout, 1),
         gx = rows_tensor(dtype, rows, n, layout, 2);
  out.fill([&](int64_t i) { return want[static_cast<size_t>(i)]; });
  g.normal();
  std::vector<double> gradient(static_cast<size_t>(out.numel()));
  double largest = 0;
  for (int64_t r = 0; r < (n > 0 ? out.numel() / n : 0); r++) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
      sum += log_form ? g.get(r * n + i) : g.get(r * n + i) * out.get(r * n + i);
    largest = std::fmax(largest, std::fabs(sum));
    for (int64_t i = 0; i < n; i++) {
      const double gv = g.get(r * n + i), yv = out.get(r * n + i);
      gradient[static_cast<size_t>(r * n + i)] =
          log_form ? gv - std::exp(yv) * sum : yv * (gv - sum);
    }
  }
  run(what + " backward", log_form ? "log_softmax_backward" : "softmax_backward", {&g, &out}, {&gx},
      NoParams{});
  compare(what + " backward", gx, gradient, rtol * 2,
          rtol * (log_form ? 1 + largest * 0.02 : 0.05) + (dtype == DType::Float64 ? 1e-13 : 2e-6));
}

struct EntropyCase {
  DType dtype;
  int64_t rows, n;
  bool weight;
  double smoothing;
  Layout layout;
  bool hidden = false;  // hides most classes, but not the targets
};

void entropy_case(const EntropyCase& c) {
  const std::string what = shape_text({c.rows, c.n}) + " " + name_of(c.layout) +
                           (c.weight ? " weights" : "") + (c.smoothing > 0 ? " smooth" : "") +
                           (c.hidden ? " hidden" : "");
  const DType inner = c.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  Tensor x = rows_tensor(c.dtype, c.rows, c.n, c.layout, 1), target(DType::Int64, {c.rows}), w,
         loss(inner, {c.rows}), lse(inner, {c.rows});
  x.normal(3);
  target.fill([&](int64_t i) {
    return i % 5 == 3 ? -100 : double(random_source().bits() % uint64_t(c.n));
  });
  if (c.hidden)
    for (int64_t r = 0; r < c.rows; r++)
      for (int64_t i = 0; i < c.n; i++)
        if (is_hidden(r, i, c.n) && i != static_cast<int64_t>(target.get(r)))
          x.set(r * c.n + i, r % 5 == 2 && i == 0 ? 1 : lowest(c.dtype));
  if (c.hidden) x.upload();
  if (c.weight)
    (w = Tensor(inner, {c.n})).fill([](int64_t) { return random_source().uniform() + 0.1; });
  const double s = c.smoothing, rtol = relative_tolerance(c.dtype),
               inner_rtol = relative_tolerance(inner);
  auto weight = [&](int64_t i) { return c.weight ? w.get(i) : 1.0; };
  std::vector<double> losses(static_cast<size_t>(c.rows)), lses(static_cast<size_t>(c.rows)),
      gradient(static_cast<size_t>(c.rows * c.n));
  Tensor g(inner, {c.rows});
  g.normal();
  for (int64_t r = 0; r < c.rows; r++) {
    double largest = -INFINITY, sum = 0, smooth = 0, all = 0;
    for (int64_t i = 0; i < c.n; i++) largest = std::fmax(largest, x.get(r * c.n + i));
    for (int64_t i = 0; i < c.n; i++) sum += std::exp(x.get(r * c.n + i) - largest);
    const double l = lses[static_cast<size_t>(r)] = largest + std::log(sum);
    for (int64_t i = 0; i < c.n; i++) {
      smooth += weight(i) * (l - x.get(r * c.n + i));
      all += weight(i);
    }
    const int64_t t = static_cast<int64_t>(target.get(r));
    if (t == -100) continue;
    // smooth may be infinite
    losses[static_cast<size_t>(r)] =
        (1 - s) * weight(t) * (l - x.get(r * c.n + t)) + (s > 0 ? s / double(c.n) * smooth : 0);
    for (int64_t i = 0; i < c.n; i++) {
      const double p = std::exp(x.get(r * c.n + i) - l);
      gradient[static_cast<size_t>(r * c.n + i)] =
          g.get(r) *
          ((1 - s) * weight(t) * (p - (i == t ? 1 : 0)) + s / double(c.n) * (all * p - weight(i)));
    }
  }
  run(what, "cross_entropy", {&x, &target, &w}, {&loss, &lse}, CrossEntropyParams{-100, s});
  // 16-bit dtypes use the fast exponential
  const double exp_room = c.dtype == DType::Float16 || c.dtype == DType::BFloat16 ? 4 : 1;
  compare(what, loss, losses, inner_rtol * 4, inner_rtol * 4 * exp_room);
  compare(what + " lse", lse, lses, inner_rtol * 2, inner_rtol * 2 * exp_room);

  lse.fill([&](int64_t i) { return lses[static_cast<size_t>(i)]; });
  Tensor gx(c.dtype, {c.rows, c.n});
  run(what + " backward", "cross_entropy_backward", {&g, &x, &lse, &target, &w}, {&gx},
      CrossEntropyBackwardParams{-100, s, 0, double(c.n)});
  compare(what + " backward", gx, gradient, rtol * 2, inner_rtol * 2 + rtol * 0.01);

  // Scaled losses and their gradient from one call.
  for (int64_t r = 0; r < c.rows; r++) losses[static_cast<size_t>(r)] *= g.get(r);
  Tensor loss2(inner, {c.rows}), lse2(inner, {c.rows}), gx2(c.dtype, {c.rows, c.n});
  run(what + " both", "cross_entropy", {&x, &target, &w, &g}, {&loss2, &lse2, &gx2},
      CrossEntropyParams{-100, s});
  compare(what + " both", loss2, losses, inner_rtol * 4, inner_rtol * 16 * exp_room);
  compare(what + " both lse", lse2, lses, inner_rtol * 2, inner_rtol * 2 * exp_room);
  compare(what + " both gradient", gx2, gradient, rtol * 2, inner_rtol * 2 + rtol * 0.01);
}

// The columns of x are some of the classes: before them there are 5 others, after them 3.
void entropy_shard_case(const EntropyCase& c) {
  const std::string what = shape_text({c.rows, c.n}) + " of more classes " + name_of(c.layout) +
                           (c.weight ? " weights" : "") + (c.smoothing > 0 ? " smooth" : "");
  const DType inner = c.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const int64_t first = 5, all = c.n + 8;
  Tensor x = rows_tensor(c.dtype, c.rows, c.n, c.layout, 1), target(DType::Int64, {c.rows}), w,
         g(inner, {c.rows}), of_all(inner, {c.rows}), lse(DType::Float64, {c.rows, 1}),
         score(DType::Float64, {c.rows}), gx(c.dtype, {c.rows, c.n});
  x.normal(3);
  g.normal();
  target.fill([&](int64_t i) {
    return i % 5 == 3 ? -100 : double(random_source().bits() % uint64_t(all));
  });
  if (c.weight)
    (w = Tensor(inner, {all})).fill([](int64_t) { return random_source().uniform() + 0.1; });
  auto weight = [&](int64_t i) { return c.weight ? w.get(i) : 1.0; };
  double weight_sum = 0;
  for (int64_t i = 0; i < all; i++) weight_sum += weight(i);
  const double s = c.smoothing, share = s / double(all), rtol = relative_tolerance(c.dtype),
               inner_rtol = relative_tolerance(inner);
  std::vector<double> lses(static_cast<size_t>(c.rows)), scores(lses.size()),
      gradient(static_cast<size_t>(c.rows * c.n));
  for (int64_t r = 0; r < c.rows; r++) {
    double sum = 0;
    for (int64_t i = 0; i < c.n; i++) sum += std::exp(x.get(r * c.n + i));
    lses[static_cast<size_t>(r)] = std::log(sum);
  }
  of_all.fill([&](int64_t r) { return lses[static_cast<size_t>(r)] + 0.5; });
  for (int64_t r = 0; r < c.rows; r++) {
    const int64_t t = static_cast<int64_t>(target.get(r));
    if (t == -100) continue;
    const double mass = (1 - s) * weight(t) + share * weight_sum;
    for (int64_t i = 0; i < c.n; i++) {
      const int64_t of = first + i;
      const double v = x.get(r * c.n + i), label = weight(of) * ((of == t ? 1 - s : 0) + share);
      scores[static_cast<size_t>(r)] += label * v;
      gradient[static_cast<size_t>(r * c.n + i)] =
          g.get(r) * (mass * std::exp(v - of_all.get(r)) - label);
    }
  }
  run(what, "cross_entropy_statistics", {&x, &target, &w}, {&lse, &score},
      CrossEntropyStatisticsParams{-100, s, double(first), double(all)});
  // 16-bit dtypes use the fast exponential
  const double exp_room = c.dtype == DType::Float16 || c.dtype == DType::BFloat16 ? 4 : 1;
  compare(what + " lse", lse, lses, inner_rtol * 2, inner_rtol * 2 * exp_room);
  compare(what + " score", score, scores, inner_rtol * 4, inner_rtol * 4);
  run(what + " backward", "cross_entropy_backward", {&g, &x, &of_all, &target, &w}, {&gx},
      CrossEntropyBackwardParams{-100, s, double(first), double(all)});
  compare(what + " backward", gx, gradient, rtol * 2, inner_rtol * 2 + rtol * 0.01);
}

}  // namespace

void test_softmax() {
  for (const DType dtype : kFloats) {
    if (left_out(dtype)) continue;
    begin((std::string("softmax ") + dtype_name(dtype)).c_str());
    std::vector<Sizes> shapes = {{1, 1},    {3, 5},    {0, 7},    {7, 64},
                                 {33, 127}, {5, 1000}, {4, 1024}, {3, 4097}};
    // Rows of whole vectors around the limits of thread groups, blocks and clusters; and long rows
    // with a partial vector.
    shapes.insert(shapes.end(), {{1, 8},
                                 {131, 24},
                                 {33, 264},
                                 {17, 520},
                                 {9, 1032},
                                 {5, 2056},
                                 {0, 4096},
                                 {2, 8201},
                                 {2, 16385}});
    if (!options.quick)
      shapes.insert(shapes.end(), {{1000, 8},
                                   {2111, 256},
                                   {700, 768},
                                   {129, 2048},
                                   {3, 8200},
                                   {3, 16384},
                                   {2, 16392},
                                   {3, 20000},
                                   {2, 50257},
                                   {2, 131072},
                                   {2, 140000},
                                   {1, 270336},
                                   {1, 1100000}});
    choose(&shapes);
    for (const Sizes& s : shapes)
      for (const bool log_form : {false, true})
        for (const Layout layout : {Layout::Contiguous, Layout::Padded, Layout::Shifted,
                                    Layout::ShiftedApart, Layout::Transposed, Layout::MiddleDim})
          if ((s[1] <= 5000 && !options.sparse) || layout == Layout::Contiguous ||
              (layout == Layout::Shifted && s[1] < 5000))
            softmax_case(dtype, s[0], s[1], layout, log_form, Values::Plain);
    for (const int64_t n : {1, 6, 300, 1032, 5000, 8192, 20000})
      for (const Layout layout : {Layout::Contiguous, Layout::Transposed})
        for (const bool log_form : {false, true})
          for (const Values values : {Values::Special, Values::Hidden})
            softmax_case(dtype, 5, n, layout, log_form, values);
    end();
  }
}

void test_cross_entropy() {
  for (const DType dtype : kFloats) {
    if (left_out(dtype)) continue;
    begin((std::string("cross entropy ") + dtype_name(dtype)).c_str());
    std::vector<Sizes> shapes = {{1, 1},    {4, 3},    {0, 37},   {0, 4096}, {9, 37},
                                 {40, 130}, {6, 1000}, {5, 5003}, {5, 2048}, {4, 4104}};
    if (!options.quick)
      shapes.insert(shapes.end(), {{2000, 64}, {1, 33016}, {64, 32000}, {7, 50257}, {3, 128256}});
    choose(&shapes);
    for (const Sizes& s : shapes)
      for (const bool weight : {false, true})
        for (const double smoothing : {0.0, 0.1})
          for (const Layout layout :
               {Layout::Contiguous, Layout::Padded, Layout::Shifted, Layout::Transposed})
            if ((s[1] <= 6000 && !options.sparse) || layout == Layout::Contiguous) {
              entropy_case({dtype, s[0], s[1], weight, smoothing, layout});
              entropy_shard_case({dtype, s[0], s[1], weight, smoothing, layout});
            }
    for (const int64_t n : {40, 1000, 2048, 5003, 8192, 32768})
      for (const bool weight : {false, true})
        entropy_case({dtype, 10, n, weight, 0, Layout::Contiguous, true});
    end();
  }
  if (options.wide) return;
  begin("cross entropy, target out of range");
  Tensor x(DType::Float32, {4, 10}), target(DType::Int64, {4}), w, loss(DType::Float32, {4}),
      lse(DType::Float32, {4});
  x.normal();
  for (const double bad : {10.0, -1.0, -100.0}) {
    target.fill([&](int64_t i) { return i == 2 ? bad : 1; });
    const Code code = run("forward", "cross_entropy", {&x, &target, &w}, {&loss, &lse},
                          CrossEntropyParams{-100, 0}, bad != -100);
    if (code != (bad == -100 ? Code::Ok : Code::Index)) problem("the code is not Index");
  }
  end();
}

}  // namespace selftest::floats
