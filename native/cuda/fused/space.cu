#include "space.h"

namespace shardwise::cuda::fused {
namespace {

int32_t num_operands(const KernelCall& call) { return call.num_inputs + call.num_outputs; }

bool is_multiple(const void* p, int64_t bytes) {
  return (reinterpret_cast<uintptr_t>(p) & static_cast<uintptr_t>(bytes - 1)) == 0;
}

// The alignment that vectors of an operand need.
int64_t unit_of(DType dtype, int32_t width) {
  const int64_t bytes = item_size(dtype) * width;
  return bytes < 16 ? bytes : 16;
}

// The common case, without an analysis of dims: every operand is one aligned dense block.
bool is_flat(const KernelCall& call) {
  for (int32_t i = 0; i < num_operands(call); i++) {
    const TensorView& t = call.tensors[i];
    if (t.ndim != 1 || t.strides[0] != 1 || !is_multiple(t.data, 16)) return false;
  }
  return true;
}

// The order of the dims is that of the outputs' memory, so the outputs' strides come first.
void read_dims(const KernelCall& call, Space* space) {
  const int32_t count = num_operands(call), outputs = call.num_outputs;
  const TensorView& y = call.output(0);
  const auto place = [&](int32_t i) { return (i + outputs) % count; };  // inputs are first
  for (int32_t d = 0; d < y.ndim; d++) {
    int64_t stride[kMaxFusedOperands];
    for (int32_t i = 0; i < kMaxFusedOperands; i++) stride[i] = y.strides[d];
    for (int32_t i = 0; i < count; i++) stride[place(i)] = call.tensors[i].strides[d];
    space->dims.push(y.sizes[d], stride);
  }
  space->dims.sort_by_stride();
  space->dims.collapse();
  if (space->dims.ndim > 0) return;
  int64_t ones[kMaxFusedOperands];
  for (int64_t& stride : ones) stride = 1;
  space->dims.push(1, ones);
}

const int64_t* strides_of(const KernelCall& call, const Space& space, int32_t operand) {
  return space.dims.strides[(operand + call.num_outputs) % num_operands(call)];
}

// Whether each operand is dense in the order of the dims, or one element for all.
bool read_access(const KernelCall& call, const Space& space, Layout* layout) {
  const Dims<kMaxFusedOperands>& dims = space.dims;
  bool plain = true;
  for (int32_t i = 0; i < num_operands(call); i++) {
    const int64_t* strides = strides_of(call, space, i);
    bool dense = true, scalar = true;
    int64_t expected = 1;
    for (int32_t d = dims.ndim - 1; d >= 0; d--) {
      dense = dense && (strides[d] == expected || dims.sizes[d] == 1);
      scalar = scalar && (strides[d] == 0 || dims.sizes[d] == 1);
      expected *= dims.sizes[d];
    }
    const bool is_output = i >= call.num_inputs;
    layout->access[i] = dense                  ? Access::Linear
                        : scalar && !is_output ? Access::Scalar
                                               : Access::Strided;
    plain = plain && layout->access[i] != Access::Strided;
  }
  return plain;
}

// Whether all operands allow vectors of `width` elements.
bool allows(const KernelCall& call, const Space& space, const Layout& layout, int32_t width) {
  const Dims<kMaxFusedOperands>& dims = space.dims;
  const int32_t inner = dims.ndim - 1;
  if (layout.ndim > 0 && dims.sizes[inner] % width != 0) return false;
  for (int32_t i = 0; i < num_operands(call); i++) {
    if (layout.access[i] == Access::Scalar) continue;
    const TensorView& t = call.tensors[i];
    const int64_t* strides = strides_of(call, space, i);
    if (layout.access[i] == Access::Strided && strides[inner] == 0 && i < call.num_inputs) continue;
    const int64_t unit = unit_of(t.dtype, width);
    if (strides[inner] != 1 && dims.sizes[inner] != 1) return false;
    if (!is_multiple(t.data, unit)) return false;
    for (int32_t d = 0; d < inner; d++)
      if (strides[d] * item_size(t.dtype) % unit != 0) return false;
  }
  return true;
}

// The numbers of FastDivide, which keeps them for device code only.
void push_divide(int64_t size, uint64_t*& to) {
  const FastDivide divide(size);
  *to++ = divide.divisor | static_cast<uint64_t>(divide.magic) << 32;
  *to++ = divide.shift;
}

// Dims of the offsets, in vectors.
int64_t size_of(const Layout& layout, const Space& space, int32_t dim) {
  const int64_t size = space.dims.sizes[dim];
  return dim == space.dims.ndim - 1 ? size / layout.width : size;
}

}  // namespace

Layout lay_out(const KernelCall& call, int32_t width, Space* space) {
  Layout layout;
  layout.num_operands = static_cast<uint8_t>(num_operands(call));
  for (int32_t i = 0; i < num_operands(call); i++)
    space->start[i] = static_cast<char*>(call.tensors[i].data);
  if (is_flat(call)) {
    int64_t ones[kMaxFusedOperands];
    for (int64_t& stride : ones) stride = 1;
    space->dims.push(call.output(0).numel, ones);
    layout.width = static_cast<uint8_t>(width);
  } else {
    read_dims(call, space);
    const bool plain = read_access(call, *space, &layout);
    layout.ndim = static_cast<uint8_t>(plain ? 0 : space->dims.ndim);
    while (width > 1 && !allows(call, *space, layout, width)) width /= 2;
    layout.width = static_cast<uint8_t>(width);
    const int32_t inner = space->dims.ndim - 1;
    for (int32_t i = 0; i < call.num_inputs && width > 1; i++)
      if (layout.access[i] == Access::Strided && strides_of(call, *space, i)[inner] == 0)
        layout.access[i] = Access::Splat;
  }
  layout.has_tail = layout.width > 1 && space->dims.numel() % layout.width != 0;
  return layout;
}

bool fits_one_launch(const Layout& layout, const Space& space) {
  return layout.ndim < 2 || space.dims.numel() / layout.width <= kMax32;
}

// Along the first dim of more than one element: dense operands stay dense.
void halve(const KernelCall& call, const Layout& layout, const Space& space, Space* first,
           Space* second) {
  int32_t dim = 0;
  while (size_of(layout, space, dim) < 2) dim++;
  const int64_t unit = dim == space.dims.ndim - 1 ? layout.width : 1;
  const int64_t half = size_of(layout, space, dim) / 2 * unit;
  *first = *second = space;
  first->dims.sizes[dim] = half;
  second->dims.sizes[dim] -= half;
  for (int32_t i = 0; i < num_operands(call); i++)
    second->start[i] += half * strides_of(call, space, i)[dim] * item_size(call.tensors[i].dtype);
}

void Arguments::fill(const KernelCall& call, const Layout& layout, const Space& space) {
  uint64_t* to = words_;
  const int64_t count = space.dims.numel();
  *to++ = static_cast<uint64_t>(count);
  *to++ = 0;  // hidden from the compiler: elements.cuh, `sealed`
  for (int32_t i = 0; i < layout.num_operands; i++)
    *to++ = reinterpret_cast<uint64_t>(space.start[i]);
  for (int32_t d = layout.ndim - 1; d > 0; d--) push_divide(size_of(layout, space, d), to);
  for (int32_t d = layout.ndim - 1; d >= 0; d--)
    for (int32_t i = 0; i < layout.num_operands; i++) {
      if (!layout.is_strided(i)) continue;
      const bool in_vectors = d == space.dims.ndim - 1 && layout.access[i] == Access::Strided;
      *to++ =
          static_cast<uint64_t>(strides_of(call, space, i)[d] * item_size(call.tensors[i].dtype) *
                                (in_vectors ? layout.width : 1));
    }
  num_blocks_ = ceil_div(count, int64_t(kThreads) * layout.elements_of_thread());
}

}  // namespace shardwise::cuda::fused
