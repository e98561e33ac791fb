// Tests attention and its gradient against float64 on the CPU: masks, causal order, grouped heads,
// dropout, odd sizes and strides.
#include "../devices.h"
#include "../kernels/attention/attention.cuh"
#include "kernel_selftest_floats.h"

namespace selftest::floats {
namespace {

double dropped_of_65536(double probability) { return std::round(probability * 65536); }

// Whether dropout keeps a weight, as native/README.md defines it; written independently of the
// kernels.
bool is_kept(uint64_t seed, uint64_t offset, uint64_t row, int64_t key, int64_t keys,
             double probability) {
  const uint64_t counter = row * uint64_t((keys + 7) / 8) + uint64_t(key / 8);
  uint32_t k[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  uint32_t c[4] = {uint32_t(counter), uint32_t(counter >> 32), uint32_t(offset),
                   uint32_t(offset >> 32)};
  for (int round = 0; round < 10; round++) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    const uint32_t next[4] = {uint32_t(p1 >> 32) ^ c[1] ^ k[0], uint32_t(p1),
                              uint32_t(p0 >> 32) ^ c[3] ^ k[1], uint32_t(p0)};
    std::memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  const uint32_t bits = key % 2 == 0 ? c[key % 8 / 2] & 0xffff : c[key % 8 / 2] >> 16;
  return bits >= dropped_of_65536(probability);
}

// Same: a mask of the dtype of q. Empty: a bool mask with fully masked rows. Keys: one bool per key
// for all queries. Queries: one per query. Across: a mask of the dtype of q with contiguous
// queries. Odd: a bool mask at an odd address, with rows of an even pitch.
enum class Mask { None, Bool, Float, Same, Empty, Keys, Queries, Across, Odd };

struct Case {
  DType dtype;
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  bool causal = false;
  Mask mask = Mask::None;
  double dropout = 0;
  // 0: [B, H, S, D]; 1: a view of [B, S, H, D]; 2: unaligned rows; 3: no unit stride
  int layout = 0;
  double factor = 1;  // factor of the scale
};

Tensor heads_tensor(DType dtype, int64_t batch, int64_t heads, int64_t rows, int64_t depth,
                    int layout) {
  if (layout == 1)
    return Tensor(dtype, {batch, heads, rows, depth},
                  {rows * heads * depth, depth, heads * depth, 1});
  if (layout == 2)
    return Tensor(dtype, {batch, heads, rows, depth},
                  {heads * rows * (depth + 1), rows * (depth + 1), depth + 1, 1}, 1);
  if (layout == 3)
    return Tensor(dtype, {batch, heads, rows, depth},
                  {heads * rows * depth, rows * depth, 1, rows});
  return Tensor(dtype, {batch, heads, rows, depth});
}

// The operands of a case in row-major float64.
struct Operands {
  std::vector<double> q, k, v, g, mask;  // empty without a mask

  static std::vector<double> dense(const Tensor& t) {
    std::vector<double> out(static_cast<size_t>(t.present() ? t.numel() : 0));
    for (size_t i = 0; i < out.size(); i++) out[i] = t.get(static_cast<int64_t>(i));
    return out;
  }
};

struct Reference {
  std::vector<double> weights, kept;  // P, and keep / (1 - p), both [B, H, S, T]
  std::vector<double> lse, out, gq, gk, gv;
};

double dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}
void add_to(double* sums, double factor, const double* b, int64_t n) {
  for (int64_t i = 0; i < n; i++) sums[i] += factor * b[i];
}

// Calls body(row of queries, query, head of keys) for every query of every head.
template <class F>
void for_rows(const Case& c, F&& body) {
  for (int64_t b = 0; b < c.batch; b++)
    for (int64_t h = 0; h < c.heads; h++)
      for (int64_t i = 0; i < c.queries; i++)
        body((b * c.heads + h) * c.queries + i, i, b * c.kv_heads + h / (c.heads / c.kv_heads));
}

Reference forward_of(const Case& c, const Operands& x, bool bool_mask,
                     const AttentionParams& params) {
  Reference r;
  const size_t rows = static_cast<size_t>(c.batch * c.heads * c.queries);
  r.weights.assign(rows * static_cast<size_t>(c.keys), 0);
  r.kept.assign(r.weights.size(), 1);
  r.lse.assign(rows, -INFINITY);
  r.out.assign(rows * static_cast<size_t>(c.value_depth), 0);
  const uint64_t seed = uint64_t(params.seed_low) | uint64_t(params.seed_high) << 32;
  for_rows(c, [&](int64_t row, int64_t query, int64_t kv) {
    double* const weights = r.weights.data() + row * c.keys;
    double largest = -INFINITY, sum = 0;
    for (int64_t j = 0; j < c.keys; j++) {
      double s = params.scale *
                 dot(x.q.data() + row * c.depth, x.k.data() + (kv * c.keys + j) * c.depth, c.depth);
      if (!x.mask.empty()) {
        const double m = x.mask[static_cast<size_t>(row * c.keys + j)];
        s = bool_mask ? (m != 0 ? s : -INFINITY) : s + m;
      }
      if (c.causal && j > query) s = -INFINITY;
      weights[j] = s;
      largest = std::fmax(largest, s);
      if (c.dropout > 0)
        r.kept[static_cast<size_t>(row * c.keys + j)] =
            is_kept(seed, uint64_t(params.offset), uint64_t(row), j, c.keys, c.dropout)
                ? 65536 / (65536 - dropped_of_65536(c.dropout))
                : 0;
    }
    for (int64_t j = 0; j < c.keys; j++)
      sum += largest == -INFINITY ? 0 : std::exp(weights[j] - largest);
    if (largest != -INFINITY) r.lse[static_cast<size_t>(row)] = largest + std::log(sum);
    for (int64_t j = 0; j < c.keys; j++) {
      weights[j] = largest == -INFINITY ? 0 : std::exp(weights[j] - largest) / sum;
      add_to(r.out.data() + row * c.value_depth,
             weights[j] * r.kept[static_cast<size_t>(row * c.keys + j)],
             x.v.data() + (kv * c.keys + j) * c.value_depth, c.value_depth);
    }
  });
  return r;
}

// Gradients from `out` as the kernel gets it.
void backward_of(const Case& c, const Operands& x, const std::vector<double>& out, double scale,
                 Reference& r) {
  r.gq.assign(x.q.size(), 0);
  r.gk.assign(x.k.size(), 0);
  r.gv.assign(x.v.size(), 0);
  for_rows(c, [&](int64_t row, int64_t, int64_t kv) {
    const double* const g = x.g.data() + row * c.value_depth;
    const double delta = dot(g, out.data() + row * c.value_depth, c.value_depth);
    for (int64_t j = 0; j < c.keys; j++) {
      const double w = r.weights[static_cast<size_t>(row * c.keys + j)],
                   kept = r.kept[static_cast<size_t>(row * c.keys + j)];
      if (w == 0) continue;
      const int64_t key = kv * c.keys + j;
      add_to(r.gv.data() + key * c.value_depth, w * kept, g, c.value_depth);
      const double ds =
          w * (dot(g, x.v.data() + key * c.value_depth, c.value_depth) * kept - delta) * scale;
      add_to(r.gq.data() + row * c.depth, ds, x.k.data() + key * c.depth, c.depth);
      add_to(r.gk.data() + key * c.depth, ds, x.q.data() + row * c.depth, c.depth);
    }
  });
}

Tensor mask_of(const Case& c) {
  const std::vector<int64_t> sizes{c.batch, c.heads, c.queries, c.keys};
  const bool is_added = c.mask == Mask::Float || c.mask == Mask::Same || c.mask == Mask::Across;
  const DType dtype = !is_added ? DType::Bool : c.mask == Mask::Float ? DType::Float32 : c.dtype;
  const int64_t pitch = c.mask == Mask::Odd ? c.keys / 2 * 2 + 2 : c.keys,
                whole = c.queries * pitch;
  std::vector<int64_t> strides{whole, 0, pitch, 1};  // the same for every head
  if (c.mask == Mask::Keys) strides = {c.keys, 0, 0, 1};
  if (c.mask == Mask::Queries) strides = {c.queries, 0, 1, 0};
  if (c.mask == Mask::Same || c.mask == Mask::Float) strides = {0, whole, pitch, 1};
  if (c.mask == Mask::Across) strides = {c.heads * whole, whole, 1, c.queries};
  Tensor mask(dtype, sizes, strides, c.mask == Mask::Odd ? 1 : 0);
  mask.fill([&](int64_t i) -> double {
    if (is_added) return random_source().uniform() < 0.1 ? -INFINITY : random_source().normal();
    return c.mask == Mask::Empty && i / c.keys % 3 == 1 ? 0 : random_source().uniform() < 0.7;
  });
  return mask;
}

void attention_case(const Case& c) {
  const std::string what = "B" + std::to_string(c.batch) + " H" + std::to_string(c.heads) + "/" +
                           std::to_string(c.kv_heads) + " S" + std::to_string(c.queries) + " T" +
                           std::to_string(c.keys) + " D" + std::to_string(c.depth) + "/" +
                           std::to_string(c.value_depth) + (c.causal ? " causal" : "") + " mask" +
                           std::to_string(int(c.mask)) + (c.dropout > 0 ? " dropout" : "") +
                           " layout" + std::to_string(c.layout) +
                           (c.factor != 1 ? " scale x " + std::to_string(c.factor) : "");
  Tensor q = heads_tensor(c.dtype, c.batch, c.heads, c.queries, c.depth, c.layout),
         k = heads_tensor(c.dtype, c.batch, c.kv_heads, c.keys, c.depth, c.layout),
         v = heads_tensor(c.dtype, c.batch, c.kv_heads, c.keys, c.value_depth, c.layout),
         g = heads_tensor(c.dtype, c.batch, c.heads, c.queries, c.value_depth, c.layout), mask;
  for (Tensor* t : {&q, &k, &v, &g}) t->normal();
  if (c.mask != Mask::None) mask = mask_of(c);
  const DType inner = c.dtype == DType::Float64 ? DType::Float64 : DType::Float32;
  const int layout_out = c.layout == 3 ? 1 : c.layout;  // results have contiguous features
  const auto result = [&](int64_t heads, int64_t rows, int64_t depth) {
    return heads_tensor(c.dtype, c.batch, heads, rows, depth, layout_out);
  };
  Tensor out = result(c.heads, c.queries, c.value_depth), lse(inner, {c.batch, c.heads, c.queries});
  const AttentionParams params{c.factor / std::sqrt(double(c.depth > 0 ? c.depth : 1)),
                               double(c.causal),
                               c.dropout,
                               1234567,
                               89,
                               42};
  const Operands x{Operands::dense(q), Operands::dense(k), Operands::dense(v), Operands::dense(g),
                   Operands::dense(mask)};
  Reference want = forward_of(c, x, mask.dtype == DType::Bool, params);

  run(what, "attention", {&q, &k, &v, &mask}, {&out, &lse}, params);
  const bool narrow = item_size(c.dtype) == 2;
  const double rtol = relative_tolerance(c.dtype), unit = c.dtype == DType::Float64 ? 1e-12
                                                          : narrow                  ? rtol
                                                                                    : 4e-6;
  compare(what, out, want.out, rtol * 2, unit * (c.dropout > 0 ? 4 : 2));
  compare(what + " lse", lse, want.lse, c.dtype == DType::Float64 ? 1e-12 : 1e-5,
          c.dtype == DType::Float64 ? 1e-12 : 2e-5);

  // The backward kernel gets out and lse of the reference.
  out.fill([&](int64_t i) { return want.out[static_cast<size_t>(i)]; });
  lse.fill([&](int64_t i) { return want.lse[static_cast<size_t>(i)]; });
  backward_of(c, x, Operands::dense(out), params.scale, want);
  Tensor gq = result(c.heads, c.queries, c.depth), gk = result(c.kv_heads, c.keys, c.depth),
         gv = result(c.kv_heads, c.keys, c.value_depth);
  run(what + " backward", "attention_backward", {&g, &q, &k, &v, &mask, &out, &lse},
      {&gq, &gk, &gv},
      AttentionBackwardParams{params.scale, params.causal, params.dropout, params.seed_low,
                              params.seed_high, params.offset});
  const auto room = [&](const std::vector<double>& list) {
    double top = 0;
    for (const double value : list) top = std::fmax(top, std::fabs(value));
    return unit * (0.2 + top);
  };
  compare(what + " gq", gq, want.gq, rtol * 2, room(want.gq));
  compare(what + " gk", gk, want.gk, rtol * 2, room(want.gk));
  compare(what + " gv", gv, want.gv, rtol * 2, room(want.gv));
}

// The sm_90 kernels take depths that are multiples of 8. Sizes that no tile divides, and of several
// tiles. Every other case has a mask, dropout or both.
void sm90_cases(DType dtype) {
  const int64_t sizes[][2] = {{1, 1},     {1, 131},   {131, 1},  {64, 64},   {65, 63},  {127, 129},
                              {128, 128}, {193, 191}, {66, 196}, {97, 389},  {389, 97}, {257, 512},
                              {640, 257}, {511, 769}, {1, 1031}, {1031, 64}, {200, 140}};
  const Mask masks[] = {Mask::None, Mask::Bool,   Mask::Same, Mask::Empty,
                        Mask::Keys, Mask::Across, Mask::Odd};
  const int before = shardwise::cuda::attention_sm90_taken();
  int turn = 0;
  for (const auto& s : sizes)
    for (const bool causal : {false, true})
      for (const int64_t depth : {64, 128})
        for (const bool modified : {false, true}) {
          if ((options.quick || options.sparse) && s[0] * s[1] > 40000) continue;
          turn++;
          const auto drawn = [](int64_t count) {
            return static_cast<int64_t>(random_source().uniform() * static_cast<double>(count));
          };
          const int64_t kv_heads = 1 + drawn(2), heads = kv_heads * (1 + drawn(3)),
                        batch = 1 + drawn(2);
          const int64_t narrower = turn % 7 == 3 ? 8 : turn % 7 == 5 ? 32 : 0;
          const Mask mask = modified ? masks[turn / 2 % 7] : Mask::None;
          const double dropout = modified && (mask == Mask::None || drawn(2) == 0) ? 0.3 : 0;
          attention_case({dtype, batch, heads, kv_heads, s[0], s[1], depth - narrower,
                          depth - (turn % 11 == 4 ? 24 : narrower), causal, mask, dropout,
                          turn % 3 == 1});
        }
  const int taken = shardwise::cuda::attention_sm90_taken() - before;
  if (shardwise::cuda::is_sm90(*shardwise::cuda::device_facts(0)) && taken != 4 * turn)
    problem("the kernels of sm_90 took " + std::to_string(taken) + " of " +
            std::to_string(4 * turn) + " calls");
}

}  // namespace

void test_attention() {
  for (const DType dtype : kFloats) {
    if (left_out(dtype)) continue;
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
    attention_case({dtype, 2, 2, 1, 37, 70, 64, 64, false, Mask::Queries, 0.2, 2});
    attention_case({dtype, 2, 2, 1, 70, 37, 128, 120, true, Mask::None, 0.2, 2});
    // kernels that compare scores before they are scaled would give wrong results
    for (const double factor : {-2.0, 0.0}) {
      attention_case({dtype, 1, 2, 1, 70, 67, 64, 64, false, Mask::None, 0, 0, factor});
      attention_case({dtype, 1, 2, 1, 130, 131, 128, 128, true, Mask::None, 0, 0, factor});
    }
    attention_case({dtype, 1, 2, 2, 4, 0, 16, 16});
    attention_case({dtype, 1, 2, 2, 0, 4, 16, 16});
    if (item_size(dtype) == 2) sm90_cases(dtype);
    if (options.quick) {
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

}  // namespace selftest::floats
