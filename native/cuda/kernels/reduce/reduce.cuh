// Reductions over the last dims of a tensor, instantiated by reduce*.cu.
//
// Layout: x[outer..., reduced...] with any strides; y[outer...] contiguous. Two mappings, chosen by
// which dims are dense in memory, each as `vector` (float32, float16, bfloat16 in 16-byte accesses)
// and `any` (one element at a time, dtype switch):
//   rows     reduced elements are neighbours: 1 to 32 lanes, or a block of 256 threads, share an
//            output
//   columns  outputs are neighbours: the threads of a block form a grid of outputs by reduced
//            elements, combined through shared memory
// For few outputs the reduced elements are split over blocks (grid.y); their accumulators go to
// scratch memory and a second kernel combines them.
// Bytes: x once. Numerics: groups of neighbours are added pairwise, then to the thread's
// accumulator (float32, float64 or int64), then threads by a tree. The order is fixed, so two runs
// give the same bits.
//
// An op has: Value (compute type), Accumulator, identity(), combine(a, b), add(accumulator, values,
// index, step) for values at reduced indices index, index + step, ..., and finish(args, output,
// accumulator); kOwnOutput if y is bool or int64 for every x.
#pragma once
#include "../../../generated/op_params.h"
#include "../../primitives/dtype.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/pdl.cuh"
#include "../../primitives/reduce.cuh"
#include "../../primitives/vector.cuh"
#include "../../stream.h"

namespace shardwise::cuda::reduce {

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  // vectors or elements in flight per thread
constexpr int64_t kMaxSplits = 4096;
// unrolled steps of a block from which on more blocks are used, because some are slow
constexpr int64_t kLongSplit = 16;
constexpr int kMaxVector = 8;

struct Args {
  const void* x;
  void* y;
  void* y2;  // a second output, or null
  DType x_dtype, y_dtype;
  // rows: 1 to 32, or kThreads. columns: outputs (vectors) side by side in a block
  int32_t threads_per_row;
  // reduced indices exceed the fast division: only the loops by one element
  bool large;
  int64_t outer, reduced;
  int64_t splits, per_split;
  void* partial;  // [splits][outer] accumulators when splits > 1
  OffsetCalculator<1> outer_offsets, reduced_offsets;
};

// Writes a result of the compute type's own class (floats for float and double, integers and bool
// for int64).
template <class C>
__device__ __forceinline__ void write_result(void* y, int64_t output, DType dtype, C value) {
  const int64_t at[1] = {output};
  const C values[1] = {value};
  const bool valid[1] = {true};
  store_class<false, C>(y, at, dtype, values, valid);
}

template <class Op>
__device__ __forceinline__ void emit(const Args& args, const Op& op, int64_t output, int64_t split,
                                     const typename Op::Accumulator& a) {
  if (args.splits > 1)
    static_cast<typename Op::Accumulator*>(args.partial)[split * args.outer + output] = a;
  else
    op.finish(args, output, a);
}

// ---- rows --------------------------------------------------------------------------------------

// Combines the accumulators of `width` neighbouring threads, a power of two up to 32 or the whole
// block. Returns whether this thread has the result.
template <class Op>
__device__ __forceinline__ bool join_threads(const Op& op, int width, typename Op::Accumulator& a) {
  using A = typename Op::Accumulator;
  __shared__ uint4 buffer[(kThreads / 32 * sizeof(A) + 15) / 16];
  for (int mask = (width < 32 ? width : 32) >> 1; mask > 0; mask >>= 1)
    a = op.combine(a, shuffle_xor(a, mask));
  if (width > 32) {
    A* shared = reinterpret_cast<A*>(buffer);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = a;
    __syncthreads();
    if (threadIdx.x >= 32) return false;
    a = threadIdx.x < kThreads / 32 ? shared[threadIdx.x] : op.identity();
    for (int mask = kThreads / 64; mask > 0; mask >>= 1) a = op.combine(a, shuffle_xor(a, mask));
  }
  return threadIdx.x % width == 0;
}

template <class Op>
__device__ __forceinline__ void finish_row(const Args& args, const Op& op, int64_t row,
                                           typename Op::Accumulator a) {
  if (join_threads(op, args.threads_per_row, a) && row < args.outer)
    emit(args, op, row, blockIdx.y, a);
}

struct RowPlace {
  int64_t row, begin, end, base;
  int lane, lanes;
};

__device__ __forceinline__ RowPlace place_row(const Args& args) {
  RowPlace p;
  p.lanes = args.threads_per_row;
  p.lane = threadIdx.x % p.lanes;
  p.row = static_cast<int64_t>(blockIdx.x) * (kThreads / p.lanes) + threadIdx.x / p.lanes;
  p.begin = blockIdx.y * args.per_split;
  p.end = p.begin + args.per_split < args.reduced ? p.begin + args.per_split : args.reduced;
  if (p.row >= args.outer) p.end = p.begin;
  p.base = p.begin < p.end ? args.outer_offsets.get(p.row)[0] : 0;
  return p;
}

template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    rows_vector(const __grid_constant__ Args args, const Op op) {
  pdl_begin();
  using C = typename Op::Value;
  constexpr int V = kVec16<T>;
  const RowPlace p = place_row(args);
  const T* x = static_cast<const T*>(args.x) + p.base;
  auto a = op.identity();
  const int64_t step = static_cast<int64_t>(p.lanes) * V;
  int64_t i = p.begin + p.lane * V;
  for (; i + (kUnroll - 1) * step + V <= p.end; i += kUnroll * step) {
    int64_t linear[kUnroll];
    Offsets<1> at[kUnroll];
    Vec<T, V> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; u++) linear[u] = i + u * step;
    args.reduced_offsets.get_many(linear, at);
#pragma unroll
    for (int u = 0; u < kUnroll; u++) in[u] = load_vec<V>(x + at[u][0]);
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      C values[V];
#pragma unroll
      for (int j = 0; j < V; j++) values[j] = to_compute<C>(in[u][j]);
      op.add(a, values, i + u * step, int64_t(1));
    }
  }
#pragma unroll 1
  for (; i + V <= p.end; i += step) {
    const Vec<T, V> in = load_vec<V>(x + args.reduced_offsets.get_small(i)[0]);
    C values[V];
#pragma unroll
    for (int j = 0; j < V; j++) values[j] = to_compute<C>(in[j]);
    op.add(a, values, i, int64_t(1));
  }
#pragma unroll 1
  // 1-D only
  for (int64_t t = p.begin + (p.end - p.begin) / V * V + p.lane; t < p.end; t += p.lanes) {
    const C one[1] = {to_compute<C>(x[t])};
    op.add(a, one, t, int64_t(1));
  }
  finish_row(args, op, p.row, a);
}

template <class Op>
__global__ void __launch_bounds__(kThreads)
    rows_any(const __grid_constant__ Args args, const Op op) {
  pdl_begin();
  using C = typename Op::Value;
  const RowPlace p = place_row(args);
  auto a = op.identity();
  int64_t i = p.begin + p.lane;
  for (; !args.large && i + (kUnroll - 1) * p.lanes < p.end; i += kUnroll * p.lanes) {
    int64_t linear[kUnroll], at[kUnroll];
    Offsets<1> offsets[kUnroll];
    C values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; u++) linear[u] = i + u * p.lanes;
    args.reduced_offsets.get_many(linear, offsets);
#pragma unroll
    for (int u = 0; u < kUnroll; u++) at[u] = p.base + offsets[u][0];
    load_class<C>(args.x, at, args.x_dtype, values);
    op.add(a, values, i, static_cast<int64_t>(p.lanes));
  }
#pragma unroll 1
  for (; i < p.end; i += p.lanes) {
    const int64_t at[1] = {p.base + args.reduced_offsets.get(i)[0]};
    C one[1];
    load_class<C>(args.x, at, args.x_dtype, one);
    op.add(a, one, i, int64_t(1));
  }
  finish_row(args, op, p.row, a);
}

// ---- columns -----------------------------------------------------------------------------------

// Combines the accumulators of a column of threads; thread row 0 emits. V outputs per thread.
template <class Op, int V>
__device__ __forceinline__ void finish_columns(const Args& args, const Op& op, int64_t first,
                                               typename Op::Accumulator (&a)[V]) {
  using A = typename Op::Accumulator;
  extern __shared__ uint4 column_buffer[];
  A* shared = reinterpret_cast<A*>(column_buffer);
  const int bx = args.threads_per_row, tx = threadIdx.x % bx, ty = threadIdx.x / bx;
  for (int height = kThreads / bx / 2; height > 0; height >>= 1) {
    if (ty >= height && ty < 2 * height) {
#pragma unroll
      for (int j = 0; j < V; j++) shared[j * kThreads + (ty - height) * bx + tx] = a[j];
    }
    __syncthreads();
    if (ty < height) {
#pragma unroll
      for (int j = 0; j < V; j++) a[j] = op.combine(a[j], shared[j * kThreads + ty * bx + tx]);
    }
    __syncthreads();
  }
  if (ty != 0) return;
#pragma unroll
  for (int j = 0; j < V; j++)
    if (first + j < args.outer) emit(args, op, first + j, blockIdx.y, a[j]);
}

// T = void: any dtype, one output per thread.
template <class Op, class T>
__global__ void __launch_bounds__(kThreads)
    columns(const __grid_constant__ Args args, const Op op) {
  pdl_begin();
  using C = typename Op::Value;
  constexpr bool any = std::is_void_v<T>;
  using E = std::conditional_t<any, C, T>;
  constexpr int V = any ? 1 : kVec16<E>;
  const int bx = args.threads_per_row, by = kThreads / bx, tx = threadIdx.x % bx,
            ty = threadIdx.x / bx;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * bx + tx) * V;
  const int64_t begin = blockIdx.y * args.per_split;
  int64_t end = begin + args.per_split < args.reduced ? begin + args.per_split : args.reduced;
  if (first >= args.outer) end = begin;
  const int64_t base = begin < end ? args.outer_offsets.get(first)[0] : 0;
  typename Op::Accumulator a[V];
#pragma unroll
  for (int j = 0; j < V; j++) a[j] = op.identity();

  int64_t i = begin + ty;
#pragma unroll 1
  for (; i < end; i += kUnroll * by) {
    if (!args.large && i + (kUnroll - 1) * by < end) {
      C values[V][kUnroll];
      int64_t linear[kUnroll], at[kUnroll];
      Offsets<1> offsets[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; u++) linear[u] = i + u * by;
      args.reduced_offsets.get_many(linear, offsets);
#pragma unroll
      for (int u = 0; u < kUnroll; u++) at[u] = base + offsets[u][0];
      if constexpr (any) {
        load_class<C>(args.x, at, args.x_dtype, values[0]);
      } else {
        Vec<E, V> in[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; u++)
          in[u] = load_vec<V>(static_cast<const E*>(args.x) + at[u]);
#pragma unroll
        for (int u = 0; u < kUnroll; u++)
#pragma unroll
          for (int j = 0; j < V; j++) values[j][u] = to_compute<C>(in[u][j]);
      }
#pragma unroll
      for (int j = 0; j < V; j++) op.add(a[j], values[j], i, static_cast<int64_t>(by));
    } else {
#pragma unroll 1
      for (int64_t t = i; t < end && t < i + kUnroll * by; t += by) {
        const int64_t at[1] = {base + args.reduced_offsets.get(t)[0]};
        C one[V][1];
        if constexpr (any) {
          load_class<C>(args.x, at, args.x_dtype, one[0]);
        } else {
          const Vec<E, V> in = load_vec<V>(static_cast<const E*>(args.x) + at[0]);
#pragma unroll
          for (int j = 0; j < V; j++) one[j][0] = to_compute<C>(in[j]);
        }
#pragma unroll
        for (int j = 0; j < V; j++) op.add(a[j], one[j], t, int64_t(1));
      }
    }
  }
  finish_columns<Op, V>(args, op, first, a);
}

// ---- the second phase: a warp or a block per output --------------------------------------------

template <class Op>
__global__ void __launch_bounds__(kThreads)
    join_partials(const __grid_constant__ Args args, const Op op, int width) {
  pdl_begin();
  using A = typename Op::Accumulator;
  const int64_t output =
      static_cast<int64_t>(blockIdx.x) * (kThreads / width) + threadIdx.x / width;
  A a = op.identity();
  if (output < args.outer)
    for (int64_t s = threadIdx.x % width; s < args.splits; s += width)
      a = op.combine(a, static_cast<const A*>(args.partial)[s * args.outer + output]);
  if (join_threads(op, width, a) && output < args.outer) op.finish(args, output, a);
}

// ---- host --------------------------------------------------------------------------------------

struct Plan {
  Args args;
  bool columns, vector;
  unsigned blocks;
};

// `keep_order`: the op uses indices, so the reduced dims must stay in order.
void make_plan(const KernelCall& call, int32_t reduced_ndim, bool keep_order, Plan* plan);

template <class Op, class T>
void launch_vector(const Plan& plan, const Op& op, const Stream& stream) {
  const dim3 grid(plan.blocks, static_cast<unsigned>(plan.args.splits));
  if (plan.columns)
    launch_pdl(columns<Op, T>,
               {grid, kThreads, kThreads * kVec16<T> * sizeof(typename Op::Accumulator)}, stream,
               plan.args, op);
  else
    launch_pdl(rows_vector<Op, T>, {grid, kThreads}, stream, plan.args, op);
}

template <class Op>
Status launch_reduce(const KernelCall& call, Plan& plan, const Op& op) {
  using A = typename Op::Accumulator;
  if (plan.args.outer == 0) return kOk;
  if (!Op::kOwnOutput && is_floating(plan.args.y_dtype) != IsFloating<typename Op::Value>::value)
    return unsupported(call, plan.args.y_dtype);
  Stream& stream = stream_of(call);
  if (plan.args.splits > 1) {
    plan.args.partial = stream.workspace(
        plan.args.splits * plan.args.outer * static_cast<int64_t>(sizeof(A)), call);
    if (!plan.args.partial) return Status{Code::OutOfMemory};
  }
  bool started = false;
  if constexpr (std::is_same_v<typename Op::Value, float>) {
    if (plan.vector) {
      started = true;
      switch (plan.args.x_dtype) {
        case DType::Float32:
          launch_vector<Op, float>(plan, op, stream);
          break;
        case DType::Float16:
          launch_vector<Op, half_t>(plan, op, stream);
          break;
        default:
          launch_vector<Op, bfloat16_t>(plan, op, stream);
          break;
      }
    }
  }
  if (!started) {
    const dim3 grid(plan.blocks, static_cast<unsigned>(plan.args.splits));
    if (plan.columns)
      launch_pdl(columns<Op, void>, {grid, kThreads, kThreads * sizeof(A)}, stream, plan.args, op);
    else
      launch_pdl(rows_any<Op>, {grid, kThreads}, stream, plan.args, op);
  }
  if (plan.args.splits > 1) {
    const int width = plan.args.splits > 256 ? kThreads : 32;
    launch_pdl(join_partials<Op>,
               {blocks_of(ceil_div(plan.args.outer, kThreads / width)), kThreads}, stream,
               plan.args, op, width);
  }
  return launched(call);
}

// Runs body(TypeTag<C>) with the compute type of the input's dtype.
template <class F>
Status with_compute_type(DType dtype, F&& body) {
  if (dtype == DType::Float64) return body(TypeTag<double>{});
  if (is_floating(dtype)) return body(TypeTag<float>{});
  return body(TypeTag<int64_t>{});
}

}  // namespace shardwise::cuda::reduce
