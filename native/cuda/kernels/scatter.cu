// scatter: y[..., index[..., j]] = (or +=, *=, max=, min=) src[..., j] along the last dim; y already holds the base.
//
// Rows of up to 32 indices: a lane an index, and as many rows as a warp has room for. Lanes of a row with equal targets find each
// other by a match: for a set the last writes, for a reduction the first combines them all, in order, and rounds once.
// Rows of up to 2048: blocks sort them in shared memory, by target and place in one word; a thread a target. Longer rows: the
// targets of all rows are sorted, see segmented_update.cuh. A number as source that is merely set needs no order.
// A bad index is reported and clamped.
// Grid: blocks of 256 threads; rows of 33 to 2048 indices: blocks of up to 1024 threads, two indices a thread.
// Bytes: indices and sources once, targets written once (combining: read, too). Operations: set, none; combining, one an index.
// Numerics: float32, float64 or int64; an order fixed by the indices, no floating-point atomics. What is set in rows of up to
// 2048 passes through these types, too: a NaN is some NaN, a bool 0 or 1. Source: PyTorch's scatter and scatter_reduce; of equal
// targets the last stays.
// On an H200, 1,024 indices a row into [4096, 32768] in float32: sums 189 us (PyTorch, by atomics, 239), set 183 (254).
// 1M indices in rows of 16, 48, 128 into [., 1024]: sums 60, 52, 42 (53, 41, 17), set 48, 48, 37 (52, 47, 15), of which sorts in
// shared memory are most from 33 on. Versions: a sort of the indices of all rows, through memory: sums of 1,024 473; a row a
// block, with barriers of the block after each step of its sort: sums of 48 90; rows of up to 64 by a thread an index that
// compares itself with the others of its row: sums of 16, of neighbouring targets, 59 (PyTorch 8).
#include <algorithm>

#include "../../generated/op_params.h"
#include "../primitives/dtype.cuh"
#include "../primitives/reduce.cuh"
#include "segmented_update.cuh"

namespace shardwise::cuda {

Status scatter(const KernelCall& call);

namespace {

using namespace indexing;

constexpr int64_t kBlockRow = radix::kSmall;
constexpr int kPlaceBits = 11;  // of a place in a row that a block sorts
static_assert(kBlockRow == 1 << kPlaceBits);

struct ScatterArgs {
  int64_t count, k, n, y_step;  // indices in all and per row; size and stride of the last dim of y
  IndexDivide per_row;
  const void* index;
  const void* source;  // null: the number
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
__global__ void __launch_bounds__(kThreads) scatter_keys(const __grid_constant__ ScatterArgs args, Key* keys) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.count) return;
  const int64_t row = args.per_row.quotient(i), j = i - row * args.k;
  const int64_t value = load_index(args.index, args.rows.get(row)[1] + j * args.index_step, args.index_dtype);
  keys[i] = static_cast<Key>(row * args.n + check_index(value, args.n, false, i, args.errors));
}

// What index j of the row that lies `at` puts.
template <class C>
__device__ __forceinline__ C source_of(const ScatterArgs& args, const Offsets<3>& at, int64_t j) {
  C value[1] = {static_cast<C>(args.number)};
  const int64_t from[1] = {at[2] + j * args.source_step};
  if (args.source) load_class<C>(args.source, from, args.source_dtype, value);
  return value[0];
}

// Sets a target of the row that lies `at`, or joins what is there with the value.
template <class C>
__device__ __forceinline__ void put(const ScatterArgs& args, const Offsets<3>& at, int64_t target, C value) {
  const int64_t to[1] = {at[0] + target * args.y_step};
  C result[1] = {value};
  if (args.combine != Combine::Set) {
    load_class<C>(args.y, to, args.y_dtype, result);
    result[0] = join(args.combine, result[0], value);
  }
  const bool valid[1] = {true};
  store_class<false, C>(args.y, to, args.y_dtype, result, valid);
}

// A thread an index.
template <class C>
__global__ void __launch_bounds__(kThreads) scatter_number(const __grid_constant__ ScatterArgs args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.count) return;
  const int64_t row = args.per_row.quotient(i);
  const Offsets<3> at = args.rows.get(row);
  const int64_t index = load_index(args.index, at[1] + (i - row * args.k) * args.index_step, args.index_dtype);
  put<C>(args, at, check_index(index, args.n, false, i, args.errors), static_cast<C>(args.number));
}

// Lanes of a warp for as many rows as it has room for, a lane an index.
template <class C>
__global__ void __launch_bounds__(kThreads) scatter_warp_rows(const __grid_constant__ ScatterArgs args) {
  const int k = static_cast<int>(args.k), rows = kWarpSize / k;
  const int lane = threadIdx.x % kWarpSize, slot = lane / k, j = lane - slot * k;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarpSize) + threadIdx.x / kWarpSize;
  const int64_t row = warp * rows + slot, i = row * k + j;
  const bool active = slot < rows && i < args.count;
  const Offsets<3> at = args.rows.get(active ? row : 0);
  int64_t target = 0;
  C value = C(0);
  if (active) {
    target = check_index(load_index(args.index, at[1] + j * args.index_step, args.index_dtype), args.n, false, i, args.errors);
    value = source_of<C>(args, at, j);
  }
  const unsigned long long key = active ? static_cast<unsigned long long>(target) * kWarpSize + slot : ~0ull;
  const unsigned equal = __match_any_sync(kFullWarp, key);
  if (args.combine == Combine::Set) {
    if (active && equal >> lane == 1) put<C>(args, at, target, value);  // the last of equal targets
    return;
  }
  const bool first = active && (equal & ((1u << lane) - 1)) == 0;
  for (unsigned others = first ? equal & (equal - 1) : 0; __any_sync(kFullWarp, others != 0); others &= others - 1) {
    const C other = __shfl_sync(kFullWarp, value, others != 0 ? __ffs(others) - 1 : lane);
    if (others != 0) value = join(args.combine, value, other);
  }
  if (first) put<C>(args, at, target, value);
}

// Rows that a block sorts. Word: target and place, in 32 bits if they fit.
template <class Word, class C>
__global__ void __launch_bounds__(kBlockRow / 2) scatter_block_rows(const __grid_constant__ ScatterArgs args, int length) {
  __shared__ Word all_words[kBlockRow];
  __shared__ C all_values[kBlockRow];
  const radix::SmallRow own(length);
  Word* const words = all_words + own.base;
  C* const values = all_values + own.base;
  const int k = own.row * args.k < args.count ? static_cast<int>(args.k) : 0;  // of rows beyond the last, none
  const Offsets<3> at = args.rows.get(k > 0 ? own.row : 0);
  for (int j = own.first; j < length; j += own.step) {
    Word word = ~Word(0);
    if (j < k) {
      const int64_t index = load_index(args.index, at[1] + j * args.index_step, args.index_dtype);
      word = static_cast<Word>(check_index(index, args.n, false, own.row * args.k + j, args.errors)) << kPlaceBits | j;
    }
    words[j] = word;
  }
  radix::sort_shared(all_words, 2 * blockDim.x, length);
  for (int j = own.first; j < k; j += own.step) values[j] = source_of<C>(args, at, words[j] & (kBlockRow - 1));
  __syncthreads();
  const bool sets = args.combine == Combine::Set;
  for (int j = own.first; j < k; j += own.step) {
    const Word target = words[j] >> kPlaceBits;
    const int other = sets ? j + 1 : j - 1;  // the last of equal targets is set, the first combines
    if (other >= 0 && other < k && words[other] >> kPlaceBits == target) continue;
    C value = values[j];
    for (int next = j + 1; next < k && words[next] >> kPlaceBits == target; next++)
      value = join(args.combine, value, values[next]);
    put<C>(args, at, static_cast<int64_t>(target), value);
  }
}

template <class C>
Status scatter_in_place(const KernelCall& call, const ScatterArgs& args) {
  const cudaStream_t stream = stream_of(call).handle;
  const int64_t rows = args.count / args.k;
  if (args.free_order) {
    scatter_number<C><<<static_cast<unsigned>(ceil_div(args.count, kThreads)), kThreads, 0, stream>>>(args);
  } else if (args.k <= kWarpSize) {
    const int64_t per_block = kThreads / kWarpSize * (kWarpSize / args.k);
    scatter_warp_rows<C><<<static_cast<unsigned>(ceil_div(rows, per_block)), kThreads, 0, stream>>>(args);
  } else {
    const radix::SmallRows small = radix::small_rows(rows, args.k, stream_of(call).facts->num_sms);
    const bool narrow = args.n <= int64_t(1) << (32 - kPlaceBits);
    const auto kernel = narrow ? scatter_block_rows<uint32_t, C> : scatter_block_rows<uint64_t, C>;
    kernel<<<small.blocks, small.threads(), 0, stream>>>(args, small.length);
  }
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
    scatter_keys<<<static_cast<unsigned>(ceil_div(args.count, kThreads)), kThreads, 0, stream_of(call).handle>>>(args, keys);
  });
}

// `size` places from `first` on of one dim; `sizes` becomes its sizes.
TensorView narrowed(const TensorView& view, int32_t dim, int64_t first, int64_t size, int64_t (&sizes)[kMaxDims]) {
  if (view.is_immediate) return view;
  TensorView part = view;
  std::copy(view.sizes, view.sizes + view.ndim, sizes);
  sizes[dim] = size;
  part.sizes = sizes;
  part.numel = view.numel / view.sizes[dim] * size;
  part.data = static_cast<char*>(view.data) + first * view.strides[dim] * item_size(view.dtype);
  return part;
}

// More indices than can be sorted at once: both halves of the longest leading dim, since rows do not know of each other. A bad
// index is told by its place in its part.
Status scatter_halves(const KernelCall& call) {
  const TensorView& index = call.input(0);
  const int32_t dim = static_cast<int32_t>(std::max_element(index.sizes, index.sizes + index.ndim - 1) - index.sizes);
  const int64_t half = index.sizes[dim] / 2;
  for (const int64_t first : {int64_t(0), half}) {
    TensorView views[3];
    int64_t sizes[3][kMaxDims];
    for (int i = 0; i < 3; i++)
      views[i] = narrowed(call.tensors[i], dim, first, first == 0 ? half : index.sizes[dim] - half, sizes[i]);
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
  if (!source.is_immediate && is_floating(source.dtype) != is_floating(y.dtype)) return unsupported(call, source.dtype);
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
    rows.push(index.sizes[d], {y.strides[d], index.strides[d], source.is_immediate ? 0 : source.strides[d]});
  rows.collapse();
  args.rows = rows.calculator<kMaxDims>();
  const bool in_place = args.free_order || args.k <= kWarpSize || (args.k <= kBlockRow && args.count / args.k <= kMax32);
  if (!in_place) return args.count > kMax32 && args.count > args.k ? scatter_halves(call) : scatter_sorted(call, args);
  return with_compute_type(y.dtype, [&](auto tag) { return scatter_in_place<tag_t<decltype(tag)>>(call, args); });
}

}  // namespace shardwise::cuda
