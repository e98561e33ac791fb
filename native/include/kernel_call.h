// What a kernel sees: operands as pointer, dtype, sizes and strides, and its parameters as numbers.
// Shapes were checked and outputs allocated in TypeScript; a kernel never allocates a tensor.
#pragma once
#include "dtype.h"
#include "status.h"

namespace shardwise {

constexpr int32_t kMaxDims = 16;
// words that a kernel may read as its parameters, however few were given
constexpr int32_t kMinParams = 16;

struct TensorView {
  // first element (the storage offset is already applied); null for an immediate
  void* data;
  const int64_t* sizes;
  const int64_t* strides;  // in elements; 0 on a broadcast dim, never negative
  int64_t numel;
  double scalar;  // the value of an immediate
  DType dtype;
  int32_t ndim;
  bool is_immediate;  // a number passed in place of a tensor; in an optional position: absent

  // Bytes from the first element to the end of the last.
  int64_t reach() const {
    if (numel == 0) return 0;
    int64_t last = 0;
    for (int32_t d = 0; d < ndim; d++) last += (sizes[d] - 1) * strides[d];
    return (last + 1) * item_size(dtype);
  }

  bool is_contiguous() const {
    int64_t expected = 1;
    for (int32_t d = ndim - 1; d >= 0; d--) {
      if (sizes[d] != 1 && strides[d] != expected) return false;
      expected *= sizes[d];
    }
    return true;
  }
};

struct KernelCall {
  int32_t kernel;
  int32_t num_inputs;
  int32_t num_outputs;
  int32_t num_params;
  TensorView* tensors;   // inputs, then outputs
  const double* params;  // the op's parameter struct of generated/op_params.h, all doubles
  void* stream;          // the backend's own stream object
  int32_t device;
  ErrorText* error;  // written by fail()

  const TensorView& input(int32_t i) const { return tensors[i]; }
  const TensorView& output(int32_t i) const { return tensors[num_inputs + i]; }
  template <class P>
  const P& params_as() const {
    return *reinterpret_cast<const P*>(params);
  }
};

using Kernel = Status (*)(const KernelCall&);

struct KernelEntry {
  const char* name;
  Kernel run;
};

}  // namespace shardwise
