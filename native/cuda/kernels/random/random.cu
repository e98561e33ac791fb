// random_uniform, random_normal, random_integer, random_bernoulli, dropout.
//
// Math: Philox4x32-10 of the element's index in the global tensor (native/README.md), so a value
// depends on neither the grid nor the sharding. The index view maps local elements to global
// indices. Each thread computes 4 neighbouring elements (16 bytes of dense dropout). If the index
// view is dense and starts at a multiple of 4 they share one Philox block (two for 64-bit values),
// else each computes its own.
// Grid: blocks of 256 threads. Bytes: y once (dropout: x, y and the mask once). Operations: 20
// products of 32 by 32 bits for four words.
// Numerics: uniforms of 24 bits (float64: 53), below their bound in every dtype; normals by
// Box-Muller of 24-bit uniforms; integers are 64 bits modulo the span. Products and sums are not
// fused, as on the CPU; rounded to the dtype at the end.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011). The numbers differ
// from PyTorch's. On an H200, 16384 x 16384 (PyTorch): uniforms in float32 380 us (417), normals
// 669 (594), int64 in 16384 x 8192 413 (332, of 32 bits each), dropout in bfloat16 350 (440).
// Integer instructions limit all except dropout.
// Versions: offsets per element also for dense operands: uniforms 561, dropout (four elements a
// thread) 671; int64 by a 64-bit remainder 743.
#include <cmath>

#include "../../../generated/op_params.h"
#include "../../../include/uniform_bound.h"
#include "../../primitives/group.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/packed.cuh"
#include "../../primitives/philox.cuh"
#include "../../stream.h"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

// Maps a thread to its elements and their output offsets.
struct Elements {
  int64_t count;
  uint64_t first_index;         // of the index view
  bool dense_index;             // index = first_index + linear, and first_index % 4 == 0
  bool dense_output;            // contiguous and aligned: vector stores
  OffsetCalculator<2> offsets;  // output, index

  bool is_dense() const { return dense_index && dense_output; }
};

struct Drawn {
  uint64_t element[kPerThread];  // global indices
  int64_t at[kPerThread];        // output offsets
  bool valid[kPerThread];
};

// Dense: index and output are both dense, so the first element determines the group.
template <bool Dense>
__device__ __forceinline__ bool place(const Elements& e, Drawn& d) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  if (first >= e.count) return false;
  int64_t linear[kPerThread];
  Offsets<2> offsets[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; i++) {
    d.valid[i] = first + i < e.count;
    linear[i] = Dense || d.valid[i] ? first + i : e.count - 1;
    if constexpr (Dense) offsets[i].at[0] = offsets[i].at[1] = linear[i];
  }
  if constexpr (!Dense) e.offsets.get_many_large(linear, offsets);
#pragma unroll
  for (int i = 0; i < kPerThread; i++) {
    d.at[i] = offsets[i][0];
    d.element[i] = e.first_index + static_cast<uint64_t>(offsets[i][1]);
  }
  return true;
}

// 4 values of 32 bits. With a dense index `element[0]` is a multiple of 4.
__device__ __forceinline__ void draw_words(const PhiloxKey& key, const Drawn& d, bool dense,
                                           uint32_t (&out)[kPerThread]) {
  if (dense) {
    const uint4 words = philox(key, d.element[0] >> 2);
    out[0] = words.x, out[1] = words.y, out[2] = words.z, out[3] = words.w;
  } else {
#pragma unroll
    for (int i = 0; i < kPerThread; i++)
      out[i] = word_of(philox(key, d.element[i] >> 2), static_cast<int>(d.element[i] & 3));
  }
}

// 4 values of 64 bits, two for each counter.
__device__ __forceinline__ void draw_wide(const PhiloxKey& key, const Drawn& d, bool dense,
                                          uint64_t (&out)[kPerThread]) {
  if (dense) {
#pragma unroll
    for (int i = 0; i < kPerThread; i += 2) {
      const uint4 words = philox(key, (d.element[0] + i) >> 1);
      out[i] = join_words(words.x, words.y);
      out[i + 1] = join_words(words.z, words.w);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPerThread; i++) {
      const uint4 words = philox(key, d.element[i] >> 1);
      out[i] = (d.element[i] & 1) ? join_words(words.z, words.w) : join_words(words.x, words.y);
    }
  }
}

// A Box-Muller pair from two 32-bit values. The angle is in half turns, which needs no range
// reduction.
template <class C>
__device__ __forceinline__ void normal_pair(uint32_t even, uint32_t odd, C& first, C& second) {
  const C u0 = static_cast<C>(uniform_float(even)),
          half_turns = C(2) * static_cast<C>(uniform_float(odd));
  C radius;
  if constexpr (sizeof(C) == 4) {
    radius = ::sqrtf(-2.0f * ::logf(1.0f - u0));
    ::sincospif(half_turns, &second, &first);
  } else {
    radius = ::sqrt(-2.0 * ::log(1.0 - u0));
    ::sincospi(half_turns, &second, &first);
  }
  first *= radius;
  second *= radius;
}

template <class C>
__device__ __forceinline__ void draw_normals(const PhiloxKey& key, const Drawn& d, bool dense,
                                             C (&out)[kPerThread]) {
  if (dense) {
    const uint4 words = philox(key, d.element[0] >> 2);
    normal_pair<C>(words.x, words.y, out[0], out[1]);
    normal_pair<C>(words.z, words.w, out[2], out[3]);
  } else {
#pragma unroll 1
    for (int i = 0; i < kPerThread; i++) {
      const uint4 words = philox(key, d.element[i] >> 2);
      const bool high = d.element[i] & 2;
      C pair[2];
      normal_pair<C>(high ? words.z : words.x, high ? words.w : words.y, pair[0], pair[1]);
      out[i] = d.element[i] & 1 ? pair[1] : pair[0];
    }
  }
}

__device__ __forceinline__ float multiply(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double multiply(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float add_up(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add_up(double a, double b) { return __dadd_rn(a, b); }

// Draws: each returns kPerThread values in the compute type.
template <class C>
struct UniformDraw {
  using Value = C;
  PhiloxKey key;
  C low, span, largest;
  __device__ __forceinline__ void operator()(const Drawn& d, bool dense,
                                             C (&out)[kPerThread]) const {
    if constexpr (sizeof(C) == 4) {
      uint32_t words[kPerThread];
      draw_words(key, d, dense, words);
#pragma unroll
      for (int i = 0; i < kPerThread; i++)
        out[i] = min(add_up(multiply(uniform_float(words[i]), span), low), largest);
    } else {
      uint64_t words[kPerThread];
      draw_wide(key, d, dense, words);
#pragma unroll
      for (int i = 0; i < kPerThread; i++)
        out[i] = min(add_up(multiply(uniform_double(words[i]), span), low), largest);
    }
  }
};

template <class C>
struct NormalDraw {
  using Value = C;
  PhiloxKey key;
  C mean, deviation;
  __device__ __forceinline__ void operator()(const Drawn& d, bool dense,
                                             C (&out)[kPerThread]) const {
    draw_normals(key, d, dense, out);
#pragma unroll
    for (int i = 0; i < kPerThread; i++) out[i] = add_up(multiply(out[i], deviation), mean);
  }
};

struct IntegerDraw {
  using Value = int64_t;
  PhiloxKey key;
  int64_t low;
  uint64_t span, reciprocal;  // (2^64 - 1) / span
  __device__ __forceinline__ void operator()(const Drawn& d, bool dense,
                                             int64_t (&out)[kPerThread]) const {
    uint64_t words[kPerThread];
    draw_wide(key, d, dense, words);
#pragma unroll
    for (int i = 0; i < kPerThread; i++) {
      // A lower bound of the quotient, low by less than 3: words[i] % span takes four times as many
      // instructions.
      uint64_t rest = words[i] - __umul64hi(words[i], reciprocal) * span;
      if (rest >= span) rest -= span;
      if (rest >= span) rest -= span;
      out[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + rest);
    }
  }
};

struct BernoulliDraw {
  using Value = int64_t;
  PhiloxKey key;
  float probability;
  __device__ __forceinline__ void operator()(const Drawn& d, bool dense,
                                             int64_t (&out)[kPerThread]) const {
    uint32_t words[kPerThread];
    draw_words(key, d, dense, words);
#pragma unroll
    for (int i = 0; i < kPerThread; i++) out[i] = uniform_float(words[i]) < probability ? 1 : 0;
  }
};

template <class Draw, bool Dense>
__global__ void __launch_bounds__(kThreads) random_kernel(const __grid_constant__ Elements elements,
                                                          const Draw draw, void* y, DType dtype) {
  Drawn d;
  if (!place<Dense>(elements, d)) return;
  typename Draw::Value values[kPerThread];
  draw(d, Dense || elements.dense_index, values);
  if ((Dense || elements.dense_output) && d.valid[kPerThread - 1])
    store_group_any(y, d.at[0], dtype, values);
  else
    store_any(y, d.at, dtype, values, d.valid);
}

Elements elements_of(const TensorView& y, const TensorView& index) {
  Elements e;
  e.count = y.numel;
  e.first_index = static_cast<uint64_t>(index.scalar);
  Dims<2> dims = dims_of<2>({&y, &index});
  dims.collapse();  // keeps the order: neighbours in the index share a Philox block
  const bool one_dim = dims.ndim == 1;
  e.dense_index = one_dim && dims.strides[1][0] == 1 && e.first_index % 4 == 0;
  e.dense_output = one_dim && dims.strides[0][0] == 1 && groups_aligned(y, kPerThread);
  e.offsets = dims.calculator<kMaxDims>();
  return e;
}

template <class Draw>
Status run_random(const KernelCall& call, const Draw& draw) {
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  const unsigned blocks = static_cast<unsigned>(ceil_div(y.numel, kThreads * kPerThread));
  const Elements elements = elements_of(y, call.input(0));
  const cudaStream_t stream = stream_of(call).handle;
  if (elements.is_dense())
    random_kernel<Draw, true><<<blocks, kThreads, 0, stream>>>(elements, draw, y.data, y.dtype);
  else
    random_kernel<Draw, false><<<blocks, kThreads, 0, stream>>>(elements, draw, y.data, y.dtype);
  return launched(call);
}

template <class P>
PhiloxKey key_of(const P& p) {
  return PhiloxKey(p.seed_low, p.seed_high, p.offset);
}

struct DropoutArgs {
  Elements elements;  // offsets of x and index
  PhiloxKey key;
  float probability;
  double scale;
  const void* x;
  void* y;
  uint8_t* mask;
  DType dtype;
  bool vectors;  // y and mask allow vector stores
};

// Dropout of contiguous x, y and mask: 16 bytes a thread. A uniform of 24 bits is at least the
// probability if its bits are at least `threshold`.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_dense(const __grid_constant__ DropoutArgs args, uint32_t threshold) {
  constexpr int kGroup = kVec16<T>;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup;
  if (first >= args.elements.count) return;
  const T* const x = static_cast<const T*>(args.x) + first;
  T* const y = static_cast<T*>(args.y) + first;
  const float scale = static_cast<float>(args.scale);
  uint32_t words[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; i += 4) {
    const uint4 drawn =
        philox(args.key, (args.elements.first_index + static_cast<uint64_t>(first + i)) >> 2);
    words[i] = drawn.x >> 8, words[i + 1] = drawn.y >> 8, words[i + 2] = drawn.z >> 8,
    words[i + 3] = drawn.w >> 8;
  }
  if (first + kGroup > args.elements.count) {
#pragma unroll
    for (int i = 0; i < kGroup; i++) {
      if (first + i >= args.elements.count) return;
      const bool kept = words[i] >= threshold;
      y[i] = from_compute<T>(kept ? to_compute<float>(x[i]) * scale : 0.0f);
      args.mask[first + i] = kept;
    }
    return;
  }
  float values[kGroup];
  unpack<T>(*reinterpret_cast<const uint4*>(x), values);
  Vec<uint8_t, kGroup> mask;
#pragma unroll
  for (int i = 0; i < kGroup; i++) {
    mask[i] = words[i] >= threshold;
    values[i] = words[i] >= threshold ? values[i] * scale : 0.0f;
  }
  *reinterpret_cast<uint4*>(y) = pack<T>(values);
  store_global(args.mask + first, mask);
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const __grid_constant__ DropoutArgs args) {
  Drawn d;
  if (!place<false>(args.elements, d)) return;
  uint32_t words[kPerThread];
  draw_words(args.key, d, args.elements.dense_index, words);
  const bool whole = d.valid[kPerThread - 1];
  C values[kPerThread];
  if (args.elements.dense_output && whole)
    load_group_floating(args.x, d.at[0], args.dtype, values);
  else
    load_any<C>(args.x, d.at, args.dtype, values);
  int64_t kept[kPerThread];
  int64_t at[kPerThread];
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
#pragma unroll
  for (int i = 0; i < kPerThread; i++) {
    kept[i] = uniform_float(words[i]) >= args.probability;
    values[i] = kept[i] ? values[i] * static_cast<C>(args.scale) : C(0);
    at[i] = first + i;
  }
  if (args.vectors && whole) {
    store_group_floating(args.y, first, args.dtype, values);
    store_group_as<uint8_t>(args.mask, first, kept);
  } else {
    store_any<C>(args.y, at, args.dtype, values, d.valid);
    store_as<uint8_t>(args.mask, at, kept, d.valid);
  }
}

}  // namespace

Status random_uniform(const KernelCall& call) {
  const auto& p = call.params_as<RandomUniformParams>();
  const double largest = largest_below(p.high, p.low, call.output(0).dtype);
  if (call.output(0).dtype == DType::Float64)
    return run_random(call, UniformDraw<double>{key_of(p), p.low, p.high - p.low, largest});
  const float low = static_cast<float>(p.low), span = static_cast<float>(p.high - p.low);
  return run_random(call, UniformDraw<float>{key_of(p), low, span, static_cast<float>(largest)});
}

Status random_normal(const KernelCall& call) {
  const auto& p = call.params_as<RandomNormalParams>();
  if (call.output(0).dtype == DType::Float64)
    return run_random(call, NormalDraw<double>{key_of(p), p.mean, p.std});
  return run_random(
      call, NormalDraw<float>{key_of(p), static_cast<float>(p.mean), static_cast<float>(p.std)});
}

Status random_integer(const KernelCall& call) {
  const auto& p = call.params_as<RandomIntegerParams>();
  const int64_t low = number_as<int64_t>(p.low), high = number_as<int64_t>(p.high);
  if (high <= low)
    return fail(call.error, Code::Invalid, "random_integer: high must be greater than low");
  const uint64_t span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return run_random(call, IntegerDraw{key_of(p), low, span, UINT64_MAX / span});
}

Status random_bernoulli(const KernelCall& call) {
  const auto& p = call.params_as<RandomBernoulliParams>();
  return run_random(call, BernoulliDraw{key_of(p), static_cast<float>(p.probability)});
}

Status dropout(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0), &mask = call.output(1);
  if (y.numel == 0) return kOk;
  if (!is_floating(y.dtype) || x.dtype != y.dtype) return unsupported(call, x.dtype);
  const auto& p = call.params_as<DropoutParams>();
  DropoutArgs args;
  args.elements = elements_of(x, call.input(1));
  args.key = key_of(p);
  args.probability = static_cast<float>(p.probability);
  args.scale = 1.0 / (1.0 - p.probability);
  args.x = x.data;
  args.y = y.data;
  args.mask = static_cast<uint8_t*>(mask.data);
  args.dtype = y.dtype;
  args.vectors = groups_aligned(y, kPerThread) && groups_aligned(mask, kPerThread);
  const cudaStream_t stream = stream_of(call).handle;
  if (args.elements.is_dense() && y.dtype != DType::Float64 && is_aligned(x.data, 16) &&
      is_aligned(y.data, 16) && is_aligned(mask.data, vec16(y.dtype))) {
    const uint32_t threshold = static_cast<uint32_t>(std::ceil(args.probability * 16777216.0));
    const unsigned blocks = static_cast<unsigned>(ceil_div(y.numel, kThreads * vec16(y.dtype)));
    dispatch_packed(y.dtype, [&](auto tag) {
      dropout_dense<typename decltype(tag)::type><<<blocks, kThreads, 0, stream>>>(args, threshold);
    });
    return launched(call);
  }
  const unsigned blocks = static_cast<unsigned>(ceil_div(y.numel, kThreads * kPerThread));
  if (y.dtype == DType::Float64)
    dropout_kernel<double><<<blocks, kThreads, 0, stream>>>(args);
  else
    dropout_kernel<float><<<blocks, kThreads, 0, stream>>>(args);
  return launched(call);
}

}  // namespace shardwise::cuda
