// fill, arange, linspace, tri: tensors from numbers (tri: masks the last two dims).
//
// fill writes words of up to 16 bytes, 4 per thread. arange and linspace compute in float64 (int64
// for integer arange) and round once: value i is start + i * step without a fused multiply-add;
// linspace counts from both ends towards the middle. tri keeps element (i, j) of the last two dims
// if j - i <= diagonal (lower) or >= diagonal (upper); it copies bits.
// Grid: one block of 256 threads per 1024 words or elements. Bytes: y once; tri reads only the kept
// elements. Operations: none in fill and tri, a product and a sum an element in arange and
// linspace.
// Source: PyTorch's full, arange, linspace, tril and triu. On an H200 (PyTorch): fill of 1 GiB 230
// us (231), linspace of as much float32 512 (2523), arange of 2^28 bfloat16 493 (2524), the lower
// triangle of 16384 x 16384 in float32 736 (667). No other version was timed.
#include "../../../generated/op_params.h"
#include "../../primitives/dtype.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/pdl.cuh"
#include "../../primitives/vector.cuh"
#include "../../stream.h"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

unsigned blocks_for(int64_t count) {
  return static_cast<unsigned>(ceil_div(count, kThreads * kPerThread));
}

__device__ __forceinline__ int64_t thread_index(int u) {
  return static_cast<int64_t>(blockIdx.x) * (kThreads * kPerThread) + u * kThreads + threadIdx.x;
}

struct FillArgs {
  int64_t count;
  void* y;
  uint4 pattern;  // the element, repeated
  OffsetCalculator<1> offsets;
};

template <class Word>
__global__ void __launch_bounds__(kThreads) fill_words(const __grid_constant__ FillArgs args) {
  pdl_begin();
  const Word word = *reinterpret_cast<const Word*>(&args.pattern);
#pragma unroll
  for (int u = 0; u < kPerThread; u++) {
    const int64_t i = thread_index(u);
    if (i < args.count) static_cast<Word*>(args.y)[args.offsets.get(i)[0]] = word;
  }
}

// The bits of a number in a dtype.
uint64_t bits_of(DType dtype, const FillParams& p) {
  uint64_t bits = 0;
  const auto put = [&bits](auto value) { memcpy(&bits, &value, sizeof value); };
  switch (dtype) {
    case DType::Float32:
      put(static_cast<float>(p.value_high));
      return bits;
    case DType::Float64:
      put(p.value_high);
      return bits;
    case DType::Float16:
      put(__double2half(p.value_high));
      return bits;
    case DType::BFloat16:
      put(__double2bfloat16(p.value_high));
      return bits;
    case DType::Bool:
      return p.value_high != 0 || p.value_low != 0 ? 1 : 0;
    default:
      return (static_cast<uint64_t>(static_cast<int64_t>(p.value_high)) << 32) +
             static_cast<uint64_t>(static_cast<int64_t>(p.value_low));
  }
}

struct SequenceArgs {
  int64_t count, stride;
  void* y;
  DType dtype;
  double start, step, end;
  bool symmetric;
  bool whole;  // int64 arithmetic
};

__global__ void __launch_bounds__(kThreads) sequence(const SequenceArgs args) {
#pragma unroll 1
  for (int u = 0; u < kPerThread; u++) {
    const int64_t i = thread_index(u);
    if (i >= args.count) return;
    if (args.whole) {
      const int64_t value = static_cast<int64_t>(args.start) + i * static_cast<int64_t>(args.step);
      store_any<int64_t>(args.y, i * args.stride, args.dtype, value);
      continue;
    }
    double value;
    if (!args.symmetric || i < args.count / 2 || args.count == 1)
      value = __dadd_rn(args.start, __dmul_rn(static_cast<double>(i), args.step));
    else
      value = __dadd_rn(args.end, -__dmul_rn(static_cast<double>(args.count - 1 - i), args.step));
    store_any<double>(args.y, i * args.stride, args.dtype, value);
  }
}

Status run_sequence(const KernelCall& call, double start, double step, double end, bool symmetric) {
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  const bool whole = !symmetric && !is_floating(y.dtype);
  const SequenceArgs args = {
      y.numel, y.ndim == 1 ? y.strides[0] : 1, y.data, y.dtype, start, step, end, symmetric, whole};
  sequence<<<blocks_for(y.numel), kThreads, 0, stream_of(call).handle>>>(args);
  return launched(call);
}

struct TriArgs {
  int64_t count, diagonal;
  bool upper;
  const void* x;
  void* y;
  IndexDivide columns, rows;
  OffsetCalculator<1> offsets;  // of x
};

template <class Word>
__global__ void __launch_bounds__(kThreads) tri_words(const __grid_constant__ TriArgs args) {
  Word words[kPerThread];
#pragma unroll
  for (int u = 0; u < kPerThread; u++) {
    const int64_t i = thread_index(u);
    words[u] = 0;
    if (i >= args.count) continue;
    const int64_t row = args.columns.quotient(i), column = i - row * args.columns.size;
    const int64_t distance = column - (row - args.rows.quotient(row) * args.rows.size);
    if (args.upper ? distance >= args.diagonal : distance <= args.diagonal)
      words[u] = static_cast<const Word*>(args.x)[args.offsets.get(i)[0]];
  }
#pragma unroll
  for (int u = 0; u < kPerThread; u++) {
    const int64_t i = thread_index(u);
    if (i < args.count) static_cast<Word*>(args.y)[i] = words[u];
  }
}

}  // namespace

Status fill(const KernelCall& call) {
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  Dims<1> dims = dims_of<1>({&y});
  dims.sort_by_stride();
  dims.collapse();
  const int64_t item = item_size(y.dtype);
  const uint64_t bits = bits_of(y.dtype, call.params_as<FillParams>());
  FillArgs args;
  for (int64_t at = 0; at < 16; at += item)
    memcpy(reinterpret_cast<char*>(&args.pattern) + at, &bits, item);

  int64_t word = item;
  const int32_t inner = dims.ndim - 1;
  if (inner >= 0 && dims.strides[0][inner] == 1) {
    for (word = 16; word > item; word /= 2) {
      bool fits = is_aligned(y.data, word) && dims.sizes[inner] * item % word == 0;
      for (int32_t d = 0; d < inner; d++) fits = fits && dims.strides[0][d] * item % word == 0;
      if (fits) break;
    }
    dims.sizes[inner] /= word / item;
    for (int32_t d = 0; d < inner; d++) dims.strides[0][d] /= word / item;
  }
  args.count = dims.numel();
  args.y = y.data;
  args.offsets = dims.calculator<kMaxDims>();
  const Stream& stream = stream_of(call);
  const LaunchShape shape{dim3(blocks_for(args.count)), kThreads};
  switch (word) {
    case 16:
      launch_pdl(fill_words<uint4>, shape, stream, args);
      break;
    case 8:
      launch_pdl(fill_words<uint64_t>, shape, stream, args);
      break;
    case 4:
      launch_pdl(fill_words<uint32_t>, shape, stream, args);
      break;
    case 2:
      launch_pdl(fill_words<uint16_t>, shape, stream, args);
      break;
    default:
      launch_pdl(fill_words<uint8_t>, shape, stream, args);
      break;
  }
  return launched(call);
}

Status arange(const KernelCall& call) {
  const auto& p = call.params_as<ArangeParams>();
  return run_sequence(call, p.start, p.step, 0, false);
}

Status linspace(const KernelCall& call) {
  const auto& p = call.params_as<LinspaceParams>();
  const int64_t n = call.output(0).numel;
  return run_sequence(call, p.start, n > 1 ? (p.end - p.start) / static_cast<double>(n - 1) : 0,
                      p.end, true);
}

Status tri(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  if (y.numel == 0) return kOk;
  const auto& p = call.params_as<TriParams>();
  TriArgs args;
  args.count = y.numel;
  args.diagonal = number_as<int64_t>(p.diagonal);
  args.upper = p.upper != 0;
  args.x = x.data;
  args.y = y.data;
  args.columns = IndexDivide(x.sizes[x.ndim - 1]);
  args.rows = IndexDivide(x.sizes[x.ndim - 2]);
  Dims<1> dims = dims_of<1>({&x});
  dims.collapse();
  args.offsets = dims.calculator<kMaxDims>();
  dispatch_size(y.dtype, [&](auto tag) {
    tri_words<tag_t<decltype(tag)>>
        <<<blocks_for(args.count), kThreads, 0, stream_of(call).handle>>>(args);
  });
  return launched(call);
}

}  // namespace shardwise::cuda
