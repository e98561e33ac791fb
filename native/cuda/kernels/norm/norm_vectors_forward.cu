// Forward pass of layer norm and rms norm over rows of whole 16-byte vectors (float32, float16,
// bfloat16), the common case.
//
//   mean = sum(x) / n (0 for rms norm), rstd = 1 / sqrt(sum((x - mean)^2) / n + eps)
//   y = (x - mean) rstd w + b, and float32 y in 16 bits, too or alone, if that is wanted
//
// With a residual, x is the rounded sum of two operands, which is written beside y: two reads and
// two writes. That of float32 may have 16 bits in rows of up to 1024 vectors.
//   direct  rows of up to 1024 vectors (row_direct.cuh): up to 128 a part of a warp per row, else a
//           block with four vectors a thread. With a residual, rows of warps are prefetched to L2
//           while the previous kernel ends. Warps find their mean and squared deviations by
//           shuffles; a block merges those of its warps through one barrier.
//   ring    longer rows, up to 2048 vectors: persistent blocks (row_ring.cuh) with two vectors a
//           thread. w and b stay packed in registers for all rows of a block; the next three rows
//           are in flight by cp.async.
// Bytes: x and y once (with a residual: it and the sum too). Operations: some 11 instructions an
// element (conversion, sum, difference, square, scale and shift, half a conversion back), of 28 in
// the time that the memory of an H200 takes.
// Numerics: float32, mean first and then squared deviations from registers, never E[x^2] - E[x]^2.
// Fixed order of summation.
// Technique: rows in registers and one read of memory as in QuACK's norms for Hopper; written for
// this library.
// Versions, layer norm of bf16 on one H200 (copy: 4.25 TB/s), us:
//                                                                   32768 x 4096  8192 x 4096
//   norm_forward.cu: its checks of every element exceed the memory  207.3         60.4
//   ring for these rows too: four blocks an SM drift apart          159.2         43.7
//   direct, two vectors a thread                                    143.6         39.4
//   the same, w and b loaded before the barrier: registers spill    168.4         46.0
//   direct, four vectors a thread                                   132.3 (95 %)  37.3 (85 %)
//   the same, started by PDL (pdl.cuh)                                            35.9 (88 %)
//   the same in one run, evict-first hints for L2                   137.0         36.1
//   no hints                                                        130.5 (96 %)  35.0 (90 %)
//   two vectors a thread, three blocks of 512 threads an SM         143.1         38.3
// With a residual, rms norm of 16384 x 4096: 131 (96 %; 135 with hints; a sum and a norm 168).
// float32 512 x 768: 3.2 to 4 (PyTorch in a graph 3.9). ring at 8192 x 16384: 139.6 (141.0 with
// hints). Warps, 16384 x 768 and 131072 x 512, with hints: 13.6 and 69.8; with L2 prefetch too
// 14.35 and 71.6; without hints 15.4 and 68.2; without PDL 1.3 more; means and squares merged at
// once (Chan) 13.8 and 69.3. With a residual, 16384 x 1024: 36.1, with L2 prefetch 35.1. 65536 x
// 256: 18.4 (ring of warps: 25.5).
#include "../../primitives/packed.cuh"
#include "../../primitives/row_direct.cuh"
#include "norm.cuh"

namespace shardwise::cuda {
namespace {

constexpr int stages_of(bool adds) { return adds ? 3 : 4; }

// A residual: vectors like those of x, or four elements of 16 bits beside each of float32.
struct Residual {
  const uint4* rows;
  bool low, half;

  template <class T, bool kEvictFirst>
  __device__ __forceinline__ uint4 load(int64_t vector) const {
    if constexpr (kVec16<T> == 4)
      if (low) {
        const uint2 words = reinterpret_cast<const uint2*>(rows)[vector];
        const uint4 padded = make_uint4(words.x, words.y, 0, 0);
        float values[8];
        half ? unpack<half_t>(padded, values) : unpack<bfloat16_t>(padded, values);
        const float four[4] = {values[0], values[1], values[2], values[3]};
        return pack<float>(four);
      }
    return load_once<kEvictFirst>(rows + vector);
  }
};

template <class T, bool kAdds, int kChunks, bool kBlock>
__global__ void __launch_bounds__(kBlock ? kDirectBlock : kDirectWarpThreads, kBlock ? 4 : 8)
    norm_direct(const uint4* x, Residual residual, uint4* sum, const uint4* w, const uint4* b,
                uint4* y, LowRows low, float* mean_out, float* rstd_out, int64_t rows,
                int32_t vectors, float eps, bool centered, int32_t lanes) {
  constexpr int V = kVec16<T>;
  __shared__ float3 shared[32];
  const DirectPlace place(kBlock, lanes);
  pdl_launch_dependents();
  if (kAdds && !kBlock && place.slot == 0 && place.row < rows)
    prefetch_to_l2(x + place.row * vectors, vectors * 16);
  pdl_wait();
  const bool active = kBlock || place.row < rows;
  uint4 raw[kChunks];
  load_row<!kBlock>(x + (active ? place.row : 0) * vectors, place.slot, lanes, vectors, raw);
  if constexpr (kAdds) {
    const int64_t start = (active ? place.row : 0) * vectors;
    uint4 other[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int32_t v = place.slot + c * lanes;
      other[c] = v < vectors ? residual.load<T, !kBlock>(start + v) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const int32_t v = place.slot + c * lanes;
      raw[c] = packed_sum<T>(raw[c], other[c]);
      if (active && v < vectors) store_once<!kBlock>(sum + place.row * vectors + v, raw[c]);
    }
  }
  const int width = kBlock ? 32 : lanes;
  // The first vector of this warp, that of its lane 0.
  const int32_t first = kBlock ? place.slot & ~31 : 0;
  int32_t count = 0;
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int32_t rest = vectors - first - c * lanes;
    count += rest < 0 ? 0 : rest < width ? rest : width;
  }
  const float elements = static_cast<float>(count * V), n = static_cast<float>(vectors * V);
  float values[V], mean = 0.0f, squares = 0.0f;
  if (centered) {
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      unpack<T>(raw[c], values);
      mean += tree_sum(values);
    }
    mean = lanes_sum(mean, width) * (count > 0 ? __frcp_rn(elements) : 0.0f);
  }
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    unpack<T>(raw[c], values);
#pragma unroll
    for (int i = 0; i < V; i++) values[i] = (values[i] - mean) * (values[i] - mean);
    if (place.slot + c * lanes < vectors) squares += tree_sum(values);
  }
  squares = lanes_sum(squares, width);
  if constexpr (kBlock) {
    int warps;
    const float3 of_warp =
        exchange_warps(make_float3(elements, mean, squares), make_float3(0, 0, 0), shared, warps);
    mean = centered ? lanes_sum(of_warp.x * of_warp.y, warps) / n : 0.0f;
    const float apart = of_warp.y - mean;
    squares = lanes_sum(of_warp.z + of_warp.x * apart * apart, warps);
  }
  const float rstd = __frsqrt_rn(squares / n + eps);
  if (!active) return;
  if (place.slot == 0) {
    if (mean_out) mean_out[place.row] = mean;
    if (rstd_out) rstd_out[place.row] = rstd;
  }
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int32_t v = place.slot + c * lanes;
    if (v >= vectors) break;
    unpack<T>(raw[c], values);
    float scale[V], shift[V];
    unpack<T>(w ? w[v] : packed_splat<T>(1), scale);
    unpack<T>(b ? b[v] : packed_splat<T>(0), shift);
#pragma unroll
    for (int i = 0; i < V; i++) values[i] = (values[i] - mean) * rstd * scale[i] + shift[i];
    if (y) store_once<!kBlock>(y + place.row * vectors + v, pack<T>(values));
    if constexpr (V == 4)
      if (low.data) store_low(low, place.row * vectors + v, values);
  }
}

template <class T, bool kAdds>
__global__ void __launch_bounds__(1024)
    norm_ring(const uint4* x, Residual residual, uint4* sum_out, const uint4* w, const uint4* b,
              uint4* y, LowRows low, float* mean_out, float* rstd_out, int64_t rows,
              int32_t vectors, float eps, bool centered) {
  constexpr int V = kVec16<T>, kChunks = 2, kStages = stages_of(kAdds);
  const int32_t lanes = blockDim.x;
  extern __shared__ uint4 staged[];
  __shared__ float sums[2][1][32];
  const RowRing<kAdds ? 2 : 1, kChunks, kStages> ring{staged};
  const RingPlace place(lanes);
  uint4 scale[kChunks], shift[kChunks];
#pragma unroll
  for (int c = 0; c < kChunks; c++) {
    const int v = place.slot + c * lanes;
    scale[c] = w && v < vectors ? w[v] : packed_splat<T>(1);
    shift[c] = b && v < vectors ? b[v] : packed_splat<T>(0);
  }
  auto prefetch = [&](int64_t row, int stage) {
    if (row < rows) {
      if constexpr (kAdds)
        ring.fetch(stage, {x + row * vectors, residual.rows + row * vectors}, place.slot, lanes,
                   vectors);
      else
        ring.fetch(stage, {x + row * vectors}, place.slot, lanes, vectors);
    }
    copy_async_commit();
  };
#pragma unroll
  for (int s = 0; s < kStages - 1; s++) prefetch(place.first + s * place.step, s);
  const float inverse_n = 1.0f / static_cast<float>(vectors * V);
  int stage = 0, turn = 0;
  for (int64_t row = place.first; row < rows; row += place.step) {
    prefetch(row + (kStages - 1) * place.step, (stage + kStages - 1) % kStages);
    copy_async_wait<kStages - 1>();
    float values[kChunks][V], sum[1] = {0.0f};
#pragma unroll
    for (int c = 0; c < kChunks; c++) {
      const bool mine = place.slot + c * lanes < vectors;
      uint4 raw = mine ? *ring.at(stage, 0, c) : make_uint4(0, 0, 0, 0);
      if constexpr (kAdds) {
        if (mine) {
          raw = packed_sum<T>(raw, *ring.at(stage, 1, c));
          sum_out[row * vectors + place.slot + c * lanes] = raw;
        }
      }
      unpack<T>(raw, values[c]);
    }
    stage = (stage + 1) % kStages;
    float mean = 0.0f;
    if (centered) {
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int i = 0; i < V; i++) sum[0] += values[c][i];
      ring_sum<true>(sum, lanes, turn, sums);
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
    ring_sum<true>(sum, lanes, turn, sums);
    const float rstd = __frsqrt_rn(sum[0] * inverse_n + eps);
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
      if (y) y[row * vectors + v] = pack<T>(values[c]);
      if constexpr (V == 4)
        if (low.data) store_low(low, row * vectors + v, values[c]);
    }
  }
  copy_async_wait<0>();
}

}  // namespace

bool norm_forward_vectors(const KernelCall& call, const NormForward& f) {
  if (f.dtype == DType::Float64 || f.n % vec16(f.dtype) != 0) return false;
  if (f.low.data && (f.dtype != DType::Float32 || !f.low.vectors)) return false;
  const bool low_residual = f.residual && f.residual_dtype != f.dtype;
  for (const void* rows : {f.x, static_cast<const void*>(f.sum), static_cast<const void*>(f.y)})
    if (!is_aligned(rows, 16)) return false;
  if (!is_aligned(f.residual, low_residual ? 8 : 16)) return false;
  if ((f.w.data && !f.w.vectors) || (f.b.data && !f.b.vectors)) return false;
  const int64_t vectors = f.n / vec16(f.dtype);
  if (low_residual && plan_direct(vectors).lanes == 0) return false;  // the ring takes x's vectors
  const Residual residual{static_cast<const uint4*>(f.residual), low_residual,
                          f.residual_dtype == DType::Float16};
  bool done = false;
  dispatch_packed(f.dtype, [&](auto tag) {
    using T = tag_t<decltype(tag)>;
    auto launch = [&](auto adds) {
      constexpr bool kAdds = decltype(adds)::value;
      const auto direct = [](auto chunks, auto block) {
        return norm_direct<T, kAdds, decltype(chunks)::value, decltype(block)::value>;
      };
      done = launch_direct_or_ring(
          stream_of(call), f.rows, vectors, direct, norm_ring<T, kAdds>, RowRing < kAdds ? 2 : 1, 2,
          stages_of(kAdds) > ::bytes(1), static_cast<const uint4*>(f.x), residual,
          static_cast<uint4*>(f.sum), static_cast<const uint4*>(f.w.data),
          static_cast<const uint4*>(f.b.data), static_cast<uint4*>(f.y), f.low,
          static_cast<float*>(f.mean), static_cast<float*>(f.rstd), f.rows,
          static_cast<int32_t>(vectors), static_cast<float>(f.eps), f.centered);
    };
    if (f.residual)
      launch(std::true_type{});
    else
      launch(std::false_type{});
  });
  return done;
}

bool norm_forward_of_sum(const KernelCall& call, const NormSum& rows, const TensorView* w,
                         const TensorView* b, const NormOutputs& to, double eps) {
  const TensorView& x = rows.x;
  return norm_forward_vectors(
      call,
      {x.dtype, x.sizes[0], x.sizes[1], x.data, norm_vector(w, x.dtype), norm_vector(b, x.dtype),
       data_or_null(to.y), to.mean ? to.mean->data : nullptr, to.rstd.data, eps, to.mean != nullptr,
       rows.residual.data, rows.sum.data, low_rows(to.low), rows.residual.dtype});
}

}  // namespace shardwise::cuda
