// cross_entropy over contiguous rows of whole 16-byte vectors (float32, float16, bfloat16) without
// label smoothing, the common case; cross_entropy.cu has the formulas and all other rows.
//
//   loss      one read: a block for a row, running maximum and sum per thread, eight vectors in
//             flight; of some classes lse and score
//   gradient  one read and one write from lse: blocks of 1024 vectors, four in flight a thread
//   both      loss and gradient from one read and one write: a cluster of up to 8 blocks keeps a
//             row in its shared memory (row_sum.cuh), three blocks an SM; clusters of several
//             blocks are persistent and refill each used slot with the next row. 4 bytes for a
//             bf16 logit, against 6 of separate loss and gradient and 14 of a float32 copy of the
//             logits.
// Operations: some 10 instructions an element, two of them exponentials in `both`.
// Numerics: float32; loss and lse are float32, the gradient is rounded once. Losses are relative to
// the largest logit; statistics are float64. Fixed order of summation, no atomics.
// Technique: as cross_entropy.cu; `both` keeps a row in the memory of a cluster.
// Versions, bf16 8192 x 128256 on one H200, us:
//                                         cross_entropy.cu   this
//   loss                                  815                471 (4.46 TB/s, reads only)
//   gradient                              1574               1034 (96 % of copy)
//   loss, then gradient                   2442               1512
//   both at once                                             1217 (81 %)
// Versions of `both`:
//   evict-first stores (1218 in the same run)                                 1242
//   blocks that end with their row                                            1248
//   each block waits for its whole slice                                      1270
//   persistent clusters with 256, 320, 448 threads a block                    1228, 1240, 1582
//   8 blocks of 192 or 256 threads                                            1304 to 1660
//   one block an SM, three rows in flight, exponentials kept in registers     1485
//   the same, second half of a row after the first half of the next           1594, 1651
//   8192 x 32000, a block a row; persistent                                   262; 285
// Three small blocks overlap better than one large.
#include "../../primitives/row_sum.cuh"
#include "cross_entropy.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kInFlight = 8, kLossThreads = 256;              // loss
constexpr int kGradientInFlight = 4, kGradientThreads = 256;  // gradient
// bytes of a row in a block: three blocks on a multiprocessor
constexpr int64_t kSlice = 66 * 1024;

struct Targets {
  const int64_t* at;
  int64_t stride, ignore_index, classes;
  int64_t first_class, columns;  // of the logits
  CrossEntropyStatistics statistics;
  const void* weights;  // of classes, or null
  int64_t weights_stride;
  DType weights_dtype;
  IndexErrorSink errors;

  // The class of a row, or -1 if the row does not count.
  __device__ __forceinline__ int64_t of(int64_t row, bool reports) const {
    const int64_t t = at[row * stride];
    if (t == ignore_index) return -1;
    if (t >= 0 && t < classes) return t;
    if (reports) errors.report(t, classes, row);
    return -1;
  }
  // The logit of class t; 0 if the row does not count or has no column for it.
  template <class T>
  __device__ __forceinline__ float logit(const uint4* row, int64_t t) const {
    const int64_t column = t - first_class;
    if (t < 0 || column < 0 || column >= columns) return 0.0f;
    return to_compute<float>(reinterpret_cast<const T*>(row)[column]);
  }
  __device__ __forceinline__ float weight(int64_t t) const {
    return weights ? load_floating<float>(weights, t * weights_stride, weights_dtype) : 1.0f;
  }
};

// Writes loss and lse, or the statistics; called by one thread of a row with target t, whose logit
// is `picked`.
template <class T>
__device__ __forceinline__ void finish_loss(const OnlineSum<T>& total, float picked, int64_t t,
                                            int64_t index, const Targets& targets, float scale,
                                            float* loss, float* lse) {
  const float base = base_of(total.maximum), rest = logf(total.sum) + (total.maximum - base);
  if (targets.statistics.score) {
    targets.statistics.lse[index] = double(base) + double(rest);
    targets.statistics.score[index] = t < 0 ? 0.0 : double(targets.weight(t)) * double(picked);
    return;
  }
  if (lse) lse[index] = base + rest;
  // without targets: inf 0
  if (loss) loss[index] = scale * (t < 0 ? 0.0f : targets.weight(t) * (rest - (picked - base)));
}

template <class T>
__global__ void __launch_bounds__(kLossThreads, 4)
    loss_rows(const uint4* x, int64_t row_vectors, int32_t vectors,
              const __grid_constant__ Targets targets, const RowFactor<float> scale, float* loss,
              float* lse) {
  constexpr int V = kVec16<T>;
  __shared__ OnlineSumScratch shared;
  const int64_t index = blockIdx.x;
  const uint4* row = x + index * row_vectors;
  OnlineSum<T> total = OnlineSum<T>::empty();
  int32_t v = threadIdx.x;
  for (; v + (kInFlight - 1) * kLossThreads < vectors; v += kInFlight * kLossThreads) {
    uint4 raw[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; k++) raw[k] = __ldcs(row + v + k * kLossThreads);
#pragma unroll
    for (int k = 0; k < kInFlight; k++) {
      float values[V];
      unpack<T>(raw[k], values);
      total.add(values);
    }
  }
  for (; v < vectors; v += kLossThreads) {
    float values[V];
    unpack<T>(__ldcs(row + v), values);
    total.add(values);
  }
  total = merge_all(total, 1, shared);
  if (threadIdx.x != 0) return;
  const int64_t t = targets.of(index, true);
  finish_loss(total, targets.logit<T>(row, t), t, index, targets, scale.of(index), loss, lse);
}

// exp(v - base) `factor` of one vector, less `hit` in the column of the target.
template <class T>
__device__ __forceinline__ uint4 gradient_of(const uint4& raw, const RowExponential<T>& exponential,
                                             float factor, float hit, int64_t v, int64_t column) {
  constexpr int V = kVec16<T>;
  float values[V];
  unpack<T>(raw, values);
#pragma unroll
  for (int i = 0; i < V; i++) values[i] = exponential(values[i]) * factor;
  if (v == column / V) {
#pragma unroll
    for (int i = 0; i < V; i++)
      if (i == column % V) values[i] -= hit;  // never if the column is negative
  }
  return pack<T>(values);
}

template <class T>
__global__ void __launch_bounds__(kGradientThreads, 5)
    gradient_rows(const uint4* x, int64_t row_vectors, int32_t vectors,
                  const RowFactor<float> factors, const float* lse, int64_t lse_stride,
                  const __grid_constant__ Targets targets, uint4* gx, int32_t blocks_per_row) {
  const int64_t index = blockIdx.x / blocks_per_row;
  const int32_t chunk = static_cast<int32_t>(blockIdx.x - index * blocks_per_row);
  const int32_t first = chunk * kGradientInFlight * kGradientThreads + threadIdx.x;
  const uint4* row = x + index * row_vectors;
  uint4 raw[kGradientInFlight];
#pragma unroll
  for (int k = 0; k < kGradientInFlight; k++) {
    const int32_t v = first + k * kGradientThreads;
    if (v < vectors) raw[k] = __ldcs(row + v);
  }
  const int64_t t = targets.of(index, chunk == 0 && threadIdx.x == 0);
  const float hit = t < 0 ? 0.0f : factors.of(index) * targets.weight(t);
  const RowExponential<T> exponential(lse[index * lse_stride]);
  uint4* to = gx + index * vectors;
#pragma unroll
  for (int k = 0; k < kGradientInFlight; k++) {
    const int32_t v = first + k * kGradientThreads;
    if (v >= vectors) break;
    __stcs(to + v, t < 0
                       ? make_uint4(0, 0, 0, 0)
                       : gradient_of<T>(raw[k], exponential, hit, hit, v, t - targets.first_class));
  }
}

template <class T, bool kPersistent>
__global__ void __launch_bounds__(slice_threads(kPersistent), 3)
    both_rows(const uint4* x, int64_t row_vectors, int64_t rows, int32_t vectors,
              const RowFactor<float> factors, const __grid_constant__ Targets targets, float* loss,
              float* lse, uint4* gx, int32_t cluster) {
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];
  __shared__ OnlineSumScratch shared;
  const ClusterRows places(cluster);
  const RowSlice<slice_threads(kPersistent)> slice(vectors, cluster, places.rank);
  const bool is_leader = places.rank == 0 && threadIdx.x == 0;
  slice.fetch(staged, x + places.first * row_vectors);
  int64_t index = places.first;
  do {
    const uint4* row = x + index * row_vectors;
    const int64_t t = targets.of(index, is_leader);
    const float picked = is_leader ? targets.logit<T>(row, t) : 0.0f;
    const float scale = factors.of(index), hit = t < 0 ? 0.0f : scale * targets.weight(t);
    OnlineSum<T> total = OnlineSum<T>::empty();
    slice.as_they_arrive([&](int32_t v) {
      float values[V];
      unpack<T>(staged[v], values);
      total.add(values);
    });
    if (kPersistent && index != places.first)
      cluster_wait();  // until all blocks have read the scratch of merge_all
    total = merge_all(total, cluster, shared);
    if (is_leader) finish_loss(total, picked, t, index, targets, scale, loss, lse);
    const RowExponential<T> exponential(total.maximum);
    const float factor = hit / total.sum;
    uint4* to = gx + index * vectors + slice.begin;
    const auto put = [&](int32_t v) {
      to[v] = t < 0 ? make_uint4(0, 0, 0, 0)
                    : gradient_of<T>(staged[v], exponential, factor, hit, v + slice.begin, t);
    };
    if constexpr (kPersistent)
      slice.use_and_refill(
          staged, index + places.step < rows ? row + places.step * row_vectors : nullptr, put);
    else
      slice.use(put);
    index += places.step;
  } while (kPersistent && index < rows);
  if (cluster > 1) cluster_wait();
}

Targets targets_of(const KernelCall& call, const CrossEntropyRows& r) {
  return {static_cast<const int64_t*>(r.target->data),
          r.target->strides[0],
          r.ignore_index,
          r.classes,
          r.first_class,
          r.x->sizes[1],
          CrossEntropyStatistics(r),
          r.weight->is_immediate ? nullptr : r.weight->data,
          r.weight->is_immediate ? 1 : r.weight->strides[0],
          r.weight->dtype,
          stream_of(call).index_errors(call)};
}

// Vectors of a row, or 0 if these kernels do not take the rows.
int64_t vectors_of(const CrossEntropyRows& r) {
  const TensorView& x = *r.x;
  if (x.dtype == DType::Float64 || x.strides[1] != 1 || !is_aligned(x.data, 16)) return 0;
  const int64_t width = vec16(x.dtype), vectors = x.sizes[1] / width;
  if (x.sizes[1] % width != 0 || x.strides[0] % width != 0 || vectors >= (1 << 30)) return 0;
  return vectors;
}

const float* floats(const TensorView* view) {
  return view && !view->is_immediate ? static_cast<const float*>(view->data) : nullptr;
}

}  // namespace

bool cross_entropy_loss_rows(const KernelCall& call, const CrossEntropyRows& r) {
  const int64_t vectors = vectors_of(r), rows = r.x->sizes[0];
  if (vectors < kLossThreads) return false;
  return dispatch_packed(r.x->dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    loss_rows<T><<<static_cast<unsigned>(rows), kLossThreads, 0, stream_of(call).handle>>>(
        static_cast<const uint4*>(r.x->data), r.x->strides[0] / kVec16<T>,
        static_cast<int32_t>(vectors), targets_of(call, r), RowFactor<float>(r),
        r.scores ? nullptr : const_cast<float*>(floats(r.loss)),
        r.scores ? nullptr : const_cast<float*>(floats(r.lse)));
  });
}

bool cross_entropy_gradient_rows(const KernelCall& call, const CrossEntropyRows& r) {
  const int64_t vectors = vectors_of(r), rows = r.x->sizes[0];
  const int64_t blocks_per_row = ceil_div(vectors, kGradientInFlight * kGradientThreads);
  if (vectors < kGradientThreads || !is_aligned(r.gx->data, 16) || r.lse->dtype != DType::Float32)
    return false;
  if (rows * blocks_per_row >= (int64_t(1) << 31)) return false;
  return dispatch_packed(r.x->dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    gradient_rows<T><<<static_cast<unsigned>(rows * blocks_per_row), kGradientThreads, 0,
                       stream_of(call).handle>>>(
        static_cast<const uint4*>(r.x->data), r.x->strides[0] / kVec16<T>,
        static_cast<int32_t>(vectors), RowFactor<float>(r), floats(r.lse), r.lse->strides[0],
        targets_of(call, r), static_cast<uint4*>(r.gx->data), static_cast<int32_t>(blocks_per_row));
  });
}

bool cross_entropy_both_rows(const KernelCall& call, const CrossEntropyRows& r) {
  const int64_t vectors = vectors_of(r), rows = r.x->sizes[0];
  if (vectors < kLossThreads || !is_aligned(r.gx->data, 16)) return false;
  const int32_t cluster = slice_cluster(vectors, kSlice, *stream_of(call).facts);
  if (cluster == 0 || rows * cluster >= (int64_t(1) << 31)) return false;
  return dispatch_packed(r.x->dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    with_persistence(cluster, [&](auto persistent) {
      launch_slices<persistent.value>(
          both_rows<T, persistent.value>, rows, vectors, cluster, stream_of(call),
          static_cast<const uint4*>(r.x->data), r.x->strides[0] / kVec16<T>, rows,
          static_cast<int32_t>(vectors), RowFactor<float>(r), targets_of(call, r),
          const_cast<float*>(floats(r.loss)), const_cast<float*>(floats(r.lse)),
          static_cast<uint4*>(r.gx->data), cluster);
    });
  });
}

}  // namespace shardwise::cuda
