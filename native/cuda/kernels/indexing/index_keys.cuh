// Reads and checks index tensors, and combines the index tuples of index_get and index_put into
// single keys.
#pragma once
#include "../../primitives/offsets.cuh"
#include "../../stream.h"

namespace shardwise::cuda::indexing {

constexpr int kThreads = 256;

__device__ __forceinline__ int64_t load_index(const void* base, int64_t at, DType dtype) {
  return dtype == DType::Int64 ? static_cast<const int64_t*>(base)[at]
                               : static_cast<int64_t>(static_cast<const int32_t*>(base)[at]);
}

// Returns an index in [0, size); others are reported and clamped. With `wrap` a negative index
// counts from the end, once.
__device__ __forceinline__ int64_t check_index(int64_t value, int64_t size, bool wrap,
                                               int64_t position, const IndexErrorSink& errors) {
  if (static_cast<uint64_t>(value) < static_cast<uint64_t>(size)) return value;
  if (wrap && value < 0 && value >= -size) return value + size;
  errors.report(value, size, position);
  return value < 0 ? 0 : size - 1;
}

inline bool is_index(DType dtype) { return dtype == DType::Int64 || dtype == DType::Int32; }

// A dim of size 0 has no valid index.
inline Status empty_dim(const KernelCall& call) {
  return fail(call.error, Code::Index, "%s: an index into a dim of size 0",
              kernel_name(call.kernel));
}

// The k index tensors of index_get and index_put.
struct TupleArgs {
  int64_t count;  // positions
  int32_t ndim, num_indices;
  FastDivide dims[kMaxDims];  // of the positions, innermost first
  int64_t full_dims[kMaxDims];
  const void* data[kMaxDims];
  DType dtypes[kMaxDims];
  int64_t sizes[kMaxDims];              // of the indexed dims
  int64_t strides[kMaxDims][kMaxDims];  // [index tensor][dim, innermost first]
  IndexErrorSink errors;
};

// keys[position] = row-major index of the tuple within the k indexed dims (Key: uint32_t or
// uint64_t), indices checked.
template <class Key>
void launch_tuple_keys(const KernelCall& call, int32_t num_indices, const int64_t* indexed_sizes,
                       int64_t count, Key* keys);

// Sizes of the positions I: those of the first index tensor.
inline int64_t positions_of(const KernelCall& call, int32_t first_index) {
  return call.input(first_index).numel;
}

}  // namespace shardwise::cuda::indexing
