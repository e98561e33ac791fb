// Backward pass of layer norm and rms norm over contiguous rows of any alignment and length;
// norm_backward.cu has the formulas.
//
//   registers  gx of rows of up to 1024 vectors: the group of a row (row_tile.cuh: part of a warp,
//              else a block) keeps g and x in registers, in the vectors of gx. A thread at an end
//              of the row reads the V elements there too, some of which are its neighbour's: it
//              does not write these.
//   long       gx of other rows: a block goes over a row twice, for the sums and for gx
//   columns    gw and gb: a thread has a vector of columns, the same in every row, and goes over a
//              slice of the rows; a block adds up its threads in shared memory and writes a row of
//              partial sums
// Threads: registers, with up to four vectors a thread, 1 to 32 threads of a block of 128 (rows of
// up to 128 vectors), else a block of 64 to 256; long a block of 256; columns blocks of 256, up to
// 32 threads side by side, the others over the rows, some 6 blocks an SM. Unaligned rows are read
// by the two vectors around each (row_words.cuh).
// Bytes: g and x twice (long rows: three times), gx once; 2 n words of partials for each slice.
// Operations: some 54 instructions an element of rows in registers, 19 of columns.
// Numerics: float32 sums (float64 for float64), no atomics, one rounding at the end. The shape, the
// device and the alignment of a row of gx fix their order: equal rows may differ in the last bits.
// Source: written for this library. On an H200, layer norm of bfloat16, us (PyTorch): 8192 x 4095
// 161 (134), 8192 x 16385 630 (652), 32768 x 300 70 (157), 65536 x 100 42 (258), 100 x 200001 380
// (929); columns take some 50 of 161.
// Versions of the first two: by elements 275 and 1110; in vectors, two passes over the row 190 and
// 629; ends of rows shifted, 64-bit offsets 214 and 671.
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;

// V elements of a row of n: the thread owns the existing ones of [first, first + V). At an end of
// the row the span is shifted inwards and also has elements of a neighbour; in a row shorter than V
// it starts at 0.
struct VectorSpan {
  int32_t first, from, n;
  __device__ __forceinline__ VectorSpan(int32_t first, int32_t n, int32_t v)
      : first(first),
        from(first < 0 || n < v ? 0
             : first + v <= n   ? first
                                : n - v),
        n(n) {}
  __device__ __forceinline__ bool is_whole(int32_t v) const { return first == from && n >= v; }
  __device__ __forceinline__ bool contains(int32_t i, int32_t v) const {
    return from + i >= first && from + i < first + v && from + i < n;
  }
};

// The vectors of a thread in the compute type: g, normalised x, and w.
template <class T>
struct RowVectors {
  using C = compute_t<T>;
  static constexpr int V = kVec16<T>;
  C mean, rstd, g[V], x[V], w[V];

  __device__ __forceinline__ RowVectors(const C* means, const C* rstds, int64_t row)
      : mean(means ? means[row] : C(0)), rstd(rstds[row]) {}
  // Keeps the words packed: the floats of a whole row need too many registers.
  __device__ __forceinline__ void unpack(uint4& g_words, uint4& x_words) {
    keep_packed(g_words);
    keep_packed(x_words);
    unpack_words<T>(g_words, g);
    unpack_words<T>(x_words, x);
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = (x[i] - mean) * rstd;
  }
  // Adds h and h xh.
  __device__ __forceinline__ void add_to(Pair<C>& sums) const {
#pragma unroll
    for (int i = 0; i < V; i++) {
      sums.first += g[i] * w[i];
      sums.second += g[i] * w[i] * x[i];
    }
  }
  // gx, from the means over the row.
  __device__ __forceinline__ uint4 gradient(C mean_h, C mean_hx) const {
    C out[V];
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = (g[i] * w[i] - mean_h - x[i] * mean_hx) * rstd;
    return pack_words<T>(out);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    register_rows(const T* g, const T* x, const compute_t<T>* means, const compute_t<T>* rstds,
                  NormVector w, T* gx, int64_t rows, int32_t n, RowGroup group) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<Pair<C>> shared;
  const RowPlace place(group);
  const bool active = place.row < rows;
  const int64_t row = active ? place.row : 0;
  T* to = gx + row * n;
  const int32_t begin = place.slot * V - row_shift(to), step = place.stride * V;
  uint4 g_words[kRowChunks], x_words[kRowChunks];
  if (n >= V) {  // no load is in a divergent branch: all loads are in flight together
#pragma unroll
    for (int c = 0; c < kRowChunks; c++) {
      const VectorSpan span(begin + c * step, n, V);
      g_words[c] = load_words_across(g + row * n + span.from);
      x_words[c] = load_words_across(x + row * n + span.from);
    }
  } else {
#pragma unroll
    for (int c = 0; c < kRowChunks; c++) {
      g_words[c] = load_words_anywhere(g + row * n, 0, n);
      x_words[c] = load_words_anywhere(x + row * n, 0, n);
    }
  }
  RowVectors<T> vectors(means, rstds, row);
  // Calls body(span) for each vector of this thread, with its values in `vectors`.
  const auto for_each_vector = [&](auto&& body) {
#pragma unroll
    for (int c = 0; c < kRowChunks; c++) {
      const VectorSpan span(begin + c * step, n, V);
      if (span.first >= n) break;
      vectors.unpack(g_words[c], x_words[c]);
      load_norm_vector<T>(w, span.from, n, C(1), vectors.w);
      body(span);
    }
  };
  Pair<C> total{C(0), C(0)};
  for_each_vector([&](const VectorSpan& span) {
    if (!span.is_whole(V))
#pragma unroll
      for (int i = 0; i < V; i++)
        if (!span.contains(i, V)) vectors.g[i] = vectors.w[i] = C(0);
    vectors.add_to(total);
  });
  total = row_reduce(total, AddPairs{}, Pair<C>{C(0), C(0)}, group, shared);
  const C mean_h = means ? total.first / C(n) : C(0), mean_hx = total.second / C(n);
  if (!active) return;
  for_each_vector([&](const VectorSpan& span) {
    const uint4 words = vectors.gradient(mean_h, mean_hx);
    if (span.is_whole(V)) {
      __stwb(reinterpret_cast<uint4*>(to + span.from), words);
      return;
    }
    const auto elements = *reinterpret_cast<const Vec<T, V>*>(&words);
#pragma unroll
    for (int i = 0; i < V; i++)
      if (span.contains(i, V)) to[span.from + i] = elements[i];
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    long_rows(const T* g, const T* x, const compute_t<T>* means, const compute_t<T>* rstds,
              NormVector w, T* gx, int64_t n) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<Pair<C>> shared;
  const int64_t start = blockIdx.x * n;
  T* to = gx + start;
  const int64_t begin = int64_t(threadIdx.x) * V - row_shift(to), step = int64_t(kThreads) * V;
  RowVectors<T> vectors(means, rstds, blockIdx.x);
  const auto load = [&](int64_t first) {
    uint4 g_words = load_words_anywhere(g + start, first, n),
          x_words = load_words_anywhere(x + start, first, n);
    vectors.unpack(g_words, x_words);
    load_norm_vector<T>(w, first, n, C(1), vectors.w);
  };
  Pair<C> total{C(0), C(0)};
  for (int64_t first = begin; first < n; first += step) {
    load(first);
    vectors.add_to(total);
  }
  total = row_reduce(total, AddPairs{}, Pair<C>{C(0), C(0)}, RowGroup{kThreads, 1}, shared);
  const C mean_h = means ? total.first / C(n) : C(0), mean_hx = total.second / C(n);
  for (int64_t first = begin; first < n; first += step) {
    load(first);
    store_words(to, first, n, vectors.gradient(mean_h, mean_hx));
  }
}

// The columns of blockIdx.x in the rows of slice blockIdx.y; `lanes` threads side by side, a power
// of two of up to 32. The thread at the end has the last V columns, some of which are its
// neighbour's.
template <class T>
__global__ void __launch_bounds__(kThreads)
    any_columns(const T* g, const T* x, const compute_t<T>* means, const compute_t<T>* rstds,
                compute_t<T>* partials, int64_t rows, int64_t n, int32_t lanes) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ Pair<C> shared[V][kThreads];
  const int lane = threadIdx.x & (lanes - 1), group = threadIdx.x / lanes,
            groups = kThreads / lanes;
  const auto first_of = [&](int i) { return (int64_t(blockIdx.x) * lanes + i) * V; };
  const auto from_of = [&](int64_t first) { return first + V <= n || n < V ? first : n - V; };
  const int64_t from = from_of(first_of(lane));
  C gw[V] = {}, gb[V] = {};
  if (first_of(lane) < n)
#pragma unroll 2
    for (int64_t row = int64_t(blockIdx.y) * groups + group; row < rows;
         row += int64_t(gridDim.y) * groups) {
      const T *g_row = g + row * n, *x_row = x + row * n;
      uint4 own_g = n < V ? load_words_anywhere(g_row, from, n) : load_words_across(g_row + from);
      uint4 own_x = n < V ? load_words_anywhere(x_row, from, n) : load_words_across(x_row + from);
      RowVectors<T> vectors(means, rstds, row);
      vectors.unpack(own_g, own_x);
#pragma unroll
      for (int i = 0; i < V; i++) {
        gw[i] += vectors.g[i] * vectors.x[i];
        gb[i] += vectors.g[i];
      }
    }
#pragma unroll
  for (int i = 0; i < V; i++) shared[i][threadIdx.x] = {gw[i], gb[i]};
  __syncthreads();
  C* const to = partials + int64_t(blockIdx.y) * 2 * n;
  for (int i = threadIdx.x; i < lanes * V; i += kThreads) {
    const int64_t column = first_of(0) + i;
    if (column >= n) break;
    const Pair<C>* const sums = &shared[column - from_of(first_of(i / V))][i / V];
    Pair<C> total = sums[0];
    for (int t = 1; t < groups; t++) total = AddPairs{}(total, sums[t * lanes]);
    to[column] = total.first;
    to[n + column] = total.second;
  }
}

struct ColumnPlan {
  int32_t lanes;
  int64_t tiles, slices;
};

ColumnPlan plan_columns(const NormBackward& b, const DeviceFacts& facts) {
  const int64_t vectors = ceil_div(b.n, vec16(b.dtype));
  ColumnPlan plan{1, 0, 0};
  while (plan.lanes < 32 && plan.lanes < vectors) plan.lanes *= 2;
  plan.tiles = ceil_div(vectors, plan.lanes);
  const int64_t wanted = ceil_div(int64_t(facts.num_sms) * 6, plan.tiles),
                most = ceil_div(b.rows, kThreads / plan.lanes);
  plan.slices = wanted < most ? wanted : most;
  return plan;
}

// The plan of rows in registers, if they fit.
RowPlan plan_register_rows(const NormBackward& b) {
  const int64_t width = vec16(b.dtype), vectors = ceil_div(b.n + width - 1, width);
  RowPlan plan;
  plan.fits = vectors <= kRowChunks * kThreads;
  if (vectors <= 32 * kRowChunks) {
    plan.group.lanes = 1;
    while (plan.group.lanes * kRowChunks < vectors) plan.group.lanes *= 2;
    plan.blocks = ceil_div(b.rows, plan.threads / plan.group.lanes);
  } else {
    plan.threads = static_cast<int32_t>(round_up(ceil_div(vectors, kRowChunks), 32));
    plan.group.lanes = plan.threads;  // 64 at least: the block
    plan.blocks = b.rows;
  }
  return plan;
}

}  // namespace

int64_t norm_backward_any_partial_rows(const KernelCall& call, const NormBackward& b) {
  return plan_columns(b, *stream_of(call).facts).slices;
}

void norm_backward_any(const KernelCall& call, const NormBackward& b) {
  const Stream& stream = stream_of(call);
  if (b.rows == 0) return;
  dispatch_floating(b.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    using C = compute_t<T>;
    const T *g = static_cast<const T*>(b.g), *x = static_cast<const T*>(b.x);
    const C *means = static_cast<const C*>(b.mean), *rstds = static_cast<const C*>(b.rstd);
    T* gx = static_cast<T*>(b.gx);
    const RowPlan register_plan = plan_register_rows(b);
    if (gx && register_plan.fits)
      launch_rows(register_rows<T>, register_plan, stream.handle, g, x, means, rstds, b.w, gx,
                  b.rows, b.n, register_plan.group);
    else if (gx)
      long_rows<T><<<static_cast<unsigned>(b.rows), kThreads, 0, stream.handle>>>(
          g, x, means, rstds, b.w, gx, b.n);
    if (b.sums) {
      const ColumnPlan plan = plan_columns(b, *stream.facts);
      const dim3 blocks(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.slices));
      any_columns<T><<<blocks, kThreads, 0, stream.handle>>>(
          g, x, means, rstds, static_cast<C*>(b.partials), b.rows, b.n, plan.lanes);
    }
  });
}

}  // namespace shardwise::cuda
