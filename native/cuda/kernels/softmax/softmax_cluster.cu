// softmax and log_softmax over long contiguous rows of whole 16-byte vectors (float32, float16,
// bfloat16): longer than the registers of a block (softmax_vectors.cu), up to 8 times the shared
// memory of an SM.
//
// Layout: a cluster of up to 8 blocks for a row, each with a slice of it in shared memory
// (row_sum.cuh). Slices are small enough for three blocks an SM, so that loads, exponentials and
// stores of different rows overlap. The blocks exchange their maximum and sum once, through
// distributed shared memory. Without clusters (sm_80) a block takes rows that fit its shared
// memory. The gradient has slices of both g and y, in clusters of up to 16 blocks.
// Bytes: x and y once; g, y and gx once. Operations: two exponentials an element, one for the sum
// and one for the result.
// Numerics: as softmax_vectors.cu, with a running maximum. Fixed order of summation.
// Technique: running maximum and sum of Milakov and Gimelshein, arXiv:1805.02867; rows in the
// memory of a cluster as in QuACK's softmax for Hopper.
// Versions, softmax of float32 2048 x 131072 on one H200, us:
//   rows in the registers of 8 blocks of 1024 threads (softmax_rows)              1708
//   slices in shared memory, each block waits for its whole slice                 667
//   vectors used as they arrive, one exchange between the blocks (81 % of copy)   623
//   persistent clusters that refill used slots with the next row, 512 threads     600
//     the same with 384 threads (86 %); with 256                                  586; 584
//     the same with more and smaller blocks                                       605 to 739
//     the same with stores that L2 may keep (88 %)                                570
//     the same, each warp sends its sums to all blocks, counted by mbarriers      613
//   persistent clusters of one block an SM, two rows in flight                    756
//     the same, first half of the next row before the second half of this one     702 to 718
// The gradient: 1491 and 1071 (71 %).
#include "softmax.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = slice_threads(false);
constexpr int64_t kSlice = 66 * 1024;  // bytes of a slice: three blocks an SM

template <class T, bool kPersistent>
__global__ void __launch_bounds__(slice_threads(kPersistent), 3)
    softmax_slices(const uint4* x, uint4* y, int64_t rows, int32_t vectors, int32_t cluster,
                   bool log_form) {
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];
  __shared__ OnlineSumScratch shared;
  const ClusterRows places(cluster);
  const RowSlice<slice_threads(kPersistent)> slice(vectors, cluster, places.rank);
  slice.fetch(staged, x + places.first * vectors);
  int64_t row = places.first;
  do {
    OnlineSum<T> total = OnlineSum<T>::empty();
    slice.as_they_arrive([&](int32_t v) {
      float values[V];
      unpack<T>(staged[v], values);
      total.add(values);
    });
    if (kPersistent && row != places.first)
      cluster_wait();  // until all blocks have read the scratch of merge_all
    total = merge_all(total, cluster, shared);
    const RowExponential<T> exponential(total.maximum);
    const float scale = 1.0f / total.sum, offset = logf(total.sum);
    uint4* to = y + row * vectors + slice.begin;
    const auto put = [&](int32_t v) {
      float values[V];
      unpack<T>(staged[v], values);
#pragma unroll
      for (int i = 0; i < V; i++)
        values[i] = log_form ? values[i] - total.maximum - offset : exponential(values[i]) * scale;
      to[v] = pack<T>(values);
    };
    if constexpr (kPersistent)
      slice.use_and_refill(
          staged, row + places.step < rows ? x + (row + places.step) * vectors : nullptr, put);
    else
      slice.use(put);
    row += places.step;
  } while (kPersistent && row < rows);
  if (cluster > 1) cluster_wait();
}

template <class T>
__global__ void __launch_bounds__(kThreads, 3)
    softmax_slices_gradient(const uint4* g, const uint4* y, uint4* gx, int32_t vectors,
                            int32_t cluster, bool log_form) {
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];
  __shared__ float shared[32];
  const int64_t row = blockIdx.x / cluster;
  const RowSlice<kThreads> slice(vectors, cluster,
                                 static_cast<int32_t>(blockIdx.x - row * cluster));
  uint4* staged_y = staged + (vectors + cluster - 1) / cluster;
  slice.fetch(staged_y, y + row * vectors);
  slice.fetch(staged, g + row * vectors);  // arrives after y
  float sum = 0.0f;
  slice.as_they_arrive([&](int32_t v) {
    float gs[V], ys[V];
    unpack<T>(staged[v], gs);
    unpack<T>(staged_y[v], ys);
    float partial = 0.0f;
#pragma unroll
    for (int i = 0; i < V; i++) partial += log_form ? gs[i] : gs[i] * ys[i];
    sum += partial;
  });
  sum = sum_all(sum, cluster, shared);
  const RowExponential<T> exponential(0.0f);
  uint4* to = gx + row * vectors + slice.begin;
#pragma unroll 2
  for (int32_t v = threadIdx.x; v < slice.own; v += kThreads) {
    float gs[V], ys[V];
    unpack<T>(staged[v], gs);
    unpack<T>(staged_y[v], ys);
#pragma unroll
    for (int i = 0; i < V; i++)
      gs[i] = log_form ? gs[i] - exponential(ys[i]) * sum : ys[i] * (gs[i] - sum);
    to[v] = pack<T>(gs);
  }
  if (cluster > 1) cluster_wait();
}

}  // namespace

bool softmax_cluster_forward(const KernelCall& call, const SoftmaxRows& r) {
  Stream& stream = stream_of(call);
  const int64_t width = vec16(r.dtype), vectors = r.n / width;
  if (r.n % width != 0 || !is_aligned(r.first, 16) || !is_aligned(r.out, 16) ||
      vectors >= (int64_t(1) << 31))
    return false;
  const int32_t cluster = slice_cluster(vectors, kSlice, *stream.facts);
  if (cluster == 0 || r.rows * cluster >= (int64_t(1) << 31)) return false;
  return dispatch_packed(r.dtype, [&](auto tag) {
    with_persistence(cluster, [&](auto persistent) {
      launch_slices<persistent.value>(
          softmax_slices<tag_t<decltype(tag)>, persistent.value>, r.rows, vectors, cluster, stream,
          static_cast<const uint4*>(r.first), static_cast<uint4*>(r.out), r.rows,
          static_cast<int32_t>(vectors), cluster, r.log_form);
    });
  });
}

bool softmax_cluster_backward(const KernelCall& call, const SoftmaxRows& r) {
  Stream& stream = stream_of(call);
  const int64_t width = vec16(r.dtype), vectors = r.n / width;
  if (r.n % width != 0 || !is_aligned(r.first, 16) || !is_aligned(r.second, 16) ||
      !is_aligned(r.out, 16))
    return false;
  if (r.dtype == DType::Float64 || vectors >= (int64_t(1) << 30)) return false;
  const int32_t cluster = slice_cluster(2 * vectors, kSlice, *stream.facts, 16);
  if (cluster == 0 || r.rows * cluster >= (int64_t(1) << 31)) return false;
  return dispatch_packed(r.dtype, [&](auto tag) {
    launch_slices<false>(
        softmax_slices_gradient<tag_t<decltype(tag)>>, r.rows, 2 * round_up(vectors, cluster),
        cluster, stream, static_cast<const uint4*>(r.first), static_cast<const uint4*>(r.second),
        static_cast<uint4*>(r.out), static_cast<int32_t>(vectors), cluster, r.log_form);
  });
}

}  // namespace shardwise::cuda
