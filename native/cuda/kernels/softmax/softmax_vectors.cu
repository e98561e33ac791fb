// softmax, log_softmax and their gradients over contiguous rows of whole 16-byte vectors (float32,
// float16, bfloat16), the common case; softmax.cu has the formulas and the other rows.
//
//   direct  rows of up to 1024 vectors (row_direct.cuh): up to 128 a part of a warp per row, else a
//           block with four vectors a thread. Warps find their maximum and sum by shuffles; a block
//           merges those of its warps through one barrier.
//   ring    longer rows, up to 2048 vectors: persistent blocks (row_ring.cuh) with two vectors a
//           thread; the next three rows (backward: two) are in flight by cp.async.
// Bytes: forward x and y once, backward g, y and gx once. Forward some 12 instructions an element,
// one of them an exponential.
// Numerics: float32; the maximum first, then the sum of exp(x - max), one rounding at the end.
// Exponentials are 2^((x - max) log2(e)) for 16-bit elements, expf for float32. Rows of -inf give
// NaN; NaN and +inf spread over their row. Fixed order of summation.
// Technique: rows in registers and one read of memory, as in QuACK's norms and softmax for Hopper.
// Versions, bf16 on one H200, us forward and backward (% of copy):
//                                                    8192 x 4096            8192 x 16384
//   softmax_rows (softmax.cu)                        51.1  97.0             253.4  468.7
//   ring                                             42.1  54.8             142.6  205.1 (88, 93)
//   direct, two vectors a thread                     36.1  53.0
//   direct, four                                     36.3  53.1 (87, 89)
//   direct, no evict-first hints for L2              33.5  47.6 (94, 99)
//   ring, evict-first hints for L2                                          144.2  204.0
#include "../../primitives/packed.cuh"
#include "../../primitives/row_direct.cuh"
#include "softmax.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kForwardStages = 4, kBackwardStages = 3;

template <class T, int kChunks, bool kBlock>
__global__ void __launch_bounds__(kBlock ? kDirectBlock : kDirectWarpThreads, kBlock ? 4 : 8)
    softmax_direct(const uint4* x, uint4* y, int64_t rows, int32_t vectors, bool log_form,
                   int32_t lanes) {
  constexpr int V = kVec16<T>;
  __shared__ float2 shared[32];
  const DirectPlace place(kBlock, lanes);
  pdl_launch_dependents();
  pdl_wait();
  const bool active = kBlock || place.row < rows;
  uint4 raw[kChunks];
  load_row<false>(x + (active ? place.row : 0) * vectors, place.slot, lanes, vectors, raw);
  const int width = kBlock ? 32 : lanes;
  float values[kChunks][V], largest = -INFINITY, sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    unpack<T>(place.slot + c * lanes < vectors ? raw[c] : packed_splat<T>(-INFINITY), values[c]);
#pragma unroll
    for (int i = 0; i < V; i++) largest = fmaxf(largest, values[c][i]);
  }
  for (int mask = width >> 1; mask > 0; mask >>= 1)
    largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, mask));
  const RowExponential<T> exponential(largest);
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    float e[V];
#pragma unroll
    for (int i = 0; i < V; i++) e[i] = exponential(values[c][i]);
    sum += tree_sum(e);
    if (!log_form)
#pragma unroll
      for (int i = 0; i < V; i++) values[c][i] = e[i];
  }
  sum = lanes_sum(sum, width);
  float factor = 1.0f;  // from the warp's maximum to the row's
  if constexpr (kBlock) {
    int warps;
    const float2 of_warp =
        exchange_warps(make_float2(largest, sum), make_float2(-INFINITY, 0), shared, warps);
    const float own = largest;
    largest = of_warp.x;
    for (int mask = warps >> 1; mask > 0; mask >>= 1)
      largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, mask));
    const RowExponential<T> row_exponential(largest);
    sum = lanes_sum(of_warp.y * row_exponential(of_warp.x), warps);
    factor = row_exponential(own);
  }
  if (!active) return;
  const float scale = factor / sum, offset = logf(sum);
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int32_t v = place.slot + c * lanes;
    if (v >= vectors) break;
#pragma unroll
    for (int i = 0; i < V; i++)
      values[c][i] = log_form ? values[c][i] - largest - offset : values[c][i] * scale;
    y[place.row * vectors + v] = pack<T>(values[c]);
  }
}

template <class T, int kChunks, bool kBlock>
__global__ void __launch_bounds__(kBlock ? kDirectBlock : kDirectWarpThreads, kBlock ? 4 : 8)
    softmax_direct_gradient(const uint4* g, const uint4* y, uint4* gx, int64_t rows,
                            int32_t vectors, bool log_form, int32_t lanes) {
  constexpr int V = kVec16<T>;
  __shared__ float shared[32];
  const DirectPlace place(kBlock, lanes);
  pdl_launch_dependents();
  pdl_wait();
  const bool active = kBlock || place.row < rows;
  uint4 graw[kChunks], yraw[kChunks];
  load_row<false>(g + (active ? place.row : 0) * vectors, place.slot, lanes, vectors, graw);
  load_row<false>(y + (active ? place.row : 0) * vectors, place.slot, lanes, vectors, yraw);
  float gs[V], ys[V], sum = 0.0f;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    unpack<T>(graw[c], gs);
    unpack<T>(yraw[c], ys);
    if (!log_form)
#pragma unroll
      for (int i = 0; i < V; i++) gs[i] *= ys[i];
    sum += tree_sum(gs);
  }
  sum = lanes_sum(sum, kBlock ? 32 : lanes);
  if constexpr (kBlock) {
    int warps;
    const float of_warp = exchange_warps(sum, 0.0f, shared, warps);
    sum = lanes_sum(of_warp, warps);
  }
  if (!active) return;
  const RowExponential<T> exponential(0.0f);
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int32_t v = place.slot + c * lanes;
    if (v >= vectors) break;
    unpack<T>(graw[c], gs);
    unpack<T>(yraw[c], ys);
#pragma unroll
    for (int i = 0; i < V; i++)
      gs[i] = log_form ? gs[i] - exponential(ys[i]) * sum : ys[i] * (gs[i] - sum);
    gx[place.row * vectors + v] = pack<T>(gs);
  }
}

__device__ __forceinline__ float ring_max(float value, int& turn, float (&shared)[2][1][32]) {
  value = warp_reduce(value, [](float a, float b) { return fmaxf(a, b); });
  const int lane = threadIdx.x & 31, warps = blockDim.x >> 5, half = turn++ & 1;
  if (lane == 0) shared[half][0][threadIdx.x >> 5] = value;
  __syncthreads();
  return warp_reduce(lane < warps ? shared[half][0][lane] : -INFINITY,
                     [](float a, float b) { return fmaxf(a, b); });
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_ring(const uint4* x, uint4* y, int64_t rows, int32_t vectors, bool log_form) {
  constexpr int V = kVec16<T>, kChunks = 2;
  const int32_t lanes = blockDim.x;
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
  int stage = 0, turn = 0;
  for (int64_t row = place.first; row < rows; row += place.step) {
    prefetch(row + (kForwardStages - 1) * place.step,
             (stage + kForwardStages - 1) % kForwardStages);
    copy_async_wait<kForwardStages - 1>();
    float values[kChunks][V], largest = -INFINITY;
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const bool mine = place.slot + c * lanes < vectors;
      unpack<T>(mine ? *ring.at(stage, 0, c) : nothing, values[c]);
#pragma unroll
      for (int i = 0; i < V; i++) largest = fmaxf(largest, values[c][i]);
    }
    stage = (stage + 1) % kForwardStages;
    largest = ring_max(largest, turn, shared);
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
    ring_sum<true>(sum, lanes, turn, shared);
    const float scale = log_form ? 1.0f : 1.0f / sum[0], offset = log_form ? logf(sum[0]) : 0.0f;
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = place.slot + c * lanes;
      if (v >= vectors) break;
#pragma unroll
      for (int i = 0; i < V; i++) values[c][i] = values[c][i] * scale - offset;
      y[row * vectors + v] = pack<T>(values[c]);
    }
  }
  copy_async_wait<0>();
}

template <class T>
__global__ void __launch_bounds__(1024)
    softmax_ring_gradient(const uint4* g, const uint4* y, uint4* gx, int64_t rows, int32_t vectors,
                          bool log_form) {
  constexpr int V = kVec16<T>, kChunks = 2;
  const int32_t lanes = blockDim.x;
  extern __shared__ uint4 staged[];
  __shared__ float shared[2][1][32];
  const RowRing<2, kChunks, kBackwardStages> ring{staged};
  const RingPlace place(lanes);
  auto prefetch = [&](int64_t row, int stage) {
    if (row < rows)
      ring.fetch(stage, {g + row * vectors, y + row * vectors}, place.slot, lanes, vectors);
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < kBackwardStages - 1; s++) prefetch(place.first + s * place.step, s);
  int stage = 0, turn = 0;
  for (int64_t row = place.first; row < rows; row += place.step) {
    prefetch(row + (kBackwardStages - 1) * place.step,
             (stage + kBackwardStages - 1) % kBackwardStages);
    copy_async_wait<kBackwardStages - 1>();
    uint4 graw[kChunks], yraw[kChunks];
    float sum[1] = {0.0f};
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const bool mine = place.slot + c * lanes < vectors;
      graw[c] = mine ? *ring.at(stage, 0, c) : make_uint4(0, 0, 0, 0);
      yraw[c] = mine ? *ring.at(stage, 1, c) : make_uint4(0, 0, 0, 0);
      float gs[V], ys[V];
      unpack<T>(graw[c], gs);
      unpack<T>(yraw[c], ys);
#pragma unroll
      for (int i = 0; i < V; i++) sum[0] += log_form ? gs[i] : gs[i] * ys[i];
    }
    stage = (stage + 1) % kBackwardStages;
    ring_sum<true>(sum, lanes, turn, shared);
    const RowExponential<T> exponential(0.0f);
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = place.slot + c * lanes;
      if (v >= vectors) break;
      float gs[V], ys[V];
      unpack<T>(graw[c], gs);
      unpack<T>(yraw[c], ys);
#pragma unroll
      for (int i = 0; i < V; i++)
        gs[i] = log_form ? gs[i] - exponential(ys[i]) * sum[0] : ys[i] * (gs[i] - sum[0]);
      gx[row * vectors + v] = pack<T>(gs);
    }
  }
  copy_async_wait<0>();
}

bool rows_fit(const SoftmaxRows& r) {
  return r.dtype != DType::Float64 && r.n % vec16(r.dtype) == 0 && is_aligned(r.first, 16) &&
         is_aligned(r.second, 16) && is_aligned(r.out, 16);
}

// Launches direct(chunks, block) or `ring`; both take `inputs`, then the arguments that forward and
// backward share.
template <class T, class Direct, class Ring, class... Inputs>
bool launch(const KernelCall& call, const SoftmaxRows& r, const Direct& direct, Ring* ring,
            int64_t ring_bytes, Inputs... inputs) {
  const int64_t vectors = r.n / kVec16<T>;
  return launch_direct_or_ring(stream_of(call), r.rows, vectors, direct, ring, ring_bytes,
                               static_cast<const uint4*>(inputs)..., static_cast<uint4*>(r.out),
                               r.rows, static_cast<int32_t>(vectors), r.log_form);
}

}  // namespace

bool softmax_vectors_forward(const KernelCall& call, const SoftmaxRows& r) {
  if (!rows_fit(r)) return false;
  bool done = false;
  dispatch_packed(r.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    const auto direct = [](auto chunks, auto block) {
      return softmax_direct<T, decltype(chunks)::value, decltype(block)::value>;
    };
    done = launch<T>(call, r, direct, softmax_ring<T>, RowRing<1, 2, kForwardStages>::bytes(1),
                     r.first);
  });
  return done;
}

bool softmax_vectors_backward(const KernelCall& call, const SoftmaxRows& r) {
  if (!rows_fit(r)) return false;
  bool done = false;
  dispatch_packed(r.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    const auto direct = [](auto chunks, auto block) {
      return softmax_direct_gradient<T, decltype(chunks)::value, decltype(block)::value>;
    };
    done = launch<T>(call, r, direct, softmax_ring_gradient<T>,
                     RowRing<2, 2, kBackwardStages>::bytes(1), r.first, r.second);
  });
  return done;
}

}  // namespace shardwise::cuda
