// softmax and log_softmax over long contiguous rows of whole 16-byte vectors (float32, float16, bfloat16): longer than a block holds in
// registers (softmax_vectors.cu), up to 8 times the shared memory of a multiprocessor.
//
// Layout: a cluster of up to 8 blocks for a row, each with a slice of it in shared memory (row_sum.cuh); the slices are small enough
// for three blocks on a multiprocessor, so that loads, exponentials and stores of different rows overlap. The blocks exchange their
// maximum and sum once, through distributed shared memory. Without clusters (sm_80) a block holds what it can.
// Bytes: x and y once. Two exponentials an element: one for the sum, one for the result.
// Numerics: as softmax_vectors.cu, with a running maximum. Fixed order of summation.
#include "softmax.cuh"

namespace shardwise::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kSliceThreads, 3)
    softmax_slices(const uint4* x, uint4* y, int32_t vectors, int32_t cluster, bool log_form) {
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];
  __shared__ RunningSumScratch shared;
  const int64_t row = blockIdx.x / cluster;
  const RowSlice slice(vectors, cluster, static_cast<int32_t>(blockIdx.x - row * cluster));
  slice.fetch(staged, x + row * vectors);
  RunningSum<T> total;
  slice.as_they_arrive([&](int32_t v) {
    float values[V];
    unpack<T>(staged[v], values);
    total.add(values);
  });
  total = merge_all(total, cluster, shared);
  const RowExponential<T> exponential(total.maximum);
  const float scale = 1.0f / total.sum, offset = logf(total.sum);
  uint4* to = y + row * vectors + slice.begin;
#pragma unroll 2
  for (int32_t v = threadIdx.x; v < slice.own; v += kSliceThreads) {
    float values[V];
    unpack<T>(staged[v], values);
#pragma unroll
    for (int i = 0; i < V; i++) values[i] = log_form ? values[i] - total.maximum - offset : exponential(values[i]) * scale;
    __stcs(to + v, pack<T>(values));
  }
  if (cluster > 1) cluster_wait();
}

}  // namespace

bool softmax_cluster_forward(const KernelCall& call, const SoftmaxRows& r) {
  Stream& stream = stream_of(call);
  const int64_t width = 16 / item_size(r.dtype), vectors = r.n / width;
  if (r.n % width != 0 || !is_aligned(r.first, 16) || !is_aligned(r.out, 16) || vectors >= (int64_t(1) << 31)) return false;
  const int32_t cluster = slice_cluster(vectors, *stream.facts);
  if (cluster == 0 || r.rows * cluster >= (int64_t(1) << 31)) return false;
  return dispatch_packed(r.dtype, [&](auto tag) {
    launch_slices(softmax_slices<tag_t<decltype(tag)>>, r.rows, vectors, cluster, stream.handle, static_cast<const uint4*>(r.first),
                  static_cast<uint4*>(r.out), static_cast<int32_t>(vectors), cluster, r.log_form);
  });
}

}  // namespace shardwise::cuda
