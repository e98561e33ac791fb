// Rows that go from one tensor to another: what split_with_sizes_copy and chunk_cat copy, planned
// once for both backends.
#pragma once
#include "kernel_call.h"

namespace shardwise {

// Row r of y begins at element y_offset + r * y_stride. Rows come in groups: row g of a group
// continues x where row g - 1 ended or, if x is wider, x_stride elements further.
struct RowsCopy {
  const TensorView *x, *y;
  int64_t x_offset = 0, y_offset = 0;  // elements
  int64_t length = 0;                  // elements of a row
  int64_t x_stride = 0, y_stride = 0;  // from row to row
  int64_t rows = 1;
  int64_t group_rows = 1;
  // Elements of x in a group; what rows have beyond them is zero. One group: all.
  int64_t group_size = INT64_MAX;
};

inline bool have_same_sizes(const TensorView& a, const TensorView& b) {
  if (a.ndim != b.ndim) return false;
  for (int32_t d = 0; d < a.ndim; d++)
    if (a.sizes[d] != b.sizes[d]) return false;
  return true;
}

// Elements of x in row `row` of its group.
SW_HOST_DEVICE inline int64_t filled_length(int64_t length, int64_t group_size, int64_t row) {
  const int64_t left = group_size - row * length;
  return left < 0 ? 0 : left < length ? left : length;
}

// x [r, n] into outputs whose rows follow each other in a row of x. Calls add(RowsCopy) for each.
template <class Add>
Status plan_split(const KernelCall& call, int32_t count, Add&& add) {
  const TensorView& x = call.input(0);
  const int64_t rows = x.sizes[0], width = x.sizes[1];
  int64_t total = 0;
  for (int32_t i = 0; i < count; i++) {
    const int64_t numel = call.input(1 + i).numel;
    if (rows == 0 ? numel != 0 : numel % rows != 0)
      return fail(call.error, Code::Invalid,
                  "output %d has %lld elements, not a whole row for each of %lld", i,
                  static_cast<long long>(numel), static_cast<long long>(rows));
    total += numel;
  }
  if (total != x.numel)
    return fail(call.error, Code::Invalid,
                "the outputs have %lld elements in all, the input has %lld",
                static_cast<long long>(total), static_cast<long long>(x.numel));
  int64_t column = 0;
  for (int32_t i = 0; i < count && x.numel > 0; i++) {
    RowsCopy copy;
    copy.x = &x;
    copy.y = &call.input(1 + i);
    copy.x_offset = column;
    copy.length = copy.y_stride = copy.y->numel / rows;
    copy.x_stride = width;
    copy.rows = copy.group_rows = rows;
    column += copy.length;
    if (copy.length > 0) add(copy);
  }
  return kOk;
}

// Inputs [outer, n, inner] in `chunks` chunks of n, the last ones padded, into the columns of
// y [outer * chunks, width]. Calls add(RowsCopy) for each.
template <class Add>
Status plan_chunks(const KernelCall& call, int32_t count, int64_t chunks, Add&& add) {
  const TensorView& y = call.output(0);
  const auto length_of = [&](const TensorView& x) {
    return (x.sizes[1] + chunks - 1) / chunks * x.sizes[2];
  };
  if (chunks < 1) return fail(call.error, Code::Invalid, "expected at least one chunk");
  int64_t total = 0;
  for (int32_t i = 0; i < count; i++) {
    const TensorView& x = call.input(i);
    if (x.ndim != 3)
      return fail(call.error, Code::Invalid, "input %d has %d dims, not groups, chunked, inner", i,
                  x.ndim);
    if (x.sizes[0] * chunks != y.sizes[0])
      return fail(call.error, Code::Invalid, "input %d has %lld groups of chunks for %lld rows", i,
                  static_cast<long long>(x.sizes[0]), static_cast<long long>(y.sizes[0]));
    total += length_of(x);
  }
  if (total != y.sizes[1])
    return fail(call.error, Code::Invalid,
                "chunks of %lld elements in all do not fill rows of %lld",
                static_cast<long long>(total), static_cast<long long>(y.sizes[1]));
  int64_t column = 0;
  for (int32_t i = 0; i < count && y.numel > 0; i++) {
    RowsCopy copy;
    copy.x = &call.input(i);
    copy.y = &y;
    copy.y_offset = column;
    copy.length = copy.x_stride = length_of(*copy.x);
    copy.y_stride = total;
    copy.rows = y.sizes[0];
    copy.group_rows = chunks;
    copy.group_size = copy.x->sizes[1] * copy.x->sizes[2];
    column += copy.length;
    if (copy.length > 0) add(copy);
  }
  return kOk;
}

}  // namespace shardwise
