// Rows in the registers of groups that take one row each: the simplest mapping, best if many blocks
// fit on an SM. Blocks start in the order of the rows, so the rows in progress are neighbours in
// memory; persistent groups (row_ring.cuh) drift apart, which costs some 10 % of the bandwidth for
// rows of 8 KB.
//
// A group is `lanes` threads of a warp (a power of two), or a block. Vector v of a row (16 bytes)
// belongs to thread v % lanes. For rows of whole vectors on 16-byte boundaries.
#pragma once
#include <type_traits>

#include "pdl.cuh"
#include "row_ring.cuh"

namespace shardwise::cuda {

// at most, for a row per block: four vectors each
constexpr int kDirectBlock = 256;
constexpr int kDirectWarpThreads = 128;  // for a row per group within a warp

struct DirectPlace {
  int64_t row;
  int32_t slot;
  __device__ __forceinline__ DirectPlace(bool block, int32_t lanes) {
    if (block) {
      row = blockIdx.x;
      slot = threadIdx.x;
    } else {
      row = static_cast<int64_t>(blockIdx.x) * (kDirectWarpThreads / lanes) + threadIdx.x / lanes;
      slot = threadIdx.x & (lanes - 1);
    }
  }
};

// kEvictFirst: loads and stores have evict-first hints for L2. On an H200 no hint is 2 to 5 %
// faster, except for the norms' rows of warps, where operands of some 25 MB are 10 % faster with
// hints (softmax, of 64 MB: 35.0 us, and 33.5 without). Hints for only loads or only stores are the
// slowest.
template <bool kEvictFirst>
__device__ __forceinline__ uint4 load_once(const uint4* from) {
  return kEvictFirst ? __ldcs(from) : *from;
}
template <bool kEvictFirst>
__device__ __forceinline__ void store_once(uint4* to, const uint4& value) {
  if constexpr (kEvictFirst)
    __stcs(to, value);
  else
    *to = value;
}

// The vectors of a thread; zeros beyond the row.
template <bool kEvictFirst, int kChunks>
__device__ __forceinline__ void load_row(const uint4* row, int32_t slot, int32_t lanes,
                                         int32_t vectors, uint4 (&out)[kChunks]) {
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int32_t v = slot + c * lanes;
    out[c] = v < vectors ? load_once<kEvictFirst>(row + v) : make_uint4(0, 0, 0, 0);
  }
}

template <int V>
__device__ __forceinline__ float tree_sum(const float (&v)[V]) {
  float sums[V / 2];
#pragma unroll
  for (int i = 0; i < V / 2; i++) sums[i] = v[i] + v[i + V / 2];
  if constexpr (V == 2)
    return sums[0];
  else
    return tree_sum<V / 2>(sums);
}

__device__ __forceinline__ float lanes_sum(float value, int lanes) {
  for (int mask = lanes >> 1; mask > 0; mask >>= 1)
    value += __shfl_xor_sync(kFullWarp, value, mask);
  return value;
}

// Gives every thread of a block the values that the warps wrote to `shared`: lane l that of warp l.
// `width` is the power of two over which lanes may then reduce. Lanes without a warp get `nothing`.
template <class A>
__device__ __forceinline__ A exchange_warps(A own, A nothing, A (&shared)[32], int& width) {
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
  if (lane == 0) shared[threadIdx.x >> 5] = own;
  __syncthreads();
  width = warps > 1 ? 1 << (32 - __clz(warps - 1)) : 1;
  const int from = lane & (width - 1);
  return from < warps ? shared[from] : nothing;
}

// Rows of warps use as few lanes as hold a row in four vectors each: fewer shuffles an element.
inline RingPlan plan_direct(int64_t vectors) {
  RingPlan plan = plan_ring(vectors, 4, kDirectBlock);
  if (plan.block || plan.lanes == 0) return plan;
  plan.threads = kDirectWarpThreads;
  for (plan.lanes = 1; plan.lanes * 4 < vectors;) plan.lanes *= 2;
  plan.chunks = static_cast<int32_t>(ceil_div(vectors, plan.lanes));
  return plan;
}

// Calls body(chunks, block): the shape of a direct plan as integral constants.
template <class F>
inline void with_direct_shape(const RingPlan& plan, F&& body) {
  using std::integral_constant;
  if (plan.block) return body(integral_constant<int, 4>{}, std::true_type{});
  switch (plan.chunks) {
    case 1:
      return body(integral_constant<int, 1>{}, std::false_type{});
    case 2:
      return body(integral_constant<int, 2>{}, std::false_type{});
    case 3:
      return body(integral_constant<int, 3>{}, std::false_type{});
    default:
      return body(integral_constant<int, 4>{}, std::false_type{});
  }
}

// Chooses the kernel for rows of `vectors` vectors: a group for each row if its registers hold it,
// else persistent blocks with two vectors a thread. direct(chunks, block) returns a kernel of
// `args` and the lanes of a group, started by PDL (pdl.cuh); `ring` is a kernel of `args` with
// `ring_bytes` of shared memory a thread. Returns false if the rows are too long, or a block does
// not fit.
template <class Direct, class RingKernel, class... Args>
inline bool launch_direct_or_ring(const Stream& stream, int64_t rows, int64_t vectors,
                                  Direct&& direct, RingKernel* ring, int64_t ring_bytes,
                                  Args... args) {
  const RingPlan plan = plan_direct(vectors);
  if (plan.lanes > 0) {
    const dim3 blocks = blocks_of(ceil_div(rows, plan.groups()));
    with_direct_shape(plan, [&](auto chunks, auto block) {
      launch_pdl(direct(chunks, block), {blocks, static_cast<unsigned>(plan.threads)}, stream,
                 args..., plan.lanes);
    });
    return true;
  }
  const RingPlan persistent = plan_ring(vectors, 2, 1024);
  if (persistent.lanes == 0) return false;
  const int64_t bytes = ring_bytes * persistent.threads;
  const int64_t blocks = ring_blocks(ring, persistent, bytes, rows, 1, *stream.facts);
  if (blocks == 0) return false;
  ring<<<static_cast<unsigned>(blocks), persistent.threads, bytes, stream.handle>>>(args...);
  return true;
}

}  // namespace shardwise::cuda
