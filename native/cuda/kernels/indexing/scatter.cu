// scatter: y[..., index[..., j]] = (or +=, *=, max=, min=) src[..., j] along the last dim; y
// already holds the base.
//
// Rows of up to 64 indices: one thread per index compares itself with the others of its row. For a
// set it does nothing if a later index has the same target; for a reduction the first of equal ones
// combines them all, in order, and rounds once. Rows of up to 2048: a block sorts them in shared
// memory, by target and position in one word; a thread a target. Longer rows: the targets of all
// rows are sorted, see segmented_update.cuh. A scalar source that is set needs no order. An invalid
// index is reported and clamped.
// Grid: blocks of 256 threads, a thread an index; rows of 65 to 2048 indices: a block of up to 1024
// threads a row.
// Bytes: indices (in short rows up to 64 times, by neighbours) and sources once, targets written
// once (combining: read, too). Operations: set, none; combining, one an index. Comparisons besides,
// in short rows up to 63 an index.
// Numerics: float32, float64 or int64; an order fixed by the indices, no floating-point atomics.
// Values set in rows of up to 2048 pass through these types, too: a NaN is some NaN, a bool 0 or 1.
// Source: PyTorch's scatter and scatter_reduce; of equal targets the last wins. On an H200, 1,024
// indices a row into [4096, 32768] in float32: sums 189 us (PyTorch, by atomics, 239), set 183
// (254); sums of 16 indices a row into [65536, 1024] 59 (8), most of it the comparisons.
// Versions: a sort of the indices of all rows, through memory: sums 473.
#include <algorithm>

#include "../../../generated/op_params.h"
#include "../../primitives/dtype.cuh"
#include "../../primitives/reduce.cuh"
#include "segmented_update.cuh"

namespace shardwise::cuda {

Status scatter(const KernelCall& call);

namespace {

using namespace indexing;

constexpr int64_t kShortRow = 64, kBlockRow = radix::kSmall;
constexpr int kPlaceBits = 11;  // bits of a position in a row that a block sorts
static_assert(kBlockRow == 1 << kPlaceBits);

struct ScatterArgs {
  int64_t count, k, n, y_step;  // indices in all and per row; size and stride of the last dim of y
  IndexDivide per_row;
  const void* index;
  const void* source;  // null: `scalar` is the source
  void* y;
  DType index_dtype, source_dtype, y_dtype;
  double number;
  Combine combine;
  bool free_order;                  // equal targets need no order
  int64_t index_step, source_step;  // along the last dim
  OffsetCalculator<3> rows;         // y, index, source
  IndexErrorSink errors;
};

template <class Key>
__global__ void __launch_bounds__(kThreads)
    scatter_keys(const __grid_constant__ ScatterArgs args, Key* keys) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.count) return;
  const int64_t row = args.per_row.quotient(i), j = i - row * args.k;
  const int64_t value =
      load_index(args.index, args.rows.get(row)[1] + j * args.index_step, args.index_dtype);
  keys[i] = static_cast<Key>(row * args.n + check_index(value, args.n, false, i, args.errors));
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    scatter_short_rows(const __grid_constant__ ScatterArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.count) return;
  const int64_t row = args.per_row.quotient(i), j = i - row * args.k;
  const Offsets<3> at = args.rows.get(row);
  const auto index_at = [&](int64_t other) {
    return load_index(args.index, at[1] + other * args.index_step, args.index_dtype);
  };
  const auto source_at = [&](int64_t other) {
    const int64_t from[1] = {at[2] + other * args.source_step};
    C value[1] = {static_cast<C>(args.number)};
    if (args.source) load_class<C>(args.source, from, args.source_dtype, value);
    return value[0];
  };
  const int64_t target = check_index(index_at(j), args.n, false, i, args.errors);
  const auto same = [&](int64_t other) {
    const int64_t index = index_at(other);
    return (index < 0 ? 0 : index >= args.n ? args.n - 1 : index) == target;
  };
  C value = source_at(j);
  const int64_t to[1] = {at[0] + target * args.y_step};
  if (args.combine == Combine::Set) {
    if (!args.free_order)
      for (int64_t other = j + 1; other < args.k; other++)
        if (same(other)) return;
  } else {
    for (int64_t other = 0; other < j; other++)
      if (same(other)) return;
    C base[1];
    load_class<C>(args.y, to, args.y_dtype, base);
    for (int64_t other = j + 1; other < args.k; other++)
      if (same(other)) value = join(args.combine, value, source_at(other));
    value = join(args.combine, base[0], value);
  }
  const C values[1] = {value};
  const bool valid[1] = {true};
  store_class<false, C>(args.y, to, args.y_dtype, values, valid);
}

// A block a row. Word: target and position, in 32 bits if they fit.
template <class Word, class C>
__global__ void __launch_bounds__(kBlockRow / 2)
    scatter_block_rows(const __grid_constant__ ScatterArgs args, int size) {
  __shared__ Word words[kBlockRow];
  __shared__ C values[kBlockRow];
  const Offsets<3> at = args.rows.get(blockIdx.x);
  const int k = static_cast<int>(args.k);
  for (int j = threadIdx.x; j < size; j += blockDim.x) {
    Word word = ~Word(0);
    if (j < k) {
      const int64_t index = load_index(args.index, at[1] + j * args.index_step, args.index_dtype);
      word =
          static_cast<Word>(check_index(index, args.n, false, blockIdx.x * args.k + j, args.errors))
              << kPlaceBits |
          j;
    }
    words[j] = word;
  }
  radix::sort_shared(words, size);
  for (int j = threadIdx.x; j < k; j += blockDim.x) {
    const int64_t from[1] = {at[2] +
                             static_cast<int64_t>(words[j] & (kBlockRow - 1)) * args.source_step};
    C value[1] = {static_cast<C>(args.number)};
    if (args.source) load_class<C>(args.source, from, args.source_dtype, value);
    values[j] = value[0];
  }
  __syncthreads();
  const bool sets = args.combine == Combine::Set;
  for (int j = threadIdx.x; j < k; j += blockDim.x) {
    const Word target = words[j] >> kPlaceBits;
    // a set takes the last of equal targets, a reduction starts at the first
    const int other = sets ? j + 1 : j - 1;
    if (other >= 0 && other < k && words[other] >> kPlaceBits == target) continue;
    const int64_t to[1] = {at[0] + static_cast<int64_t>(target) * args.y_step};
    C value[1] = {values[j]};
    if (!sets) {
      C base[1];
      load_class<C>(args.y, to, args.y_dtype, base);
      for (int next = j + 1; next < k && words[next] >> kPlaceBits == target; next++)
        value[0] = join(args.combine, value[0], values[next]);
      value[0] = join(args.combine, base[0], value[0]);
    }
    const bool valid[1] = {true};
    store_class<false, C>(args.y, to, args.y_dtype, value, valid);
  }
}

template <class Word>
Status scatter_by_blocks(const KernelCall& call, const ScatterArgs& args) {
  int size = 2;
  while (size < args.k) size *= 2;
  const unsigned blocks = static_cast<unsigned>(args.count / args.k);
  const cudaStream_t stream = stream_of(call).handle;
  if (!is_floating(args.y_dtype))
    scatter_block_rows<Word, int64_t><<<blocks, size / 2, 0, stream>>>(args, size);
  else if (args.y_dtype == DType::Float64)
    scatter_block_rows<Word, double><<<blocks, size / 2, 0, stream>>>(args, size);
  else
    scatter_block_rows<Word, float><<<blocks, size / 2, 0, stream>>>(args, size);
  return launched(call);
}

Status scatter_sorted(const KernelCall& call, const ScatterArgs& args) {
  const TensorView &index = call.input(0), &source = call.input(1), &y = call.output(0);
  SegmentedUpdate update;
  update.count = args.count;
  update.columns = 1;
  update.key_range = static_cast<uint64_t>(args.count / args.k) * static_cast<uint64_t>(args.n);
  update.combine = args.combine;
  update.alpha = 1;
  update.source = &source;
  update.target = &y;
  for (int32_t d = 0; d < index.ndim; d++) {
    const bool last = d + 1 == index.ndim;
    update.positions.push(index.sizes[d], {source.is_immediate ? 0 : source.strides[d]});
    update.keys.push(last ? args.n : index.sizes[d], {y.strides[d]});
  }
  return update_targets(call, update, [&](auto* keys) {
    scatter_keys<<<static_cast<unsigned>(ceil_div(args.count, kThreads)), kThreads, 0,
                   stream_of(call).handle>>>(args, keys);
  });
}

// `size` indices of one dim from `first` on; `sizes` becomes its sizes.
TensorView narrowed(const TensorView& view, int32_t dim, int64_t first, int64_t size,
                    int64_t (&sizes)[kMaxDims]) {
  if (view.is_immediate) return view;
  TensorView part = view;
  std::copy(view.sizes, view.sizes + view.ndim, sizes);
  sizes[dim] = size;
  part.sizes = sizes;
  part.numel = view.numel / view.sizes[dim] * size;
  part.data = static_cast<char*>(view.data) + first * view.strides[dim] * item_size(view.dtype);
  return part;
}

// More indices than one sort can take: scatters both halves of the longest leading dim, since rows
// are independent. The error of an invalid index reports its position in the half.
Status scatter_halves(const KernelCall& call) {
  const TensorView& index = call.input(0);
  const int32_t dim = static_cast<int32_t>(
      std::max_element(index.sizes, index.sizes + index.ndim - 1) - index.sizes);
  const int64_t half = index.sizes[dim] / 2;
  for (const int64_t first : {int64_t(0), half}) {
    TensorView views[3];
    int64_t sizes[3][kMaxDims];
    for (int i = 0; i < 3; i++)
      views[i] = narrowed(call.tensors[i], dim, first, first == 0 ? half : index.sizes[dim] - half,
                          sizes[i]);
    KernelCall part = call;
    part.tensors = views;
    const Status status = scatter(part);
    if (!status.ok()) return status;
  }
  return kOk;
}

}  // namespace

Status scatter(const KernelCall& call) {
  const TensorView &index = call.input(0), &source = call.input(1), &y = call.output(0);
  if (index.numel == 0) return kOk;
  if (!is_index(index.dtype)) return unsupported(call, index.dtype);
  if (!source.is_immediate && is_floating(source.dtype) != is_floating(y.dtype))
    return unsupported(call, source.dtype);
  const int32_t last = index.ndim - 1;
  ScatterArgs args;
  args.k = last >= 0 ? index.sizes[last] : 1;
  args.n = last >= 0 ? y.sizes[last] : 1;
  if (args.n == 0) return empty_dim(call);
  args.count = index.numel;
  args.per_row = IndexDivide(args.k);
  args.y_step = last >= 0 ? y.strides[last] : 0;
  args.index_step = last >= 0 ? index.strides[last] : 0;
  args.source_step = last >= 0 && !source.is_immediate ? source.strides[last] : 0;
  args.index = index.data;
  args.source = source.is_immediate ? nullptr : source.data;
  args.y = y.data;
  args.index_dtype = index.dtype;
  args.source_dtype = source.dtype;
  args.y_dtype = y.dtype;
  args.number = source.scalar;
  args.combine = static_cast<Combine>(static_cast<int32_t>(call.params_as<ScatterParams>().reduce));
  args.free_order = source.is_immediate && args.combine == Combine::Set;
  args.errors = stream_of(call).index_errors(call);
  Dims<3> rows;
  for (int32_t d = 0; d < last; d++)
    rows.push(index.sizes[d],
              {y.strides[d], index.strides[d], source.is_immediate ? 0 : source.strides[d]});
  rows.collapse();
  args.rows = rows.calculator<kMaxDims>();
  if (args.k > kShortRow && !args.free_order) {
    if (args.k <= kBlockRow && args.count / args.k <= kMax32)
      return args.n <= int64_t(1) << (32 - kPlaceBits) ? scatter_by_blocks<uint32_t>(call, args)
                                                       : scatter_by_blocks<uint64_t>(call, args);
    return args.count > kMax32 && args.count > args.k ? scatter_halves(call)
                                                      : scatter_sorted(call, args);
  }
  const unsigned blocks = static_cast<unsigned>(ceil_div(args.count, kThreads));
  const cudaStream_t stream = stream_of(call).handle;
  if (!is_floating(y.dtype))
    scatter_short_rows<int64_t><<<blocks, kThreads, 0, stream>>>(args);
  else if (y.dtype == DType::Float64)
    scatter_short_rows<double><<<blocks, kThreads, 0, stream>>>(args);
  else
    scatter_short_rows<float><<<blocks, kThreads, 0, stream>>>(args);
  return launched(call);
}

}  // namespace shardwise::cuda
