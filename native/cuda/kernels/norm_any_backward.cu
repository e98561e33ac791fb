// Backward pass of layer norm and rms norm over contiguous rows of any alignment and length; norm_backward.cu has the formulas.
//
// rows     gx: a team of a row (row_tile.cuh: part of a warp, else a block) walks over it twice, for the sums and for gx, in the vectors
//          of gx; the second walk finds most of g and x in L1.
// columns  gw and gb: a thread has a vector of columns, at the same place in every row, and walks over a slice of the rows; a block adds up
//          its threads in shared memory and writes a row of partial sums.
// Rows that do not begin on 16-byte boundaries are read by the two vectors around each (load_part_anywhere).
// Bytes: g and x twice, gx once; 2 n words of partials for each slice.
// Numerics: float32 sums (float64 for float64) in an order fixed by the shape and the device, no atomics; one rounding at the end.
// Source: as norm_backward.cu.
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;

// V elements of g, and of x where it is centered and scaled: both 0 outside the row.
template <class T>
struct RowOperands {
  using C = compute_t<T>;
  static constexpr int V = kVec16<T>;
  const T *g, *x;
  C mean, rstd;

  __device__ __forceinline__ void load(int64_t first, int64_t n, C (&gs)[V], C (&xs)[V]) const {
    const T nothing = from_compute<T>(C(0));
    const Vec<T, V> raw_g = load_part_anywhere<V>(g, first, n, nothing), raw_x = load_part_anywhere<V>(x, first, n, nothing);
#pragma unroll
    for (int i = 0; i < V; i++) {
      gs[i] = to_compute<C>(raw_g[i]);
      xs[i] = (to_compute<C>(raw_x[i]) - mean) * rstd;
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    any_rows(const T* g, const T* x, const compute_t<T>* means, const compute_t<T>* rstds, NormVector w, T* gx, int64_t rows,
             int64_t n, RowTeam team) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ RowScratch<Pair<C>> shared;
  const RowPlace place(team);
  const bool active = place.row < rows;
  const int64_t row = active ? place.row : 0, start = row * n, end = active ? n : 0;
  const RowOperands<T> operands{g + start, x + start, means ? means[row] : C(0), rstds[row]};
  T* to = gx + start;
  const int64_t begin = int64_t(place.slot) * V - row_shift(to), step = int64_t(place.stride) * V;
  C gs[V], xs[V], scale[V];
  Pair<C> total{C(0), C(0)};
  for (int64_t first = begin; first < end; first += step) {
    operands.load(first, n, gs, xs);
    load_norm_vector<T>(w, first, n, C(1), scale);
#pragma unroll
    for (int i = 0; i < V; i++) {
      total.first += gs[i] * scale[i];
      total.second += gs[i] * scale[i] * xs[i];
    }
  }
  total = row_reduce(total, AddPairs{}, Pair<C>{C(0), C(0)}, team, shared);
  const C mean_h = means ? total.first / C(n) : C(0), mean_hx = total.second / C(n);
  for (int64_t first = begin; first < end; first += step) {
    operands.load(first, n, gs, xs);
    load_norm_vector<T>(w, first, n, C(1), scale);
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++) out[i] = from_compute<T>((gs[i] * scale[i] - mean_h - xs[i] * mean_hx) * operands.rstd);
    store_part<V>(to, first, n, out);
  }
}

// The columns of blockIdx.x in the rows of slice blockIdx.y; `lanes` threads side by side, a power of two of up to 32.
template <class T>
__global__ void __launch_bounds__(kThreads) any_columns(const T* g, const T* x, const compute_t<T>* means,
                                                        const compute_t<T>* rstds, compute_t<T>* partials, int64_t rows,
                                                        int64_t n, int32_t lanes) {
  using C = compute_t<T>;
  constexpr int V = kVec16<T>;
  __shared__ Pair<C> shared[V][kThreads];
  const int lane = threadIdx.x & (lanes - 1), team = threadIdx.x / lanes, teams = kThreads / lanes;
  const int64_t first = (int64_t(blockIdx.x) * lanes + lane) * V;
  C gw[V] = {}, gb[V] = {};
  if (first < n)
#pragma unroll 2
    for (int64_t row = int64_t(blockIdx.y) * teams + team; row < rows; row += int64_t(gridDim.y) * teams) {
      C gs[V], xs[V];
      RowOperands<T>{g + row * n, x + row * n, means ? means[row] : C(0), rstds[row]}.load(first, n, gs, xs);
#pragma unroll
      for (int i = 0; i < V; i++) {
        gw[i] += gs[i] * xs[i];
        gb[i] += gs[i];
      }
    }
#pragma unroll
  for (int i = 0; i < V; i++) shared[i][threadIdx.x] = {gw[i], gb[i]};
  __syncthreads();
  C* const to = partials + int64_t(blockIdx.y) * 2 * n;
  for (int i = threadIdx.x; i < lanes * V; i += kThreads) {
    const int from = i / V, element = i % V;
    const int64_t column = int64_t(blockIdx.x) * lanes * V + i;
    if (column >= n) break;
    Pair<C> total = shared[element][from];
    for (int t = 1; t < teams; t++) total = AddPairs{}(total, shared[element][t * lanes + from]);
    to[column] = total.first;
    to[n + column] = total.second;
  }
}

struct ColumnPlan {
  int32_t lanes;
  int64_t tiles, slices;
};

ColumnPlan plan_columns(const NormBackward& b, const DeviceFacts& facts) {
  const int64_t vectors = ceil_div(b.n, 16 / item_size(b.dtype));
  ColumnPlan plan{1, 0, 0};
  while (plan.lanes < 32 && plan.lanes < vectors) plan.lanes *= 2;
  plan.tiles = ceil_div(vectors, plan.lanes);
  const int64_t wanted = ceil_div(int64_t(facts.num_sms) * 6, plan.tiles), most = ceil_div(b.rows, kThreads / plan.lanes);
  plan.slices = wanted < most ? wanted : most;
  return plan;
}

RowPlan plan_any_rows(const NormBackward& b) {
  const int64_t width = 16 / item_size(b.dtype), vectors = ceil_div(b.n + width - 1, width);
  RowPlan plan;
  plan.team.lanes = 1;
  while (plan.team.lanes < 32 && plan.team.lanes * 2 < vectors) plan.team.lanes *= 2;
  plan.threads = vectors <= 128 ? 128 : kThreads;
  if (vectors > 128) plan.team.lanes = plan.threads;  // the block
  plan.blocks = vectors > 128 ? b.rows : ceil_div(b.rows, plan.threads / plan.team.lanes);
  return plan;
}

}  // namespace

int64_t norm_backward_any_parts(const KernelCall& call, const NormBackward& b) {
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
    if (b.gx) {
      const RowPlan plan = plan_any_rows(b);
      launch_rows(any_rows<T>, plan, stream.handle, g, x, means, rstds, b.w, static_cast<T*>(b.gx), b.rows, b.n, plan.team);
    }
    if (b.sums) {
      const ColumnPlan plan = plan_columns(b, *stream.facts);
      const dim3 blocks(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.slices));
      any_columns<T><<<blocks, kThreads, 0, stream.handle>>>(g, x, means, rstds, static_cast<C*>(b.partials), b.rows, b.n, plan.lanes);
    }
  });
}

}  // namespace shardwise::cuda
