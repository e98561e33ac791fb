// Backward pass of layer norm and rms norm over contiguous rows: chooses among three kernels, adds
// their partial sums, and has the kernel `fused` for whole aligned vectors that
// norm_ring_backward.cu does not take (float64, weights of another dtype or alignment). With xh =
// (x - mean) rstd and h = g w:
//
//   gx = rstd (h - mean(h) - xh mean(h xh))   (rms norm: without mean(h))
//   gw = sum over rows of g xh,   gb = sum over rows of g
//
//   fused  one persistent block of up to 512 threads per SM; thread groups (part of a warp to the
//          block) go over rows and keep the gw and gb of their columns in registers (up to four
//          vectors a thread), while cp.async loads the next row into shared memory. Some 16
//          operations an element. Each thread reads only what it copied itself, so the copies need
//          no barrier. 3 passes of memory (read g, x, write gx); at the end every block writes one
//          row of partial sums, at most (SMs x 2n) words.
//   any    the other rows (norm_any_backward.cu): gx by a group for each row, gw and gb by columns
// norm_partials adds the rows of partial sums of each kernel: a block has 32 columns, in 32 slices
// of the rows.
// Numerics: float32 sums (float64 for float64) in a fixed order, no atomics; one rounding at the
// end (a gradient `more` added by a separate kernel rounds gx once more).
// Source: the derivative of Ba et al., arXiv:1607.06450, and Zhang and Sennrich, arXiv:1910.07467.
// On an H200, layer norm of bfloat16, us: fused 8192 x 4096 67.1 (norm_ring_backward.cu 62.5), 8192
// x 16384 311 (233).
// Versions: fused in an earlier run 86.6 and 304.5 (norm_ring_backward.cu has both in its table);
// the rows of `any` by elements, in two kernels: 8192 x 4095 275, 8192 x 16385 1110.
#include "../../primitives/async_copy.cuh"
#include "../../primitives/pdl.cuh"
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kFusedThreads = 512;

// Sum over a group of `lanes` threads: a part of a warp, or whole warps with a named barrier.
// `shared` has two buffers used in turn, so that one barrier per call is enough.
template <class C>
__device__ __forceinline__ Pair<C> group_sum(Pair<C> value, int lanes, int turn,
                                             Pair<C> (&shared)[2][kFusedThreads / 32]) {
  for (int mask = (lanes < 32 ? lanes : 32) >> 1; mask > 0; mask >>= 1)
    value = AddPairs{}(value, shuffle_xor(value, mask));
  if (lanes <= 32) return value;
  const int warp = threadIdx.x >> 5, group = threadIdx.x / lanes, warps = lanes >> 5;
  if ((threadIdx.x & 31) == 0) shared[turn & 1][warp] = value;
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(lanes) : "memory");
  value = shared[turn & 1][group * warps];
  for (int i = 1; i < warps; i++) value = AddPairs{}(value, shared[turn & 1][group * warps + i]);
  return value;
}

template <class T>
__global__ void __launch_bounds__(kFusedThreads, 1)
    norm_backward_fused(const T* g, const T* x, const compute_t<T>* means,
                        const compute_t<T>* rstds, NormVector w, T* gx, compute_t<T>* partials,
                        int64_t rows, int32_t n, int32_t lanes, int32_t chunks) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];  // [2 rows][g, x][chunks][threads]
  __shared__ Pair<C> sums[2][kFusedThreads / 32];
  const int groups = blockDim.x / lanes, group = threadIdx.x / lanes,
            slot = threadIdx.x - group * lanes;
  const int64_t row_step = int64_t(gridDim.x) * groups, first_row = int64_t(blockIdx.x) * groups;
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

  prefetch(first_row + group, 0);
  int turn = 0;
  // every thread takes the same number of rounds
  for (int64_t base = first_row; base < rows; base += row_step, turn++) {
    const int64_t row = base + group;
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
        load_norm_vector<T, true>(w, first, n, C(1), scale);
#pragma unroll
        for (int i = 0; i < V; i++) {
          const C h = to_compute<C>(gs[i]) * scale[i];
          total.first += h;
          total.second += h * ((to_compute<C>(xs[i]) - mean) * rstd);
        }
      }
      total = group_sum(total, lanes, turn, sums);
    }
    const C mean_h = means ? total.first * inverse_n : C(0), mean_hx = total.second * inverse_n;
#pragma unroll
    for (int c = 0; c < kRowChunks; c++) {
      const int first = (slot + c * lanes) * V;
      if (!active || first >= n) break;
      const Vec<T, V> gs = load_vec<V>(reinterpret_cast<const T*>(&slot_of(turn, 0, c)));
      const Vec<T, V> xs = load_vec<V>(reinterpret_cast<const T*>(&slot_of(turn, 1, c)));
      C scale[V];
      load_norm_vector<T, true>(w, first, n, C(1), scale);
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

  // Groups within a warp add up by shuffles; then warps or groups add into shared memory one after
  // the other.
  for (int mask = lanes; mask < 32; mask <<= 1)
#pragma unroll
    for (int c = 0; c < kRowChunks; c++)
#pragma unroll
      for (int i = 0; i < V; i++) {
        gw[c][i] += shuffle_xor(gw[c][i], mask);
        gb[c][i] += shuffle_xor(gb[c][i], mask);
      }
  C* block_sums = reinterpret_cast<C*>(staged);  // [gw, gb][n]
  const int units = lanes < 32 ? blockDim.x / 32 : groups,
            unit = lanes < 32 ? threadIdx.x / 32 : group;
  const bool is_leader = lanes >= 32 || (threadIdx.x & 31) < lanes;
  for (int u = 0; u < units; u++) {
    __syncthreads();
    if (u != unit || !is_leader) continue;
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
  for (int i = threadIdx.x; i < 2 * n; i += blockDim.x)
    partials[int64_t(blockIdx.x) * 2 * n + i] = block_sums[i];
}

constexpr int kSlices = 32;

// gw (blockIdx.y 0) and gb (1): the sums of `count` rows of partials. 32 columns per block, the
// rows in 32 slices.
template <class C>
__global__ void __launch_bounds__(32 * kSlices)
    norm_partials(const C* partials, int32_t count, int64_t n, void* gw, void* gb, DType dtype) {
  __shared__ C shared[kSlices][33];
  void* to = blockIdx.y == 0 ? gw : gb;
  if (!to) return;
  const int64_t column = int64_t(blockIdx.x) * 32 + threadIdx.x;
  C total = C(0);
  pdl_launch_dependents();
  pdl_wait();
  if (column < n)
#pragma unroll 8
    for (int i = threadIdx.y; i < count; i += kSlices)
      total += partials[(int64_t(i) * 2 + blockIdx.y) * n + column];
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  total = warp_reduce(shared[threadIdx.x][threadIdx.y], SumOp{});  // warp y adds column y
  const int64_t own = int64_t(blockIdx.x) * 32 + threadIdx.y;
  if (threadIdx.x == 0 && own < n) store_any<C>(to, own, dtype, total);
}

struct FusedPlan {
  int32_t lanes, chunks;
  int64_t groups, group_bytes, partial_rows;  // no partial rows: `fused` does not take the rows
};

FusedPlan plan_fused(const NormBackward& b, const DeviceFacts& facts) {
  const int64_t width = vec16(b.dtype), vectors = b.n / width;
  FusedPlan plan{};
  if (b.rows == 0 || b.n % width != 0) return plan;
  for (const void* rows : {b.g, b.x, static_cast<const void*>(b.gx)})
    if (!is_aligned(rows, 16)) return plan;
  plan.lanes = 1;
  if (vectors <= 32 * kRowChunks)
    while (plan.lanes < 32 && plan.lanes * 2 < vectors) plan.lanes *= 2;
  else
    plan.lanes = static_cast<int32_t>(round_up(ceil_div(vectors, kRowChunks), 32));
  plan.chunks = static_cast<int32_t>(ceil_div(vectors, plan.lanes));
  plan.group_bytes = int64_t(4) * plan.chunks * plan.lanes * 16;
  const int64_t limit = facts.max_shared_per_block - 1024;
  if (plan.lanes > kFusedThreads || plan.group_bytes > limit) return plan;
  plan.groups = kFusedThreads / plan.lanes;
  // groups of whole warps; smaller groups always fit
  while (plan.groups > 1 && plan.groups * plan.group_bytes > limit) plan.groups--;
  const int64_t rounds = ceil_div(b.rows, plan.groups);
  plan.partial_rows = rounds < facts.num_sms ? rounds : facts.num_sms;
  return plan;
}

int64_t fused_partial_rows(const KernelCall& call, const NormBackward& b) {
  return plan_fused(b, *stream_of(call).facts).partial_rows;
}

void fused(const KernelCall& call, const NormBackward& b) {
  const FusedPlan plan = plan_fused(b, *stream_of(call).facts);
  const auto threads = static_cast<unsigned>(plan.groups * plan.lanes);
  const auto bytes = static_cast<size_t>(plan.groups * plan.group_bytes);
  dispatch_floating(b.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    using C = compute_t<T>;
    allow_shared(norm_backward_fused<T>, bytes);
    norm_backward_fused<T>
        <<<static_cast<unsigned>(plan.partial_rows), threads, bytes, stream_of(call).handle>>>(
            static_cast<const T*>(b.g), static_cast<const T*>(b.x), static_cast<const C*>(b.mean),
            static_cast<const C*>(b.rstd), b.w, static_cast<T*>(b.gx), static_cast<C*>(b.partials),
            b.rows, static_cast<int32_t>(b.n), plan.lanes, plan.chunks);
  });
}

void* data_of(const TensorView* view) { return view && !view->is_immediate ? view->data : nullptr; }

}  // namespace

Status norm_backward(const KernelCall& call, const NormGradients& v) {
  const TensorView& x = v.x;
  const int64_t rows = x.sizes[0], n = x.sizes[1];
  void *gx = data_of(v.gx), *gw = data_of(v.gw), *gb = data_of(v.gb);
  if (n == 0 || (!gx && !gw && !gb)) return kOk;
  if (rows >= (int64_t(1) << 31))
    return fail(call.error, Code::Unsupported, "a norm of 2^31 rows or more");
  if (!v.low.is_immediate && !is_low(v.low.dtype)) return unsupported(call, v.low.dtype);
  NormBackward b = {x.dtype,
                    rows,
                    n,
                    v.g.data,
                    x.data,
                    data_of(v.mean),
                    v.rstd.data,
                    norm_vector(v.w, x.dtype),
                    gx,
                    data_of(v.more),
                    gw || gb,
                    nullptr,
                    low_rows(v.low)};
  Stream& stream = stream_of(call);
  if (!is_floating(x.dtype)) return unsupported(call, x.dtype);

  auto* run = norm_backward_ring;
  int64_t partial_rows = norm_backward_ring_partial_rows(call, b);
  if (partial_rows == 0) partial_rows = fused_partial_rows(call, b), run = fused;
  if (partial_rows == 0)
    partial_rows = norm_backward_any_partial_rows(call, b), run = norm_backward_any;
  const int64_t sum_bytes = x.dtype == DType::Float64 ? 8 : 4;
  if (b.sums && partial_rows > 0 &&
      !(b.partials = stream.workspace(partial_rows * 2 * n * sum_bytes, call)))
    return Status{Code::OutOfMemory};
  run(call, b);
  if (b.sums)
    dispatch_floating(x.dtype, [&](auto tag) {
      using C = compute_t<tag_t<decltype(tag)>>;
      // By PDL its blocks start while the previous kernel ends, and wait for its last block: that
      // hides most of a launch.
      const LaunchShape shape{dim3(static_cast<unsigned>(ceil_div(n, 32)), 2), dim3(32, kSlices)};
      launch_pdl(norm_partials<C>, shape, stream, static_cast<const C*>(b.partials),
                 static_cast<int32_t>(partial_rows), n, gw, gb, gw ? v.gw->dtype : v.gb->dtype);
    });
  if (!gx || run == norm_backward_ring) return launched(call);
  if (b.more)
    if (const Status status = add_contiguous(call, gx, b.more, gx, x.dtype, x.numel); !status.ok())
      return status;
  return b.low.data ? round_contiguous(call, gx, x.dtype, b.low, x.numel) : launched(call);
}

}  // namespace shardwise::cuda
