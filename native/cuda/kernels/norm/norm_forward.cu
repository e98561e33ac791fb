// Forward pass of layer norm and rms norm over contiguous rows x[rows, n], of any alignment and
// length, and of float64; rows of whole aligned vectors go to norm_vectors_forward.cu.
//
//   mean = sum(x) / n (0 for rms norm), rstd = 1 / sqrt(sum((x - mean)^2) / n + eps)
//   y = (x - mean) rstd w + b, and y in 16 bits, too or alone, if that is wanted
//
//   rows  the row stays in the registers of a group (row_tile.cuh: part of a warp, a block, a
//         cluster): mean, then the squared deviations from the registers. 2 passes of memory (read
//         x, write y); w and b come from L1/L2.
//   long  longer rows: a block merges per-vector (count, mean, M2) triples by Chan's formula in one
//         pass, then goes back over the row: x twice
// Numerics: float32 (float64 for float64), two-pass variance, never E[x^2] - E[x]^2. mean and rstd
// are kept in that type, y is rounded once. The shape, the device and the alignment of a row of x
// fix the order of sums. Unaligned rows: x by its vectors, w and b by the two vectors around each
// (row_words.cuh); some 45 instructions an element.
// Source: Ba et al., arXiv:1607.06450; Zhang and Sennrich, arXiv:1910.07467; PyTorch's layer_norm
// and rms_norm. On an H200, layer norm of bfloat16, us (PyTorch): 8192 x 4095 76 (167), 8192 x
// 16385 367 (550), 32768 x 300 41 (50), 65536 x 100 26 (71), 100 x 200001 78 (482).
// Versions of the first two: w and b by elements 177 and 770; w and b in vectors, but rows as
// elements and their ends by branches 92 and 497; words instead of elements 80 and 388.
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

__device__ __forceinline__ float inverse_sqrt(float v) { return 1.0f / sqrtf(v); }
__device__ __forceinline__ double inverse_sqrt(double v) { return 1.0 / sqrt(v); }

// Elements [first, first + V) of y from those of x. Loads one of w and b at a time, to save
// registers.
template <class T, class C, class Index>
__device__ __forceinline__ uint4 scaled(const uint4& x, C mean, C rstd, const NormVector& w,
                                        const NormVector& b, Index first, Index n) {
  constexpr int V = kVec16<T>;
  C values[V], other[V];
  unpack_words<T>(x, values);
  load_norm_vector<T>(w, first, n, C(1), other);
#pragma unroll
  for (int i = 0; i < V; i++) values[i] = (values[i] - mean) * rstd * other[i];
  load_norm_vector<T>(b, first, n, C(0), other);
#pragma unroll
  for (int i = 0; i < V; i++) values[i] += other[i];
  return pack_words<T>(values);
}

template <class T>
__global__ void __launch_bounds__(1024)
    norm_rows(const T* x, NormVector w, NormVector b, T* y, LowRows low, compute_t<T>* mean_out,
              compute_t<T>* rstd_out, uint32_t rows, int32_t n, double eps, RowGroup group,
              bool centered, bool vectors) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<C> shared;
  const RowPlace place(group);
  const bool active = place.row < rows;
  const T* from = x + int64_t(active ? place.row : 0) * n;
  const int count = active ? n : 0, shift = row_shift(from);
  auto first_of = [&](int c) { return (place.slot + c * place.stride) * V - shift; };

  uint4 raw[kRowChunks];
  C values[V];
#pragma unroll
  for (int c = 0; c < kRowChunks; c++) raw[c] = load_words(from, first_of(c), count);
  const C inverse_n = C(1) / C(n);
  C mean = C(0);
  if (centered) {
    C sum = C(0);
#pragma unroll
    for (int c = 0; c < kRowChunks; c++) {
      unpack_words<T>(raw[c], values);
#pragma unroll
      for (int i = 0; i < V; i++) sum += values[i];
    }
    mean = row_reduce(sum, SumOp{}, C(0), group, shared) * inverse_n;
  }
  C squares = C(0);
#pragma unroll
  for (int c = 0; c < kRowChunks; c++) {
    const int first = first_of(c);
    if (first >= count) break;
    keep_packed(raw[c]);
    unpack_words<T>(raw[c], values);
    if (first >= 0 && first + V <= count) {
#pragma unroll
      for (int i = 0; i < V; i++) squares += (values[i] - mean) * (values[i] - mean);
    } else {
#pragma unroll
      for (int i = 0; i < V; i++)
        if (first + i >= 0 && first + i < count) squares += (values[i] - mean) * (values[i] - mean);
    }
  }
  const C variance = row_reduce(squares, SumOp{}, C(0), group, shared) * inverse_n;
  const C rstd = inverse_sqrt(variance + C(eps));
  if (!active) return;
  if (place.slot == 0) {
    if (mean_out) mean_out[place.row] = mean;
    if (rstd_out) rstd_out[place.row] = rstd;
  }
  const int64_t start = int64_t(place.row) * n;
#pragma unroll
  for (int c = 0; c < kRowChunks; c++) {
    const int first = first_of(c);
    if (first >= count) break;
    keep_packed(raw[c]);
    const uint4 words = scaled<T>(raw[c], mean, rstd, w, b, first, count);
    if (y) store_words(y + start, first, count, words, vectors);
    store_low<T>(low, start, first, count, words);
  }
}

// Count, mean and sum of squared deviations. For rms norm the mean stays 0.
template <class C>
struct Moments {
  C count, mean, squares;
};

template <class C>
struct MergeMoments {
  bool centered;
  __device__ __forceinline__ Moments<C> operator()(const Moments<C>& a, const Moments<C>& b) const {
    const C count = a.count + b.count;
    if (!centered) return {count, C(0), a.squares + b.squares};
    if (count == C(0)) return a;
    const C delta = b.mean - a.mean, part = b.count / count;
    return {count, a.mean + delta * part, a.squares + b.squares + delta * delta * a.count * part};
  }
};

template <class T>
__global__ void __launch_bounds__(1024)
    norm_long(const T* x, NormVector w, NormVector b, T* y, LowRows low, compute_t<T>* mean_out,
              compute_t<T>* rstd_out, int64_t n, double eps, bool centered, bool vectors) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<Moments<C>> shared;
  const int64_t start = blockIdx.x * n;
  const T* from = x + start;
  const int shift = row_shift(from);
  const int64_t chunks = (n + shift + int64_t(blockDim.x) * V - 1) / (int64_t(blockDim.x) * V);
  auto first_of = [&](int64_t c) { return (c * blockDim.x + threadIdx.x) * V - shift; };

  const MergeMoments<C> merge{centered};
  Moments<C> total{C(0), C(0), C(0)};
  for (int64_t c = 0; c < chunks; c++) {
    const int64_t first = first_of(c);
    C values[V];
    unpack_words<T>(load_words(from, first, n), values);
    Moments<C> part{C(0), C(0), C(0)};
#pragma unroll
    for (int i = 0; i < V; i++) {
      if (first + i >= 0 && first + i < n) part.count += C(1);
      part.mean += values[i];
    }
    part.mean = centered && part.count > C(0) ? part.mean / part.count : C(0);
#pragma unroll
    for (int i = 0; i < V; i++)
      if (first + i >= 0 && first + i < n)
        part.squares += (values[i] - part.mean) * (values[i] - part.mean);
    total = merge(total, part);
  }
  total = row_reduce(total, merge, Moments<C>{C(0), C(0), C(0)}, RowGroup{1024, 1}, shared);
  const C mean = total.mean, rstd = inverse_sqrt(total.squares / C(n) + C(eps));
  if (threadIdx.x == 0) {
    if (mean_out) mean_out[blockIdx.x] = mean;
    if (rstd_out) rstd_out[blockIdx.x] = rstd;
  }
  for (int64_t c = chunks - 1; c >= 0; c--) {
    const int64_t first = first_of(c);
    if (first >= n) continue;
    const uint4 words = scaled<T>(load_words(from, first, n), mean, rstd, w, b, first, n);
    if (y) store_words(y + start, first, n, words, vectors);
    store_low<T>(low, start, first, n, words);
  }
}

}  // namespace

Status norm_forward(const KernelCall& call, const TensorView& x, const TensorView* w,
                    const TensorView* b, const NormOutputs& to, double eps) {
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  if (rows == 0) return kOk;
  if (rows >= (int64_t(1) << 31))
    return fail(call.error, Code::Unsupported, "a norm of 2^31 rows or more");
  if (!to.low.is_immediate && !is_low(to.low.dtype)) return unsupported(call, to.low.dtype);
  Stream& stream = stream_of(call);
  const NormVector wv = norm_vector(w, x.dtype), bv = norm_vector(b, x.dtype);
  const LowRows low = low_rows(to.low);
  const bool centered = to.mean != nullptr;
  if (norm_forward_vectors(call, {x.dtype, rows, n, x.data, wv, bv, data_or_null(to.y),
                                  centered ? to.mean->data : nullptr, to.rstd.data, eps, centered,
                                  nullptr, nullptr, low, x.dtype}))
    return launched(call);
  const bool found = dispatch_floating(x.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    using C = compute_t<T>;
    constexpr int V = kVec16<T>;
    C* mean_out = centered ? static_cast<C*>(to.mean->data) : nullptr;
    C* rstd_out = static_cast<C*>(to.rstd.data);
    const T* from = static_cast<const T*>(x.data);
    T* y = static_cast<T*>(data_or_null(to.y));
    const bool aligned = is_aligned(from, 16) && is_aligned(y, 16) && n % V == 0;
    const bool vectors =
        (reinterpret_cast<uintptr_t>(from) - reinterpret_cast<uintptr_t>(y)) % 16 == 0;
    const RowPlan plan = plan_rows(rows, n, V, aligned ? 0 : V - 1, 1024, *stream.facts);
    if (plan.fits)
      launch_rows(norm_rows<T>, plan, stream.handle, from, wv, bv, y, low, mean_out, rstd_out, rows,
                  n, eps, plan.group, centered, vectors);
    else
      norm_long<T><<<rows, 1024, 0, stream.handle>>>(from, wv, bv, y, low, mean_out, rstd_out, n,
                                                     eps, centered, vectors);
  });
  return found ? launched(call) : unsupported(call, x.dtype);
}

}  // namespace shardwise::cuda
