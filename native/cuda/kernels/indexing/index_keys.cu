// Keys of index tuples: see index_keys.cuh. key = (i1 n2 + i2) n3 + ..., in 64 bits; negative
// indices count from the end once, invalid ones are reported and clamped.
// Grid: blocks of 256 threads, one thread per position. Bytes: every index once, one key. Integers
// only. Source: PyTorch's indexing by tensors. On an H200, 1M pairs of indices: 12 us (16 bytes
// read and 4 written for each, 1.7 TB/s). No other version was timed.
#include "index_keys.cuh"

namespace shardwise::cuda::indexing {
namespace {

template <class Key>
__global__ void __launch_bounds__(kThreads)
    tuple_keys(const __grid_constant__ TupleArgs args, Key* keys) {
  const int64_t position = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (position >= args.count) return;
  int64_t coordinates[kMaxDims];
  int64_t n = position;
#pragma unroll 1
  for (int d = 0; d < args.ndim; d++) {
    const int64_t next =
        n <= kMax32 ? args.dims[d].quotient(static_cast<uint32_t>(n)) : n / args.full_dims[d];
    coordinates[d] = n - next * args.full_dims[d];
    n = next;
  }
  uint64_t key = 0;
#pragma unroll 1
  for (int i = 0; i < args.num_indices; i++) {
    int64_t at = 0;
#pragma unroll 1
    for (int d = 0; d < args.ndim; d++) at += coordinates[d] * args.strides[i][d];
    const int64_t value = load_index(args.data[i], at, args.dtypes[i]);
    key = key * static_cast<uint64_t>(args.sizes[i]) +
          static_cast<uint64_t>(check_index(value, args.sizes[i], true, position, args.errors));
  }
  keys[position] = static_cast<Key>(key);
}

}  // namespace

// The index tensors are the inputs after the first (index_get: x, index_put: values).
template <class Key>
void launch_tuple_keys(const KernelCall& call, int32_t num_indices, const int64_t* indexed_sizes,
                       int64_t count, Key* keys) {
  TupleArgs args;
  const TensorView& shape = call.input(1);
  args.count = count;
  args.ndim = shape.ndim;
  args.num_indices = num_indices;
  args.errors = stream_of(call).index_errors(call);
  for (int32_t d = 0; d < shape.ndim; d++) {
    args.full_dims[d] = shape.sizes[shape.ndim - 1 - d];
    args.dims[d] = FastDivide(args.full_dims[d]);
  }
  for (int32_t i = 0; i < num_indices; i++) {
    const TensorView& index = call.input(1 + i);
    args.data[i] = index.data;
    args.dtypes[i] = index.dtype;
    args.sizes[i] = indexed_sizes[i];
    for (int32_t d = 0; d < index.ndim; d++) args.strides[i][d] = index.strides[index.ndim - 1 - d];
  }
  tuple_keys<<<static_cast<unsigned>(ceil_div(count, kThreads)), kThreads, 0,
               stream_of(call).handle>>>(args, keys);
}

template void launch_tuple_keys<uint32_t>(const KernelCall&, int32_t, const int64_t*, int64_t,
                                          uint32_t*);
template void launch_tuple_keys<uint64_t>(const KernelCall&, int32_t, const int64_t*, int64_t,
                                          uint64_t*);

}  // namespace shardwise::cuda::indexing
