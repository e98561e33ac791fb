// copy: y = x, with conversion of the dtype and any strides on either side.
//
// Paths by operands (dims in the memory order of y, merged):
//   both dense, one dtype      cudaMemcpyAsync
//   one dtype, rows            words of up to 16 bytes, 4 words per thread
//   one dtype, x transposed    32 x 32 tiles through shared memory: both sides coalesced
//                              (transpose.cu: in 16-byte vectors)
//   float32, float16, bfloat16 16 bytes of y per thread
//   anything else              4 elements per thread, dtype switch per launch
// Grid: blocks of 256 threads, for 1024 words (rows), a 32 x 32 tile (transposed), 256 vectors of y
// (the three floats), or 1024 elements (anything else). Bytes: x and y once. Operations: the
// conversion of each element. Float to integer truncates (through int64), to bool is != 0, to a
// narrower float rounds to even.
// Source of the conversions: PyTorch's `Tensor.to`. On an H200: 1 GiB of one dtype 503 us (4.27
// TB/s), float32 to bfloat16 369 us for 1.5 GiB, bfloat16 to float32 195 us for 768 MiB. Versions:
// 8 elements a thread, whose stores wrote half of each sector, 208; transposed by elements 558 us
// for 2 x 512 MiB of bfloat16, where vectors take 272 (transpose.cu).
#include "../../primitives/dtype.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/pdl.cuh"
#include "../../primitives/vector.cuh"
#include "../../stream.h"
#include "transpose.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;
constexpr int kTile = 32;

struct MoveArgs {
  int64_t count;
  const void* x;
  void* y;
  DType x_dtype, y_dtype;
  OffsetCalculator<2> offsets;  // y, x
};

__device__ __forceinline__ void thread_indices(int64_t count, int64_t (&linear)[kPerThread],
                                               bool (&valid)[kPerThread]) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kPerThread; u++) {
    const int64_t i = first + u * kThreads;
    valid[u] = i < count;
    linear[u] = valid[u] ? i : count - 1;
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads) move_words(const __grid_constant__ MoveArgs args) {
  pdl_begin();
  int64_t linear[kPerThread];
  bool valid[kPerThread];
  thread_indices(args.count, linear, valid);
  Offsets<2> at[kPerThread];
  args.offsets.get_many_large(linear, at);
  Word words[kPerThread];
#pragma unroll
  for (int u = 0; u < kPerThread; u++) words[u] = static_cast<const Word*>(args.x)[at[u][1]];
#pragma unroll
  for (int u = 0; u < kPerThread; u++)
    if (valid[u]) static_cast<Word*>(args.y)[at[u][0]] = words[u];
}

template <class C>
__global__ void __launch_bounds__(kThreads) convert_any(const __grid_constant__ MoveArgs args) {
  pdl_begin();
  int64_t linear[kPerThread];
  bool valid[kPerThread];
  thread_indices(args.count, linear, valid);
  Offsets<2> offsets[kPerThread];
  args.offsets.get_many_large(linear, offsets);
  int64_t at[kPerThread];
  C values[kPerThread];
#pragma unroll
  for (int u = 0; u < kPerThread; u++) at[u] = offsets[u][1];
  load_any<C>(args.x, at, args.x_dtype, values);
#pragma unroll
  for (int u = 0; u < kPerThread; u++) at[u] = offsets[u][0];
  store_any<C>(args.y, at, args.y_dtype, values, valid);
}

template <class To, class From>
__global__ void __launch_bounds__(kThreads) convert_vectors(const __grid_constant__ MoveArgs args) {
  pdl_begin();
  constexpr int V = kVec16<To>;  // more would split the halves of a sector over two stores
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (vector >= args.count) return;
  const Offsets<2> at = args.offsets.get(vector);
  const auto in = load_vec<V>(static_cast<const From*>(args.x) + at[1]);
  Vec<To, V> out;
#pragma unroll
  for (int i = 0; i < V; i++) out[i] = from_compute<To>(to_compute<float>(in[i]));
  store_global(static_cast<To*>(args.y) + at[0], out);
}

// Block 32 x 8; grid: one block per tile.
template <class Word>
__global__ void __launch_bounds__(kThreads) transpose(const __grid_constant__ TransposeArgs args) {
  __shared__ Word tile[kTile][kTile + 1];
  int64_t block = blockIdx.x;
  const int64_t column0 = block % args.column_tiles * kTile;
  block /= args.column_tiles;
  const int64_t row0 = block % args.row_tiles * kTile;
  const Offsets<2> at = args.batch.get(block / args.row_tiles);
  const int tx = threadIdx.x & 31, ty = threadIdx.x >> 5;
  const Word* x = static_cast<const Word*>(args.x) + at[1];
  Word* y = static_cast<Word*>(args.y) + at[0];
#pragma unroll
  for (int i = 0; i < kTile; i += 8) {
    const int64_t column = column0 + ty + i, row = row0 + tx;
    if (column < args.columns && row < args.rows) tile[ty + i][tx] = x[column * args.x_row + row];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTile; i += 8) {
    const int64_t row = row0 + ty + i, column = column0 + tx;
    if (column < args.columns && row < args.rows) y[row * args.y_row + column] = tile[tx][ty + i];
  }
}

// The widest word (bytes) in which rows of `item`-byte elements can be moved.
int64_t word_bytes(const Dims<2>& dims, int64_t item, const void* y, const void* x) {
  const int32_t inner = dims.ndim - 1;
  if (inner < 0 || dims.strides[0][inner] != 1 || dims.strides[1][inner] != 1) return item;
  for (int64_t word = 16; word > item; word /= 2) {
    bool fits = is_aligned(y, word) && is_aligned(x, word) && dims.sizes[inner] * item % word == 0;
    for (int32_t d = 0; d < inner; d++)
      fits = fits && dims.strides[0][d] * item % word == 0 && dims.strides[1][d] * item % word == 0;
    if (fits) return word;
  }
  return item;
}

void rescale(Dims<2>& dims, int64_t elements) {
  if (elements == 1) return;
  const int32_t inner = dims.ndim - 1;
  dims.sizes[inner] /= elements;
  for (int i = 0; i < 2; i++)
    for (int32_t d = 0; d < inner; d++) dims.strides[i][d] /= elements;
}

template <class F>
void dispatch_word(int64_t bytes, F&& body) {
  switch (bytes) {
    case 16:
      body(TypeTag<uint4>{});
      break;
    case 8:
      body(TypeTag<uint64_t>{});
      break;
    case 4:
      body(TypeTag<uint32_t>{});
      break;
    case 2:
      body(TypeTag<uint16_t>{});
      break;
    default:
      body(TypeTag<uint8_t>{});
      break;
  }
}

// Finds a dim other than y's innermost one along which x is contiguous; -1 if there is none.
int32_t transposed_dim(const Dims<2>& dims) {
  const int32_t inner = dims.ndim - 1;
  if (inner < 1 || dims.strides[0][inner] != 1 || dims.strides[1][inner] <= 1 ||
      dims.sizes[inner] < 8)
    return -1;
  for (int32_t d = 0; d < inner; d++)
    if (dims.strides[1][d] == 1 && dims.sizes[d] >= 8) return d;
  return -1;
}

void launch_transpose(const KernelCall& call, const Dims<2>& dims, int32_t row_dim) {
  const TensorView &x = call.input(0), &y = call.output(0);
  const int32_t inner = dims.ndim - 1;
  TransposeArgs args;
  args.x = x.data;
  args.y = y.data;
  args.rows = dims.sizes[row_dim];
  args.columns = dims.sizes[inner];
  args.y_row = dims.strides[0][row_dim];
  args.x_row = dims.strides[1][inner];
  Dims<2> batch;
  for (int32_t d = 0; d < inner; d++)
    if (d != row_dim) batch.push(dims.sizes[d], {dims.strides[0][d], dims.strides[1][d]});
  args.batch = batch.calculator<kMaxDims>();
  if (transpose_vectors(call, args, batch)) return;
  args.row_tiles = ceil_div(args.rows, kTile);
  args.column_tiles = ceil_div(args.columns, kTile);
  const int64_t blocks = batch.numel() * args.row_tiles * args.column_tiles;
  dispatch_size(y.dtype, [&](auto tag) {
    transpose<tag_t<decltype(tag)>>
        <<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(call).handle>>>(args);
  });
}

bool is_small_float(DType dtype) { return is_floating(dtype) && dtype != DType::Float64; }

bool can_convert_vectors(const Dims<2>& dims, const TensorView& y, const TensorView& x) {
  const int32_t inner = dims.ndim - 1;
  if (!is_small_float(x.dtype) || !is_small_float(y.dtype) || inner < 0) return false;
  const int64_t width = vec16(y.dtype);
  if (dims.strides[0][inner] != 1 || dims.strides[1][inner] != 1 || dims.sizes[inner] % width != 0)
    return false;
  if (!is_aligned(x.data, 16) || !is_aligned(y.data, 16)) return false;
  for (int32_t d = 0; d < inner; d++)
    if (dims.strides[0][d] % width != 0 || dims.strides[1][d] % width != 0) return false;
  return true;
}

void launch_convert_vectors(const KernelCall& call, Dims<2> dims, MoveArgs& args) {
  const int32_t inner = dims.ndim - 1;
  const int64_t width = vec16(args.y_dtype);
  dims.sizes[inner] /= width;
  dims.strides[0][inner] = dims.strides[1][inner] = width;
  args.count = dims.numel();
  args.offsets = dims.calculator<kMaxDims>();
  const LaunchShape shape{blocks_of(ceil_div(args.count, kThreads)), kThreads};
  const Stream& stream = stream_of(call);
  const auto to = [&](auto from_tag) {
    using From = tag_t<decltype(from_tag)>;
    switch (args.y_dtype) {
      case DType::Float32:
        if constexpr (!std::is_same_v<From, float>)
          launch_pdl(convert_vectors<float, From>, shape, stream, args);
        break;
      case DType::Float16:
        if constexpr (!std::is_same_v<From, half_t>)
          launch_pdl(convert_vectors<half_t, From>, shape, stream, args);
        break;
      default:
        if constexpr (!std::is_same_v<From, bfloat16_t>)
          launch_pdl(convert_vectors<bfloat16_t, From>, shape, stream, args);
    }
  };
  if (args.x_dtype == DType::Float32)
    to(TypeTag<float>{});
  else if (args.x_dtype == DType::Float16)
    to(TypeTag<half_t>{});
  else
    to(TypeTag<bfloat16_t>{});
}

}  // namespace

Status copy(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  if (y.numel == 0) return kOk;
  const Stream& stream = stream_of(call);
  Dims<2> dims = dims_of<2>({&y, &x});
  dims.sort_by_stride();
  dims.collapse();

  MoveArgs args;
  args.x = x.data;
  args.y = y.data;
  args.x_dtype = x.dtype;
  args.y_dtype = y.dtype;
  if (x.dtype != y.dtype) {
    if (can_convert_vectors(dims, y, x)) {
      launch_convert_vectors(call, dims, args);
      return launched(call);
    }
    args.count = y.numel;
    args.offsets = dims.calculator<kMaxDims>();
    const LaunchShape shape{blocks_of(ceil_div(args.count, kThreads * kPerThread)), kThreads};
    if (!is_floating(x.dtype))
      launch_pdl(convert_any<int64_t>, shape, stream, args);
    else if (x.dtype == DType::Float64)
      launch_pdl(convert_any<double>, shape, stream, args);
    else
      launch_pdl(convert_any<float>, shape, stream, args);
    return launched(call);
  }

  const int64_t item = item_size(y.dtype);
  if (dims.ndim == 0 || (dims.ndim == 1 && dims.strides[0][0] == 1 && dims.strides[1][0] == 1)) {
    if (x.data != y.data)
      SW_CUDA(
          cudaMemcpyAsync(y.data, x.data, y.numel * item, cudaMemcpyDeviceToDevice, stream.handle));
    return kOk;
  }
  const int32_t row_dim = transposed_dim(dims);
  if (row_dim >= 0) {
    launch_transpose(call, dims, row_dim);
    return launched(call);
  }
  const int64_t word = word_bytes(dims, item, y.data, x.data);
  rescale(dims, word / item);
  args.count = dims.numel();
  args.offsets = dims.calculator<kMaxDims>();
  dispatch_word(word, [&](auto tag) {
    launch_pdl(move_words<tag_t<decltype(tag)>>,
               {blocks_of(ceil_div(args.count, kThreads * kPerThread)), kThreads}, stream, args);
  });
  return launched(call);
}

}  // namespace shardwise::cuda
