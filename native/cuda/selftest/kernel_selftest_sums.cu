// Tests add_rms_norm, rms_norm_backward of its sum, and scale_rows against float64 on the CPU.
#include "kernel_selftest_rows.h"

namespace selftest::floats {
namespace {

struct SumCase {
  DType dtype;
  int64_t rows, n;
  bool weight, more;
  int64_t shift = 0;  // of the inputs, to test unaligned rows
};

size_t at(int64_t i) { return static_cast<size_t>(i); }

void forward_case(const SumCase& c, const std::string& what) {
  const DType inner = c.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const double eps = 1e-5, rtol = relative_tolerance(c.dtype),
               inner_rtol = relative_tolerance(inner), spread = c.n < 8 ? 60 : 1;
  Tensor x(c.dtype, {c.rows, c.n}, {}, c.shift), residual(c.dtype, {c.rows, c.n}, {}, c.shift), w,
      y(c.dtype, {c.rows, c.n}), sum(c.dtype, {c.rows, c.n}), rstd(inner, {c.rows}), low;
  if (c.dtype == DType::Float32) low = Tensor(DType::BFloat16, {c.rows, c.n});
  x.normal(2, 1);
  residual.normal(3, -2);
  if (c.weight) (w = Tensor(c.dtype, {c.n})).normal(0.5, 1);
  std::vector<double> sums(at(c.rows * c.n)), want(sums.size()), rstds(at(c.rows));
  for (int64_t r = 0; r < c.rows; r++) {
    double squares = 0;
    for (int64_t i = r * c.n; i < (r + 1) * c.n; i++) {
      sums[at(i)] = round_to(c.dtype, x.get(i) + residual.get(i));
      squares += sums[at(i)] * sums[at(i)];
    }
    rstds[at(r)] = 1 / std::sqrt(squares / double(c.n) + eps);
    for (int64_t i = 0; i < c.n; i++)
      want[at(r * c.n + i)] = sums[at(r * c.n + i)] * rstds[at(r)] * (c.weight ? w.get(i) : 1);
  }
  run(what, "add_rms_norm", {&x, &residual, &w}, {&y, &sum, &rstd, &low}, AddRmsNormParams{eps});
  compare(what + " sum", sum, sums, 0, 0);  // one rounding, the same in every kernel
  compare(what, y, want, rtol * 2, (rtol * 0.5 + inner_rtol * 4) * spread);
  compare(what + " rstd", rstd, rstds, inner_rtol * 4 * spread, 0);
  if (low.present()) compare(what + " low", low, values_of(y, DType::BFloat16), 0, 0);
}

// float32 plus a residual of 16 bits, and the norm of the sum, with and without its float32: what
// the norm of that sum gives, bit for bit.
void low_residual_case(const SumCase& c, DType low_dtype, bool rms, bool alone) {
  const DType F = DType::Float32;
  const std::string what = shape_text({c.rows, c.n}) + (rms ? " rms of " : " layer of ") +
                           dtype_name(low_dtype) + (alone ? " alone" : "") +
                           (c.shift ? " shifted" : "");
  Tensor x(F, {c.rows, c.n}, {}, c.shift), residual(low_dtype, {c.rows, c.n}, {}, c.shift), y,
      sum(F, {c.rows, c.n}, {}, c.shift), mean(F, {c.rows}), rstd(F, {c.rows}),
      low(low_dtype, {c.rows, c.n}), want(F, {c.rows, c.n}), want_mean(F, {c.rows}),
      want_rstd(F, {c.rows}), want_low(low_dtype, {c.rows, c.n}), w(F, {c.n}), b, absent;
  x.normal(2, 1);
  residual.normal(3, -2);
  w.normal(0.5, 1);
  if (!alone) y = Tensor(F, {c.rows, c.n});
  if (!rms) (b = Tensor(F, {c.n})).normal();
  std::vector<double> sums(at(c.rows * c.n));
  for (int64_t i = 0; i < c.rows * c.n; i++) sums[at(i)] = round_to(F, x.get(i) + residual.get(i));
  if (rms) {
    run(what, "add_rms_norm", {&x, &residual, &w}, {&y, &sum, &rstd, &low}, AddRmsNormParams{1e-5});
    run(what + " apart", "rms_norm", {&sum, &w}, {&want, &want_rstd, &want_low},
        RmsNormParams{1e-5});
  } else {
    run(what, "layer_norm", {&x, &w, &b, &residual}, {&y, &mean, &rstd, &low, &sum},
        LayerNormParams{1e-5});
    run(what + " apart", "layer_norm", {&sum, &w, &b, &absent},
        {&want, &want_mean, &want_rstd, &want_low, &absent}, LayerNormParams{1e-5});
    compare(what + " mean", mean, values_of(want_mean, F), 0, 0);
  }
  compare(what + " sum", sum, sums, 0, 0);
  compare(what + " rstd", rstd, values_of(want_rstd, F), 0, 0);
  compare(what + " low", low, values_of(want_low, low_dtype), 0, 0);
  if (y.present()) compare(what + " y", y, values_of(want, F), 0, 0);
}

void backward_case(const SumCase& c, const std::string& what) {
  const DType inner = c.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const double rtol = relative_tolerance(c.dtype), inner_rtol = relative_tolerance(inner),
               spread = c.n < 8 ? 60 : 1;
  Tensor g(c.dtype, {c.rows, c.n}, {}, c.shift), h(c.dtype, {c.rows, c.n}, {}, c.shift),
      rstd(inner, {c.rows}), w, more, gx(c.dtype, {c.rows, c.n}), gw, low;
  g.normal();
  h.normal(2);
  rstd.fill([](int64_t) { return 0.2 + random_source().uniform(); });
  if (c.weight) (w = Tensor(c.dtype, {c.n})).normal(0.5, 1);
  if (c.weight) gw = Tensor(c.dtype, {c.n});
  if (c.dtype == DType::Float32) low = Tensor(DType::BFloat16, {c.rows, c.n}, {}, c.shift % 2);
  if (c.more) (more = Tensor(c.dtype, {c.rows, c.n}, {}, c.shift)).normal();
  std::vector<double> want(at(c.rows * c.n)), want_w(at(c.n));
  for (int64_t r = 0; r < c.rows; r++) {
    const double s = rstd.get(r);
    double dot = 0;
    for (int64_t i = 0; i < c.n; i++) {
      const double gi = g.get(r * c.n + i), xh = h.get(r * c.n + i) * s;
      dot += gi * (c.weight ? w.get(i) : 1) * xh;
      want_w[at(i)] += gi * xh;
    }
    for (int64_t i = 0; i < c.n; i++) {
      const int64_t k = r * c.n + i;
      const double scaled = g.get(k) * (c.weight ? w.get(i) : 1);
      want[at(k)] = s * (scaled - h.get(k) * s * dot / double(c.n)) + (c.more ? more.get(k) : 0);
    }
  }
  const std::vector<const Tensor*> inputs = {&g, &h, &rstd, &w, &more};
  run(what + " backward", "rms_norm_backward", inputs, {&gx, &gw, &low}, NoParams{});
  compare(what + " gx", gx, want, rtol * 3, (rtol * 0.5 + inner_rtol * 8) * spread * 4);
  const double rows_room = std::sqrt(double(c.rows)) * 12 * inner_rtol * spread;
  if (c.weight) compare(what + " gw", gw, want_w, relative_tolerance(c.dtype), rows_room + 1e-9);
  if (low.present()) compare(what + " low", low, values_of(gx, DType::BFloat16), 0, 0);
}

// Factors: 1 for all rows, another one for all, or one for each row with some 1.
void scale_case(DType dtype, int64_t rows, int64_t n, int64_t shift, int which) {
  const std::string what =
      "scale " + shape_text({rows, n}) + (shift ? " shifted" : "") + " " + std::to_string(which);
  Tensor factors(dtype == DType::Float64 ? dtype : DType::Float32, {rows}, {which < 2 ? 0 : 1}),
      y(dtype, {rows, n}, {}, shift);
  factors.fill([&](int64_t i) {
    return which == 0 ? 1 : which == 1 ? -0.75 : i % 3 == 0 ? 1 : i % 3 == 1 ? 0 : 1.5;
  });
  y.normal();
  std::vector<double> want(at(rows * n));
  for (int64_t i = 0; i < rows * n; i++)
    want[at(i)] = round_to(dtype, y.get(i) * factors.get(i / n));
  run(what, "scale_rows", {&factors}, {&y}, NoParams{});
  compare(what, y, want, 0, 0);
}

}  // namespace

void test_sums() {
  for (const DType dtype : kFloats) {
    if (left_out(dtype)) continue;
    begin((std::string("rms norm of a sum, scaled rows ") + dtype_name(dtype)).c_str());
    std::vector<Sizes> shapes = {{1, 1},    {3, 5},    {0, 8},    {5, 64},
                                 {37, 127}, {70, 768}, {9, 1030}, {3, 4096}};
    // Rows of whole vectors around the limits of thread groups and blocks.
    shapes.insert(
        shapes.end(),
        {{131, 24}, {65, 264}, {33, 520}, {9, 1032}, {5, 2056}, {0, 4096}, {3, 8200}, {2, 16376}});
    if (!options.quick)
      shapes.insert(shapes.end(), {{3000, 96},
                                   {700, 1024},
                                   {600, 4096},
                                   {300, 8192},
                                   {40, 16384},
                                   {2, 16392},
                                   {2, 140000}});
    choose(&shapes);
    for (const Sizes& s : shapes) {
      for (const bool weight : {true, false})
        for (const bool more : {true, false})
          for (const int64_t shift : {0, 3}) {
            if (shift && (s[1] > 5000 || options.sparse)) continue;
            const SumCase c = {dtype, s[0], s[1], weight, more, shift};
            const std::string what = shape_text(s) + (weight ? " w" : "") + (more ? " more" : "") +
                                     (shift ? " shifted" : "");
            if (more) forward_case(c, what);
            backward_case(c, what);
          }
      if (dtype == DType::Float32)
        for (const DType low : {DType::BFloat16, DType::Float16})
          for (const int64_t shift : {0, 1}) {
            low_residual_case({dtype, s[0], s[1], true, false, shift}, low, true, shift == 0);
            low_residual_case({dtype, s[0], s[1], true, false, shift}, low, false, shift == 0);
            low_residual_case({dtype, s[0], s[1], true, false, shift}, low, false, shift != 0);
          }
      for (const int which : {0, 1, 2})
        for (const int64_t shift : {0, 1}) scale_case(dtype, s[0], s[1], shift, which);
    }
    end();
  }
}

}  // namespace selftest::floats
