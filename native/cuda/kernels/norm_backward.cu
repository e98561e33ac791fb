// Backward pass of layer norm and rms norm over contiguous rows; those of whole aligned vectors of up to 32 bits an element go to
// norm_ring_backward.cu. With xh = (x - mean) rstd and h = g w:
//
//   gx = rstd (h - mean(h) - xh mean(h xh))   (rms norm: without mean(h)),   gw = sum over rows of g xh,   gb = sum over rows of
//   g
//
// fused    one persistent block per multiprocessor; teams of threads (part of a warp up to the block) walk over rows and hold
//          the gw and gb of their columns in registers, while cp.async brings the next row into shared memory. Each thread
//          reads back only what it copied itself, so the copies need no barrier. 3 passes of memory (read g, x, write gx);
//          at the end every block writes one row of partial sums, at most (multiprocessors x 2n) words, which `partials` adds.
// rows,    the same in two kernels for rows that are unaligned, of odd length or longer than 512 threads hold: gx by a block
// columns  per row, gw and gb by 32 columns x a slice of the rows per block.
// Numerics: float32 sums (float64 for float64) in a fixed order, no atomics; one rounding at the end.
// On an H200, layer norm of bfloat16, microseconds: fused 8192 x 4096 67.1 (norm_ring_backward.cu 62.5), 8192 x 16384 311 (233); rows and
// columns 8192 x 4095 275 (PyTorch 141), 8192 x 16385 1110 (658).
#include "../primitives/async_copy.cuh"
#include "../primitives/overlap.cuh"
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kFusedThreads = 512;

template <class C>
struct Pair {
  C first, second;
};
struct AddPairs {
  template <class C>
  __device__ __forceinline__ Pair<C> operator()(const Pair<C>& a, const Pair<C>& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

// Sum over a team of `lanes` threads: a part of a warp, or whole warps that meet at their own barrier. `shared` has two
// buffers used in turn, so that one barrier per call is enough.
template <class C>
__device__ __forceinline__ Pair<C> team_sum(Pair<C> value, int lanes, int turn, Pair<C> (&shared)[2][kFusedThreads / 32]) {
  for (int mask = (lanes < 32 ? lanes : 32) >> 1; mask > 0; mask >>= 1) value = AddPairs{}(value, shuffle_xor(value, mask));
  if (lanes <= 32) return value;
  const int warp = threadIdx.x >> 5, team = threadIdx.x / lanes, warps = lanes >> 5;
  if ((threadIdx.x & 31) == 0) shared[turn & 1][warp] = value;
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "r"(lanes) : "memory");
  value = shared[turn & 1][team * warps];
  for (int i = 1; i < warps; i++) value = AddPairs{}(value, shared[turn & 1][team * warps + i]);
  return value;
}

template <class T>
__global__ void __launch_bounds__(kFusedThreads, 1)
    norm_backward_fused(const T* g, const T* x, const compute_t<T>* means, const compute_t<T>* rstds, NormVector w, T* gx,
                        compute_t<T>* partials, int64_t rows, int32_t n, int32_t lanes, int32_t chunks) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];  // [2 rows][g, x][chunks][threads]
  __shared__ Pair<C> sums[2][kFusedThreads / 32];
  const int teams = blockDim.x / lanes, team = threadIdx.x / lanes, slot = threadIdx.x - team * lanes;
  const int64_t row_step = int64_t(gridDim.x) * teams, first_row = int64_t(blockIdx.x) * teams;
  auto slot_of = [&](int turn, int operand, int c) -> uint4& {
    return staged[(((turn & 1) * 2 + operand) * chunks + c) * blockDim.x + threadIdx.x];
  };
  auto prefetch = [&](int64_t row, int turn) {
    if (row < rows) {
#pragma unroll
      for (int c = 0; c < kRowChunks; c++) {
        const int first = (slot + c * lanes) * V;
        if (first >= n) break;
        copy_async(&slot_of(turn, 0, c), g + row * n + first);
        copy_async(&slot_of(turn, 1, c), x + row * n + first);
      }
    }
    copy_async_commit();
  };

  C gw[kRowChunks][V], gb[kRowChunks][V];
#pragma unroll
  for (int c = 0; c < kRowChunks; c++)
#pragma unroll
    for (int i = 0; i < V; i++) gw[c][i] = gb[c][i] = C(0);
  const C inverse_n = C(1) / C(n);

  prefetch(first_row + team, 0);
  int turn = 0;
  for (int64_t base = first_row; base < rows; base += row_step, turn++) {  // the same number of rounds for every thread
    const int64_t row = base + team;
    const bool active = row < rows;
    prefetch(row + row_step, turn + 1);
    copy_async_wait<1>();
    const C mean = active && means ? means[row] : C(0), rstd = active ? rstds[row] : C(0);
    Pair<C> total{C(0), C(0)};
    if (gx) {
#pragma unroll
      for (int c = 0; c < kRowChunks; c++) {
        const int first = (slot + c * lanes) * V;
        if (!active || first >= n) break;
        const Vec<T, V> gs = load_vec<V>(reinterpret_cast<const T*>(&slot_of(turn, 0, c)));
        const Vec<T, V> xs = load_vec<V>(reinterpret_cast<const T*>(&slot_of(turn, 1, c)));
        C scale[V];
        load_norm_vector<T>(w, first, n, C(1), scale);
#pragma unroll
        for (int i = 0; i < V; i++) {
          const C h = to_compute<C>(gs[i]) * scale[i];
          total.first += h;
          total.second += h * ((to_compute<C>(xs[i]) - mean) * rstd);
        }
      }
      total = team_sum(total, lanes, turn, sums);
    }
    const C mean_h = means ? total.first * inverse_n : C(0), mean_hx = total.second * inverse_n;
#pragma unroll
    for (int c = 0; c < kRowChunks; c++) {
      const int first = (slot + c * lanes) * V;
      if (!active || first >= n) break;
      const Vec<T, V> gs = load_vec<V>(reinterpret_cast<const T*>(&slot_of(turn, 0, c)));
      const Vec<T, V> xs = load_vec<V>(reinterpret_cast<const T*>(&slot_of(turn, 1, c)));
      C scale[V];
      load_norm_vector<T>(w, first, n, C(1), scale);
      Vec<T, V> out;
#pragma unroll
      for (int i = 0; i < V; i++) {
        const C gi = to_compute<C>(gs[i]), xh = (to_compute<C>(xs[i]) - mean) * rstd;
        gw[c][i] += gi * xh;
        gb[c][i] += gi;
        out[i] = from_compute<T>((gi * scale[i] - mean_h - xh * mean_hx) * rstd);
      }
      if (gx) store_vec<V>(gx + row * n + first, out);
    }
  }
  copy_async_wait<0>();
  if (!partials) return;

  // Teams of one warp add up by shuffles; then warps or teams add into shared memory one after the other.
  for (int mask = lanes; mask < 32; mask <<= 1)
#pragma unroll
    for (int c = 0; c < kRowChunks; c++)
#pragma unroll
      for (int i = 0; i < V; i++) {
        gw[c][i] += shuffle_xor(gw[c][i], mask);
        gb[c][i] += shuffle_xor(gb[c][i], mask);
      }
  C* block_sums = reinterpret_cast<C*>(staged);  // [gw, gb][n]
  const int units = lanes < 32 ? blockDim.x / 32 : teams, unit = lanes < 32 ? threadIdx.x / 32 : team;
  const bool speaks = lanes >= 32 || (threadIdx.x & 31) < lanes;
  for (int u = 0; u < units; u++) {
    __syncthreads();
    if (u != unit || !speaks) continue;
#pragma unroll
    for (int c = 0; c < kRowChunks; c++) {
      const int first = (slot + c * lanes) * V;
      if (first >= n) break;
#pragma unroll
      for (int i = 0; i < V; i++) {
        block_sums[first + i] = (u == 0 ? C(0) : block_sums[first + i]) + gw[c][i];
        block_sums[n + first + i] = (u == 0 ? C(0) : block_sums[n + first + i]) + gb[c][i];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 2 * n; i += blockDim.x) partials[int64_t(blockIdx.x) * 2 * n + i] = block_sums[i];
}

// gx of any rows: a block per row, two walks, element by element.
template <class T>
__global__ void __launch_bounds__(256) norm_backward_rows(const T* g, const T* x, const compute_t<T>* means,
                                                          const compute_t<T>* rstds, NormVector w, T* gx, int64_t n) {
  using C = compute_t<T>;
  __shared__ Pair<C> shared[32];
  const int64_t start = blockIdx.x * n;
  const C mean = means ? means[blockIdx.x] : C(0), rstd = rstds[blockIdx.x];
  auto weight = [&](int64_t i) { return w.data ? load_floating<C>(w.data, i * w.stride, w.dtype) : C(1); };
  Pair<C> total{C(0), C(0)};
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const C h = to_compute<C>(g[start + i]) * weight(i);
    total.first += h;
    total.second += h * ((to_compute<C>(x[start + i]) - mean) * rstd);
  }
  total = block_reduce(total, AddPairs{}, Pair<C>{C(0), C(0)}, shared);
  const C mean_h = means ? total.first / C(n) : C(0), mean_hx = total.second / C(n);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const C h = to_compute<C>(g[start + i]) * weight(i), xh = (to_compute<C>(x[start + i]) - mean) * rstd;
    gx[start + i] = from_compute<T>((h - mean_h - xh * mean_hx) * rstd);
  }
}

// Partial gw and gb of 32 columns and the rows of one slice (blockIdx.y of gridDim.y).
template <class T>
__global__ void __launch_bounds__(256)
    norm_backward_columns(const T* g, const T* x, const compute_t<T>* means, const compute_t<T>* rstds, compute_t<T>* partials,
                          int64_t rows, int64_t n) {
  using C = compute_t<T>;
  __shared__ Pair<C> shared[8][33];
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  Pair<C> total{C(0), C(0)};
  if (column < n)
    for (int64_t row = int64_t(blockIdx.y) * 8 + threadIdx.y; row < rows; row += int64_t(gridDim.y) * 8) {
      const C gi = to_compute<C>(g[row * n + column]);
      total.first += gi * ((to_compute<C>(x[row * n + column]) - (means ? means[row] : C(0))) * rstds[row]);
      total.second += gi;
    }
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y != 0 || column >= n) return;
  for (int i = 1; i < 8; i++) total = AddPairs{}(total, shared[i][threadIdx.x]);
  partials[int64_t(blockIdx.y) * 2 * n + column] = total.first;
  partials[(int64_t(blockIdx.y) * 2 + 1) * n + column] = total.second;
}

constexpr int kSlices = 32;

// gw (blockIdx.y 0) and gb (1): the sums of `count` rows of partials. 32 columns per block, the rows in 32 slices.
template <class C>
__global__ void __launch_bounds__(32 * kSlices)
    norm_partials(const C* partials, int32_t count, int64_t n, void* gw, void* gb, DType dtype) {
  __shared__ C shared[kSlices][33];
  void* to = blockIdx.y == 0 ? gw : gb;
  if (!to) return;
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  C total = C(0);
  let_next_kernel_start();
  wait_for_kernels_before();
  if (column < n)
#pragma unroll 8
    for (int i = threadIdx.y; i < count; i += kSlices) total += partials[(int64_t(i) * 2 + blockIdx.y) * n + column];
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  total = warp_reduce(shared[threadIdx.x][threadIdx.y], SumOp{});  // warp y adds column y
  const int64_t own = int64_t(blockIdx.x) * 32 + threadIdx.y;
  if (threadIdx.x == 0 && own < n) store_any<C>(to, own, dtype, total);
}

void* data_of(const TensorView* view) { return view && !view->is_immediate ? view->data : nullptr; }

}  // namespace

Status norm_backward(const KernelCall& call, const TensorView& g, const TensorView& x, const TensorView* mean,
                     const TensorView& rstd, const TensorView* w, const TensorView* gx_view, const TensorView* gw_view,
                     const TensorView* gb_view, const TensorView* more_view) {
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  void *gx_data = data_of(gx_view), *gw = data_of(gw_view), *gb = data_of(gb_view);
  if (n == 0 || (!gx_data && !gw && !gb)) return kOk;
  if (rows >= (int64_t(1) << 31)) return fail(call.error, Code::Unsupported, "a norm of 2^31 rows or more");
  Stream& stream = stream_of(call);
  const int64_t sms = stream.facts->num_sms;
  const bool sums = gw || gb;
  const DType sum_dtype = gw ? gw_view->dtype : gb ? gb_view->dtype : x.dtype;
  NormBackward ring = {x.dtype, rows, n, g.data, x.data, data_of(mean), rstd.data, norm_vector(w, x.dtype),
                       gx_data, data_of(more_view), sums, nullptr};
  if (const int64_t parts = norm_backward_ring_parts(call, ring)) {
    if (sums && !(ring.partials = static_cast<float*>(stream.workspace(parts * 2 * n * 4, call))))
      return Status{Code::OutOfMemory};
    norm_backward_ring(call, ring);
    if (sums) {
      // Its blocks start as those of the first kernel end, and wait for the last of them: that hides most of a launch.
      const LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(n, 32)), 2), dim3(32, kSlices)};
      launch_overlapped(norm_partials<float>, shape, stream, ring.partials, static_cast<int32_t>(parts), n, gw, gb, sum_dtype);
    }
    return launched(call);
  }
  Status status = kOk;
  const bool found = dispatch_floating(x.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    using C = compute_t<T>;
    constexpr int V = kVec16<T>;
    const T *gs = static_cast<const T*>(g.data), *xs = static_cast<const T*>(x.data);
    const C* means = static_cast<const C*>(data_of(mean));
    const C* rstds = static_cast<const C*>(rstd.data);
    T* gx = static_cast<T*>(gx_data);
    const NormVector wv = norm_vector(w, x.dtype);
    const int64_t vectors = n / V;
    int32_t lanes = 1;
    if (vectors <= 32 * kRowChunks)
      while (lanes < 32 && lanes * 2 < vectors) lanes *= 2;
    else
      lanes = static_cast<int32_t>(round_up(ceil_div(vectors, kRowChunks), 32));
    const int32_t chunks = static_cast<int32_t>(ceil_div(vectors, lanes));
    const int64_t team_bytes = int64_t(4) * chunks * lanes * 16, limit = stream.facts->max_shared_per_block - 1024;
    const bool fused = rows > 0 && n % V == 0 && lanes <= kFusedThreads && team_bytes <= limit && is_aligned(gs, 16) &&
                       is_aligned(xs, 16) && is_aligned(gx, 16);
    int64_t teams = fused ? kFusedThreads / lanes : 8;
    while (fused && teams > 1 && teams * team_bytes > limit) teams--;  // of whole warps: below a warp per team all of them fit
    const int64_t tiles = ceil_div(n, 32);
    int64_t parts = fused ? sms : ceil_div(sms * 8, tiles);
    if (parts > ceil_div(rows, teams)) parts = ceil_div(rows, teams);
    C* partials = nullptr;
    if (sums && parts > 0) {
      partials = static_cast<C*>(stream.workspace(parts * 2 * n * sizeof(C), call));
      if (!partials) {
        status = Status{Code::OutOfMemory};
        return;
      }
    }
    if (fused) {
      const int32_t threads = static_cast<int32_t>(teams * lanes);
      const size_t bytes = static_cast<size_t>(teams * team_bytes);
      allow_shared(norm_backward_fused<T>, bytes);
      norm_backward_fused<T>
          <<<parts, threads, bytes, stream.handle>>>(gs, xs, means, rstds, wv, gx, partials, rows, n, lanes, chunks);
    } else if (rows > 0) {
      if (gx) norm_backward_rows<T><<<rows, 256, 0, stream.handle>>>(gs, xs, means, rstds, wv, gx, n);
      if (sums)
        norm_backward_columns<T><<<dim3(tiles, parts), dim3(32, 8), 0, stream.handle>>>(gs, xs, means, rstds, partials, rows, n);
    }
    if (sums) norm_partials<C><<<dim3(tiles, 2), dim3(32, kSlices), 0, stream.handle>>>(partials, parts, n, gw, gb, sum_dtype);
  });
  if (!found) return unsupported(call, x.dtype);
  if (status.ok() && ring.more) status = add_contiguous(call, gx_data, ring.more, gx_data, x.dtype, x.numel);
  return status.ok() ? launched(call) : status;
}

}  // namespace shardwise::cuda
