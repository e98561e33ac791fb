// softmax, log_softmax and their gradients over contiguous rows of whole 16-byte vectors (float32, float16, bfloat16), the common
// case; softmax.cu has the formulas and the other rows.
//
// Layout: persistent teams (row_ring.cuh): a warp or part of it for rows of up to 128 vectors, else a block with two vectors a
// thread. The row stays in registers, the next three (backward: two) are on their way by cp.async.
// Bytes: forward x and y once, backward g, y and gx once. Forward some 12 instructions for an element, one of them an exponential.
// Numerics: float32; the maximum first, then the sum of exp(x - max), one rounding at the end. Exponentials are 2^(x log2(e) - m)
// for 16-bit elements, expf for float32. Rows of -inf give NaN, NaN and +inf spread over their row. Fixed order of summation.
#include "../primitives/packed.cuh"
#include "../primitives/row_ring.cuh"
#include "softmax.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kForwardStages = 4, kBackwardStages = 3;

template <bool kBlock>
__device__ __forceinline__ float ring_max(float value, int lanes, int& turn, float (&shared)[2][1][32]) {
  if constexpr (!kBlock) {
    for (int mask = lanes >> 1; mask > 0; mask >>= 1) value = fmaxf(value, __shfl_xor_sync(kFullWarp, value, mask));
    return value;
  }
  value = warp_reduce(value, [](float a, float b) { return fmaxf(a, b); });
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5, half = turn++ & 1;
  if (lane == 0) shared[half][0][threadIdx.x >> 5] = value;
  __syncthreads();
  return warp_reduce(lane < warps ? shared[half][0][lane] : -INFINITY, [](float a, float b) { return fmaxf(a, b); });
}

template <class T, int kChunks, bool kBlock>
__global__ void __launch_bounds__(kBlock ? 1024 : 256, kBlock ? 1 : 3)
    softmax_ring(const uint4* x, uint4* y, int64_t rows, int32_t vectors, int32_t lanes, bool log_form) {
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];
  __shared__ float shared[2][1][32];
  const RowRing<1, kChunks, kForwardStages> ring{staged};
  const RingPlace place(lanes);
  auto prefetch = [&](int64_t row, int stage) {
    if (row < rows) ring.fetch(stage, {x + row * vectors}, place.slot, lanes, vectors);
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < kForwardStages - 1; s++) prefetch(place.first + s * place.step, s);
  const uint4 nothing = packed_splat<T>(-INFINITY);
  const int64_t block_first = kBlock ? place.first : static_cast<int64_t>(blockIdx.x) * (blockDim.x / lanes);
  int stage = 0, turn = 0;
  for (int64_t base = block_first; base < rows; base += place.step) {
    const int64_t row = base + (place.first - block_first);
    const bool active = kBlock || row < rows;
    prefetch(row + (kForwardStages - 1) * place.step, (stage + kForwardStages - 1) % kForwardStages);
    copy_async_wait<kForwardStages - 1>();
    float values[kChunks][V], largest = -INFINITY;
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const bool mine = active && place.slot + c * lanes < vectors;
      unpack<T>(mine ? *ring.at(stage, 0, c) : nothing, values[c]);
#pragma unroll
      for (int i = 0; i < V; i++) largest = fmaxf(largest, values[c][i]);
    }
    stage = (stage + 1) % kForwardStages;
    largest = ring_max<kBlock>(largest, lanes, turn, shared);
    float sum[1] = {0.0f};
    const RowExponential<T> exponential(largest);
#pragma unroll
    for (int c = 0; c < kChunks; c++)
#pragma unroll
      for (int i = 0; i < V; i++) {
        const float e = exponential(values[c][i]);
        sum[0] += e;
        values[c][i] = log_form ? values[c][i] - largest : e;
      }
    ring_sum<kBlock>(sum, lanes, turn, shared);
    const float scale = log_form ? 1.0f : 1.0f / sum[0], offset = log_form ? logf(sum[0]) : 0.0f;
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = place.slot + c * lanes;
      if (!active || v >= vectors) break;
#pragma unroll
      for (int i = 0; i < V; i++) values[c][i] = values[c][i] * scale - offset;
      __stcs(y + row * vectors + v, pack<T>(values[c]));
    }
  }
  copy_async_wait<0>();
}

template <class T, int kChunks, bool kBlock>
__global__ void __launch_bounds__(kBlock ? 1024 : 256, kBlock ? 1 : 3)
    softmax_ring_gradient(const uint4* g, const uint4* y, uint4* gx, int64_t rows, int32_t vectors, int32_t lanes, bool log_form) {
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];
  __shared__ float shared[2][1][32];
  const RowRing<2, kChunks, kBackwardStages> ring{staged};
  const RingPlace place(lanes);
  auto prefetch = [&](int64_t row, int stage) {
    if (row < rows) ring.fetch(stage, {g + row * vectors, y + row * vectors}, place.slot, lanes, vectors);
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < kBackwardStages - 1; s++) prefetch(place.first + s * place.step, s);
  const int64_t block_first = kBlock ? place.first : static_cast<int64_t>(blockIdx.x) * (blockDim.x / lanes);
  int stage = 0, turn = 0;
  for (int64_t base = block_first; base < rows; base += place.step) {
    const int64_t row = base + (place.first - block_first);
    const bool active = kBlock || row < rows;
    prefetch(row + (kBackwardStages - 1) * place.step, (stage + kBackwardStages - 1) % kBackwardStages);
    copy_async_wait<kBackwardStages - 1>();
    uint4 graw[kChunks], yraw[kChunks];
    float sum[1] = {0.0f};
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const bool mine = active && place.slot + c * lanes < vectors;
      graw[c] = mine ? *ring.at(stage, 0, c) : make_uint4(0, 0, 0, 0);
      yraw[c] = mine ? *ring.at(stage, 1, c) : make_uint4(0, 0, 0, 0);
      float gs[V], ys[V];
      unpack<T>(graw[c], gs);
      unpack<T>(yraw[c], ys);
#pragma unroll
      for (int i = 0; i < V; i++) sum[0] += log_form ? gs[i] : gs[i] * ys[i];
    }
    stage = (stage + 1) % kBackwardStages;
    ring_sum<kBlock>(sum, lanes, turn, shared);
    const RowExponential<T> exponential(0.0f);
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = place.slot + c * lanes;
      if (!active || v >= vectors) break;
      float gs[V], ys[V];
      unpack<T>(graw[c], gs);
      unpack<T>(yraw[c], ys);
#pragma unroll
      for (int i = 0; i < V; i++) gs[i] = log_form ? gs[i] - exponential(ys[i]) * sum[0] : ys[i] * (gs[i] - sum[0]);
      __stcs(gx + row * vectors + v, pack<T>(gs));
    }
  }
  copy_async_wait<0>();
}

bool rows_fit(const SoftmaxRows& r) {
  return r.dtype != DType::Float64 && r.n % (16 / item_size(r.dtype)) == 0 && is_aligned(r.first, 16) && is_aligned(r.second, 16) &&
         is_aligned(r.out, 16);
}

// launch(tag, chunks, block, plan, blocks, bytes, vectors)
template <int kOperands, class Kernel, class Launch>
bool launch_ring(const KernelCall& call, const SoftmaxRows& r, Kernel&& kernel_of, Launch&& launch) {
  bool done = false;
  if (!rows_fit(r)) return done;
  dispatch_packed(r.dtype, [&](auto tag) {
    const int64_t vectors = r.n / kVec16<tag_t<decltype(tag)>>;
    const RingPlan plan = plan_ring(vectors, 2, 1024);
    if (plan.lanes == 0) return;
    with_ring_shape(plan, [&](auto chunks, auto block) {
      auto* kernel = kernel_of(tag, chunks, block);
      const int64_t bytes = RowRing<kOperands, decltype(chunks)::value, kOperands == 1 ? kForwardStages : kBackwardStages>::bytes(plan.threads);
      const int64_t blocks = ring_blocks(kernel, plan, bytes, r.rows, plan.block ? 1024 / plan.threads : 3, *stream_of(call).facts);
      if (blocks == 0) return;
      launch(kernel, static_cast<unsigned>(blocks), plan, bytes, static_cast<int32_t>(vectors));
      done = true;
    });
  });
  return done;
}

}  // namespace

bool softmax_ring_forward(const KernelCall& call, const SoftmaxRows& r) {
  return launch_ring<1>(
      call, r, [](auto tag, auto chunks, auto block) { return softmax_ring<tag_t<decltype(tag)>, decltype(chunks)::value, decltype(block)::value>; },
      [&](auto* kernel, unsigned blocks, const RingPlan& plan, int64_t bytes, int32_t vectors) {
        kernel<<<blocks, plan.threads, bytes, stream_of(call).handle>>>(static_cast<const uint4*>(r.first), static_cast<uint4*>(r.out), r.rows,
                                                                        vectors, plan.lanes, r.log_form);
      });
}

bool softmax_ring_backward(const KernelCall& call, const SoftmaxRows& r) {
  return launch_ring<2>(
      call, r,
      [](auto tag, auto chunks, auto block) { return softmax_ring_gradient<tag_t<decltype(tag)>, decltype(chunks)::value, decltype(block)::value>; },
      [&](auto* kernel, unsigned blocks, const RingPlan& plan, int64_t bytes, int32_t vectors) {
        kernel<<<blocks, plan.threads, bytes, stream_of(call).handle>>>(static_cast<const uint4*>(r.first), static_cast<const uint4*>(r.second),
                                                                        static_cast<uint4*>(r.out), r.rows, vectors, plan.lanes, r.log_form);
      });
}

}  // namespace shardwise::cuda
