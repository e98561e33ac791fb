// nonzero, nonzero_rows: the coordinates of the elements that are not 0 (NaN is not 0), row-major.
//
//   nonzero       starts[t] = number of them before tile t, starts[tiles] = number in all;
//                 bit i of flags = x[i] != 0
//   nonzero_rows  rows[starts[t] + rank among the flags of tile t] = the coordinates of the element
// Between the two the host reads the number and allocates the rows. A tile has at least 4096
// elements, more if there would be more than 16,384 tiles. nonzero: a warp flags and counts a tile,
// 16 bytes a lane and load if x is dense; one block turns the counts into starts. nonzero_rows: a
// block of 256 threads takes a tile by 4096 elements: it ranks their flags by a scan, stores the
// numbers of the set ones in shared memory by rank, and neighbouring threads write neighbouring
// rows.
// Bytes: x once, rows once; the flags, a bit for each element, are written and read. Operations: a
// comparison and a flag an element; a set one some five of its scan and a division for each dim but
// the first.
// Numerics: integers only (a float is 0 if its bits without the sign are), so the result does not
// depend on timing.
// Source: PyTorch's nonzero. Technique: compaction by counts, prefix sums and ranks. On an H200,
// 16M bools, half of them set, including the read of the number by the host: 74 us (PyTorch 80).
// Versions: bytes one at a time, twice, into rows of the greatest size, of which the front is
// copied: 207 us.
#include "../../../generated/op_params.h"
#include "../../primitives/offsets.cuh"
#include "../../primitives/scan.cuh"
#include "../../primitives/vector.cuh"
#include "../../stream.h"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kLoads = 8;  // in flight per lane
constexpr int kOwn = 16;   // flags that a thread ranks
constexpr int kRound = kThreads * kOwn;
constexpr int kScanThreads = 1024;
constexpr int kScanItems = 16;  // tiles per thread in one round of the scan

struct OrOp {
  __device__ __forceinline__ uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};

// ---- nonzero -----------------------------------------------------------------------------------

struct FlagArgs {
  const void* x;
  int64_t numel, tile, tiles;
  bool wide;        // dense and aligned to 16 bytes
  uint64_t mask;    // the bits of an element that are compared: without the sign of a float
  int64_t* starts;  // [tiles + 1]
  uint32_t* flags;  // two for each word
  OffsetCalculator<1> offsets;
};

// Flags kLoads vectors of 16 bytes for each lane, from `begin` on; returns how many of the lane's
// elements are not 0. Lanes that have 16 elements together write their flags.
template <class T>
__device__ __forceinline__ uint32_t flag_vectors(const FlagArgs& args, int64_t begin, int lane) {
  constexpr int kVector = kVec16<T>, kTogether = kOwn / kVector;
  Vec<T, kVector> vectors[kLoads];
  const int64_t first = begin + lane * kVector;
#pragma unroll
  for (int u = 0; u < kLoads; u++)
    vectors[u] = load_vec<kVector>(static_cast<const T*>(args.x) + first + u * 32 * kVector);
  uint32_t found = 0;
#pragma unroll
  for (int u = 0; u < kLoads; u++) {
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kVector; i++)
      bits |= ((vectors[u][i] & static_cast<T>(args.mask)) != 0 ? 1u : 0u) << i;
    found += __popc(bits);
    bits = warp_reduce<kTogether>(bits << (lane % kTogether * kVector), OrOp());
    if (lane % kTogether == 0)
      reinterpret_cast<uint16_t*>(args.flags)[(first + u * 32 * kVector) / kOwn] =
          static_cast<uint16_t>(bits);
  }
  return found;
}

// The same for 32 kLoads elements of any strides, fewer before `end`.
template <class T>
__device__ __forceinline__ uint32_t flag_elements(const FlagArgs& args, int64_t begin, int64_t end,
                                                  int lane) {
  int64_t linear[kLoads];
  Offsets<1> from[kLoads];
  T values[kLoads];
#pragma unroll
  for (int u = 0; u < kLoads; u++)
    linear[u] = begin + u * 32 + lane < end ? begin + u * 32 + lane : end - 1;
  args.offsets.get_many_large(linear, from);
#pragma unroll
  for (int u = 0; u < kLoads; u++) values[u] = static_cast<const T*>(args.x)[from[u][0]];
  uint32_t own = 0;
#pragma unroll
  for (int u = 0; u < kLoads; u++) {
    const bool set = (values[u] & static_cast<T>(args.mask)) != 0 && begin + u * 32 + lane < end;
    const uint32_t bits = __ballot_sync(kFullWarp, set);
    if (lane == u) own = bits;
  }
  // Whole words of 64: the upper half of the last one has no elements, but is read.
  if (lane < kLoads && begin + lane / 2 * 64 < end) args.flags[begin / 32 + lane] = own;
  return __popc(own);
}

template <class T>
__global__ void __launch_bounds__(kThreads) flag_tiles(const __grid_constant__ FlagArgs args) {
  constexpr int kWide = 32 * kLoads * kVec16<T>;
  const int lane = threadIdx.x & 31;
  const int64_t tile = static_cast<int64_t>(blockIdx.x) * kWarps + (threadIdx.x >> 5);
  if (tile >= args.tiles) return;
  int64_t at = tile * args.tile, found = 0;
  const int64_t end = args.numel - at < args.tile ? args.numel : at + args.tile;
  if (args.wide)
    for (; end - at >= kWide; at += kWide) found += flag_vectors<T>(args, at, lane);
  for (; at < end; at += 32 * kLoads) found += flag_elements<T>(args, at, end, lane);
  found = warp_reduce(found, SumOp());
  if (lane == 0) args.starts[tile] = found;
}

__global__ void __launch_bounds__(kScanThreads) scan_counts(int64_t* counts, int64_t tiles) {
  __shared__ int64_t shared[33];
  int64_t carry = 0;
  for (int64_t start = 0; start < tiles; start += kScanThreads * kScanItems) {
    const int64_t first = start + threadIdx.x * kScanItems;
    int64_t values[kScanItems], sum = 0, total;
#pragma unroll
    for (int u = 0; u < kScanItems; u++) values[u] = first + u < tiles ? counts[first + u] : 0;
#pragma unroll
    for (int u = 0; u < kScanItems; u++) sum += values[u];
    int64_t before = carry + block_scan_exclusive(sum, SumOp(), int64_t(0), shared, total);
#pragma unroll
    for (int u = 0; u < kScanItems; u++) {
      if (first + u < tiles) counts[first + u] = before;
      before += values[u];
    }
    carry += total;
  }
  if (threadIdx.x == 0) counts[tiles] = carry;
}

// ---- nonzero_rows ------------------------------------------------------------------------------

struct RowArgs {
  const int64_t* starts;
  const uint16_t* flags;
  int64_t* rows;
  int64_t numel, tile, count;
  int32_t ndim;
  bool pairs;                   // two coordinates in one store
  IndexDivide sizes[kMaxDims];  // innermost first
};

// The coordinate along dim d, counted from the innermost; `element` becomes the index among the
// outer dims.
__device__ __forceinline__ int64_t take_coordinate(const RowArgs& args, int d, int64_t& element) {
  const int64_t next = d + 1 < args.ndim ? args.sizes[d].quotient(element) : 0;
  const int64_t coordinate = element - next * args.sizes[d].size;
  element = next;
  return coordinate;
}

__device__ __forceinline__ void write_row(const RowArgs& args, int64_t element, int64_t row) {
  int64_t* to = args.rows + (row + 1) * args.ndim;
  if (args.pairs) {
    for (int d = 0; d < args.ndim; d += 2) {
      Vec<int64_t, 2> pair;
      pair[1] = take_coordinate(args, d, element);
      pair[0] = take_coordinate(args, d + 1, element);
      store_global(to -= 2, pair);
    }
  } else {
    for (int d = 0; d < args.ndim; d++) *--to = take_coordinate(args, d, element);
  }
}

__global__ void __launch_bounds__(kThreads) write_rows(const __grid_constant__ RowArgs args) {
  __shared__ uint16_t numbers[kRound];  // numbers of the round's elements, by rank
  __shared__ uint32_t shared[33];
  // Never writes outside of the rows, whatever the flags say.
  int64_t row = args.starts[blockIdx.x];
  const int64_t next = args.starts[blockIdx.x + 1], last = next < args.count ? next : args.count;
  if (row < 0) return;
  int64_t begin = static_cast<int64_t>(blockIdx.x) * args.tile;
  const int64_t end = args.numel - begin < args.tile ? args.numel : begin + args.tile;
  for (; begin < end && row < last; begin += kRound) {
    const int64_t own = begin + threadIdx.x * kOwn;
    uint32_t bits = own < end ? args.flags[own / kOwn] : 0, total;
    uint32_t rank =
        block_scan_exclusive(static_cast<uint32_t>(__popc(bits)), SumOp(), 0u, shared, total);
    for (; bits != 0; bits &= bits - 1)
      numbers[rank++] = static_cast<uint16_t>(threadIdx.x * kOwn + __ffs(bits) - 1);
    __syncthreads();
    const uint32_t count = total < last - row ? total : static_cast<uint32_t>(last - row);
    for (uint32_t i = threadIdx.x; i < count; i += kThreads)
      write_row(args, begin + numbers[i], row + i);
    __syncthreads();
    row += total;
  }
}

}  // namespace

Status nonzero(const KernelCall& call) {
  const TensorView& x = call.input(0);
  FlagArgs args;
  args.x = x.data;
  args.numel = x.numel;
  args.tile = static_cast<int64_t>(call.params_as<NonzeroParams>().tile);
  args.tiles = ceil_div(x.numel, args.tile);
  args.starts = static_cast<int64_t*>(call.output(0).data);
  args.flags = static_cast<uint32_t*>(call.output(1).data);
  const int64_t item = item_size(x.dtype);
  args.mask = is_floating(x.dtype) ? (uint64_t(1) << (item * 8 - 1)) - 1 : ~uint64_t(0);
  Dims<1> dims = dims_of<1>({&x});
  dims.collapse();
  args.offsets = dims.calculator<kMaxDims>();
  args.wide = args.offsets.identity && is_aligned(x.data, 16);
  const unsigned blocks = static_cast<unsigned>(ceil_div(args.tiles, kWarps));
  const cudaStream_t stream = stream_of(call).handle;
  if (blocks > 0) {
    switch (item) {
      case 8:
        flag_tiles<uint64_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
      case 4:
        flag_tiles<uint32_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
      case 2:
        flag_tiles<uint16_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
      default:
        flag_tiles<uint8_t><<<blocks, kThreads, 0, stream>>>(args);
        break;
    }
  }
  scan_counts<<<1, kScanThreads, 0, stream>>>(args.starts, args.tiles);
  return launched(call);
}

Status nonzero_rows(const KernelCall& call) {
  const TensorView &shape = call.input(0), &rows = call.output(0);
  if (rows.numel == 0 || shape.numel == 0) return kOk;
  RowArgs args;
  args.starts = static_cast<const int64_t*>(call.input(1).data);
  args.flags = static_cast<const uint16_t*>(call.input(2).data);
  args.rows = static_cast<int64_t*>(rows.data);
  args.numel = shape.numel;
  args.tile = static_cast<int64_t>(call.params_as<NonzeroRowsParams>().tile);
  args.count = rows.sizes[0];
  args.ndim = shape.ndim;
  args.pairs = shape.ndim % 2 == 0 && is_aligned(rows.data, 16);
  for (int32_t d = 0; d < shape.ndim; d++)
    args.sizes[d] = IndexDivide(shape.sizes[shape.ndim - 1 - d]);
  write_rows<<<static_cast<unsigned>(ceil_div(args.numel, args.tile)), kThreads, 0,
               stream_of(call).handle>>>(args);
  return launched(call);
}

}  // namespace shardwise::cuda
