// The engine of pointwise.cc: feeds operands of any dtype and strides to a loop over contiguous
// arrays. It uses operands that are such arrays in place, or row by row; others go chunk by chunk
// through buffers on the stack, transposed ones by tiles. Included once per instruction set.
#pragma once
#include "../convert.h"
#include "../parallel_for.h"
#include "pointwise_table.h"

namespace shardwise::cpu {
namespace {

using Loop = PointwiseLoop;

// The work of a call: the loop of one op and compute type.
struct Work {
  Loop loop;
  int64_t grain;  // the least elements worth waking a thread
  const double* params;
  int32_t arity;
  int32_t compute;
  bool boolean;  // the loop writes uint8_t
};

constexpr int64_t kBufferBytes = 4096;
constexpr DType kElementOf[3] = {DType::Float32, DType::Float64, DType::Int64};
constexpr int32_t kOut = 3;  // index of the output among the operands

template <class T>
void gather_erased(DType dtype, const void* from, int64_t stride, void* buffer, int64_t n) {
  gather(dtype, from, stride, static_cast<T*>(buffer), n);
}
template <class T>
void scatter_erased(DType dtype, const void* buffer, void* to, int64_t stride, int64_t n) {
  scatter(dtype, static_cast<const T*>(buffer), to, stride, n);
}

template <class T>
void fill_buffer(double value, void* buffer, int64_t n) {
  T v;
  from_double(value, &v);
  T* out = static_cast<T*>(buffer);
  for (int64_t i = 0; i < n; i++) out[i] = v;
}

enum class Path : int32_t {
  Direct,    // the loop works on the operand's own memory
  Rows,      // likewise, one row of the view at a time
  Constant,  // one value, filled into a buffer once
  Buffer,    // gathered into a buffer, or scattered from it, chunk by chunk
};

struct Plan {
  Work work;
  const TensorView* view[4];  // inputs, then the output in [kOut]
  Path path[4];
  int64_t row = 0;  // width of the rows of Path::Rows; 0: none
  // a dim, not the last, along which an input is contiguous: the call runs by tiles
  int32_t across = -1;
  int64_t sizes[kMaxDims];
  int64_t strides[4][kMaxDims];
};

void gather_view(const TensorView& view, int64_t begin, int64_t n, int32_t compute, void* buffer) {
  switch (static_cast<ComputeType>(compute)) {
    case ComputeType::Float:
      return gather(view, begin, n, static_cast<float*>(buffer));
    case ComputeType::Double:
      return gather(view, begin, n, static_cast<double*>(buffer));
    case ComputeType::Int64:
      return gather(view, begin, n, static_cast<int64_t*>(buffer));
  }
}

void scatter_view(const TensorView& view, int64_t begin, int64_t n, int32_t compute, bool boolean,
                  const void* buffer) {
  if (boolean) return scatter(view, begin, n, static_cast<const uint8_t*>(buffer));
  switch (static_cast<ComputeType>(compute)) {
    case ComputeType::Float:
      return scatter(view, begin, n, static_cast<const float*>(buffer));
    case ComputeType::Double:
      return scatter(view, begin, n, static_cast<const double*>(buffer));
    case ComputeType::Int64:
      return scatter(view, begin, n, static_cast<const int64_t*>(buffer));
  }
}

void fill_constant(const TensorView& view, int32_t compute, void* buffer, int64_t n) {
  switch (static_cast<ComputeType>(compute)) {
    case ComputeType::Float:
      return view.is_immediate ? fill_buffer<float>(view.scalar, buffer, n)
                               : gather(view.dtype, view.data, 0, static_cast<float*>(buffer), n);
    case ComputeType::Double:
      return view.is_immediate ? fill_buffer<double>(view.scalar, buffer, n)
                               : gather(view.dtype, view.data, 0, static_cast<double*>(buffer), n);
    case ComputeType::Int64:
      return view.is_immediate ? fill_buffer<int64_t>(view.scalar, buffer, n)
                               : gather(view.dtype, view.data, 0, static_cast<int64_t*>(buffer), n);
  }
}

__attribute__((noinline)) void run_chunks(const Plan& plan, int64_t begin, int64_t end) {
  alignas(64) char buffers[4][kBufferBytes];
  const int64_t chunk = kBufferBytes / item_size(kElementOf[plan.work.compute]);
  const Loop loop = plan.work.loop;
  const int32_t arity = plan.work.arity;
  const void* inputs[3] = {buffers[0], buffers[1], buffers[2]};
  for (int32_t i = 0; i < arity; i++) {
    if (plan.path[i] != Path::Constant) continue;
    fill_constant(*plan.view[i], plan.work.compute, buffers[i],
                  end - begin < chunk ? end - begin : chunk);
  }
  for (int64_t at = begin; at < end;) {
    int64_t n = end - at < chunk ? end - at : chunk;
    if (plan.row > 0) {
      const int64_t left = plan.row - at % plan.row;
      n = left < n ? left : n;
    }
    for (int32_t i = 0; i < arity; i++) {
      const TensorView& view = *plan.view[i];
      switch (plan.path[i]) {
        case Path::Direct:
          inputs[i] = element_at(view.data, view.dtype, at);
          break;
        case Path::Rows:
          inputs[i] = element_at(view.data, view.dtype, offset_of(view, at));
          break;
        case Path::Constant:
          break;
        case Path::Buffer:
          gather_view(view, at, n, plan.work.compute, buffers[i]);
          break;
      }
    }
    const TensorView& out = *plan.view[kOut];
    switch (plan.path[kOut]) {
      case Path::Direct:
        loop(inputs, element_at(out.data, out.dtype, at), n, plan.work.params);
        break;
      case Path::Rows:
        loop(inputs, element_at(out.data, out.dtype, offset_of(out, at)), n, plan.work.params);
        break;
      default:
        loop(inputs, buffers[3], n, plan.work.params);
        scatter_view(out, at, n, plan.work.compute, plan.work.boolean, buffers[3]);
    }
    at += n;
  }
}

// Chunks are multiples of this, so that threads do not share cache lines of a contiguous output.
constexpr int64_t kBlock = 1024;

template <class Body>
SW_MATH void share(int64_t n, int64_t grain, Body body) {
  if (n <= grain) return body(int64_t{0}, n);
  parallel_for((n + kBlock - 1) / kBlock, grain / kBlock, [&](int64_t begin, int64_t end) {
    body(begin * kBlock, end * kBlock < n ? end * kBlock : n);
  });
}

// The paths of all operands; true if every one is Direct or Constant.
bool choose_paths(Plan& plan) {
  bool simple = true;
  for (int32_t i = 0; i < 4; i++) {
    if (i >= plan.work.arity && i != kOut) continue;
    const TensorView& view = *plan.view[i];
    const DType wanted =
        i == kOut && plan.work.boolean ? DType::Bool : kElementOf[plan.work.compute];
    const bool constant = i != kOut && is_constant(view);
    plan.path[i] = !view.is_immediate && view.dtype == wanted && view.is_contiguous() ? Path::Direct
                   : constant ? Path::Constant
                              : Path::Buffer;
    simple &= plan.path[i] != Path::Buffer;
  }
  return simple;
}

// Orders the dims by the output's strides, the smallest innermost, and merges them: the order of
// elements is free. The plan then points to `views`.
void reorder(Plan& plan, TensorView* views) {
  const TensorView& out = *plan.view[kOut];
  int32_t order[kMaxDims];
  int32_t ndim = 0;
  for (int32_t d = 0; d < out.ndim; d++) {
    if (out.sizes[d] == 1) continue;
    int32_t at = ndim++;
    for (; at > 0 && out.strides[order[at - 1]] < out.strides[d]; at--) order[at] = order[at - 1];
    order[at] = d;
  }
  int32_t merged = -1;
  for (int32_t k = 0; k < ndim; k++) {
    const int32_t d = order[k];
    const int64_t size = out.sizes[d];
    bool joins = merged >= 0;
    for (int32_t i = 0; i < 4 && joins; i++) {
      if ((i >= plan.work.arity && i != kOut) || plan.view[i]->is_immediate) continue;
      joins = plan.strides[i][merged] == plan.view[i]->strides[d] * size;
    }
    if (!joins) plan.sizes[++merged] = 1;
    plan.sizes[merged] *= size;
    for (int32_t i = 0; i < 4; i++) {
      if ((i >= plan.work.arity && i != kOut) || plan.view[i]->is_immediate) continue;
      plan.strides[i][merged] = plan.view[i]->strides[d];
    }
  }
  for (int32_t i = 0; i < 4; i++) {
    if ((i >= plan.work.arity && i != kOut) || plan.view[i]->is_immediate) continue;
    views[i] = *plan.view[i];
    views[i].sizes = plan.sizes;
    views[i].strides = plan.strides[i];
    views[i].ndim = merged + 1;
    plan.view[i] = &views[i];
  }
}

// Uses rows in place if they are long enough; transposed operands of large calls go by tiles.
void choose_rows_or_tiles(Plan& plan) {
  constexpr int64_t long_row = 256;
  constexpr int64_t worth_tiles = 16384;
  const TensorView& out = *plan.view[kOut];
  const int32_t last = out.ndim - 1;
  if (last < 1) return;
  for (int32_t i = 0; i < plan.work.arity && out.numel >= worth_tiles && out.sizes[last] >= 16;
       i++) {
    const TensorView& view = *plan.view[i];
    if (plan.path[i] != Path::Buffer || view.strides[last] < 8) continue;
    for (int32_t d = 0; d < last; d++) {
      if (view.strides[d] != 1 || view.sizes[d] < 16) continue;
      plan.across = d;
      return;
    }
  }
  for (int32_t i = 0; i < 4 && out.sizes[last] >= long_row; i++) {
    if (i >= plan.work.arity && i != kOut) continue;
    const TensorView& view = *plan.view[i];
    const DType wanted =
        i == kOut && plan.work.boolean ? DType::Bool : kElementOf[plan.work.compute];
    if (plan.path[i] != Path::Buffer || view.dtype != wanted || view.strides[last] != 1) continue;
    plan.path[i] = Path::Rows;
    plan.row = out.sizes[last];
  }
}

template <class T>
void gather_tile(const TensorView& view, int64_t offset, int32_t across, int64_t rows,
                 int64_t columns, T* to) {
  const int64_t down = view.strides[across];
  const int64_t right = view.strides[view.ndim - 1];
  if (down != 1 || right < 8) {
    for (int64_t i = 0; i < rows; i++) {
      gather(view.dtype, element_at(view.data, view.dtype, offset + i * down), right,
             to + i * columns, columns);
    }
    return;
  }
  T turned[kBufferBytes / sizeof(T)];
  for (int64_t j = 0; j < columns; j++) {
    gather(view.dtype, element_at(view.data, view.dtype, offset + j * right), 1, turned + j * rows,
           rows);
  }
  for (int64_t i = 0; i < rows; i++) {
    for (int64_t j = 0; j < columns; j++) to[i * columns + j] = turned[j * rows + i];
  }
}

template <class T>
void run_tiles(const Plan& plan) {
  constexpr int64_t tile_columns = 32;
  constexpr int64_t tile_rows = kBufferBytes / static_cast<int64_t>(sizeof(T)) / tile_columns;
  const TensorView& out = *plan.view[kOut];
  const int32_t last = out.ndim - 1;
  const int32_t across = plan.across;
  const int64_t strips = (out.sizes[across] + tile_rows - 1) / tile_rows;
  const int64_t width = out.sizes[last];
  const int64_t planes = out.numel / (out.sizes[across] * width);
  const int64_t strip_grain = plan.work.grain / (tile_rows * width);
  parallel_for(planes * strips, strip_grain > 1 ? strip_grain : 1, [&](int64_t begin, int64_t end) {
    alignas(64) T buffers[4][tile_rows * tile_columns];
    const void* inputs[3] = {buffers[0], buffers[1], buffers[2]};
    for (int32_t i = 0; i < plan.work.arity; i++) {
      if (plan.path[i] == Path::Constant)
        fill_constant(*plan.view[i], plan.work.compute, buffers[i], tile_rows * tile_columns);
    }
    for (int64_t unit = begin; unit < end; unit++) {
      const int64_t top = unit % strips * tile_rows;
      const int64_t rows =
          out.sizes[across] - top < tile_rows ? out.sizes[across] - top : tile_rows;
      int64_t offset[4] = {};
      int64_t plane = unit / strips;
      for (int32_t d = last - 1; d >= 0; d--) {
        const int64_t coord = d == across ? top : plane % out.sizes[d];
        if (d != across) plane /= out.sizes[d];
        for (int32_t i = 0; i < 4; i++) {
          if (i != kOut && (i >= plan.work.arity || plan.path[i] == Path::Constant)) continue;
          offset[i] += coord * plan.view[i]->strides[d];
        }
      }
      for (int64_t left = 0; left < width; left += tile_columns) {
        const int64_t columns = width - left < tile_columns ? width - left : tile_columns;
        for (int32_t i = 0; i < plan.work.arity; i++) {
          if (plan.path[i] == Path::Constant) continue;
          const TensorView& view = *plan.view[i];
          gather_tile(view, offset[i] + left * view.strides[last], across, rows, columns,
                      buffers[i]);
        }
        plan.work.loop(inputs, buffers[kOut], rows * columns, plan.work.params);
        for (int64_t i = 0; i < rows; i++) {
          char* to = element_at(out.data, out.dtype,
                                offset[kOut] + i * out.strides[across] + left * out.strides[last]);
          if (plan.work.boolean) {
            scatter(out.dtype, reinterpret_cast<const uint8_t*>(buffers[kOut]) + i * columns, to,
                    out.strides[last], columns);
          } else {
            scatter(out.dtype, buffers[kOut] + i * columns, to, out.strides[last], columns);
          }
        }
      }
    }
  });
}

__attribute__((noinline)) void run_strided(Plan& plan) {
  const int64_t n = plan.view[kOut]->numel;
  TensorView views[4];
  if (plan.view[kOut]->ndim > 1) {
    reorder(plan, views);
    if (!choose_paths(plan)) choose_rows_or_tiles(plan);
  }
  if (plan.across < 0) {
    share(n, plan.work.grain, [&](int64_t begin, int64_t end) { run_chunks(plan, begin, end); });
    return;
  }
  switch (static_cast<ComputeType>(plan.work.compute)) {
    case ComputeType::Float:
      return run_tiles<float>(plan);
    case ComputeType::Double:
      return run_tiles<double>(plan);
    case ComputeType::Int64:
      return run_tiles<int64_t>(plan);
  }
}

void run_elementwise(const KernelCall& call, const Work& work) {
  const TensorView& out = call.output(0);
  const int64_t n = out.numel;
  const DType element = kElementOf[work.compute];
  bool direct = out.dtype == (work.boolean ? DType::Bool : element) && out.is_contiguous();
  for (int32_t i = 0; i < work.arity && direct; i++) {
    const TensorView& view = call.input(i);
    direct = !view.is_immediate && view.dtype == element && view.is_contiguous();
  }
  if (direct) {
    share(n, work.grain, [&](int64_t begin, int64_t end) {
      const void* inputs[3] = {};
      for (int32_t i = 0; i < work.arity; i++)
        inputs[i] = element_at(call.input(i).data, element, begin);
      work.loop(inputs, element_at(out.data, out.dtype, begin), end - begin, work.params);
    });
    return;
  }
  Plan plan;
  plan.work = work;
  for (int32_t i = 0; i < work.arity; i++) plan.view[i] = &call.input(i);
  plan.view[kOut] = &out;
  if (choose_paths(plan)) {
    share(n, work.grain, [&](int64_t begin, int64_t end) { run_chunks(plan, begin, end); });
  } else {
    run_strided(plan);
  }
}

}  // namespace
}  // namespace shardwise::cpu
