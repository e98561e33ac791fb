// Scaled dot-product attention, forward and backward, without the S x T matrix of scores in memory.
//
// Forward: a block of queries visits blocks of keys and keeps, per row, the maximum m, the sum l of
// exp(score - m) and the weighted sum of values; when m grows, l and the weighted sum are rescaled
// by exp(m_old - m_new). At the end out = weighted sum / l and lse = m + ln(l). Dropout zeroes
// weights after they were summed, so l is that of all keys.
//
// Backward: a tile of weights is recomputed as P = exp(score - lse). With Z the dropout factors (0
// or 1 / (1 - p)): gv += (P Z)^T g, dP = (g v^T) Z, dS = P (dP - delta) scale, delta = rowsum(g *
// out), gq += dS k, gk += dS^T q.
// With enough heads for all threads a task owns one key head and computes all gradients in one pass
// over the tiles. Otherwise one set of tasks owns blocks of keys and sums gk and gv, another owns
// blocks of queries and sums gq, each recomputing the tiles. Both add tiles in the same order, so
// the bits of the result depend neither on the choice nor on the number of threads.
//
// Scores, softmax and all sums are float32 for float32, float16 and bfloat16, and float64 for
// float64; results round once.
//
// Measured on one Zen 5 core, float32, B 1, H 8, S 2048, D 64: forward 167 GFLOP/s, backward 232,
// where a product reaches 268; dropout adds a fifth to the time of the forward pass.
#include <cmath>
#include <limits>

#include "convert.h"
#include "gemm/gemm.h"
#include "generated/op_params.h"
#include "kernel_call.h"
#include "parallel_for.h"

namespace shardwise::cpu {
namespace {

constexpr int64_t kQueries = 112;          // rows of a tile: 8 panels of the AVX-512 kernel
constexpr int64_t kKeys = 128;             // columns of a tile, also its row stride
constexpr int64_t kFusedBytes = 16 << 20;  // largest sums of gk and gv of one task

struct Attention {
  int64_t batch, heads, key_heads, queries, keys, depth, value_depth;
  TensorView q, k, v, mask;
  double scale;
  bool causal, drop;
  DropoutKey dropout;

  // The end of the keys that a query up to `i` attends to.
  int64_t visible(int64_t i) const { return causal && i + 1 < keys ? i + 1 : keys; }
};

struct Head {
  int64_t batch, head, key_head;
};

int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class Params>
Attention describe(const KernelCall& call, int first) {
  const auto& p = call.params_as<Params>();
  Attention a{};
  a.q = call.input(first);
  a.k = call.input(first + 1);
  a.v = call.input(first + 2);
  a.mask = call.input(first + 3);
  a.batch = a.q.sizes[0];
  a.heads = a.q.sizes[1];
  a.queries = a.q.sizes[2];
  a.depth = a.q.sizes[3];
  a.key_heads = a.k.sizes[1];
  a.keys = a.k.sizes[2];
  a.value_depth = a.v.sizes[3];
  a.scale = p.scale;
  a.causal = p.causal != 0;
  a.drop = p.dropout > 0;
  const uint64_t offset = static_cast<uint64_t>(p.offset);
  a.dropout = {static_cast<uint32_t>(static_cast<int64_t>(p.seed_low)),
               static_cast<uint32_t>(static_cast<int64_t>(p.seed_high)),
               static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32),
               WeightDropout::of(p.dropout)};
  return a;
}

char* element(const TensorView& v, int64_t i0, int64_t i1, int64_t i2) {
  return element_at(v.data, v.dtype, i0 * v.strides[0] + i1 * v.strides[1] + i2 * v.strides[2]);
}

template <class T>
const Engine& engine_of() {
  return engine_for(sizeof(T) == 8 ? DType::Float64 : DType::Float32);
}

// Allocates blocks of one scratch buffer.
template <class T>
class Arena {
 public:
  explicit Arena(int64_t elements)
      : next_(static_cast<T*>(scratch(3, elements * static_cast<int64_t>(sizeof(T))))) {}
  T* take(int64_t elements) {
    T* block = next_;
    next_ += padded(elements);
    return block;
  }
  static int64_t padded(int64_t elements) { return ceil_div(elements, 16) * 16; }

 private:
  T* next_;
};

template <class T>
struct Rows {
  const T* data;
  int64_t stride;
  const T* row(int64_t i) const { return data + i * stride; }
};

// Rows [first, first + n) of one head, in place if they can be read as T, otherwise converted into
// `buffer`.
template <class T>
Rows<T> read_rows(const TensorView& view, int64_t batch, int64_t head, int64_t first, int64_t n,
                  T* buffer) {
  const char* at = element(view, batch, head, first);
  const int64_t width = view.sizes[3];
  if (item_size(view.dtype) == sizeof(T) && (view.strides[3] == 1 || width == 1)) {
    return {reinterpret_cast<const T*>(at), view.strides[2]};
  }
  engine_for(view.dtype).load(buffer, width, at, view.strides[2], view.strides[3], 1.0, n, width);
  return {buffer, width};
}

// y[m, n] (+)= alpha * a[m, k] b[k, n]
template <class T>
void multiply(int64_t m, int64_t n, int64_t k, double alpha, Operand a, Operand b, T* y,
              int64_t y_row, bool accumulate) {
  const Operand c = accumulate ? Operand{y, y_row, 1} : Operand{nullptr, 0, 0};
  gemm(engine_of<T>(), Product{m, n, k, a, b, c, y, y_row, 1, alpha, 1.0}, false);
}

// Adds the mask to one row of scores; -inf masks a key.
template <class T>
void apply_mask(const Attention& a, const Head& head, int64_t i, int64_t j0, int64_t n, T* row) {
  const int64_t step = a.mask.strides[3];
  const char* at = element(a.mask, head.batch, head.head, i) + j0 * step * item_size(a.mask.dtype);
  if (a.mask.dtype == DType::Bool) {
    const uint8_t* keep = reinterpret_cast<const uint8_t*>(at);
    for (int64_t j = 0; j < n; j++)
      row[j] = keep[j * step] ? row[j] : -std::numeric_limits<T>::infinity();
  } else {
    T values[kKeys];
    gather(a.mask.dtype, at, step, values, n);
    for (int64_t j = 0; j < n; j++) row[j] += values[j];
  }
}

struct TileAt {
  int64_t i0, rows, j0, columns;
};

// Masked scores of a tile. Row r has valid(r) columns; the causal mask hides the rest.
template <class T>
void compute_scores(const Attention& a, const Head& head, const TileAt& t, Rows<T> q, Rows<T> k,
                    T* scores) {
  multiply(t.rows, t.columns, a.depth, a.scale, {q.data, q.stride, 1}, {k.data, 1, k.stride},
           scores, kKeys, false);
  if (a.mask.is_immediate) return;
  for (int64_t r = 0; r < t.rows; r++)
    apply_mask(a, head, t.i0 + r, t.j0, t.columns, scores + r * kKeys);
}

int64_t valid_columns(const Attention& a, const TileAt& t, int64_t r) {
  return a.causal ? max64(0, min64(t.columns, t.i0 + r + 1 - t.j0)) : t.columns;
}

template <class T>
void fill_row(T* x, int64_t n, T value) {
  for (int64_t i = 0; i < n; i++) x[i] = value;
}

// For dropout: rows start at multiples of 8, so that a Philox counter belongs to one row.
uint64_t weight_index(const Attention& a, const Head& head, int64_t i, int64_t j) {
  return static_cast<uint64_t>(
      ((head.batch * a.heads + head.head) * a.queries + i) * ((a.keys + 7) / 8 * 8) + j);
}

void store_scalar(const TensorView& view, const Head& head, int64_t i, double value) {
  scatter(view.dtype, &value, element(view, head.batch, head.head, i), 1, 1);
}

template <class T>
void forward_block(const Attention& a, const Head& head, int64_t i0, const TensorView& out,
                   const TensorView& lse) {
  const SoftmaxRows<T>& rows = softmax_rows(T());
  const int64_t n = min64(kQueries, a.queries - i0), dv = a.value_depth;
  Arena<T> arena(kQueries * (a.depth + dv + kKeys) + kKeys * (a.depth + dv + 1) + 128);
  T* q_buffer = arena.take(kQueries * a.depth);
  T* k_buffer = arena.take(kKeys * a.depth);
  T* v_buffer = arena.take(kKeys * dv);
  T* scores = arena.take(kQueries * kKeys);
  T* sums = arena.take(kQueries * dv);
  T* factors = arena.take(kKeys);
  T maximum[kQueries], total[kQueries], highest[kQueries], subtract[kQueries], added[kQueries];
  int64_t valid[kQueries];
  fill_row(maximum, n, -std::numeric_limits<T>::infinity());
  fill_row(total, n, T(0));
  fill_row(sums, n * dv, T(0));
  const Rows<T> q = read_rows(a.q, head.batch, head.head, i0, n, q_buffer);

  const int64_t end = a.visible(i0 + n - 1);
  for (int64_t j0 = 0; j0 < end; j0 += kKeys) {
    const TileAt t{i0, n, j0, min64(kKeys, end - j0)};
    const Rows<T> k = read_rows(a.k, head.batch, head.key_head, j0, t.columns, k_buffer);
    compute_scores(a, head, t, q, k, scores);
    for (int64_t r = 0; r < n; r++) valid[r] = valid_columns(a, t, r);
    rows.maxima(scores, kKeys, n, valid, highest);
    for (int64_t r = 0; r < n; r++) {
      if (highest[r] > maximum[r] || highest[r] != highest[r]) {
        const T rescale = std::exp(maximum[r] - highest[r]);
        total[r] *= rescale;
        rows.scale(sums + r * dv, dv, rescale);
        maximum[r] = highest[r];
      }
      subtract[r] = maximum[r] == -std::numeric_limits<T>::infinity() ? T(0) : maximum[r];
    }
    rows.exponentials(scores, kKeys, n, t.columns, valid, subtract, added);
    for (int64_t r = 0; r < n; r++) total[r] += added[r];
    for (int64_t r = 0; a.drop && r < n; r++) {
      rows.keep_factors(factors, valid[r], a.dropout, weight_index(a, head, i0 + r, j0));
      rows.multiply(scores + r * kKeys, scores + r * kKeys, factors, valid[r]);
    }
    const Rows<T> v = read_rows(a.v, head.batch, head.key_head, j0, t.columns, v_buffer);
    multiply(n, dv, t.columns, 1.0, {scores, kKeys, 1}, {v.data, v.stride, 1}, sums, dv, true);
  }
  for (int64_t r = 0; r < n; r++) {
    const bool blind = total[r] == T(0);
    rows.scale(sums + r * dv, dv, blind ? T(0) : T(1) / total[r]);
    store_scalar(lse, head, i0 + r,
                 blind ? -std::numeric_limits<double>::infinity()
                       : static_cast<double>(maximum[r] + std::log(total[r])));
  }
  engine_for(out.dtype).store(element(out, head.batch, head.head, i0), out.strides[2],
                              out.strides[3], sums, dv, n, dv);
}

struct Gradients {
  TensorView g, out, lse, gq, gk, gv;
};

// The buffers of one thread for the tiles of the backward pass.
template <class T>
struct Workspace {
  T *q, *g, *out, *k, *v, *weights, *dropped, *dp, *factors, *delta;

  static int64_t elements(const Attention& a) {
    return kQueries * (a.depth + 2 * a.value_depth + 3 * kKeys + 1) +
           kKeys * (a.depth + a.value_depth + 1) + 256;
  }
  Workspace(const Attention& a, Arena<T>& arena)
      : q(arena.take(kQueries * a.depth)),
        g(arena.take(kQueries * a.value_depth)),
        out(arena.take(kQueries * a.value_depth)),
        k(arena.take(kKeys * a.depth)),
        v(arena.take(kKeys * a.value_depth)),
        weights(arena.take(kQueries * kKeys)),
        dropped(arena.take(kQueries * kKeys)),
        dp(arena.take(kQueries * kKeys)),
        factors(arena.take(kKeys)),
        delta(arena.take(kQueries)) {}
};

// One tile; null sums are skipped. gk and gv point at the first key of the tile.
template <class T>
void backward_tile(const Attention& a, const Gradients& d, const Head& head, const TileAt& t,
                   const Workspace<T>& w, T* gq, T* gk, T* gv) {
  const SoftmaxRows<T>& rows = softmax_rows(T());
  const int64_t dv = a.value_depth;
  const Rows<T> q = read_rows(a.q, head.batch, head.head, t.i0, t.rows, w.q);
  const Rows<T> g = read_rows(d.g, head.batch, head.head, t.i0, t.rows, w.g);
  const Rows<T> k = read_rows(a.k, head.batch, head.key_head, t.j0, t.columns, w.k);
  const Rows<T> v = read_rows(a.v, head.batch, head.key_head, t.j0, t.columns, w.v);
  compute_scores(a, head, t, q, k, w.weights);
  multiply(t.rows, t.columns, dv, 1.0, {g.data, g.stride, 1}, {v.data, 1, v.stride}, w.dp, kKeys,
           false);
  T lse[kQueries], sums[kQueries];
  int64_t valid[kQueries];
  for (int64_t r = 0; r < t.rows; r++) {
    gather(d.lse.dtype, element(d.lse, head.batch, head.head, t.i0 + r), 1, &lse[r], 1);
    valid[r] = lse[r] == -std::numeric_limits<T>::infinity() ? 0 : valid_columns(a, t, r);
  }
  rows.exponentials(w.weights, kKeys, t.rows, t.columns, valid, lse, sums);
  for (int64_t r = 0; r < t.rows; r++) {
    T* p = w.weights + r * kKeys;
    T* dp = w.dp + r * kKeys;
    T* dropped = w.dropped + r * kKeys;
    if (a.drop) {
      rows.keep_factors(w.factors, valid[r], a.dropout, weight_index(a, head, t.i0 + r, t.j0));
      rows.multiply(dropped, p, w.factors, valid[r]);
      rows.multiply(dp, dp, w.factors, valid[r]);
      fill_row(dropped + valid[r], t.columns - valid[r], T(0));
    }
    rows.gradients(dp, p, valid[r], w.delta[r], static_cast<T>(a.scale));
    fill_row(dp + valid[r], t.columns - valid[r], T(0));
  }
  if (gv)
    multiply(t.columns, dv, t.rows, 1.0, {a.drop ? w.dropped : w.weights, 1, kKeys},
             {g.data, g.stride, 1}, gv, dv, true);
  if (gk)
    multiply(t.columns, a.depth, t.rows, 1.0, {w.dp, 1, kKeys}, {q.data, q.stride, 1}, gk, a.depth,
             true);
  if (gq)
    multiply(t.rows, a.depth, t.columns, 1.0, {w.dp, kKeys, 1}, {k.data, k.stride, 1}, gq, a.depth,
             true);
}

template <class T>
void compute_delta(const Attention& a, const Gradients& d, const Head& head, int64_t i0, int64_t n,
                   const Workspace<T>& w) {
  const Rows<T> g = read_rows(d.g, head.batch, head.head, i0, n, w.g);
  const Rows<T> out = read_rows(d.out, head.batch, head.head, i0, n, w.out);
  for (int64_t r = 0; r < n; r++)
    w.delta[r] = softmax_rows(T()).dot(g.row(r), out.row(r), a.value_depth);
}

template <class T>
void write_rows(const TensorView& view, int64_t batch, int64_t head, int64_t first, int64_t n,
                const T* rows) {
  const int64_t width = view.sizes[3];
  engine_for(view.dtype)
      .store(element(view, batch, head, first), view.strides[2], view.strides[3], rows, width, n,
             width);
}

// The tiles of queries [i_begin, i_end) x keys [j_begin, j_end) for all heads of one key head. gk
// and gv hold sums for the keys, or are null; gradients of queries are written if `with_queries`.
template <class T>
void backward_region(const Attention& a, const Gradients& d, int64_t batch, int64_t key_head,
                     int64_t head_begin, int64_t head_end, int64_t i_begin, int64_t i_end,
                     int64_t j_begin, int64_t j_end, const Workspace<T>& w, T* gq, T* gk, T* gv) {
  for (int64_t h = head_begin; h < head_end; h++) {
    const Head head{batch, h, key_head};
    for (int64_t i0 = i_begin; i0 < i_end; i0 += kQueries) {
      const int64_t n = min64(kQueries, i_end - i0);
      const int64_t end = min64(j_end, a.visible(i0 + n - 1));
      if (end <= j_begin && !gq) continue;
      compute_delta(a, d, head, i0, n, w);
      if (gq) fill_row(gq, n * a.depth, T(0));
      for (int64_t j0 = j_begin; j0 < end; j0 += kKeys) {
        const TileAt t{i0, n, j0, min64(kKeys, j_end - j0)};
        backward_tile(a, d, head, t, w, gq, gk ? gk + (j0 - j_begin) * a.depth : nullptr,
                      gv ? gv + (j0 - j_begin) * a.value_depth : nullptr);
      }
      if (gq) write_rows(d.gq, batch, h, i0, n, gq);
    }
  }
}

template <class T>
void backward(const Attention& a, const Gradients& d) {
  const int64_t group = a.heads / max64(1, a.key_heads), key_blocks = ceil_div(a.keys, kKeys),
                query_blocks = ceil_div(a.queries, kQueries);
  const int64_t sums = a.keys * (a.depth + a.value_depth),
                workspace = Workspace<T>::elements(a) + kQueries * a.depth;
  const bool fused = a.batch * a.key_heads >= num_threads() &&
                     sums * static_cast<int64_t>(sizeof(T)) <= kFusedBytes;
  const double tile =
      static_cast<double>(kQueries * kKeys) * static_cast<double>(a.depth + a.value_depth);
  const int64_t keys_at_once = fused ? a.keys : kKeys, blocks = fused ? 1 : key_blocks;
  parallel_for(
      a.batch * a.key_heads * blocks, 1 + static_cast<int64_t>(1e5 / (tile + 1)),
      [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; task++) {
          Arena<T> arena(workspace + keys_at_once * (a.depth + a.value_depth) + 64);
          const Workspace<T> w(a, arena);
          T* gq = arena.take(kQueries * a.depth);
          T* gk = arena.take(keys_at_once * a.depth);
          T* gv = arena.take(keys_at_once * a.value_depth);
          const int64_t batch = task / blocks / a.key_heads, key_head = task / blocks % a.key_heads;
          const int64_t j0 = task % blocks * keys_at_once, n = min64(keys_at_once, a.keys - j0);
          fill_row(gk, n * a.depth, T(0));
          fill_row(gv, n * a.value_depth, T(0));
          backward_region(a, d, batch, key_head, key_head * group, (key_head + 1) * group, 0,
                          a.queries, j0, j0 + n, w, fused ? gq : nullptr, gk, gv);
          write_rows(d.gk, batch, key_head, j0, n, gk);
          write_rows(d.gv, batch, key_head, j0, n, gv);
        }
      });
  if (fused) return;
  parallel_for(a.batch * a.heads * query_blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; task++) {
      Arena<T> arena(workspace + 64);
      const Workspace<T> w(a, arena);
      T* gq = arena.take(kQueries * a.depth);
      const int64_t head = task / query_blocks % a.heads, i0 = task % query_blocks * kQueries;
      backward_region<T>(a, d, task / query_blocks / a.heads, head / group, head, head + 1, i0,
                         min64(i0 + kQueries, a.queries), 0, a.keys, w, gq, nullptr, nullptr);
    }
  });
}

}  // namespace

Status attention(const KernelCall& call) {
  const Attention a = describe<AttentionParams>(call, 0);
  const TensorView &out = call.output(0), &lse = call.output(1);
  if (lse.numel == 0) return kOk;
  const int64_t blocks = ceil_div(a.queries, kQueries), group = a.heads / max64(1, a.key_heads);
  const double work = static_cast<double>(min64(a.queries, kQueries)) *
                      static_cast<double>(a.keys + 8) *
                      static_cast<double>(a.depth + a.value_depth);
  parallel_for(a.batch * a.heads * blocks, 1 + static_cast<int64_t>(1e5 / (work + 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; task++) {
                   const int64_t h = task / blocks % a.heads;
                   const Head head{task / blocks / a.heads, h, h / group};
                   if (out.dtype == DType::Float64)
                     forward_block<double>(a, head, task % blocks * kQueries, out, lse);
                   else
                     forward_block<float>(a, head, task % blocks * kQueries, out, lse);
                 }
               });
  return kOk;
}

Status attention_backward(const KernelCall& call) {
  const Attention a = describe<AttentionBackwardParams>(call, 1);
  const Gradients d{call.input(0),  call.input(5),  call.input(6),
                    call.output(0), call.output(1), call.output(2)};
  if (a.q.dtype == DType::Float64)
    backward<double>(a, d);
  else
    backward<float>(a, d);
  return kOk;
}

}  // namespace shardwise::cpu
