// Forward pass of layer norm and rms norm over rows of whole 16-byte vectors (float32, float16, bfloat16), the common case.
//
//   mean = sum(x) / n (0 for rms norm), rstd = 1 / sqrt(sum((x - mean)^2) / n + eps), y = (x - mean) rstd w + b
//
// Layout: persistent teams (row_ring.cuh): a warp or part of it for rows of up to 128 vectors, else a block with two vectors a
// thread. w and b stay packed in registers for all rows of a team; the next three rows are on their way by cp.async.
// Bytes: each of x and y once. Some 11 instructions for an element (conversion, sum, difference, square, scale and shift, half a
// conversion back) of the 28 that the memory of an H200 leaves time for.
// Numerics: float32, mean first and then squared deviations from registers, never E[x^2] - E[x]^2. Fixed order of summation.
// Technique: rows in registers and one read of memory as in the published Hopper norm kernels; written anew.
#include "../primitives/packed.cuh"
#include "../primitives/row_ring.cuh"
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kStages = 4;

template <class T, int kChunks, bool kBlock>
__global__ void __launch_bounds__(kBlock ? 1024 : 256, kBlock ? 1 : 3)
    norm_ring(const uint4* x, const uint4* w, const uint4* b, uint4* y, float* mean_out, float* rstd_out, int64_t rows, int32_t vectors,
              float eps, bool centered, int32_t lanes) {
  constexpr int V = kVec16<T>;
  extern __shared__ uint4 staged[];
  __shared__ float sums[2][1][32];
  const RowRing<1, kChunks, kStages> ring{staged};
  const RingPlace place(lanes);
  uint4 scale[kChunks], shift[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int v = place.slot + c * lanes;
    scale[c] = w && v < vectors ? w[v] : packed_splat<T>(1);
    shift[c] = b && v < vectors ? b[v] : packed_splat<T>(0);
  }
  auto prefetch = [&](int64_t row, int stage) {
    if (row < rows) ring.fetch(stage, {x + row * vectors}, place.slot, lanes, vectors);
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; s++) prefetch(place.first + s * place.step, s);
  const float inverse_n = 1.0f / static_cast<float>(vectors * V);
  const int64_t block_first = kBlock ? place.first : static_cast<int64_t>(blockIdx.x) * (blockDim.x / lanes);
  int stage = 0, turn = 0;
  // All threads of a block (a warp) make the same number of rounds.
  for (int64_t base = block_first; base < rows; base += place.step) {
    const int64_t row = base + (place.first - block_first);
    const bool active = kBlock || row < rows;
    prefetch(row + (kStages - 1) * place.step, (stage + kStages - 1) % kStages);
    copy_async_wait<kStages - 1>();
    float values[kChunks][V], sum[1] = {0.0f};
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const bool mine = place.slot + c * lanes < vectors;
      const uint4 raw = mine && active ? *ring.at(stage, 0, c) : make_uint4(0, 0, 0, 0);
      unpack<T>(raw, values[c]);
    }
    stage = (stage + 1) % kStages;
    float mean = 0.0f;
    if (centered) {
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int i = 0; i < V; i++) sum[0] += values[c][i];
      ring_sum<kBlock>(sum, lanes, turn, sums);
      mean = sum[0] * inverse_n;
      sum[0] = 0.0f;
    }
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      float squares = 0.0f;
#pragma unroll
      for (int i = 0; i < V; i++) {
        values[c][i] -= mean;
        squares += values[c][i] * values[c][i];
      }
      if (place.slot + c * lanes < vectors) sum[0] += squares;
    }
    ring_sum<kBlock>(sum, lanes, turn, sums);
    const float rstd = 1.0f / sqrtf(sum[0] * inverse_n + eps);
    if (!active) continue;
    if (place.slot == 0) {
      if (mean_out) mean_out[row] = mean;
      if (rstd_out) rstd_out[row] = rstd;
    }
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int v = place.slot + c * lanes;
      if (v >= vectors) break;
      float ws[V], bs[V];
      keep_packed(scale[c]);
      keep_packed(shift[c]);
      unpack<T>(scale[c], ws);
      unpack<T>(shift[c], bs);
#pragma unroll
      for (int i = 0; i < V; i++) values[c][i] = values[c][i] * rstd * ws[i] + bs[i];
      __stcs(y + row * vectors + v, pack<T>(values[c]));
    }
  }
  copy_async_wait<0>();
}

}  // namespace

bool norm_forward_ring(const KernelCall& call, const NormForward& f) {
  if (f.n % (16 / item_size(f.dtype)) != 0 || !is_aligned(f.x, 16) || !is_aligned(f.y, 16)) return false;
  if ((f.w.data && !f.w.vectors) || (f.b.data && !f.b.vectors)) return false;
  Stream& stream = stream_of(call);
  bool done = false;
  dispatch_packed(f.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    const int32_t vectors = static_cast<int32_t>(f.n / kVec16<T>);
    const RingPlan plan = plan_ring(f.n / kVec16<T>, 2, 1024);
    if (plan.lanes == 0) return;
    with_ring_shape(plan, [&](auto chunks, auto block) {
      auto* kernel = norm_ring<T, decltype(chunks)::value, decltype(block)::value>;
      const int64_t bytes = RowRing<1, decltype(chunks)::value, kStages>::bytes(plan.threads);
      const int64_t blocks = ring_blocks(kernel, plan, bytes, f.rows, plan.block ? 1024 / plan.threads : 3, *stream.facts);
      if (blocks == 0) return;
      kernel<<<static_cast<unsigned>(blocks), plan.threads, bytes, stream.handle>>>(
          static_cast<const uint4*>(f.x), static_cast<const uint4*>(f.w.data), static_cast<const uint4*>(f.b.data),
          static_cast<uint4*>(f.y), static_cast<float*>(f.mean), static_cast<float*>(f.rstd), f.rows, vectors,
          static_cast<float>(f.eps), f.centered, plan.lanes);
      done = true;
    });
  });
  return done;
}

}  // namespace shardwise::cuda
