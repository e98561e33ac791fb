// Copies with conversion, for the kernels that move elements.
#pragma once
#include "../../include/kernel_call.h"

namespace shardwise::cpu {

// All elements of a view to another of the same sizes; neither may be an immediate.
void copy_view(const TensorView& from, const TensorView& to);

// `n` elements with the given strides (in elements); stride 0 of `from` repeats one value.
void copy_run(DType from_dtype, const void* from, int64_t from_stride, DType to_dtype, void* to,
              int64_t to_stride, int64_t n);

}  // namespace shardwise::cpu
