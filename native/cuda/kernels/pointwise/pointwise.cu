// Host part of the pointwise ops: chooses between the kernels of pointwise.cuh and fills their
// arguments.
#include "pointwise.cuh"

namespace shardwise::cuda::pointwise {
namespace {

constexpr int kOperands = kMaxInputs + 1;  // the output, then the inputs

// A tail shorter than a vector costs a second launch; short operands go through `strided` as a
// whole instead.
constexpr int64_t kLongEnoughForTail = 16384;

template <class C>
Parameters<C> parameters_of(const KernelCall& call) {
  double p[4] = {0, 0, 0, 0};
  for (int32_t i = 1; i < call.num_params && i <= 4; i++) p[i - 1] = call.params[i];
  return {number_as<C>(p[0]), number_as<C>(p[1]), number_as<C>(p[2]), number_as<C>(p[3])};
}

// Strides of all operands, dims in the memory order of the output and merged. Numbers and missing
// operands get the strides of the output, so that they never prevent a merge.
Dims<kOperands> lay_out(const KernelCall& call, int arity) {
  Dims<kOperands> dims;
  const TensorView& y = call.output(0);
  for (int32_t d = 0; d < y.ndim; d++) {
    int64_t stride[kOperands];
    stride[0] = y.strides[d];
    for (int k = 0; k < kMaxInputs; k++)
      stride[k + 1] =
          k < arity && !call.input(k).is_immediate ? call.input(k).strides[d] : y.strides[d];
    dims.push(y.sizes[d], stride);
  }
  if (dims.ndim > 1) {
    dims.sort_by_stride();
    dims.collapse();
  }
  return dims;
}

// Fills `args` for the vector kernel of element type `dtype`; false if the operands do not fit it.
bool vector_args(const KernelCall& call, const Kernels& kernels, DType dtype,
                 const Dims<kOperands>& dims, VectorArgs& args) {
  const TensorView& y = call.output(0);
  const int32_t inner = dims.ndim - 1;
  if (inner < 0 || dims.ndim > kVectorDims || dims.strides[0][inner] != 1) return false;
  if (y.dtype != (kernels.gives_bool ? DType::Bool : dtype)) return false;
  const int64_t width = vec16(dtype);
  args.numel = y.numel;
  if (dims.ndim == 1) {
    args.numel -= y.numel % width;
    if (args.numel == 0 || (args.numel != y.numel && y.numel < kLongEnoughForTail)) return false;
  } else if (dims.sizes[inner] % width != 0) {
    return false;
  }
  Dims<kOperands> vectors = dims;
  vectors.sizes[inner] /= width;
  bool plain = dims.ndim == 1;  // all operands have the same offset: no division
  for (int k = 0; k < kOperands; k++) {
    const bool present = k == 0 || k <= kernels.arity;
    if (k > 0) args.read[k - 1] = Read::Number;
    if (k > 0 && present) args.numbers[k - 1] = number_as<float>(call.input(k - 1).scalar);
    if (!present || (k > 0 && call.input(k - 1).is_immediate)) {
      vectors.strides[k][inner] = 0;
      continue;
    }
    const TensorView& view = k == 0 ? y : call.input(k - 1);
    const bool is_bool = view.dtype == DType::Bool;
    if (k > 0 && !is_bool && view.dtype != dtype) return false;
    const int64_t inner_stride = dims.strides[k][inner];
    if (inner_stride == 1) {
      const int64_t item = item_size(view.dtype), unit = is_bool ? width : 16;
      if (!is_aligned(view.data, unit)) return false;
      for (int32_t d = 0; d < inner; d++)
        if (dims.strides[k][d] * item % unit != 0) return false;
      vectors.strides[k][inner] = width;
      if (k > 0) args.read[k - 1] = is_bool ? Read::Bools : Read::Elements;
    } else if (inner_stride == 0 && k > 0) {
      args.read[k - 1] = is_bool ? Read::OneBool : Read::OneElement;
      plain = false;
    } else {
      return false;
    }
    if (k > 0) args.inputs[k - 1] = view.data;
  }
  if (!plain && args.numel / width > kMax32) return false;
  args.output = y.data;
  args.offsets = vectors.calculator<kVectorDims>();
  args.offsets.identity = plain;
  args.parameters = parameters_of<float>(call);
  return true;
}

void* element(const void* base, DType dtype, int64_t offset) {
  return static_cast<char*>(const_cast<void*>(base)) + offset * item_size(dtype);
}

// One launch per 2^31 elements, unless the offsets need no division.
template <class C>
void launch_strided(const KernelCall& call, const Kernels& kernels, void (*kernel)(StridedArgs<C>),
                    Dims<kOperands> dims, const int64_t (&start)[kOperands]) {
  const int64_t numel = dims.numel();
  StridedArgs<C> args;
  args.offsets = dims.calculator<kMaxDims>();
  if (numel > kMax32 && !args.offsets.identity) {
    int32_t largest = 0;
    for (int32_t d = 1; d < dims.ndim; d++)
      if (dims.sizes[d] > dims.sizes[largest]) largest = d;
    const int64_t size = dims.sizes[largest];
    int64_t second[kOperands];
    for (int k = 0; k < kOperands; k++)
      second[k] = start[k] + (size / 2) * dims.strides[k][largest];
    dims.sizes[largest] = size / 2;
    launch_strided(call, kernels, kernel, dims, start);
    dims.sizes[largest] = size - size / 2;
    launch_strided(call, kernels, kernel, dims, second);
    return;
  }
  args.numel = numel;
  args.parameters = parameters_of<C>(call);
  const TensorView& y = call.output(0);
  args.output = element(y.data, y.dtype, start[0]);
  args.output_dtype = y.dtype;
  for (int k = 0; k < kMaxInputs; k++) {
    args.inputs[k] = nullptr;
    args.numbers[k] = C(0);
    args.dtypes[k] = DType::Float32;
    if (k >= kernels.arity) continue;
    const TensorView& x = call.input(k);
    args.dtypes[k] = x.dtype;
    if (x.is_immediate)
      args.numbers[k] = number_as<C>(x.scalar);
    else
      args.inputs[k] = element(x.data, x.dtype, start[k + 1]);
  }
  const int64_t blocks = ceil_div(numel, kThreads * kStridedElements);
  launch_pdl(kernel, {blocks_of(blocks), kThreads}, stream_of(call), args);
}

template <class C>
Status run_strided(const KernelCall& call, const Kernels& kernels, void (*kernel)(StridedArgs<C>),
                   Dims<kOperands> dims, int64_t first) {
  const TensorView& y = call.output(0);
  if (!kernel || !storable<C>(y.dtype, kernels.gives_bool)) return unsupported(call, y.dtype);
  for (int k = 0; k < kernels.arity; k++)
    if (!IsFloating<C>::value && !call.input(k).is_immediate && is_floating(call.input(k).dtype))
      return unsupported(call, call.input(k).dtype);
  int64_t start[kOperands] = {};
  if (first > 0) {  // the tail of a 1-D operand
    for (int k = 0; k < kOperands; k++) start[k] = first * dims.strides[k][0];
    dims.sizes[0] -= first;
  }
  launch_strided<C>(call, kernels, kernel, dims, start);
  return launched(call);
}

DType vector_dtype(const KernelCall& call, const Kernels& kernels) {
  if (!kernels.gives_bool) return call.output(0).dtype;
  for (int k = 0; k < kernels.arity; k++)
    if (!call.input(k).is_immediate && call.input(k).dtype != DType::Bool)
      return call.input(k).dtype;
  return DType::Bool;
}

using VectorKernel = void (*)(VectorArgs);

VectorKernel vector_kernel(const Kernels& kernels, DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return kernels.vector_float32;
    case DType::BFloat16:
      return kernels.vector_bfloat16;
    case DType::Float16:
      return kernels.vector_float16;
    default:
      return nullptr;
  }
}

void launch_vector(const KernelCall& call, VectorKernel kernel, DType dtype,
                   const VectorArgs& args) {
  const int64_t blocks = ceil_div(args.numel, kThreads * vec16(dtype));
  launch_pdl(kernel, {blocks_of(blocks), kThreads}, stream_of(call), args);
}

// The common case, without an analysis of dims: every operand is one aligned contiguous block in
// the same order, or a number. The host part before the launch takes most of the time of a small
// op.
bool flat_args(const KernelCall& call, const Kernels& kernels, DType dtype, VectorArgs& args) {
  const auto flat = [&](const TensorView& t, DType wanted) {
    return t.ndim == 1 && t.strides[0] == 1 && t.dtype == wanted && is_aligned(t.data, 16);
  };
  const TensorView& y = call.output(0);
  if (y.numel % vec16(dtype) != 0 || !flat(y, kernels.gives_bool ? DType::Bool : dtype))
    return false;
  for (int k = 0; k < kMaxInputs; k++) {
    args.read[k] = Read::Number;
    args.numbers[k] = 0;
    if (k >= kernels.arity) continue;
    const TensorView& x = call.input(k);
    if (x.is_immediate) {
      args.numbers[k] = number_as<float>(x.scalar);
      continue;
    }
    if (!flat(x, dtype)) return false;
    args.read[k] = Read::Elements;
    args.inputs[k] = x.data;
  }
  args.numel = y.numel;
  args.output = y.data;
  args.offsets.identity = 1;
  args.parameters = parameters_of<float>(call);
  return true;
}

}  // namespace

Status run(const KernelCall& call, const Kernels& kernels) {
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  const auto compute = static_cast<ComputeType>(static_cast<int32_t>(call.params[0]));
  const DType dtype = vector_dtype(call, kernels);
  const VectorKernel kernel =
      compute == ComputeType::Float ? vector_kernel(kernels, dtype) : nullptr;
  VectorArgs args;
  if (kernel && flat_args(call, kernels, dtype, args)) {
    launch_vector(call, kernel, dtype, args);
    return launched(call);
  }
  const Dims<kOperands> dims = lay_out(call, kernels.arity);
  if (compute == ComputeType::Double)
    return run_strided<double>(call, kernels, kernels.strided_double, dims, 0);
  if (compute == ComputeType::Int64)
    return run_strided<int64_t>(call, kernels, kernels.strided_int64, dims, 0);
  args = VectorArgs{};
  if (!kernel || !vector_args(call, kernels, dtype, dims, args))
    return run_strided<float>(call, kernels, kernels.strided_float, dims, 0);
  launch_vector(call, kernel, dtype, args);
  if (args.numel == y.numel) return launched(call);
  return run_strided<float>(call, kernels, kernels.strided_float, dims, args.numel);
}

}  // namespace shardwise::cuda::pointwise
