// foreach_add (y += alpha x), foreach_add_scalar (y += scalar), foreach_mul (y *= scalar),
// foreach_norm (the 2-norm of each tensor): many tensors, few launches.
//
// Layout: primitives/multi_tensor.cuh, blocks of 128 threads; add and mul take chunks of 1024
// elements. The norm sums squares per chunk of 8192 elements, a block for each, whose threads load
// four words before they add; then a block for each tensor sums its chunks and takes the root.
// Bytes: add x once and y twice, mul y twice, norm x once, and a word for each chunk twice.
// Operations an element: add a product and a sum, mul a product, norm a square and a sum.
// Numerics: float32 (float64 for float64), one rounding. Squares are added by a thread, then by
// shuffle trees, in an order fixed by sizes and layout, without atomics. They are not scaled, so
// norms beyond the root of float32's range are inf.
// Source: PyTorch's _foreach_add_, _foreach_mul_ and _foreach_norm; tables of pointers as in NVIDIA
// Apex. On an H200, float32, 32 tensors of 4096 x 4096 (PyTorch): add 1476 us (1698), mul 1014
// (1213). Norms of the 148 gradients of GPT-2, bfloat16 and float32: 76 and 124 us (3.3 and 4.0
// TB/s), of 32 of 4096 x 4096: 261 and 479 (4.1 and 4.5).
// Versions: one word in flight 88, 129, 299, 486; two 81, 125, 282, 483. Versions of the updates:
// multi_tensor.cuh.
#include "../../../generated/op_params.h"
#include "../../primitives/multi_tensor.cuh"
#include "../../primitives/reduce.cuh"

namespace shardwise::cuda {
namespace {

using namespace multi;

constexpr int64_t kNormChunk = 8192;  // elements of one partial sum
constexpr int kNormWords = 4;         // words in flight per thread
using NormTable = Table<1, kNormChunk>;

template <class C>
struct AddUpdate {
  using Value = C;
  static constexpr int kRoles = 2;
  static constexpr uint32_t kReads = 0b11, kWrites = 0b01;
  C alpha;
  template <int N>
  __device__ __forceinline__ void operator()(C (&v)[kRoles][N]) const {
#pragma unroll
    for (int i = 0; i < N; i++) v[0][i] += alpha * v[1][i];
  }
};

template <class C>
struct AddScalarUpdate {
  using Value = C;
  static constexpr int kRoles = 1;
  static constexpr uint32_t kReads = 1, kWrites = 1;
  C scalar;
  template <int N>
  __device__ __forceinline__ void operator()(C (&v)[kRoles][N]) const {
#pragma unroll
    for (int i = 0; i < N; i++) v[0][i] += scalar;
  }
};

template <class C>
struct MultiplyUpdate {
  using Value = C;
  static constexpr int kRoles = 1;
  static constexpr uint32_t kReads = 1, kWrites = 1;
  C scalar;
  template <int N>
  __device__ __forceinline__ void operator()(C (&v)[kRoles][N]) const {
#pragma unroll
    for (int i = 0; i < N; i++) v[0][i] *= scalar;
  }
};

// partial[chunk] = sum of squares of a chunk.
template <class C>
__global__ void __launch_bounds__(kThreads)
    square_chunks(const __grid_constant__ NormTable table, C* partial) {
  __shared__ C shared[32];
  const Chunk<1, kNormChunk> chunk(table);
  const void* data = chunk.entry.data[0];
  C sum = C(0);
  for (int64_t i = chunk.begin + threadIdx.x * kWord; i < chunk.rest; i += kStep * kNormWords) {
    uint4 raw[kNormWords][sizeof(C) / 4] = {};  // zeros past the end
#pragma unroll
    for (int w = 0; w < kNormWords; w++)
      if (i + w * kStep < chunk.rest) load_raw4(data, i + w * kStep, table.dtypes[0], raw[w]);
#pragma unroll
    for (int w = 0; w < kNormWords; w++) {
      C v[kWord], squares = C(0);
      convert_raw4(raw[w], table.dtypes[0], v);
#pragma unroll
      for (int j = 0; j < kWord; j++) squares += v[j] * v[j];
      sum += squares;
    }
  }
  for (int64_t i = chunk.rest + threadIdx.x; i < chunk.end; i += kThreads) {
    C v[1];
    load_group_floating(data, i, table.dtypes[0], v);
    sum += v[0] * v[0];
  }
  sum = block_reduce(sum, SumOp(), C(0), shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    square_strided(const __grid_constant__ StridedGroup<1> group, C* partial) {
  __shared__ C shared[32];
  C sum = C(0);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kNormChunk;
  for (int64_t i = begin + threadIdx.x; i < begin + kNormChunk && i < group.numel; i += kThreads) {
    C v[1];
    load_group_floating(group.data[0], group.offsets.get(i)[0], group.dtypes[0], v);
    sum += v[0] * v[0];
  }
  sum = block_reduce(sum, SumOp(), C(0), shared);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Block e: y[index of entry e] = root of the sum of its chunks.
template <class C>
__global__ void __launch_bounds__(kThreads)
    norms(const __grid_constant__ NormTable table, const C* partial, void* y, DType y_dtype) {
  __shared__ C shared[32];
  const Entry<1>& entry = table.entries[blockIdx.x];
  const int64_t chunks = ceil_div(entry.numel, kNormChunk);
  C sum = C(0);
  for (int64_t i = threadIdx.x; i < chunks; i += kThreads) sum += partial[entry.first_chunk + i];
  sum = block_reduce(sum, SumOp(), C(0), shared);
  if (threadIdx.x == 0) store_any<C>(y, entry.index, y_dtype, ::sqrt(sum));
}

// The norms of the tensors of a table. A strided tensor has a table of its own.
template <class C>
void launch_norms(const KernelCall& call, const NormTable& table, C* partial,
                  const TensorView* strided) {
  const cudaStream_t stream = stream_of(call).handle;
  const TensorView& y = call.output(0);
  if (strided) {
    StridedGroup<1> group;
    group.data[0] = strided->data;
    group.dtypes[0] = strided->dtype;
    group.present = 1;
    group.numel = strided->numel;
    Dims<1> dims = dims_of<1>({strided});
    dims.sort_by_stride();
    dims.collapse();
    group.offsets = dims.calculator<kMaxDims>();
    square_strided<C><<<static_cast<unsigned>(table.chunks), kThreads, 0, stream>>>(group, partial);
  } else if (table.chunks > 0) {
    square_chunks<C><<<static_cast<unsigned>(table.chunks), kThreads, 0, stream>>>(table, partial);
  }
  norms<C><<<static_cast<unsigned>(table.count), kThreads, 0, stream>>>(table, partial, y.data,
                                                                        y.dtype);
}

}  // namespace

Status foreach_add(const KernelCall& call) {
  const auto& p = call.params_as<ForeachAddParams>();
  return for_each_group<AddUpdate>(call, static_cast<int32_t>(p.count), 0b11, [&](auto tag) {
    using C = tag_t<decltype(tag)>;
    return AddUpdate<C>{static_cast<C>(p.alpha)};
  });
}

Status foreach_add_scalar(const KernelCall& call) {
  const auto& p = call.params_as<ForeachAddScalarParams>();
  return for_each_group<AddScalarUpdate>(call, static_cast<int32_t>(p.count), 1, [&](auto tag) {
    using C = tag_t<decltype(tag)>;
    return AddScalarUpdate<C>{static_cast<C>(p.scalar)};
  });
}

Status foreach_mul(const KernelCall& call) {
  const auto& p = call.params_as<ForeachMulParams>();
  return for_each_group<MultiplyUpdate>(call, static_cast<int32_t>(p.count), 1, [&](auto tag) {
    using C = tag_t<decltype(tag)>;
    return MultiplyUpdate<C>{static_cast<C>(p.scalar)};
  });
}

Status foreach_norm(const KernelCall& call) {
  const int32_t count = static_cast<int32_t>(call.params_as<ForeachNormParams>().count);
  int64_t chunks = 0;
  for (int32_t i = 0; i < count; i++) {
    if (!is_floating(call.input(i).dtype)) return unsupported(call, call.input(i).dtype);
    chunks += ceil_div(call.input(i).numel, kNormChunk);
  }
  char* scratch = static_cast<char*>(stream_of(call).workspace(chunks * 8 + 8, call));
  if (!scratch) return Status{Code::OutOfMemory};
  NormTable table;
  const auto flush = [&](const TensorView* strided) {
    if (table.count == 0) return;
    if (table.dtypes[0] == DType::Float64)
      launch_norms(call, table, reinterpret_cast<double*>(scratch), strided);
    else
      launch_norms(call, table, reinterpret_cast<float*>(scratch), strided);
    scratch += int64_t(table.chunks) * 8;
    table.count = table.chunks = 0;
  };
  for (int32_t i = 0; i < count; i++) {
    const TensorView* views[1] = {&call.input(i)};
    const bool dense = views[0]->numel == 0 || views[0]->is_contiguous();
    if (!dense || table.count == kMaxTensors || (table.count > 0 && differs(table, views)))
      flush(nullptr);
    if (table.count == 0) start_table(table, views);
    add_entry(table, views, i);
    if (!dense) flush(views[0]);
  }
  flush(nullptr);
  return launched(call);
}

}  // namespace shardwise::cuda
