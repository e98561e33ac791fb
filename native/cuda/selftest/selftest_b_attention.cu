// Attention and its gradient against float64 on the CPU: masks, causal, grouped heads, dropout, odd sizes and strides.
#include "selftest_b.h"

namespace selftest {
namespace {

// Philox4x32-10 as native/README.md has it, written again for the reference.
double uniform_of(uint64_t seed, uint64_t offset, uint64_t element) {
  uint32_t k[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  uint32_t c[4] = {uint32_t(element / 4), uint32_t(element / 4 >> 32), uint32_t(offset), uint32_t(offset >> 32)};
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    const uint32_t next[4] = {uint32_t(p1 >> 32) ^ c[1] ^ k[0], uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k[1], uint32_t(p0)};
    std::memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return double(c[element % 4] >> 8) * 0x1p-24;
}

enum class Mask { None, Bool, Float, Same, Empty };  // Same: the dtype of q. Empty: a bool mask with rows that see nothing

struct Case {
  DType dtype;
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  bool causal = false;
  Mask mask = Mask::None;
  double dropout = 0;
  int layout = 0;  // 0: [B, H, S, D]; 1: a view of [B, S, H, D]; 2: unaligned rows; 3: no unit stride
};

Tensor heads_tensor(DType dtype, int64_t batch, int64_t heads, int64_t rows, int64_t depth, int layout) {
  if (layout == 1) return Tensor(dtype, {batch, heads, rows, depth}, {rows * heads * depth, depth, heads * depth, 1});
  if (layout == 2)
    return Tensor(dtype, {batch, heads, rows, depth}, {heads * rows * (depth + 1), rows * (depth + 1), depth + 1, 1}, 1);
  if (layout == 3) return Tensor(dtype, {batch, heads, rows, depth}, {heads * rows * depth, rows * depth, 1, rows});
  return Tensor(dtype, {batch, heads, rows, depth});
}

struct Scores {
  std::vector<double> weights, kept;  // P, and keep / (1 - p), both [B, H, S, T]
  std::vector<double> lse;
};

Scores scores_of(const Case& c, const Tensor& q, const Tensor& k, const Tensor& mask, double scale,
                 const AttentionParams& params) {
  Scores out;
  const size_t rows = static_cast<size_t>(c.batch * c.heads * c.queries);
  out.weights.assign(rows * static_cast<size_t>(c.keys), 0);
  out.kept.assign(out.weights.size(), 1);
  out.lse.assign(rows, -INFINITY);
  const uint64_t seed = uint64_t(params.seed_low) | uint64_t(params.seed_high) << 32;
  for (int64_t b = 0; b < c.batch; b++)
    for (int64_t h = 0; h < c.heads; h++)
      for (int64_t i = 0; i < c.queries; i++) {
        const int64_t row = (b * c.heads + h) * c.queries + i, kv = h / (c.heads / c.kv_heads);
        std::vector<double> s(static_cast<size_t>(c.keys));
        double largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < c.keys; j++) {
          double v = 0;
          for (int64_t d = 0; d < c.depth; d++) v += q.at({b, h, i, d}) * k.at({b, kv, j, d});
          v *= scale;
          if (mask.present()) {
            const double m = mask.at({b, h, i, j});
            v = mask.dtype == DType::Bool ? (m != 0 ? v : -INFINITY) : v + m;
          }
          if (c.causal && j > i) v = -INFINITY;
          s[static_cast<size_t>(j)] = v;
          largest = std::fmax(largest, v);
          if (c.dropout > 0)
            out.kept[static_cast<size_t>(row * c.keys + j)] =
                uniform_of(seed, uint64_t(params.offset), uint64_t(row * c.keys + j)) >= float(c.dropout) ? 1 / (1 - c.dropout)
                                                                                                          : 0;
        }
        if (largest == -INFINITY) continue;
        for (const double v : s) sum += std::exp(v - largest);
        out.lse[static_cast<size_t>(row)] = largest + std::log(sum);
        for (int64_t j = 0; j < c.keys; j++)
          out.weights[static_cast<size_t>(row * c.keys + j)] =
              std::exp(s[static_cast<size_t>(j)] - out.lse[static_cast<size_t>(row)]);
      }
  return out;
}

void attention_case(const Case& c) {
  const std::string what = "B" + std::to_string(c.batch) + " H" + std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) +
                           " S" + std::to_string(c.queries) + " T" + std::to_string(c.keys) + " D" + std::to_string(c.depth) +
                           "/" + std::to_string(c.value_depth) + (c.causal ? " causal" : "") + " mask" +
                           std::to_string(int(c.mask)) + (c.dropout > 0 ? " dropout" : "") + " layout" + std::to_string(c.layout);
  Tensor q = heads_tensor(c.dtype, c.batch, c.heads, c.queries, c.depth, c.layout),
         k = heads_tensor(c.dtype, c.batch, c.kv_heads, c.keys, c.depth, c.layout),
         v = heads_tensor(c.dtype, c.batch, c.kv_heads, c.keys, c.value_depth, c.layout),
         g = heads_tensor(c.dtype, c.batch, c.heads, c.queries, c.value_depth, c.layout), mask;
  q.normal();
  k.normal();
  v.normal();
  g.normal();
  if (c.mask == Mask::Bool || c.mask == Mask::Empty) {
    mask = Tensor(DType::Bool, {c.batch, c.heads, c.queries, c.keys}, {c.queries * c.keys, 0, c.keys, 1});
    mask.fill([&](int64_t i) { return c.mask == Mask::Empty && i / c.keys % 3 == 1 ? 0 : random_source().uniform() < 0.7; });
  } else if (c.mask != Mask::None) {
    mask = Tensor(c.mask == Mask::Float ? DType::Float32 : c.dtype, {c.batch, c.heads, c.queries, c.keys},
                  {0, c.queries * c.keys, c.keys, 1});
    mask.fill([&](int64_t) { return random_source().uniform() < 0.1 ? -INFINITY : random_source().normal(); });
  }
  const DType inner = c.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  Tensor out(c.dtype, {c.batch, c.heads, c.queries, c.value_depth}), lse(inner, {c.batch, c.heads, c.queries});
  const double scale = 1 / std::sqrt(double(c.depth > 0 ? c.depth : 1));
  const AttentionParams params{scale, double(c.causal), c.dropout, 1234567, 89, 42};
  const Scores s = scores_of(c, q, k, mask, scale, params);

  auto at = [](const std::vector<double>& list, int64_t i) { return list[static_cast<size_t>(i)]; };
  std::vector<double> want(static_cast<size_t>(out.numel()), 0);
  const int64_t group = c.heads / c.kv_heads;
  for (int64_t b = 0; b < c.batch; b++)
    for (int64_t h = 0; h < c.heads; h++)
      for (int64_t i = 0; i < c.queries; i++)
        for (int64_t j = 0; j < c.keys; j++) {
          const int64_t row = (b * c.heads + h) * c.queries + i;
          const double w = at(s.weights, row * c.keys + j) * at(s.kept, row * c.keys + j);
          if (w != 0)
            for (int64_t d = 0; d < c.value_depth; d++)
              want[static_cast<size_t>(row * c.value_depth + d)] += w * v.at({b, h / group, j, d});
        }
  run(what, "attention", {&q, &k, &v, &mask}, {&out, &lse}, params);
  const bool narrow = item_size(c.dtype) == 2;
  const double rtol = relative_tolerance(c.dtype), unit = c.dtype == DType::Float64 ? 1e-12 : narrow ? rtol : 4e-6;
  compare(what, out, want, rtol * 2, unit * (c.dropout > 0 ? 4 : 2));
  compare(what + " lse", lse, s.lse, c.dtype == DType::Float64 ? 1e-12 : 1e-5, c.dtype == DType::Float64 ? 1e-12 : 2e-5);

  // Backward from the reference's out and lse.
  out.fill([&](int64_t i) { return at(want, i); });
  lse.fill([&](int64_t i) { return at(s.lse, i); });
  Tensor gq(c.dtype, q.sizes), gk(c.dtype, k.sizes), gv(c.dtype, v.sizes);
  std::vector<double> want_q(static_cast<size_t>(gq.numel())), want_k(static_cast<size_t>(gk.numel())),
      want_v(static_cast<size_t>(gv.numel()));
  for (int64_t b = 0; b < c.batch; b++)
    for (int64_t h = 0; h < c.heads; h++)
      for (int64_t i = 0; i < c.queries; i++) {
        const int64_t row = (b * c.heads + h) * c.queries + i, kv = h / group;
        double delta = 0;
        for (int64_t d = 0; d < c.value_depth; d++) delta += g.at({b, h, i, d}) * out.get(row * c.value_depth + d);
        for (int64_t j = 0; j < c.keys; j++) {
          const double w = at(s.weights, row * c.keys + j), kept = at(s.kept, row * c.keys + j);
          if (w == 0) continue;
          const int64_t kv_row = (b * c.kv_heads + kv) * c.keys + j;
          double dp = 0;
          for (int64_t d = 0; d < c.value_depth; d++) {
            dp += g.at({b, h, i, d}) * v.at({b, kv, j, d});
            want_v[static_cast<size_t>(kv_row * c.value_depth + d)] += w * kept * g.at({b, h, i, d});
          }
          const double ds = w * (dp * kept - delta) * scale;
          for (int64_t d = 0; d < c.depth; d++) {
            want_q[static_cast<size_t>(row * c.depth + d)] += ds * k.at({b, kv, j, d});
            want_k[static_cast<size_t>(kv_row * c.depth + d)] += ds * q.at({b, h, i, d});
          }
        }
      }
  run(what + " backward", "attention_backward", {&g, &q, &k, &v, &mask, &out, &lse}, {&gq, &gk, &gv},
      AttentionBackwardParams{params.scale, params.causal, params.dropout, params.seed_low, params.seed_high, params.offset});
  auto largest = [](const std::vector<double>& list) {
    double top = 0;
    for (const double x : list) top = std::fmax(top, std::fabs(x));
    return top;
  };
  compare(what + " gq", gq, want_q, rtol * 2, unit * (0.2 + largest(want_q)));
  compare(what + " gk", gk, want_k, rtol * 2, unit * (0.2 + largest(want_k)));
  compare(what + " gv", gv, want_v, rtol * 2, unit * (0.2 + largest(want_v)));
}

}  // namespace

void test_attention() {
  for (const DType dtype : kFloats) {
    begin((std::string("attention ") + dtype_name(dtype)).c_str());
    attention_case({dtype, 1, 1, 1, 1, 1, 1, 1});
    attention_case({dtype, 2, 3, 3, 17, 33, 8, 8});
    attention_case({dtype, 1, 2, 1, 70, 70, 64, 64, true});
    attention_case({dtype, 1, 2, 2, 5, 130, 40, 24, false, Mask::Bool});
    attention_case({dtype, 2, 4, 2, 67, 35, 16, 16, true, Mask::Bool, 0, 1});
    attention_case({dtype, 2, 2, 1, 35, 67, 32, 48, true, Mask::Float, 0, 2});
    attention_case({dtype, 1, 2, 2, 40, 40, 72, 80, false, Mask::Same, 0, 3});
    attention_case({dtype, 1, 2, 1, 33, 31, 64, 64, false, Mask::Empty});
    attention_case({dtype, 1, 2, 1, 65, 67, 64, 64, true, Mask::None, 0.3});
    attention_case({dtype, 1, 1, 1, 20, 19, 128, 128, false, Mask::Float, 0.5, 1});
    attention_case({dtype, 1, 2, 1, 20, 19, 150, 200, true});
    attention_case({dtype, 1, 2, 2, 4, 0, 16, 16});
    attention_case({dtype, 1, 2, 2, 0, 4, 16, 16});
    if (context().quick) {
      end();
      continue;
    }
    attention_case({dtype, 1, 2, 1, 300, 300, 128, 128, true});
    attention_case({dtype, 2, 4, 1, 257, 400, 64, 64, false});
    attention_case({dtype, 1, 4, 2, 400, 257, 96, 96, true, Mask::Bool, 0.1, 1});
    attention_case({dtype, 1, 3, 3, 200, 333, 128, 64, false, Mask::Float});
    attention_case({dtype, 1, 2, 1, 130, 140, 256, 256, true});
    end();
  }
}

}  // namespace selftest
