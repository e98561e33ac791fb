// The update after the sort: see segmented_update.cuh.
//
// Set: one thread per (sorted position, column word); the last of a segment copies, the others
// return. Sums of rows of aligned 16-byte vectors: a block per (sorted position, chunk of the row).
// Other combinations: one thread per (sorted position, column); the first of a segment of up to 32
// positions combines all of it. Longer segments are put on a list (in any order) that a second
// kernel processes: a block takes one segment and up to 32 columns, its threads sum interleaved
// chunks and combine them by a tree.
// Grid: blocks of 256 threads (fewer for rows of fewer vectors); for long segments 4 blocks an SM.
// Bytes: every source element once, each target read and written once. Operations: set, none; sums
// a product by alpha and a sum for each source element, other reductions one.
// Numerics: float32, float64 or int64, the base added last, one rounding a target; an order fixed
// by the keys and the columns. The list's counter is the only atomic.
// Source: written for this library; PyTorch's gradient of embeddings also sorts its indices. On one
// H200: 16384 rows of 4096 bf16 into 128256 rows, a thread per element 690 us, rows of vectors 154
// us, sort included.
#include <cstring>

#include "../../primitives/dtype.cuh"
#include "../../primitives/packed.cuh"
#include "../../primitives/reduce.cuh"
#include "../../primitives/vector.cuh"
#include "segmented_update.cuh"

namespace shardwise::cuda::indexing::detail {
namespace {

constexpr int64_t kShort = 32;

template <class Key>
struct UpdateArgs {
  int64_t count, columns;
  const Key* keys;
  const uint32_t* positions;
  uint32_t* list;      // [0]: number of long segments, then their starts
  const void* source;  // null: `scalar` is the source
  void* target;
  DType source_dtype, target_dtype;
  Combine combine;
  double alpha, number;
  uint64_t pattern[2];  // the scalar's bits, repeated (Set)
  IndexDivide by_column;
  int32_t tile_columns;  // columns of a block of the long segments: a power of two up to 32
  OffsetCalculator<1> position_offsets, key_offsets;
  OffsetCalculator<2> column_offsets;  // target, source
};

template <class Key, class Word>
__global__ void __launch_bounds__(kThreads)
    set_targets(const __grid_constant__ UpdateArgs<Key> args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t entry = args.by_column.quotient(i), column = i - entry * args.columns;
  if (entry >= args.count) return;
  const Key key = args.keys[entry];
  if (entry + 1 < args.count && args.keys[entry + 1] == key) return;
  const Offsets<2> at = args.column_offsets.get(column);
  const Word word =
      args.source
          ? static_cast<const Word*>(
                args.source)[args.position_offsets.get_small(args.positions[entry])[0] + at[1]]
          : *reinterpret_cast<const Word*>(args.pattern);
  static_cast<Word*>(args.target)[args.key_offsets.get(static_cast<int64_t>(key))[0] + at[0]] =
      word;
}

template <class C, class Key>
__device__ __forceinline__ C source_at(const UpdateArgs<Key>& args, int64_t entry,
                                       int64_t column_offset) {
  C value = static_cast<C>(args.number);
  if (args.source) {
    const int64_t at[1] = {args.position_offsets.get_small(args.positions[entry])[0] +
                           column_offset};
    C one[1];
    load_class<C>(args.source, at, args.source_dtype, one);
    value = one[0];
  }
  return args.combine == Combine::Add ? value * static_cast<C>(args.alpha) : value;
}

template <class C, class Key>
__device__ __forceinline__ void store_joined(const UpdateArgs<Key>& args, Key key,
                                             int64_t column_offset, C sum) {
  const int64_t at[1] = {args.key_offsets.get(static_cast<int64_t>(key))[0] + column_offset};
  C base[1];
  load_class<C>(args.target, at, args.target_dtype, base);
  base[0] = join(args.combine, base[0], sum);
  const bool valid[1] = {true};
  store_class<false, C>(args.target, at, args.target_dtype, base, valid);
}

template <class C, class Key>
__global__ void __launch_bounds__(kThreads)
    combine_short(const __grid_constant__ UpdateArgs<Key> args) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t entry = args.by_column.quotient(i), column = i - entry * args.columns;
  if (entry >= args.count) return;
  const Key key = args.keys[entry];
  if (entry > 0 && args.keys[entry - 1] == key) return;
  if (entry + kShort < args.count && args.keys[entry + kShort] == key) {
    if (column == 0) args.list[1 + atomicAdd(args.list, 1u)] = static_cast<uint32_t>(entry);
    return;
  }
  const Offsets<2> at = args.column_offsets.get(column);
  C sum = source_at<C>(args, entry, at[1]);
  for (int64_t j = entry + 1; j < args.count && args.keys[j] == key; j++)
    sum = join(args.combine, sum, source_at<C>(args, j, at[1]));
  store_joined<C>(args, key, at[0], sum);
}

// combine_short for sums of rows of `vectors` 16-byte vectors of one type T: a block for each
// (sorted position, chunk of the row).
template <class T, class Key>
__global__ void __launch_bounds__(kThreads)
    add_short_rows(const __grid_constant__ UpdateArgs<Key> args, int32_t vectors, int32_t chunks) {
  constexpr int V = kVec16<T>;
  const int64_t entry = blockIdx.x / chunks;
  const int32_t chunk = static_cast<int32_t>(blockIdx.x - entry * chunks),
                v = chunk * blockDim.x + threadIdx.x;
  const Key key = args.keys[entry];
  const uint32_t first = args.positions[entry];
  if (entry > 0 && args.keys[entry - 1] == key) return;
  if (entry + kShort < args.count && args.keys[entry + kShort] == key) {
    if (v == 0) args.list[1 + atomicAdd(args.list, 1u)] = static_cast<uint32_t>(entry);
    return;
  }
  if (v >= vectors) return;
  const float alpha = static_cast<float>(args.alpha);
  T* to = static_cast<T*>(args.target) + args.key_offsets.get(static_cast<int64_t>(key))[0];
  const uint4 old = reinterpret_cast<const uint4*>(to)[v];
  float sum[V], base[V];
  auto load = [&](uint32_t position, float(&out)[V]) {
    const T* row =
        static_cast<const T*>(args.source) + args.position_offsets.get_small(position)[0];
    unpack<T>(__ldcs(reinterpret_cast<const uint4*>(row) + v), out);
  };
  load(first, sum);
#pragma unroll
  for (int i = 0; i < V; i++) sum[i] *= alpha;
  for (int64_t j = entry + 1; j < args.count && args.keys[j] == key; j++) {
    float more[V];
    load(args.positions[j], more);
#pragma unroll
    for (int i = 0; i < V; i++) sum[i] += more[i] * alpha;
  }
  unpack<T>(old, base);
#pragma unroll
  for (int i = 0; i < V; i++) base[i] += sum[i];
  reinterpret_cast<uint4*>(to)[v] = pack<T>(base);
}

// Starts add_short_rows if source and target have one dtype and their rows are aligned vectors
// without gaps.
template <class Key>
bool launch_short_rows(cudaStream_t stream, const UpdateArgs<Key>& args, const Dims<2>& columns,
                       const Dims<1>& keys, const Dims<1>& positions) {
  const int64_t width = vec16(args.target_dtype);
  if (args.combine != Combine::Add || !args.source || args.source_dtype != args.target_dtype ||
      columns.ndim != 1)
    return false;
  if (columns.strides[0][0] != 1 || columns.strides[1][0] != 1 || args.columns % width != 0 ||
      args.columns < 16 * width)
    return false;
  if (!is_aligned(args.source, 16) || !is_aligned(args.target, 16)) return false;
  for (int32_t d = 0; d < keys.ndim; d++)
    if (keys.strides[0][d] % width != 0) return false;
  for (int32_t d = 0; d < positions.ndim; d++)
    if (positions.strides[0][d] % width != 0) return false;
  const int64_t vectors = args.columns / width;
  const int32_t threads =
      vectors >= kThreads ? kThreads : static_cast<int32_t>(round_up(vectors, 32));
  const int64_t chunks = ceil_div(vectors, threads);
  if (args.count * chunks >= (int64_t(1) << 31)) return false;
  return dispatch_packed(args.target_dtype, [&](auto tag) {
    add_short_rows<tag_t<decltype(tag)>>
        <<<static_cast<unsigned>(args.count * chunks), threads, 0, stream>>>(
            args, static_cast<int32_t>(vectors), static_cast<int32_t>(chunks));
  });
}

// The end of the segment that starts at `begin`.
template <class Key>
__device__ __forceinline__ int64_t segment_end(const Key* keys, int64_t begin, int64_t count) {
  const Key key = keys[begin];
  int64_t low = begin + 1, high = count;  // the first entry with another key is in [low, high]
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] == key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

template <class C, class Key>
__global__ void __launch_bounds__(kThreads)
    combine_long(const __grid_constant__ UpdateArgs<Key> args) {
  __shared__ C shared[kThreads];
  const int width = args.tile_columns, height = kThreads / width;
  const int tx = threadIdx.x % width, ty = threadIdx.x / width;
  const int64_t tiles = ceil_div(args.columns, width), items = args.list[0] * tiles;
  for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const int64_t begin = args.list[1 + item / tiles], column = item % tiles * width + tx;
    const int64_t end = segment_end(args.keys, begin, args.count);
    const bool active = column < args.columns;
    const Offsets<2> at = args.column_offsets.get(active ? column : 0);
    C sum = C(0);
    bool any = false;
    for (int64_t j = begin + ty; active && j < end; j += height) {
      const C value = source_at<C>(args, j, at[1]);
      sum = any ? join(args.combine, sum, value) : value;
      any = true;
    }
    shared[threadIdx.x] = sum;
    // Rows beyond the segment's length are empty; the reductions skip them.
    const int64_t filled = end - begin < height ? end - begin : height;
    for (int half = height / 2; half > 0; half >>= 1) {
      __syncthreads();
      if (ty < half && ty + half < filled)
        shared[threadIdx.x] =
            join(args.combine, shared[threadIdx.x], shared[threadIdx.x + half * width]);
    }
    __syncthreads();
    if (ty == 0 && active) store_joined<C>(args, args.keys[begin], at[0], shared[tx]);
    __syncthreads();
  }
}

template <class C, class Key>
Status launch_combine(const KernelCall& call, const UpdateArgs<Key>& args, bool short_done) {
  Stream& stream = stream_of(call);
  if (!short_done) {
    const unsigned blocks = static_cast<unsigned>(ceil_div(args.count * args.columns, kThreads));
    combine_short<C><<<blocks, kThreads, 0, stream.handle>>>(args);
  }
  if (args.count > kShort)
    combine_long<C><<<stream.facts->num_sms * 4, kThreads, 0, stream.handle>>>(args);
  return launched(call);
}

// The scalar as an element, repeated over 16 bytes.
void fill_pattern(DType dtype, double number, uint64_t (&pattern)[2]) {
  uint64_t bits = 0;
  const auto put = [&bits](auto value) { memcpy(&bits, &value, sizeof value); };
  switch (dtype) {
    case DType::Float32:
      put(static_cast<float>(number));
      break;
    case DType::Float64:
      put(number);
      break;
    case DType::Float16:
      put(__double2half(number));
      break;
    case DType::BFloat16:
      put(__double2bfloat16(number));
      break;
    case DType::Bool:
      bits = number != 0;
      break;
    default:
      bits = static_cast<uint64_t>(number_as<int64_t>(number));
      break;
  }
  const int64_t item = item_size(dtype);
  for (int64_t at = 0; at < 16; at += item)
    memcpy(reinterpret_cast<char*>(pattern) + at, &bits, item);
}

// Copies can move words wider than one element if the columns are dense on both sides.
int64_t widen(Dims<2>& columns, Dims<1>& keys, Dims<1>& positions, int64_t item, const void* target,
              const void* source) {
  const int32_t inner = columns.ndim - 1;
  if (inner < 0 || columns.strides[0][inner] != 1 || (source && columns.strides[1][inner] != 1))
    return item;
  const auto all_fit = [item](const auto& dims, int operand, int32_t ndim, int64_t word) {
    for (int32_t d = 0; d < ndim; d++)
      if (dims.strides[operand][d] * item % word != 0) return false;
    return true;
  };
  int64_t word = 16;
  for (; word > item; word /= 2) {
    const bool fits = is_aligned(target, word) && is_aligned(source, word) &&
                      columns.sizes[inner] * item % word == 0 && all_fit(columns, 0, inner, word) &&
                      (!source || all_fit(columns, 1, inner, word)) &&
                      all_fit(keys, 0, keys.ndim, word) &&
                      (!source || all_fit(positions, 0, positions.ndim, word));
    if (fits) break;
  }
  const int64_t elements = word / item;
  columns.sizes[inner] /= elements;
  for (int32_t d = 0; d < inner; d++)
    columns.strides[0][d] /= elements, columns.strides[1][d] /= elements;
  for (int32_t d = 0; d < keys.ndim; d++) keys.strides[0][d] /= elements;
  for (int32_t d = 0; d < positions.ndim; d++) positions.strides[0][d] /= elements;
  return word;
}

}  // namespace

int64_t list_bytes(const SegmentedUpdate& update) {
  return round_up((update.count / kShort + 2) * 4, 256);
}

template <class Key>
Status update_sorted(const KernelCall& call, const SegmentedUpdate& update, const Key* keys,
                     const uint32_t* positions, void* list) {
  const TensorView &source = *update.source, &target = *update.target;
  UpdateArgs<Key> args;
  args.count = update.count;
  args.keys = keys;
  args.positions = positions;
  args.list = static_cast<uint32_t*>(list);
  args.source = source.is_immediate ? nullptr : source.data;
  args.target = target.data;
  args.source_dtype = source.dtype;
  args.target_dtype = target.dtype;
  args.combine = update.combine;
  args.alpha = update.alpha;
  args.number = source.is_immediate ? source.scalar : 0;

  Dims<1> key_dims = update.keys, position_dims = update.positions;
  Dims<2> column_dims = update.column_dims;
  column_dims.sort_by_stride();
  column_dims.collapse();
  key_dims.collapse();
  position_dims.collapse();
  int64_t word = item_size(target.dtype);
  if (update.combine == Combine::Set) {
    if (!source.is_immediate && source.dtype != target.dtype)
      return unsupported(call, source.dtype);
    fill_pattern(target.dtype, args.number, args.pattern);
    word = widen(column_dims, key_dims, position_dims, word, target.data, args.source);
  } else if (!source.is_immediate && is_floating(source.dtype) != is_floating(target.dtype)) {
    return unsupported(call, source.dtype);
  }
  args.columns = column_dims.numel();
  args.by_column = IndexDivide(args.columns);
  args.tile_columns = 1;
  while (args.tile_columns < 32 && args.tile_columns < args.columns) args.tile_columns *= 2;
  args.position_offsets = position_dims.calculator<kMaxDims>();
  args.key_offsets = key_dims.calculator<kMaxDims>();
  args.column_offsets = column_dims.calculator<kMaxDims>();

  if (update.combine == Combine::Set) {
    const unsigned blocks = static_cast<unsigned>(ceil_div(args.count * args.columns, kThreads));
    const cudaStream_t stream = stream_of(call).handle;
    switch (word) {
      case 16:
        set_targets<Key, uint4><<<blocks, kThreads, 0, stream>>>(args);
        break;
      case 8:
        set_targets<Key, uint64_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
      case 4:
        set_targets<Key, uint32_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
      case 2:
        set_targets<Key, uint16_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
      default:
        set_targets<Key, uint8_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
    }
    return launched(call);
  }
  const cudaStream_t stream = stream_of(call).handle;
  SW_CUDA(cudaMemsetAsync(args.list, 0, sizeof(uint32_t), stream));
  if (!is_floating(target.dtype)) return launch_combine<int64_t>(call, args, false);
  if (target.dtype == DType::Float64) return launch_combine<double>(call, args, false);
  return launch_combine<float>(
      call, args, launch_short_rows(stream, args, column_dims, key_dims, position_dims));
}

template Status update_sorted<uint32_t>(const KernelCall&, const SegmentedUpdate&, const uint32_t*,
                                        const uint32_t*, void*);
template Status update_sorted<uint64_t>(const KernelCall&, const SegmentedUpdate&, const uint64_t*,
                                        const uint32_t*, void*);

}  // namespace shardwise::cuda::indexing::detail
