// index_select, index_add, gather, scatter: slices by one index tensor. All indices are checked
// before anything is written; additions follow the order of the index, whatever the number of
// threads.
#include <cstring>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_math.h"
#include "target_order.h"

namespace shardwise::cpu {

namespace {

std::vector<int64_t> read_all(const TensorView& view) {
  std::vector<int64_t> values(static_cast<size_t>(view.numel));
  if (view.numel > 0) gather(view, 0, view.numel, values.data());
  return values;
}

Status check(const KernelCall& call, const std::vector<int64_t>& index, int64_t size) {
  for (size_t i = 0; i < index.size(); i++)
    if (index[i] < 0 || index[i] >= size)
      return fail(call.error, Code::Index,
                  "index %lld at position %lld is out of range for size %lld",
                  static_cast<long long>(index[i]), static_cast<long long>(i),
                  static_cast<long long>(size));
  return kOk;
}

// Whether the last dim of both is contiguous, so that runs of it can be copied as bytes.
bool same_runs(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && (a.sizes[2] == 1 || a.strides[2] == 1) &&
         (b.sizes[2] == 1 || b.strides[2] == 1);
}

char* slice(const TensorView& view, int64_t outer, int64_t at) {
  return element_at(view.data, view.dtype, outer * view.strides[0] + at * view.strides[1]);
}

}  // namespace

Status index_select(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  const std::vector<int64_t> index = read_all(call.input(1));
  if (y.numel == 0) return kOk;
  Status status = check(call, index, x.sizes[1]);
  if (!status.ok()) return status;
  const int64_t k = y.sizes[1], width = y.sizes[2];
  parallel_for(y.sizes[0] * k, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r++) {
      const char* from = slice(x, r / k, index[r % k]);
      char* to = slice(y, r / k, r % k);
      if (same_runs(x, y)) {
        std::memcpy(to, from, width * item_size(x.dtype));
      } else {
        const int64_t bytes = item_size(x.dtype);
        for (int64_t i = 0; i < width; i++)
          std::memcpy(to + i * y.strides[2] * bytes, from + i * x.strides[2] * bytes, bytes);
      }
    }
  });
  return kOk;
}

Status index_add(const KernelCall& call) {
  const double alpha = call.params_as<IndexAddParams>().alpha;
  const TensorView &source = call.input(1), &y = call.output(0);
  const std::vector<int64_t> index = read_all(call.input(0));
  if (source.numel == 0) return kOk;
  Status status = check(call, index, y.sizes[1]);
  if (!status.ok()) return status;
  const int64_t k = source.sizes[1], width = source.sizes[2];
  with_compute_type(y.dtype, [&](auto type) {
    using T = decltype(type);
    const T scale = static_cast<T>(alpha);
    // Threads share the width (or the outer dim), never one element, so additions follow the order
    // of the index.
    const bool by_outer = y.sizes[0] > 1;
    const TargetOrder order(index.data(), k, y.dtype);
    parallel_for(by_outer ? y.sizes[0] : width, by_outer ? 1 : 64, [&](int64_t begin, int64_t end) {
      const int64_t first = by_outer ? 0 : begin, n = by_outer ? width : end - begin;
      std::vector<T> from(static_cast<size_t>(n)), sum(static_cast<size_t>(n));
      for (int64_t outer = by_outer ? begin : 0; outer < (by_outer ? end : 1); outer++) {
        order.for_each_run([&](int64_t at, int64_t run_begin, int64_t run_end) {
          char* target = slice(y, outer, at) + first * y.strides[2] * item_size(y.dtype);
          const bool direct = y.dtype == dtype_of<T>() && y.strides[2] == 1;
          T* to = direct ? reinterpret_cast<T*>(target) : sum.data();
          if (!direct) gather(y.dtype, target, y.strides[2], to, n);
          for (int64_t i = run_begin; i < run_end; i++) {
            gather(source.dtype,
                   slice(source, outer, order[i]) +
                       first * source.strides[2] * item_size(source.dtype),
                   source.strides[2], from.data(), n);
            row_scale_add_any(from.data(), scale, to, n);
          }
          if (!direct) scatter(y.dtype, to, target, y.strides[2], n);
        });
      }
    });
  });
  return kOk;
}

namespace {

// Offsets of a view of [lead..., n] for row number `row` of the index's leading sizes.
int64_t row_offset(const TensorView& view, const TensorView& index, int64_t row) {
  int64_t offset = 0;
  for (int32_t d = index.ndim - 2; d >= 0; d--) {
    offset += row % index.sizes[d] * view.strides[d];
    row /= index.sizes[d];
  }
  return offset;
}

struct Rows {
  int64_t count, width;
};

Rows rows_of(const TensorView& index) {
  const int64_t width = index.ndim ? index.sizes[index.ndim - 1] : 1;
  return {width ? index.numel / width : 0, width};
}

int64_t last_stride(const TensorView& view) { return view.ndim ? view.strides[view.ndim - 1] : 1; }
int64_t last_size(const TensorView& view) { return view.ndim ? view.sizes[view.ndim - 1] : 1; }

template <class T>
T combine(int mode, T old, T value) {
  switch (mode) {
    case 1:
      return old + value;
    case 2:
      return old * value;
    case 3:
      return m::maximum(old, value);
    case 4:
      return m::minimum(old, value);
    default:
      return value;
  }
}

}  // namespace

Status gather(const KernelCall& call) {
  const TensorView &x = call.input(0), &index = call.input(1), &y = call.output(0);
  const std::vector<int64_t> at = read_all(index);
  Status status = check(call, at, last_size(x));
  if (!status.ok()) return status;
  const Rows rows = rows_of(index);
  const int64_t bytes = item_size(x.dtype);
  parallel_for(rows.count, row_grain(rows.width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const char* from = element_at(x.data, x.dtype, row_offset(x, index, row));
      char* to = element_at(y.data, y.dtype, row_offset(y, index, row));
      for (int64_t i = 0; i < rows.width; i++)
        std::memcpy(to + i * last_stride(y) * bytes,
                    from + at[row * rows.width + i] * last_stride(x) * bytes, bytes);
    }
  });
  return kOk;
}

Status scatter(const KernelCall& call) {
  const int mode = static_cast<int>(call.params_as<ScatterParams>().reduce);
  const TensorView &index = call.input(0), &source = call.input(1), &y = call.output(0);
  const std::vector<int64_t> at = read_all(index);
  Status status = check(call, at, last_size(y));
  if (!status.ok()) return status;
  const Rows rows = rows_of(index);
  with_compute_type(y.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(rows.count, row_grain(rows.width), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) {
        const int64_t base = row_offset(y, index, row);
        const int64_t* named = at.data() + row * rows.width;
        const TargetOrder order(named, rows.width, y.dtype, mode == 1 || mode == 2);
        order.for_each_run([&](int64_t column, int64_t run_begin, int64_t run_end) {
          char* target = element_at(y.data, y.dtype, base + column * last_stride(y));
          T value, result = T(0);
          if (mode != 0) gather(y.dtype, target, 1, &result, 1);
          for (int64_t i = run_begin; i < run_end; i++) {
            if (source.is_immediate) {
              from_double(source.scalar, &value);
            } else {
              const int64_t offset =
                  row_offset(source, index, row) + order[i] * last_stride(source);
              gather(source.dtype, element_at(source.data, source.dtype, offset), 1, &value, 1);
            }
            result = combine(mode, result, value);
          }
          scatter(y.dtype, &result, target, 1, 1);
        });
      }
    });
  });
  return kOk;
}

}  // namespace shardwise::cpu
