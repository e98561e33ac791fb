// softmax, log_softmax and their gradients along the last dim.
//
//   softmax               y  = exp(x - max) / sum(exp(x - max))
//   log_softmax           y  = x - max - log(sum(exp(x - max)))
//   softmax_backward      gx = y (g - sum(g y))
//   log_softmax_backward  gx = g - exp(y) sum(g)
//
// Contiguous rows of whole aligned vectors go to softmax_vectors.cu and softmax_cluster.cu. All
// others (strides, any alignment and length, float64) have three paths, each for both forms (a
// uniform branch picks the form):
//   rows     contiguous last dim, the row fits into the registers of a thread group (row_tile.cuh):
//            part of a warp, a block or a cluster. Reads and writes each element once: 2 passes of
//            memory forward, 3 backward.
//   long     contiguous last dim, longer than that: a block per row reads it twice, the second time
//            from the end, which L2 still has (the gradient by elements, twice from the start).
//   strided  any strides: a block has 32 neighbouring rows by 8 slices of the row, so that softmax
//            over a middle dim (rows are neighbours in memory) is coalesced. Reads rows twice.
// Threads: rows 128 a block for groups within a warp, else enough to hold the row by four vectors
// each, up to 1024 a block (backward 512); long 1024; strided 256.
// Operations: rows 6 an element (comparison, difference, exponential, sum, product, difference),
// long and strided 7 with two exponentials (log_softmax one); backward 4.
// Numerics: float32 (float64 for float64) inside, one rounding at the end. A row of -inf gives NaN;
// NaN and +inf spread over their row. Fixed order of reduction.
// Source: PyTorch's softmax. Technique: running maximum and sum of Milakov and Gimelshein,
// arXiv:1805.02867, for rows that are read twice. On one H200, bf16, rows forward and backward:
// 8192 x 4096 51.1 and 97.0 us (softmax_vectors.cu 33.5, 47.6), 8192 x 16384 253.4 and 468.7
// (142.6, 205.1); float32 2048 x 131072 1708 (softmax_cluster.cu 570). Long, a block a row, bf16,
// 64 x 1048576: 180 (35 % of copy; PyTorch 295). Rows of 8192 x 4095 63 (107), in float64 8192 x
// 4096 159 (301); strided, 8192 x 4096 over dim 0 531 (9655).
// Versions: softmax_vectors.cu and softmax_cluster.cu for whole aligned vectors; no other version
// of these paths was timed.
#include "../../../generated/op_params.h"
#include "../../primitives/row_tile.cuh"
#include "softmax.cuh"

namespace shardwise::cuda {
namespace {

// ---- forward -----------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_rows(const __grid_constant__ RowMap<2> map, const T* x, T* y, uint32_t rows, int32_t n,
                 RowGroup group, bool log_form) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<C> shared;
  const RowPlace place(group);
  const bool active = place.row < rows;
  int64_t at[2];
  map.offsets(active ? place.row : 0, at);
  const T* from = x + at[0];
  T* to = y + at[1];
  const int count = active ? n : 0, shift = row_shift(from);
  auto first_of = [&](int c) { return (place.slot + c * place.stride) * V - shift; };

  C values[kRowChunks][V];
#pragma unroll
  for (int c = 0; c < kRowChunks; c++) {
    const Vec<T, V> raw =
        load_masked<V>(from, first_of(c), count, from_compute<T>(negative_infinity<C>()));
#pragma unroll
    for (int i = 0; i < V; i++) values[c][i] = to_compute<C>(raw[i]);
  }
  C largest = negative_infinity<C>();
#pragma unroll
  for (int c = 0; c < kRowChunks; c++)
#pragma unroll
    for (int i = 0; i < V; i++) largest = row_max(largest, values[c][i]);
  largest = row_reduce(
      largest, [](C a, C b) { return row_max(a, b); }, negative_infinity<C>(), group, shared);

  C sum = C(0);
#pragma unroll
  for (int c = 0; c < kRowChunks; c++)
#pragma unroll
    for (int i = 0; i < V; i++) {
      values[c][i] -= largest;
      const C e = row_exp<T>(values[c][i]);
      sum += e;
      if (!log_form) values[c][i] = e;
    }
  sum = row_reduce(sum, SumOp{}, C(0), group, shared);

  const C scale = log_form ? C(1) : C(1) / sum, offset = log_form ? row_log(sum) : C(0);
#pragma unroll
  for (int c = 0; c < kRowChunks; c++) {
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = from_compute<T>(values[c][i] * scale - offset);
    store_masked<V>(to, first_of(c), count, out);
  }
}

template <class T>
__global__ void __launch_bounds__(1024) softmax_long(const __grid_constant__ RowMap<2> map,
                                                     const T* x, T* y, int64_t n, bool log_form) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<OnlineSum<T>> shared;
  int64_t at[2];
  map.offsets(blockIdx.x, at);
  const T* from = x + at[0];
  T* to = y + at[1];
  const int shift = row_shift(from);
  const int64_t chunks = (n + shift + int64_t(blockDim.x) * V - 1) / (int64_t(blockDim.x) * V);
  auto first_of = [&](int64_t c) { return (c * blockDim.x + threadIdx.x) * V - shift; };

  OnlineSum<T> total = OnlineSum<T>::empty();
  for (int64_t c = 0; c < chunks; c += kRowChunks) {
    Vec<T, V> raw[kRowChunks];
#pragma unroll
    for (int k = 0; k < kRowChunks; k++)
      raw[k] = load_masked<V>(from, first_of(c + k), n, from_compute<T>(negative_infinity<C>()));
#pragma unroll
    for (int k = 0; k < kRowChunks; k++) {
      C values[V];
#pragma unroll
      for (int i = 0; i < V; i++) values[i] = to_compute<C>(raw[k][i]);
      total.add(values);
    }
  }
  const RowGroup group{1024, 1};
  total = row_reduce(total, MergeOnlineSums<T>{}, OnlineSum<T>::empty(), group, shared);
  const C scale = C(1) / total.sum, offset = row_log(total.sum);
  for (int64_t c = chunks - 1; c >= 0; c--) {
    const int64_t first = first_of(c);
    const Vec<T, V> raw = load_masked<V>(from, first, n, from_compute<T>(C(0)));
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++) {
      const C value = to_compute<C>(raw[i]) - total.maximum;
      out[i] = from_compute<T>(log_form ? value - offset : row_exp<T>(value) * scale);
    }
    store_masked<V>(to, first, n, out);
  }
}

constexpr int kStripRows = 32, kStripSlices = 8;

template <class T>
__global__ void __launch_bounds__(kStripRows* kStripSlices)
    softmax_strided(const __grid_constant__ RowMap<2> map, const T* x, T* y, uint32_t rows,
                    int64_t n, int64_t x_step, int64_t y_step, bool log_form) {
  using C = compute_t<T>;
  __shared__ OnlineSum<T> partials[kStripSlices][kStripRows];
  const int lane = threadIdx.x, slice = threadIdx.y;
  const uint32_t row = blockIdx.x * kStripRows + lane;
  const bool active = row < rows;
  int64_t at[2];
  map.offsets(active ? row : 0, at);
  OnlineSum<T> total = OnlineSum<T>::empty();
  if (active)
    for (int64_t e = slice; e < n; e += kStripSlices) {
      const C value[1] = {to_compute<C>(x[at[0] + e * x_step])};
      total.add(value);
    }
  partials[slice][lane] = total;
  __syncthreads();
  if (!active) return;
  total = partials[0][lane];
#pragma unroll
  for (int s = 1; s < kStripSlices; s++) total = MergeOnlineSums<T>{}(total, partials[s][lane]);
  const C scale = C(1) / total.sum, offset = row_log(total.sum);
  for (int64_t e = slice; e < n; e += kStripSlices) {
    const C value = to_compute<C>(x[at[0] + e * x_step]) - total.maximum;
    y[at[1] + e * y_step] = from_compute<T>(log_form ? value - offset : row_exp<T>(value) * scale);
  }
}

Status softmax_forward(const KernelCall& call, bool log_form) {
  const TensorView &x = call.input(0), &y = call.output(0);
  if (x.numel == 0) return kOk;
  Stream& stream = stream_of(call);
  RowSet<2> set;
  if (!describe_rows<2>({&x, &y}, &set))
    return fail(call.error, Code::Unsupported, "softmax of 2^31 rows or more");
  if (x.is_contiguous() && y.is_contiguous()) {
    const SoftmaxRows r = {x.dtype, set.rows, set.n, x.data, nullptr, y.data, log_form};
    if (softmax_vectors_forward(call, r) || softmax_cluster_forward(call, r)) return launched(call);
  }
  const bool found = dispatch_floating(x.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    const T* from = static_cast<const T*>(x.data);
    T* to = static_cast<T*>(y.data);
    const uint32_t rows = static_cast<uint32_t>(set.rows);
    const RowPlan plan =
        plan_rows(set.rows, set.n, kVec16<T>, set.alignment.max_shift, 1024, *stream.facts);
    if (!set.alignment.vectors) {
      softmax_strided<T>
          <<<ceil_div(set.rows, kStripRows), dim3(kStripRows, kStripSlices), 0, stream.handle>>>(
              set.map, from, to, rows, set.n, set.step[0], set.step[1], log_form);
    } else if (plan.fits) {
      launch_rows(softmax_rows<T>, plan, stream.handle, set.map, from, to, rows, set.n, plan.group,
                  log_form);
    } else {
      softmax_long<T><<<rows, 1024, 0, stream.handle>>>(set.map, from, to, set.n, log_form);
    }
  });
  return found ? launched(call) : unsupported(call, x.dtype);
}

// ---- backward ----------------------------------------------------------------------------------

// Both forms are gx = a (g - b) with one sum per row: softmax a = y, b = sum(g y); log_softmax gx =
// g - exp(y) sum(g).
template <class T, class C>
__device__ __forceinline__ C gradient_of(C g, C y, C sum, bool log_form) {
  return log_form ? g - row_exp<T>(y) * sum : y * (g - sum);
}

template <class T>
__global__ void __launch_bounds__(512)
    softmax_backward_rows(const __grid_constant__ RowMap<3> map, const T* g, const T* y, T* gx,
                          uint32_t rows, int32_t n, RowGroup group, bool log_form) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<C> shared;
  const RowPlace place(group);
  const bool active = place.row < rows;
  int64_t at[3];
  map.offsets(active ? place.row : 0, at);
  g += at[0];
  y += at[1];
  gx += at[2];
  const int count = active ? n : 0, shift = row_shift(g);
  auto first_of = [&](int c) { return (place.slot + c * place.stride) * V - shift; };

  Vec<T, V> gs[kRowChunks], ys[kRowChunks];
  const T zero = from_compute<T>(C(0));
#pragma unroll
  for (int c = 0; c < kRowChunks; c++) {
    gs[c] = load_masked<V>(g, first_of(c), count, zero);
    ys[c] = load_masked<V>(y, first_of(c), count, zero);
  }
  C sum = C(0);
#pragma unroll
  for (int c = 0; c < kRowChunks; c++)
#pragma unroll
    for (int i = 0; i < V; i++)
      sum += log_form ? to_compute<C>(gs[c][i]) : to_compute<C>(gs[c][i]) * to_compute<C>(ys[c][i]);
  sum = row_reduce(sum, SumOp{}, C(0), group, shared);
#pragma unroll
  for (int c = 0; c < kRowChunks; c++) {
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++)
      out[i] = from_compute<T>(
          gradient_of<T>(to_compute<C>(gs[c][i]), to_compute<C>(ys[c][i]), sum, log_form));
    store_masked<V>(gx, first_of(c), count, out);
  }
}

// Any strides, any length. A block has `slices` threads per row; the long contiguous case runs as 1
// row by 1024 slices.
template <class T>
__global__ void __launch_bounds__(1024)
    softmax_backward_strided(const __grid_constant__ RowMap<3> map, const T* g, const T* y, T* gx,
                             uint32_t rows, int64_t n, int64_t g_step, int64_t y_step,
                             int64_t gx_step, bool log_form) {
  using C = compute_t<T>;
  __shared__ C partials[1024];
  const int lane = threadIdx.x, slice = threadIdx.y, width = blockDim.x, slices = blockDim.y;
  const uint32_t row = blockIdx.x * width + lane;
  const bool active = row < rows;
  int64_t at[3];
  map.offsets(active ? row : 0, at);
  C sum = C(0);
  if (active)
    for (int64_t e = slice; e < n; e += slices) {
      const C gv = to_compute<C>(g[at[0] + e * g_step]);
      sum += log_form ? gv : gv * to_compute<C>(y[at[1] + e * y_step]);
    }
  partials[slice * width + lane] = sum;
  for (int half = slices >> 1; half > 0; half >>= 1) {
    __syncthreads();
    if (slice < half) partials[slice * width + lane] += partials[(slice + half) * width + lane];
  }
  __syncthreads();
  if (!active) return;
  sum = partials[lane];
  for (int64_t e = slice; e < n; e += slices)
    gx[at[2] + e * gx_step] = from_compute<T>(gradient_of<T>(
        to_compute<C>(g[at[0] + e * g_step]), to_compute<C>(y[at[1] + e * y_step]), sum, log_form));
}

Status softmax_gradient(const KernelCall& call, bool log_form) {
  const TensorView &g = call.input(0), &y = call.input(1), &gx = call.output(0);
  if (y.numel == 0) return kOk;
  Stream& stream = stream_of(call);
  RowSet<3> set;
  if (!describe_rows<3>({&g, &y, &gx}, &set))
    return fail(call.error, Code::Unsupported, "softmax of 2^31 rows or more");
  if (g.is_contiguous() && y.is_contiguous() && gx.is_contiguous()) {
    const SoftmaxRows r = {y.dtype, set.rows, set.n, g.data, y.data, gx.data, log_form};
    if (softmax_vectors_backward(call, r) || softmax_cluster_backward(call, r))
      return launched(call);
  }
  const bool found = dispatch_floating(y.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    const T *gs = static_cast<const T*>(g.data), *ys = static_cast<const T*>(y.data);
    T* to = static_cast<T*>(gx.data);
    const uint32_t rows = static_cast<uint32_t>(set.rows);
    const RowPlan plan =
        plan_rows(set.rows, set.n, kVec16<T>, set.alignment.max_shift, 512, *stream.facts);
    if (set.alignment.vectors && plan.fits) {
      launch_rows(softmax_backward_rows<T>, plan, stream.handle, set.map, gs, ys, to, rows, set.n,
                  plan.group, log_form);
      return;
    }
    const dim3 block = set.alignment.vectors ? dim3(1, 1024) : dim3(kStripRows, kStripSlices);
    softmax_backward_strided<T><<<ceil_div(set.rows, block.x), block, 0, stream.handle>>>(
        set.map, gs, ys, to, rows, set.n, set.step[0], set.step[1], set.step[2], log_form);
  });
  return found ? launched(call) : unsupported(call, y.dtype);
}

}  // namespace

Status softmax(const KernelCall& call) { return softmax_forward(call, false); }
Status log_softmax(const KernelCall& call) { return softmax_forward(call, true); }
Status softmax_backward(const KernelCall& call) { return softmax_gradient(call, false); }
Status log_softmax_backward(const KernelCall& call) { return softmax_gradient(call, true); }

}  // namespace shardwise::cuda
