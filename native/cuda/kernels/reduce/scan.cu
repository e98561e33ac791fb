// cumsum, cumprod: y[..., i] = x[..., 0] + ... + x[..., i] along the last dim (times for cumprod),
// any strides.
//
//   rows     the last dim is dense: a block of 256 threads goes over a row (or a chunk of it) in
//            tiles of 1024 elements that are read and written coalesced, with a running carry; the
//            loads of the next tile overlap with the sums of this one. Vectors of four if they are
//            aligned, else through shared memory.
//   columns  rows are neighbours in memory: one thread per row (or chunk of it), coalesced across
//            threads
// Few rows are split into chunks: a first kernel reduces every chunk, the second starts each chunk
// from the reduction of those before it.
// Bytes: x once (twice with chunks), y once. Operations: columns one an element; rows two, and for
// each four of them a scan over the threads; with chunks one more.
// Numerics: float32, float64 or int64, each element rounded once. Rows: four neighbours in order,
// threads by a scan of shuffles, tiles in order; columns: in order. With chunks, their totals
// first: an order fixed by shape, strides, alignment and device.
// Source: PyTorch's cumsum and cumprod; Hillis and Steele (1986) within a warp. Chunks are reduced
// first and then scanned. The look-back of Merrill and Garland would read x once, but its bits
// depend on timing. On an H200, float32 (PyTorch): cumsum of rows, 16384 x 16384, 545 us (1138), of
// columns 1000 (6212), of 64M in one row 222 (210, by look-back); of bfloat16 rows, 16384 x 16384,
// 488 (1114). Versions: through shared memory and a tile at a time, rows 807 us, one row 310.
#include "../../primitives/dtype.cuh"
#include "../../primitives/group.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/scan.cuh"
#include "../../stream.h"

namespace shardwise::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kItems = 4;
constexpr int kTile = kThreads * kItems;
constexpr int64_t kMaxRowChunks = 1024;
constexpr int64_t kMaxColumnChunks = 64;

struct ScanArgs {
  const void* x;
  void* y;
  DType x_dtype, y_dtype;
  int64_t rows, n, x_step, y_step;
  int64_t chunks, per_chunk;
  bool vectors;                     // rows: groups of kItems are aligned in x and y
  void* totals;                     // [rows][chunks] of rows, [chunks][rows] of columns
  OffsetCalculator<2> row_offsets;  // x, y
};

template <class C, class Op>
__device__ __forceinline__ C identity_of() {
  return std::is_same_v<Op, SumOp> ? C(0) : C(1);
}

struct Chunk {
  int64_t row, chunk, begin, end;
};

__device__ __forceinline__ Chunk chunk_of(const ScanArgs& args, int64_t row, int64_t chunk) {
  const int64_t begin = chunk * args.per_chunk, end = begin + args.per_chunk;
  return {row, chunk, begin, end < args.n ? end : args.n};
}

// ---- rows: block (row, chunk) ------------------------------------------------------------------

template <class C, class Op, bool Vectors>
__global__ void __launch_bounds__(kThreads)
    reduce_row_chunks(const __grid_constant__ ScanArgs args) {
  __shared__ C shared[32];
  const Op op;
  const C identity = identity_of<C, Op>();
  const Chunk c = chunk_of(args, blockIdx.x / args.chunks, blockIdx.x % args.chunks);
  const int64_t base = args.row_offsets.get(c.row)[0];
  C sum = identity;
  int64_t rest = c.begin;  // the remainder after the whole vectors
  if constexpr (Vectors) {
    constexpr int kInFlight = 4;
    rest = c.end - (c.end - c.begin) % (kInFlight * kTile);
    for (int64_t start = c.begin + threadIdx.x * kItems; start < rest; start += kInFlight * kTile) {
      C values[kInFlight][kItems];
#pragma unroll
      for (int u = 0; u < kInFlight; u++)
        load_group_floating(args.x, base + start + u * kTile, args.x_dtype, values[u]);
#pragma unroll
      for (int u = 0; u < kInFlight; u++)
#pragma unroll
        for (int i = 0; i < kItems; i++) sum = op(sum, values[u][i]);
    }
  }
  for (int64_t start = rest + threadIdx.x; start < c.end; start += kTile) {
    int64_t at[kItems];
    C values[kItems];
#pragma unroll
    for (int u = 0; u < kItems; u++)
      at[u] = base + (start + u * kThreads < c.end ? start + u * kThreads : c.begin) * args.x_step;
    load_class<C>(args.x, at, args.x_dtype, values);
#pragma unroll
    for (int u = 0; u < kItems; u++)
      if (start + u * kThreads < c.end) sum = op(sum, values[u]);
  }
  sum = block_reduce(sum, op, identity, shared);
  if (threadIdx.x == 0) static_cast<C*>(args.totals)[c.row * args.chunks + c.chunk] = sum;
}

// Vectors: x and y are dense, of floating dtypes, and groups of kItems are aligned; a thread loads
// the elements that it sums. Else loads and stores are coalesced element by element and exchanged
// through shared memory.
template <class C, class Op, bool Vectors>
__global__ void __launch_bounds__(kThreads, sizeof(C) == 4 && Vectors ? 5 : 1)
    scan_rows(const __grid_constant__ ScanArgs args) {
  __shared__ C tile[Vectors ? 1 : kTile + kTile / 32];
  __shared__ C shared[33];
  // padding distributes the reads of four over the banks
  const auto slot = [](int i) { return i + (i >> 5); };
  const Op op;
  const C identity = identity_of<C, Op>();
  const Chunk c = chunk_of(args, blockIdx.x / args.chunks, blockIdx.x % args.chunks);
  const Offsets<2> base = args.row_offsets.get(c.row);
  const auto item = [](int u) {
    return static_cast<int>(Vectors ? threadIdx.x * kItems + u : u * kThreads + threadIdx.x);
  };
  const auto fetch = [&](int64_t start, C(&values)[kItems]) {
    if constexpr (Vectors) {
      if (start + item(kItems - 1) < c.end) {
        load_group_floating(args.x, base[0] + start + item(0), args.x_dtype, values);
        return;
      }
    }
    int64_t at[kItems];
#pragma unroll
    for (int u = 0; u < kItems; u++)
      at[u] = base[0] + (start + item(u) < c.end ? start + item(u) : c.end - 1) * args.x_step;
    load_class<C>(args.x, at, args.x_dtype, values);
#pragma unroll
    for (int u = 0; u < kItems; u++)
      if (start + item(u) >= c.end) values[u] = identity;
  };
  C fetched[kItems];
  fetch(c.begin, fetched);
  C carry = identity;
  if (c.chunk > 0) {
    const C* totals = static_cast<const C*>(args.totals) + c.row * args.chunks;
    for (int64_t i = threadIdx.x; i < c.chunk; i += kThreads) carry = op(carry, totals[i]);
    carry = block_reduce(carry, op, identity, shared);
  }
#pragma unroll 1
  for (int64_t start = c.begin; start < c.end; start += kTile) {
    C own[kItems];
    if constexpr (!Vectors) {
#pragma unroll
      for (int u = 0; u < kItems; u++) tile[slot(item(u))] = fetched[u];
      __syncthreads();
    }
#pragma unroll
    for (int u = 0; u < kItems; u++) {
      own[u] = Vectors ? fetched[u] : tile[slot(threadIdx.x * kItems + u)];
      if (u > 0) own[u] = op(own[u - 1], own[u]);
    }
    // in flight while this tile is summed
    if (start + kTile < c.end) fetch(start + kTile, fetched);
    C total;
    const C before = op(carry, block_scan_exclusive(own[kItems - 1], op, identity, shared, total));
    carry = op(carry, total);
#pragma unroll
    for (int u = 0; u < kItems; u++) own[u] = op(before, own[u]);
    if constexpr (!Vectors) {
#pragma unroll
      for (int u = 0; u < kItems; u++) tile[slot(threadIdx.x * kItems + u)] = own[u];
      __syncthreads();
#pragma unroll
      for (int u = 0; u < kItems; u++) own[u] = tile[slot(item(u))];
      __syncthreads();
    }
    if constexpr (Vectors) {
      if (start + item(kItems - 1) < c.end) {
        store_group_floating(args.y, base[1] + start + item(0), args.y_dtype, own);
        continue;
      }
    }
    int64_t at[kItems];
    bool valid[kItems];
#pragma unroll
    for (int u = 0; u < kItems; u++) {
      valid[u] = start + item(u) < c.end;
      at[u] = base[1] + (start + item(u)) * args.y_step;
    }
    store_class<false, C>(args.y, at, args.y_dtype, own, valid);
  }
}

// ---- columns: thread row, grid.y chunk ---------------------------------------------------------

template <class C, class Op, bool Write>
__global__ void __launch_bounds__(kThreads) scan_columns(const __grid_constant__ ScanArgs args) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= args.rows) return;
  const Op op;
  const Chunk c = chunk_of(args, row, blockIdx.y);
  const Offsets<2> base = args.row_offsets.get(row);
  C* totals = static_cast<C*>(args.totals) + row;
  C carry = identity_of<C, Op>();
  if (Write)
    for (int64_t i = 0; i < c.chunk; i++) carry = op(carry, totals[i * args.rows]);
  for (int64_t start = c.begin; start < c.end; start += kItems) {
    int64_t at[kItems];
    bool valid[kItems];
    C values[kItems];
#pragma unroll
    for (int u = 0; u < kItems; u++) {
      valid[u] = start + u < c.end;
      at[u] = base[0] + (valid[u] ? start + u : c.end - 1) * args.x_step;
    }
    load_class<C>(args.x, at, args.x_dtype, values);
#pragma unroll
    for (int u = 0; u < kItems; u++) {
      if (valid[u]) carry = op(carry, values[u]);
      values[u] = carry;
      at[u] = base[1] + (start + u) * args.y_step;
    }
    if (Write) store_class<false, C>(args.y, at, args.y_dtype, values, valid);
  }
  if (!Write) totals[c.chunk * args.rows] = carry;
}

template <class C, class Op>
Status launch_scan(const KernelCall& call, ScanArgs& args, bool columns) {
  Stream& stream = stream_of(call);
  if (args.chunks > 1) {
    args.totals = stream.workspace(args.rows * args.chunks * static_cast<int64_t>(sizeof(C)), call);
    if (!args.totals) return Status{Code::OutOfMemory};
  }
  if (columns) {
    const dim3 grid(static_cast<unsigned>(ceil_div(args.rows, kThreads)),
                    static_cast<unsigned>(args.chunks));
    if (args.chunks > 1) scan_columns<C, Op, false><<<grid, kThreads, 0, stream.handle>>>(args);
    scan_columns<C, Op, true><<<grid, kThreads, 0, stream.handle>>>(args);
  } else {
    const auto scan = [&](auto vectors) {
      constexpr bool kVectors = decltype(vectors)::value;
      const unsigned grid = static_cast<unsigned>(args.rows * args.chunks);
      if (args.chunks > 1)
        reduce_row_chunks<C, Op, kVectors><<<grid, kThreads, 0, stream.handle>>>(args);
      scan_rows<C, Op, kVectors><<<grid, kThreads, 0, stream.handle>>>(args);
    };
    if (IsFloating<C>::value && args.vectors)
      scan(std::bool_constant<IsFloating<C>::value>());
    else
      scan(std::false_type());
  }
  return launched(call);
}

template <class Op>
Status run_scan(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  if (y.numel == 0) return kOk;
  if (is_floating(x.dtype) != is_floating(y.dtype)) return unsupported(call, y.dtype);
  ScanArgs args;
  args.x = x.data;
  args.y = y.data;
  args.x_dtype = x.dtype;
  args.y_dtype = y.dtype;
  args.n = x.ndim > 0 ? x.sizes[x.ndim - 1] : 1;
  args.x_step = x.ndim > 0 ? x.strides[x.ndim - 1] : 1;
  args.y_step = y.ndim > 0 ? y.strides[y.ndim - 1] : 1;
  args.rows = x.numel / args.n;
  args.totals = nullptr;
  args.vectors = args.x_step == 1 && args.y_step == 1 && groups_aligned(x, kItems) &&
                 groups_aligned(y, kItems);
  Dims<2> rows;
  for (int32_t d = 0; d + 1 < x.ndim; d++) rows.push(x.sizes[d], {x.strides[d], y.strides[d]});
  rows.sort_by_stride();
  rows.collapse();
  for (int32_t d = 0; d < rows.ndim; d++)
    args.vectors =
        args.vectors && rows.strides[0][d] % kItems == 0 && rows.strides[1][d] % kItems == 0;
  args.row_offsets = rows.calculator<kMaxDims>();

  const bool columns = args.x_step != 1 && rows.ndim > 0 && rows.strides[0][rows.ndim - 1] == 1;
  const int64_t sms = stream_of(call).facts->num_sms;
  int64_t chunks;
  if (columns) {
    chunks = ceil_div(sms * 1024, args.rows);
    chunks = chunks < args.n / 64 ? chunks : args.n / 64;
    chunks = chunks < kMaxColumnChunks ? chunks : kMaxColumnChunks;
  } else {
    chunks = args.rows < sms * 4 ? ceil_div(sms * 4, args.rows) : 1;
    chunks = chunks < args.n / (4 * kTile) ? chunks : args.n / (4 * kTile);
    chunks = chunks < kMaxRowChunks ? chunks : kMaxRowChunks;
  }
  if (chunks < 1) chunks = 1;
  args.per_chunk = columns ? ceil_div(args.n, chunks) : round_up(ceil_div(args.n, chunks), kTile);
  args.chunks = ceil_div(args.n, args.per_chunk);
  if (!columns && args.rows * args.chunks > kMax32)
    return fail(call.error, Code::Unsupported, "%s: more than 2^31 - 1 rows",
                kernel_name(call.kernel));
  if (!is_floating(x.dtype)) return launch_scan<int64_t, Op>(call, args, columns);
  if (x.dtype == DType::Float64) return launch_scan<double, Op>(call, args, columns);
  return launch_scan<float, Op>(call, args, columns);
}

}  // namespace

Status cumsum(const KernelCall& call) { return run_scan<SumOp>(call); }
Status cumprod(const KernelCall& call) { return run_scan<ProductOp>(call); }

}  // namespace shardwise::cuda
