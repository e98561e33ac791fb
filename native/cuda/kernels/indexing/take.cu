// index_select, index_get: gathers whole rows by index.
//   index_select  y[a, j, b] = x[a, index[j], b]
//   index_get     y[I..., rest...] = x[i1[I], ..., ik[I], rest...]
//
// Both are y[a, p, c] = x[a * stride + offset(key of p) + offset(c)] with y contiguous, copied as
// words of up to 16 bytes if the rows are dense. Each thread copies 4 words, 256 apart, a block of
// 256 threads 1024. The kernel reads one index tensor itself; tuples become keys first
// (index_keys.cu). Bytes: the selected rows and the indices once, y once; it copies bits. An
// invalid index is reported and clamped; negative ones count from the end in index_get.
// Source: PyTorch's index_select (embeddings use it) and indexing by tensors. On an H200, 16,384
// rows of [128256, 4096] in bfloat16: 76 us (3.5 TB/s; PyTorch 72). Versions: each word's index,
// check and load in turn 84.
#include "../../../generated/op_params.h"
#include "../../primitives/dtype.cuh"
#include "../../primitives/vector.cuh"
#include "index_keys.cuh"

namespace shardwise::cuda {
namespace {

using namespace indexing;

constexpr int kPerThread = 4;

struct TakeArgs {
  const void* x;
  void* y;
  int64_t count;                   // words of y
  IndexDivide columns, positions;  // words per row, rows per a
  int64_t outer_stride;            // of a, in words
  const void* index;
  const uint64_t* keys;  // replaces index if not null
  DType index_dtype;
  bool wrap;
  int64_t size;  // of the indexed dim
  OffsetCalculator<1> index_offsets, key_offsets, column_offsets;
  IndexErrorSink errors;
};

// In steps, so that the loads of all words of a thread are in flight together: first of indices,
// then of words.
template <class Word>
__global__ void __launch_bounds__(kThreads) take_rows(const __grid_constant__ TakeArgs args) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
  int64_t keys[kPerThread], positions[kPerThread], from[kPerThread];
#pragma unroll
  for (int u = 0; u < kPerThread; u++) {
    const int64_t wanted = first + u * kThreads, i = wanted < args.count ? wanted : args.count - 1;
    const int64_t row = args.columns.quotient(i), column = i - row * args.columns.size;
    const int64_t outer = args.positions.quotient(row);
    positions[u] = row - outer * args.positions.size;
    from[u] = outer * args.outer_stride + args.column_offsets.get(column)[0];
    keys[u] = args.keys ? static_cast<int64_t>(args.keys[positions[u]])
                        : load_index(args.index, args.index_offsets.get(positions[u])[0],
                                     args.index_dtype);
  }
  Word words[kPerThread];
#pragma unroll
  for (int u = 0; u < kPerThread; u++) {
    if (!args.keys) keys[u] = check_index(keys[u], args.size, args.wrap, positions[u], args.errors);
    from[u] += args.key_offsets.get(keys[u])[0];
  }
#pragma unroll
  for (int u = 0; u < kPerThread; u++) words[u] = static_cast<const Word*>(args.x)[from[u]];
#pragma unroll
  for (int u = 0; u < kPerThread; u++)
    if (first + u * kThreads < args.count)
      static_cast<Word*>(args.y)[first + u * kThreads] = words[u];
}

// Widens the words if rows are dense: scales every stride of x to words. Returns the bytes of a
// word.
int64_t widen(Dims<1>& columns, Dims<1>& keys, int64_t& outer_stride, int64_t item, const void* x,
              const void* y) {
  const int32_t inner = columns.ndim - 1;
  if (inner < 0 || columns.strides[0][inner] != 1) return item;
  int64_t word = 16;
  for (; word > item; word /= 2) {
    bool fits = is_aligned(x, word) && is_aligned(y, word) &&
                columns.sizes[inner] * item % word == 0 && outer_stride * item % word == 0;
    for (int32_t d = 0; d < inner; d++) fits = fits && columns.strides[0][d] * item % word == 0;
    for (int32_t d = 0; d < keys.ndim; d++) fits = fits && keys.strides[0][d] * item % word == 0;
    if (fits) break;
  }
  const int64_t elements = word / item;
  columns.sizes[inner] /= elements;
  for (int32_t d = 0; d < inner; d++) columns.strides[0][d] /= elements;
  for (int32_t d = 0; d < keys.ndim; d++) keys.strides[0][d] /= elements;
  outer_stride /= elements;
  return word;
}

// `args` has index or keys, size, wrap, errors.
Status launch_take(const KernelCall& call, TakeArgs& args, int64_t outer, int64_t outer_stride,
                   int64_t positions, Dims<1> keys, Dims<1> columns) {
  const TensorView &x = call.input(0), &y = call.output(0);
  columns.collapse();
  const int64_t word = widen(columns, keys, outer_stride, item_size(x.dtype), x.data, y.data);
  args.x = x.data;
  args.y = y.data;
  args.outer_stride = outer_stride;
  args.columns = IndexDivide(columns.numel());
  args.positions = IndexDivide(positions);
  args.count = outer * positions * columns.numel();
  args.key_offsets = keys.calculator<kMaxDims>();
  args.column_offsets = columns.calculator<kMaxDims>();
  const unsigned blocks = static_cast<unsigned>(ceil_div(args.count, kThreads * kPerThread));
  const cudaStream_t stream = stream_of(call).handle;
  switch (word) {
    case 16:
      take_rows<uint4><<<blocks, kThreads, 0, stream>>>(args);
      break;
    case 8:
      take_rows<uint64_t><<<blocks, kThreads, 0, stream>>>(args);
      break;
    case 4:
      take_rows<uint32_t><<<blocks, kThreads, 0, stream>>>(args);
      break;
    case 2:
      take_rows<uint16_t><<<blocks, kThreads, 0, stream>>>(args);
      break;
    default:
      take_rows<uint8_t><<<blocks, kThreads, 0, stream>>>(args);
      break;
  }
  return launched(call);
}

void set_index(TakeArgs& args, const TensorView& index, int64_t size, bool wrap) {
  args.index = index.data;
  args.keys = nullptr;
  args.index_dtype = index.dtype;
  args.size = size;
  args.wrap = wrap;
  Dims<1> dims = dims_of<1>({&index});
  dims.collapse();
  args.index_offsets = dims.calculator<kMaxDims>();
}

}  // namespace

Status index_select(const KernelCall& call) {
  const TensorView &x = call.input(0), &index = call.input(1), &y = call.output(0);
  if (y.numel == 0) return kOk;
  if (!is_index(index.dtype)) return unsupported(call, index.dtype);
  if (x.sizes[1] == 0) return empty_dim(call);
  TakeArgs args = {};
  args.errors = stream_of(call).index_errors(call);
  set_index(args, index, x.sizes[1], false);
  Dims<1> keys, columns;
  keys.push(x.sizes[1], {x.strides[1]});
  columns.push(x.sizes[2], {x.strides[2]});
  return launch_take(call, args, x.sizes[0], x.strides[0], index.numel, keys, columns);
}

Status index_get(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  if (y.numel == 0) return kOk;
  const int32_t k = static_cast<int32_t>(call.params_as<IndexGetParams>().num_indices);
  Dims<1> keys, columns;
  for (int32_t i = 0; i < k; i++) {
    if (!is_index(call.input(1 + i).dtype)) return unsupported(call, call.input(1 + i).dtype);
    if (x.sizes[i] == 0) return empty_dim(call);
    keys.push(x.sizes[i], {x.strides[i]});
  }
  keys.collapse();
  for (int32_t d = k; d < x.ndim; d++) columns.push(x.sizes[d], {x.strides[d]});
  TakeArgs args = {};
  args.errors = stream_of(call).index_errors(call);
  const int64_t positions = positions_of(call, 1);
  if (k == 1) {
    set_index(args, call.input(1), x.sizes[0], true);
  } else {
    uint64_t* scratch = static_cast<uint64_t*>(stream_of(call).workspace(positions * 8, call));
    if (!scratch) return Status{Code::OutOfMemory};
    launch_tuple_keys(call, k, x.sizes, positions, scratch);
    args.keys = scratch;
  }
  return launch_take(call, args, 1, 0, positions, keys, columns);
}

}  // namespace shardwise::cuda
