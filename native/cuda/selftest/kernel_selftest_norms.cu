// Tests layer norm and rms norm against float64 on the CPU.
#include "kernel_selftest_rows.h"

namespace selftest::floats {
namespace {

struct NormCase {
  DType dtype;
  int64_t rows, n;
  bool rms, weight, bias;
  int64_t shift = 0;  // of x and g
  int64_t output_shift = 0;
  DType weight_dtype = DType::Float32;
  bool other_weight_dtype = false;
  int64_t gradient_shift = -1;  // of g, if it differs from that of x
  int64_t weight_shift = 0;     // of w and b
};

void norm_case(const NormCase& c) {
  const std::string what = shape_text({c.rows, c.n}) + (c.rms ? " rms" : " layer") +
                           (c.weight ? " w" : "") + (c.bias ? " b" : "") +
                           (c.shift ? " shifted" : "") + (c.output_shift ? " apart" : "") +
                           (c.weight_shift ? " all" : "");
  const DType inner = c.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const DType wt = c.other_weight_dtype ? c.weight_dtype : c.dtype;
  Tensor x(c.dtype, {c.rows, c.n}, {}, c.shift), w, b,
      y(c.dtype, {c.rows, c.n}, {}, c.output_shift), mean, rstd(inner, {c.rows}), low, more;
  x.normal(2, 5);
  if (c.weight) (w = Tensor(wt, {c.n}, {}, c.weight_shift)).normal(0.5, 1);
  if (c.bias) (b = Tensor(wt, {c.n}, {}, c.weight_shift)).normal();
  if (!c.rms) mean = Tensor(inner, {c.rows});
  const double eps = 1e-5, rtol = relative_tolerance(c.dtype),
               inner_rtol = relative_tolerance(inner);
  std::vector<double> means(static_cast<size_t>(c.rows)), rstds(static_cast<size_t>(c.rows)),
      want(static_cast<size_t>(c.rows * c.n));
  for (int64_t r = 0; r < c.rows; r++) {
    double sum = 0, squares = 0;
    if (!c.rms)
      for (int64_t i = 0; i < c.n; i++) sum += x.get(r * c.n + i);
    const double m = c.rms ? 0 : sum / double(c.n);
    for (int64_t i = 0; i < c.n; i++)
      squares += (x.get(r * c.n + i) - m) * (x.get(r * c.n + i) - m);
    means[static_cast<size_t>(r)] = m;
    const double s = rstds[static_cast<size_t>(r)] = 1 / std::sqrt(squares / double(c.n) + eps);
    for (int64_t i = 0; i < c.n; i++)
      want[static_cast<size_t>(r * c.n + i)] =
          (x.get(r * c.n + i) - m) * s * (c.weight ? w.get(i) : 1) + (c.bias ? b.get(i) : 0);
  }
  const double spread = c.n < 8 ? 60 : 1;  // x - mean cancels if a few values are close
  if (c.rms)
    run(what, "rms_norm", {&x, &w}, {&y, &rstd, &low}, RmsNormParams{eps});
  else
    run(what, "layer_norm", {&x, &w, &b, &more}, {&y, &mean, &rstd, &low, &more},
        LayerNormParams{eps});
  compare(what, y, want, rtol * 2, (rtol * 0.5 + inner_rtol * 4) * spread);
  if (!c.rms) compare(what + " mean", mean, means, inner_rtol, inner_rtol);
  compare(what + " rstd", rstd, rstds, inner_rtol * 4 * spread, 0);

  // The backward kernel gets the statistics of the reference.
  Tensor g(c.dtype, {c.rows, c.n}, {}, c.gradient_shift < 0 ? c.shift : c.gradient_shift),
      gx(c.dtype, {c.rows, c.n}, {}, c.output_shift), gw, gb;
  g.normal();
  if (!c.rms) mean.fill([&](int64_t i) { return means[static_cast<size_t>(i)]; });
  rstd.fill([&](int64_t i) { return rstds[static_cast<size_t>(i)]; });
  if (c.weight) gw = Tensor(wt, {c.n});
  if (c.bias) gb = Tensor(wt, {c.n});
  std::vector<double> want_w(static_cast<size_t>(c.n)), want_b(static_cast<size_t>(c.n));
  for (int64_t r = 0; r < c.rows; r++) {
    const double m = c.rms ? 0 : mean.get(r), s = rstd.get(r);
    double sum = 0, dot = 0;
    for (int64_t i = 0; i < c.n; i++) {
      const double h = g.get(r * c.n + i) * (c.weight ? w.get(i) : 1),
                   xh = (x.get(r * c.n + i) - m) * s;
      sum += h;
      dot += h * xh;
      want_w[static_cast<size_t>(i)] += g.get(r * c.n + i) * xh;
      want_b[static_cast<size_t>(i)] += g.get(r * c.n + i);
    }
    for (int64_t i = 0; i < c.n; i++) {
      const double h = g.get(r * c.n + i) * (c.weight ? w.get(i) : 1),
                   xh = (x.get(r * c.n + i) - m) * s;
      want[static_cast<size_t>(r * c.n + i)] =
          s * (h - (c.rms ? 0 : sum / double(c.n)) - xh * dot / double(c.n));
    }
  }
  if (c.rms)
    run(what + " backward", "rms_norm_backward", {&g, &x, &rstd, &w, &more}, {&gx, &gw, &low},
        NoParams{});
  else
    run(what + " backward", "layer_norm_backward", {&g, &x, &mean, &rstd, &w, &more},
        {&gx, &gw, &gb, &low}, NoParams{});
  compare(what + " gx", gx, want, rtol * 2, (rtol * 0.5 + inner_rtol * 8) * spread * 4);
  const double rows_room = std::sqrt(double(c.rows)) * 3 * inner_rtol * spread;
  if (c.weight) compare(what + " gw", gw, want_w, relative_tolerance(wt), rows_room + 1e-9);
  if (c.bias) compare(what + " gb", gb, want_b, relative_tolerance(wt), rows_room + 1e-9);
}

// y in 16 bits, too: what a conversion of y gives. y is as without it, where the same kernel runs:
// one for vectors does not write apart from them.
void low_case(const NormCase& c, DType low_dtype, int64_t low_shift) {
  const std::string what = shape_text({c.rows, c.n}) + (c.rms ? " rms" : " layer") + " and " +
                           dtype_name(low_dtype) + (c.shift ? " shifted" : "") +
                           (low_shift ? " apart" : "");
  Tensor x(c.dtype, {c.rows, c.n}, {}, c.shift), w(c.dtype, {c.n}), b(c.dtype, {c.n}),
      y(c.dtype, {c.rows, c.n}), alone(c.dtype, {c.rows, c.n}), mean(c.dtype, {c.rows}),
      rstd(c.dtype, {c.rows}), absent, low(low_dtype, {c.rows, c.n}, {}, low_shift);
  x.normal(2, 5);
  w.normal(0.5, 1);
  b.normal();
  const double eps = 1e-5;
  if (c.rms) {
    run(what, "rms_norm", {&x, &w}, {&y, &rstd, &low}, RmsNormParams{eps});
    run(what + " without", "rms_norm", {&x, &w}, {&alone, &rstd, &absent}, RmsNormParams{eps});
  } else {
    run(what, "layer_norm", {&x, &w, &b, &absent}, {&y, &mean, &rstd, &low, &absent},
        LayerNormParams{eps});
    run(what + " without", "layer_norm", {&x, &w, &b, &absent},
        {&alone, &mean, &rstd, &absent, &absent}, LayerNormParams{eps});
  }
  const double rtol = low_shift == 0 ? 0 : relative_tolerance(c.dtype);
  compare(what + " y", y, values_of(alone, c.dtype), rtol, rtol);
  compare(what + " low", low, values_of(y, low_dtype), 0, 0);
}

}  // namespace

void test_norms() {
  for (const DType dtype : kFloats) {
    if (left_out(dtype)) continue;
    begin((std::string("norms ") + dtype_name(dtype)).c_str());
    std::vector<Sizes> shapes = {{1, 1},    {3, 5},    {0, 8},    {5, 64},
                                 {37, 127}, {70, 768}, {9, 1030}, {3, 4096}};
    // Rows of whole vectors around the limits of thread groups and blocks; long rows with a partial
    // vector; and so many rows that each group gets several.
    shapes.insert(shapes.end(),
                  {{1, 8}, {131, 24}, {65, 264}, {33, 520}, {9, 1032}, {5, 2056}, {0, 4096}});
    shapes.insert(shapes.end(), {{2, 8201}, {2, 16385}, {800, 2001}});
    if (!options.quick)
      shapes.insert(shapes.end(), {{3000, 96},
                                   {2111, 256},
                                   {700, 1024},
                                   {600, 4096},
                                   {300, 8192},
                                   {3, 8200},
                                   {2, 16376},
                                   {40, 16384},
                                   {2, 16392},
                                   {5, 20000},
                                   {3, 50257},
                                   {2, 140000},
                                   {1, 600000}});
    choose(&shapes);
    for (const Sizes& s : shapes)
      for (const bool rms : {false, true}) {
        norm_case({dtype, s[0], s[1], rms, true, !rms});
        norm_case({dtype, s[0], s[1], rms, false, false});
        if (dtype == DType::Float32)
          for (const DType low : {DType::BFloat16, DType::Float16}) {
            low_case({dtype, s[0], s[1], rms, true, !rms}, low, 0);
            low_case({dtype, s[0], s[1], rms, true, !rms, 1}, low, 0);
            low_case({dtype, s[0], s[1], rms, true, !rms}, low, 1);
          }
        if (s[1] > 5000 || (options.sparse && s[1] != 127 && s[1] != 1030)) continue;
        norm_case({dtype, s[0], s[1], rms, true, !rms, 1, 2, DType::Float32, false, 3, 5});
        norm_case({dtype, s[0], s[1], rms, true, false, 3});
        norm_case({dtype, s[0], s[1], rms, true, !rms, 0, 1});
        norm_case({dtype, s[0], s[1], rms, true, !rms, 0, 0, DType::Float32, true});
      }
    end();
  }
}

}  // namespace selftest::floats
