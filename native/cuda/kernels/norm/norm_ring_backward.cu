// Backward pass of layer norm and rms norm over rows of whole 16-byte vectors (float32, float16,
// bfloat16), the common case. With xh = (x - mean) rstd and h = g w:
//
//   gx = rstd (h - mean(h) - xh mean(h xh))   (rms norm: without mean(h))
//   gw = sum over rows of g xh,   gb = sum over rows of g
//
// `more`, the gradient of a residual connection, is added to gx from the same ring; float32 gx is
// also written in 16 bits, if that is wanted.
// Layout: persistent thread groups (row_ring.cuh): warps for rows of up to 128 vectors, else blocks
// with 2 or 4 vectors a thread. Each thread keeps the gw and gb of its columns in registers over
// all rows of its group. A block writes one row of partial sums at the end (warps first add up in
// shared memory), which norm_partials (norm_backward.cu) adds.
// Bytes: g, x once, gx once; 2 n words of partials for each of at most 3 blocks an SM. Operations:
// some 22 instructions an element, of 41 in the time that the memory of an H200 takes.
// Numerics: float32 sums in an order fixed by the shape and the device, no atomics; one rounding at
// the end.
// Technique: the number of partial rows does not grow with the rows, as in QuACK's norms for Hopper
// and Apex's; written for this library.
// Versions, layer norm of bf16 on one H200, us:
//                                                 32768 x 4096   8192 x 4096   8192 x 16384
//   norm_backward_fused (norm_backward.cu)        268.9          86.6          304.5
//   w from L1 for long rows, plain second launch  222.8          67.2          264.7
//   w in shared memory, second launch by PDL      216.9 (87 %)   64.4 (74 %)   237.5 (80 %)
//   neighbouring rows for a block, not strided    222.3          63.5          234.1  no clear gain
//   clusters of two add up: half the partials     213 (89 %)     63 (76 %)     231 (82 %)
//   clusters of four: some wait for others        367            115
// The rest of 8192 x 4096: gx alone takes 57.8 us, 51 of them at the rate of 32768 rows. Of 8192 x
// 16384 gx takes 220; the rest is the partial sums and the second kernel. Single batches of 8192 x
// 4096 once took up to 126 us, attributed to a third block on an SM while the previous kernel ends
// (shared memory that admits none: 62.1 against 61.5); none of the five pairs in
// docs/performance.md did. With `more`, rms norm of bf16 16384 x 4096: 133 us (95 %).
#include "../../primitives/hopper.cuh"
#include "../../primitives/packed.cuh"
#include "../../primitives/pdl.cuh"
#include "../../primitives/row_ring.cuh"
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kWarpThreads = 256;
constexpr int stages_of(int chunks) { return chunks == 4 ? 3 : 4; }

template <int kChunks, bool kAdds>
using Ring = RowRing<kAdds ? 3 : 2, kChunks, stages_of(kChunks)>;

__device__ __forceinline__ int32_t blocks_of_cluster() {
#if SW_SM90A
  return cluster_size();
#else
  return 1;
#endif
}

// Adds the sums of the blocks of a cluster, `count` at the same offset in their shared memory. Each
// block adds a share of them, in the order of the blocks.
__device__ __forceinline__ void add_up_cluster(const float* sums, float* out, int32_t count,
                                               int32_t members) {
#if SW_SM90A
  cluster_sync();
  for (int32_t i = (cluster_rank() * blockDim.x + threadIdx.x) * 4; i < count;
       i += members * blockDim.x * 4) {
    float4 total = load_from_cluster(shared_address(sums + i), 0);
    for (int32_t r = 1; r < members; r++) {
      const float4 other = load_from_cluster(shared_address(sums + i), r);
      total =
          make_float4(total.x + other.x, total.y + other.y, total.z + other.z, total.w + other.w);
    }
    *reinterpret_cast<float4*>(out + i) = total;
  }
  cluster_sync();  // other blocks may still read
#endif
}

// kBlockThreads 0: groups are warps or parts of warps. kAdds: `more` is added to gx.
template <class T, bool kAdds, int kChunks, int kBlockThreads>
__global__ void __launch_bounds__(kBlockThreads ? kBlockThreads : kWarpThreads, kBlockThreads ? 1
                                                                                : kChunks > 2 ? 2
                                                                                              : 3)
    norm_backward_ring_rows(const uint4* g, const uint4* x, const uint4* more, const float* means,
                            const float* rstds, const uint4* w, uint4* gx, LowRows low,
                            float* partials, int64_t rows, int32_t vectors, int32_t lanes) {
  constexpr int V = kVec16<T>, kStages = stages_of(kChunks);
  constexpr bool kBlock = kBlockThreads != 0, kInRegisters = kChunks < 4 || !kBlock;
  extern __shared__ uint4 staged[];
  __shared__ float shared[2][2][32];
  pdl_wait();
  const Ring<kChunks, kAdds> ring{staged};
  const RingPlace place(lanes);
  float gw[kChunks][V], gb[kChunks][V];
  uint4 scale[kInRegisters ? kChunks : 1];
  // if registers are too few; each thread reads its own
  uint4* weights = staged + Ring<kChunks, kAdds>::bytes(1) / 16 * blockDim.x;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int v = place.slot + c * lanes;
    (kInRegisters ? scale[c] : weights[c * blockDim.x + threadIdx.x]) =
        w && v < vectors ? w[v] : packed_splat<T>(1);
#pragma unroll
    for (int i = 0; i < V; i++) gw[c][i] = gb[c][i] = 0.0f;
  }
  auto scale_of = [&](int c, float(&out)[V]) {
    if constexpr (kInRegisters) {
      keep_packed(scale[c]);
      unpack<T>(scale[c], out);
    } else {
      unpack<T>(weights[c * blockDim.x + threadIdx.x], out);
    }
  };
  auto prefetch = [&](int64_t row, int stage) {
    if (row < rows) {
      if constexpr (kAdds)
        ring.fetch(stage, {g + row * vectors, x + row * vectors, more + row * vectors}, place.slot,
                   lanes, vectors);
      else
        ring.fetch(stage, {g + row * vectors, x + row * vectors}, place.slot, lanes, vectors);
    }
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; s++) prefetch(place.first + s * place.step, s);
  const float inverse_n = 1.0f / static_cast<float>(vectors * V);
  const int64_t block_first = kBlock ? place.first : place.first - threadIdx.x / lanes;
  const bool centered = means != nullptr;
  const uint4 nothing = make_uint4(0, 0, 0, 0);
  int stage = 0, turn = 0;
  for (int64_t base = block_first; base < rows; base += place.step) {
    const int64_t row = base + (place.first - block_first);
    const bool active = kBlock || row < rows;
    const float mean = active && centered ? means[row] : 0.0f, rstd = active ? rstds[row] : 0.0f;
    prefetch(row + (kStages - 1) * place.step, (stage + kStages - 1) % kStages);
    copy_async_wait<kStages - 1>();
    const float offset = -mean * rstd;
    float total[2] = {0.0f, 0.0f};
    if (gx) {
#pragma unroll
      for (int c = 0; c < kChunks; c++) {
        const bool mine = active && place.slot + c * lanes < vectors;
        float gs[V], xs[V], ws[V];
        unpack<T>(mine ? *ring.at(stage, 0, c) : nothing, gs);
        unpack<T>(mine ? *ring.at(stage, 1, c) : nothing, xs);
        scale_of(c, ws);
#pragma unroll
        for (int i = 0; i < V; i++) {
          const float h = gs[i] * ws[i];
          total[0] += h;
          total[1] += h * (xs[i] * rstd + offset);
        }
      }
      ring_sum<kBlock>(total, lanes, turn, shared);
    }
    const float mean_h = centered ? total[0] * inverse_n : 0.0f, mean_hx = total[1] * inverse_n;
    // gx = h rstd - xh (mean_hx rstd) - mean_h rstd
    const float a = -mean_hx * rstd, b = -mean_h * rstd;
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = place.slot + c * lanes;
      const bool mine = active && v < vectors;
      float gs[V], xs[V], ws[V];
      unpack<T>(mine ? *ring.at(stage, 0, c) : nothing, gs);
      unpack<T>(mine ? *ring.at(stage, 1, c) : nothing, xs);
      scale_of(c, ws);
#pragma unroll
      for (int i = 0; i < V; i++) {
        const float xh = xs[i] * rstd + offset;
        gw[c][i] += gs[i] * xh;
        gb[c][i] += gs[i];
        ws[i] = gs[i] * (ws[i] * rstd) + (xh * a + b);
      }
      if constexpr (kAdds) {
        float others[V];
        unpack<T>(mine ? *ring.at(stage, 2, c) : nothing, others);
#pragma unroll
        for (int i = 0; i < V; i++) ws[i] += others[i];
      }
      if (gx && mine) {
        __stcs(gx + row * vectors + v, pack<T>(ws));
        if constexpr (V == 4)
          if (low.data) store_low(low, row * vectors + v, ws);
      }
    }
    stage = (stage + 1) % kStages;
  }
  copy_async_wait<0>();
  if (!partials) return;
  pdl_launch_dependents();

  const int32_t n = vectors * V, members = kBlock ? blocks_of_cluster() : 1;
  float* out = partials + static_cast<int64_t>(blockIdx.x / members) * 2 * n;
  auto put = [&](float* to, const float(&values)[kChunks][V]) {
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = place.slot + c * lanes;
      if (v < vectors)
#pragma unroll
        for (int i = 0; i < V; i += 4)
          *reinterpret_cast<float4*>(to + v * V + i) =
              make_float4(values[c][i], values[c][i + 1], values[c][i + 2], values[c][i + 3]);
    }
  };
  if (kBlock && members == 1) {
    put(out, gw);
    put(out + n, gb);
  } else if constexpr (kBlock) {
    float* sums = reinterpret_cast<float*>(staged);  // [gw, gb][n], of this block
    __syncthreads();
    put(sums, gw);
    put(sums + n, gb);
    add_up_cluster(sums, out, 2 * n, members);
  } else {
    for (int mask = lanes; mask < 32; mask <<= 1)
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int i = 0; i < V; i++) {
          gw[c][i] += __shfl_xor_sync(kFullWarp, gw[c][i], mask);
          gb[c][i] += __shfl_xor_sync(kFullWarp, gb[c][i], mask);
        }
    float* warps = reinterpret_cast<float*>(staged);  // [warp][gw, gb][n]
    __syncthreads();
    if ((threadIdx.x & 31) < lanes) {
      put(warps + (threadIdx.x >> 5) * 2 * n, gw);
      put(warps + ((threadIdx.x >> 5) * 2 + 1) * n, gb);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * n; i += kWarpThreads) {
      float sum = warps[i];
#pragma unroll
      for (int k = 1; k < kWarpThreads / 32; k++) sum += warps[k * 2 * n + i];
      out[i] = sum;
    }
  }
}

// Rows of up to 1024 vectors: 2 a thread; of up to 2048: 4 a thread of 512.
RingPlan plan_of(const NormBackward& b) {
  const int64_t width = vec16(b.dtype);
  if (b.dtype == DType::Float64 || b.n % width != 0 || !is_aligned(b.g, 16) ||
      !is_aligned(b.x, 16) || !is_aligned(b.gx, 16))
    return {};
  if (!is_aligned(b.more, 16)) return {};
  if (b.low.data && (b.dtype != DType::Float32 || !b.low.vectors)) return {};
  if (b.w.data && !b.w.vectors) return {};
  return plan_ring(b.n / width, b.n / width <= 1024 ? 2 : 4, 512);
}

// body(kernel, bytes of shared memory)
template <class T, bool kAdds, class F>
void with_kernel_of(const RingPlan& plan, F&& body) {
  auto found = [&](auto chunks, auto block_threads) {
    constexpr int kChunks = decltype(chunks)::value, kBlockThreads = decltype(block_threads)::value;
    const int64_t weights =
        kChunks == 4 && kBlockThreads != 0 ? int64_t(kChunks) * 16 * plan.threads : 0;
    body(norm_backward_ring_rows<T, kAdds, kChunks, kBlockThreads>,
         Ring<kChunks, kAdds>::bytes(plan.threads) + weights);
  };
  using std::integral_constant;
  const integral_constant<int, 0> warps;
  const integral_constant<int, 512> block;
  const integral_constant<int, 1> one;
  const integral_constant<int, 2> two;
  const integral_constant<int, 3> three;
  const integral_constant<int, 4> four;
  if (plan.block) return plan.chunks == 4 ? found(four, block) : found(two, block);
  if (plan.chunks == 1) return found(one, warps);
  if (plan.chunks == 2) return found(two, warps);
  return plan.chunks == 3 ? found(three, warps) : found(four, warps);
}

template <class F>
void with_kernel(const NormBackward& b, const RingPlan& plan, F&& body) {
  dispatch_packed(b.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    return b.more ? with_kernel_of<T, true>(plan, body) : with_kernel_of<T, false>(plan, body);
  });
}

int64_t blocks_per_sm(const RingPlan& plan) {
  return plan.block ? 512 / plan.threads : plan.chunks > 2 ? 2 : 3;
}

// Blocks of a cluster: two SMs, which are always available together. Clusters of four leave SMs
// without a block, and the blocks that did not fit run after all others: twice the time.
int32_t members_of(const RingPlan& plan, int64_t blocks, const DeviceFacts& facts) {
  return is_sm90(facts) && plan.block && blocks % 2 == 0 ? 2 : 1;
}

}  // namespace

int64_t norm_backward_ring_partial_rows(const KernelCall& call, const NormBackward& b) {
  const RingPlan plan = plan_of(b);
  const DeviceFacts& facts = *stream_of(call).facts;
  int64_t partial_rows = 0;
  if (plan.lanes > 0 && b.rows > 0)
    with_kernel(b, plan, [&](auto* kernel, int64_t bytes) {
      const int64_t blocks = ring_blocks(kernel, plan, bytes, b.rows, blocks_per_sm(plan), facts);
      partial_rows = blocks / members_of(plan, blocks, facts);
    });
  return partial_rows;
}

void norm_backward_ring(const KernelCall& call, const NormBackward& b) {
  const RingPlan plan = plan_of(b);
  with_kernel(b, plan, [&](auto* kernel, int64_t bytes) {
    const DeviceFacts& facts = *stream_of(call).facts;
    const int64_t blocks = ring_blocks(kernel, plan, bytes, b.rows, blocks_per_sm(plan), facts);
    const int32_t members = members_of(plan, blocks, facts);
    const LaunchShape shape{blocks_of(blocks), static_cast<unsigned>(plan.threads),
                            static_cast<size_t>(bytes), members > 1 ? members : 0};
    launch_pdl(kernel, shape, stream_of(call), static_cast<const uint4*>(b.g),
               static_cast<const uint4*>(b.x), static_cast<const uint4*>(b.more),
               static_cast<const float*>(b.mean), static_cast<const float*>(b.rstd),
               static_cast<const uint4*>(b.w.data), static_cast<uint4*>(b.gx), b.low,
               static_cast<float*>(b.partials), b.rows, static_cast<int32_t>(b.n / vec16(b.dtype)),
               plan.lanes);
  });
}

}  // namespace shardwise::cuda
