// sort: rows along the last dim, stable, NaN largest, with the indices (int64).
//
// Elements become unsigned keys (sort.cuh). One block sorts a row of 257 to 16384 elements of at
// most 32 bits (8192 if a block has 99 KiB of shared memory) by digits (sort_block.cu), and other
// rows up to 2048 by a bitonic network over key and then position, which is a stable order.
// radix_sort.cu sorts longer rows, in batches that bound the scratch memory.
// Grid: for rows up to 2048 a block of up to 1024 threads each, two elements a thread; for longer
// rows blocks of 256 threads with four elements each compute keys and write results, for 1024
// elements of a row.
// Equal elements, 0 and -0, and NaNs of all kinds keep their order in either direction. Elements
// are copied at the end by index, or in longer rows restored from their key if only one bit pattern
// has it, so their bits survive.
// Bytes: x twice (for keys, and by index), values and 8 bytes of index an element once; longer rows
// also keys and positions in each of the passes of radix_sort.cu, one for each byte of an element.
// Integer comparisons only: deterministic.
// Source: PyTorch's sort with stable=True. On an H200, float32, 16M in one row: 851 us (PyTorch
// 819). Versions: elements of long rows by index, which reads a sector for each, and keys with a
// division each: 1150; with ranks by __match_any_sync: 1346. Rows in one block: sort_block.cu.
#include "../../../generated/op_params.h"
#include "sort.cuh"

namespace shardwise::cuda {
namespace sorting {
namespace {

constexpr int kThreads = 256, kEntries = 4;  // entries that a thread writes
// elements sorted at once: at most 1.6 GB of scratch memory, or one row
constexpr int64_t kBatch = int64_t(1) << 26;
static_assert(kBatch / radix::kSmall < 65536, "rows of a batch are a dim of the grid");

template <class Key>
__global__ void __launch_bounds__(1024)
    sort_short_rows(const __grid_constant__ SortArgs args, int size) {
  __shared__ Key keys[radix::kSmall];
  __shared__ uint32_t positions[radix::kSmall];
  const Offsets<3> row = args.row_offsets.get(blockIdx.x);
  for (int i = threadIdx.x; i < size; i += blockDim.x) {
    keys[i] = i < args.n ? key_at<Key>(args, row[0] + i * args.x_step) : ~Key(0);
    positions[i] = i < args.n ? static_cast<uint32_t>(i) : UINT32_MAX;
  }
  radix::sort_shared(keys, positions, size);
  write_entries(args, row, threadIdx.x, blockDim.x, positions);
}

// Block (chunk of a row, row), from row `first_row` on; a thread has kEntries elements.
struct RowChunk {
  int64_t first, step;
  __device__ __forceinline__ RowChunk()
      : first(static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x),
        step(static_cast<int64_t>(gridDim.x) * kThreads) {}
};

template <class Key>
__global__ void __launch_bounds__(kThreads)
    make_keys(const __grid_constant__ SortArgs args, int64_t first_row, Key* keys) {
  const RowChunk chunk;
  const int64_t base = args.row_offsets.get(first_row + blockIdx.y)[0];
  int64_t at[kEntries];
  Key keys_of_thread[kEntries];
#pragma unroll
  for (int u = 0; u < kEntries; u++) {
    const int64_t i = chunk.first + u * chunk.step;
    at[u] = base + (i < args.n ? i : 0) * args.x_step;
  }
  keys_at(args, at, keys_of_thread);
#pragma unroll
  for (int u = 0; u < kEntries; u++)
    if (chunk.first + u * chunk.step < args.n)
      keys[blockIdx.y * args.n + chunk.first + u * chunk.step] = keys_of_thread[u];
}

// Restores an element from its key if no other bit pattern has that key: gathering the elements of
// long rows reads a sector for each.
template <class Key, class Word>
__device__ __forceinline__ void write_sorted(const SortArgs& args, int64_t first_row,
                                             const Key* keys, const uint32_t* positions) {
  const RowChunk chunk;
  const Offsets<3> row = args.row_offsets.get(first_row + blockIdx.y);
  Key bits[kEntries];
  uint32_t from[kEntries];
#pragma unroll
  for (int u = 0; u < kEntries; u++) {
    const int64_t i = chunk.first + u * chunk.step, at = blockIdx.y * args.n + (i < args.k ? i : 0);
    bits[u] = keys[at];
    from[u] = positions[at];
  }
#pragma unroll
  for (int u = 0; u < kEntries; u++) {
    const int64_t i = chunk.first + u * chunk.step;
    if (i >= args.k) return;
    Key own;
    const Word word = bits_of(bits[u], args.dtype, args.flip, own)
                          ? static_cast<Word>(own)
                          : static_cast<const Word*>(
                                args.x)[row[0] + static_cast<int64_t>(from[u]) * args.x_step];
    static_cast<Word*>(args.values)[row[1] + i * args.values_step] = word;
    args.indices[row[2] + i * args.indices_step] = from[u];
  }
}

template <class Key>
__global__ void __launch_bounds__(kThreads)
    write_rows(const __grid_constant__ SortArgs args, int64_t first_row, const Key* keys,
               const uint32_t* positions) {
  if constexpr (sizeof(Key) == 8) {
    write_sorted<Key, uint64_t>(args, first_row, keys, positions);
  } else {
    switch (item_size(args.dtype)) {
      case 4:
        return write_sorted<Key, uint32_t>(args, first_row, keys, positions);
      case 2:
        return write_sorted<Key, uint16_t>(args, first_row, keys, positions);
      default:
        return write_sorted<Key, uint8_t>(args, first_row, keys, positions);
    }
  }
}

template <class Key>
Status sort_with_keys(const KernelCall& call, const SortArgs& args) {
  Stream& stream = stream_of(call);
  if (sort_rows_in_blocks(args, stream)) return launched(call);
  if (args.n <= radix::kSmall) {
    int size = 2;
    while (size < args.n) size *= 2;
    const int threads = size / 2 < 32 ? 32 : size / 2;
    sort_short_rows<Key>
        <<<static_cast<unsigned>(args.rows), threads, 0, stream.handle>>>(args, size);
    return launched(call);
  }
  const int64_t batch = args.n >= kBatch              ? 1
                        : args.rows < kBatch / args.n ? args.rows
                                                      : kBatch / args.n;
  void* scratch = stream.workspace(radix::buffer_bytes<Key>(batch, args.n), call);
  if (!scratch) return Status{Code::OutOfMemory};
  for (int64_t row = 0; row < args.rows; row += batch) {
    const int64_t rows = args.rows - row < batch ? args.rows - row : batch;
    auto buffers = radix::lay_out<Key>(scratch, rows, args.n);
    const auto row_blocks = [rows](int64_t entries) {
      return dim3(static_cast<unsigned>(ceil_div(entries, kThreads * kEntries)),
                  static_cast<unsigned>(rows));
    };
    make_keys<Key><<<row_blocks(args.n), kThreads, 0, stream.handle>>>(args, row, buffers.keys[0]);
    radix::sort_pairs(stream.handle, buffers, key_bits(args.dtype));
    write_rows<Key><<<row_blocks(args.k), kThreads, 0, stream.handle>>>(
        args, row, buffers.keys[buffers.result], buffers.positions[buffers.result]);
  }
  return launched(call);
}

}  // namespace

SortArgs make_args(const KernelCall& call, int64_t k, bool flip) {
  const TensorView &x = call.input(0), &values = call.output(0), &indices = call.output(1);
  const auto last_step = [](const TensorView& view) {
    return view.ndim > 0 ? view.strides[view.ndim - 1] : int64_t(1);
  };
  SortArgs args;
  args.x = x.data;
  args.values = values.data;
  args.indices = static_cast<int64_t*>(indices.data);
  args.dtype = x.dtype;
  args.flip = flip;
  args.n = x.ndim > 0 ? x.sizes[x.ndim - 1] : 1;
  args.k = k;
  args.rows = args.n > 0 ? x.numel / args.n : 0;
  args.x_step = last_step(x);
  args.values_step = last_step(values);
  args.indices_step = last_step(indices);
  Dims<3> rows;
  for (int32_t d = 0; d + 1 < x.ndim; d++)
    rows.push(x.sizes[d], {x.strides[d], values.strides[d], indices.strides[d]});
  rows.collapse();
  args.row_offsets = rows.calculator<kMaxDims>();
  return args;
}

Status sort_rows(const KernelCall& call, const SortArgs& args) {
  if (args.rows == 0 || args.n == 0 || args.k == 0) return kOk;
  if (args.n > kMax32)
    return fail(call.error, Code::Unsupported, "sort: a row has more than 2^31 - 1 elements");
  if (args.rows > kMax32)
    return fail(call.error, Code::Unsupported, "sort: more than 2^31 - 1 rows");
  return key_bits(args.dtype) > 32 ? sort_with_keys<uint64_t>(call, args)
                                   : sort_with_keys<uint32_t>(call, args);
}

}  // namespace sorting

Status sort(const KernelCall& call) {
  const TensorView& x = call.input(0);
  const int64_t n = x.ndim > 0 ? x.sizes[x.ndim - 1] : 1;
  return sorting::sort_rows(
      call, sorting::make_args(call, n, call.params_as<SortParams>().descending != 0));
}

}  // namespace shardwise::cuda
