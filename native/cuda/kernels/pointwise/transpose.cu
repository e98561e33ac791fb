// The transposing copy of elements of 2 and 4 bytes in 16-byte vectors: y[r][c] = x[c][r], batched.
// It copies bits.
//
// Layout: a block takes a tile of 256 bytes by as many rows as that has elements (128 x 128 of 2
// bytes, 64 x 64 of 4 bytes), so that both sides of the copy are runs of 256 bytes. Vectors are
// read with 16 lanes a row and stored in shared memory as 4-byte words, in rows of an odd number of
// words. The columns are read back as words (2-byte elements: two columns at once, separated by
// byte permutation) and written with 8 lanes a row. Both accesses to shared memory have two-way
// bank conflicts; shared memory is busy for a third of the time that device memory takes. The block
// order follows y: blocks that run together complete its rows.
// Bytes: x and y once.
// Technique: padded tiles in shared memory, as in NVIDIA's "An Efficient Matrix Transpose in CUDA
// C/C++". Measured on one H200, 16384^2 of bf16: 32 x 32 tiles of elements (copy.cu) 558 us, this
// 271 us (93 % of copy); with evict-first loads and stores 285. PyTorch with max-autotune in the
// same run 260 (270).
#include "../../primitives/vector.cuh"
#include "transpose.cuh"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;

// kHalf: elements of 2 bytes, else 4.
template <bool kHalf>
__global__ void __launch_bounds__(kThreads)
    transpose_tiles(const __grid_constant__ TransposeArgs args) {
  // words of a row in shared memory
  constexpr int V = kHalf ? 8 : 4, kTile = 16 * V, kWords = kTile * (kHalf ? 2 : 4) / 4 + 1;
  constexpr int kBytes = kHalf ? 2 : 4, kBatch = 4;
  __shared__ uint32_t tile[kTile * kWords];
  int64_t block = blockIdx.x;
  const int64_t column0 = block % args.column_tiles * kTile;
  block /= args.column_tiles;
  const int64_t row0 = block % args.row_tiles * kTile;
  const Offsets<2> at = args.batch.get(block / args.row_tiles);
  const char* x = static_cast<const char*>(args.x) + at[1] * kBytes;
  char* y = static_cast<char*>(args.y) + at[0] * kBytes;

  // Rows of the tile are columns of y.
  const int in_vector = threadIdx.x & 15, in_row = threadIdx.x >> 4;
  const bool inside = row0 + in_vector * V < args.rows;
#pragma unroll
  for (int start = 0; start < kTile; start += 16 * kBatch) {
    uint4 raw[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; k++) {
      const int64_t column = column0 + start + k * 16 + in_row;
      if (inside && column < args.columns)
        raw[k] = *reinterpret_cast<const uint4*>(x + (column * args.x_row + row0 + in_vector * V) *
                                                         kBytes);
    }
#pragma unroll
    for (int k = 0; k < kBatch; k++) {
      uint32_t* to = tile + (start + k * 16 + in_row) * kWords + in_vector * 4;
      to[0] = raw[k].x, to[1] = raw[k].y, to[2] = raw[k].z, to[3] = raw[k].w;
    }
  }
  __syncthreads();

  // A thread takes V rows of the tile, and one word of each: 1 or 2 rows of y.
  const int lane = threadIdx.x & 31, out_vector = lane & 7,
            out_word = (threadIdx.x >> 5) * 4 + (lane >> 3);
#pragma unroll
  for (int half = 0; half < 2; half++)
#pragma unroll
    for (int start = 0; start < kWords - 1; start += 32) {
      const int first = (half * 8 + out_vector) * V, word = start + out_word;
      uint32_t words[V];
#pragma unroll
      for (int i = 0; i < V; i++) words[i] = tile[(first + i) * kWords + word];
      const int64_t column = column0 + first;
      if (column >= args.columns) continue;
      if constexpr (kHalf) {
        uint4 low, high;
        low.x = __byte_perm(words[0], words[1], 0x5410),
        high.x = __byte_perm(words[0], words[1], 0x7632);
        low.y = __byte_perm(words[2], words[3], 0x5410),
        high.y = __byte_perm(words[2], words[3], 0x7632);
        low.z = __byte_perm(words[4], words[5], 0x5410),
        high.z = __byte_perm(words[4], words[5], 0x7632);
        low.w = __byte_perm(words[6], words[7], 0x5410),
        high.w = __byte_perm(words[6], words[7], 0x7632);
        const int64_t row = row0 + word * 2;
        if (row < args.rows) {  // rows are a multiple of V
          *reinterpret_cast<uint4*>(y + (row * args.y_row + column) * kBytes) = low;
          *reinterpret_cast<uint4*>(y + ((row + 1) * args.y_row + column) * kBytes) = high;
        }
      } else {
        const int64_t row = row0 + word;
        if (row < args.rows)
          *reinterpret_cast<uint4*>(y + (row * args.y_row + column) * kBytes) =
              make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
}

}  // namespace

bool transpose_vectors(const KernelCall& call, TransposeArgs& args, const Dims<2>& batch) {
  const int64_t bytes = item_size(call.output(0).dtype), width = 16 / bytes, tile = 16 * width;
  if (bytes != 2 && bytes != 4) return false;
  if (args.rows % width != 0 || args.columns % width != 0 || args.x_row % width != 0 ||
      args.y_row % width != 0)
    return false;
  if (args.rows < tile / 2 || args.columns < tile / 2 || !is_aligned(args.x, 16) ||
      !is_aligned(args.y, 16))
    return false;
  for (int32_t d = 0; d < batch.ndim; d++)
    if (batch.strides[0][d] % width != 0 || batch.strides[1][d] % width != 0) return false;
  args.row_tiles = ceil_div(args.rows, tile);
  args.column_tiles = ceil_div(args.columns, tile);
  const int64_t blocks = batch.numel() * args.row_tiles * args.column_tiles;
  if (blocks >= (int64_t(1) << 31)) return false;
  const cudaStream_t stream = stream_of(call).handle;
  if (bytes == 2)
    transpose_tiles<true><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args);
  else
    transpose_tiles<false><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(args);
  return true;
}

}  // namespace shardwise::cuda
