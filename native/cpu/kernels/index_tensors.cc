// Reading and writing by several index tensors at once, and finding what is not zero.
#include <cstring>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

struct Positions {
  std::vector<int64_t> offsets;  // in elements of the indexed tensor, one for each position
  Status status = kOk;
};

// Offsets that the index tensors name together; negative indices count from the end.
Positions positions_of(const KernelCall& call, const TensorView& indexed, int32_t first_input, int32_t count) {
  Positions out;
  const int64_t n = call.input(first_input).numel;
  out.offsets.assign(static_cast<size_t>(n), 0);
  std::vector<int64_t> values(static_cast<size_t>(n));
  for (int32_t k = 0; k < count && n > 0; k++) {
    gather(call.input(first_input + k), 0, n, values.data());
    const int64_t size = indexed.sizes[k];
    for (int64_t i = 0; i < n; i++) {
      const int64_t v = values[i] < 0 ? values[i] + size : values[i];
      if (v < 0 || v >= size) {
        out.status = fail(call.error, Code::Index, "index %lld at position %lld is out of range for dim %d of size %lld",
                          static_cast<long long>(values[i]), static_cast<long long>(i), k, static_cast<long long>(size));
        return out;
      }
      out.offsets[i] += v * indexed.strides[k];
    }
  }
  return out;
}

// The dims behind the indexed ones, as a view that starts at an offset.
TensorView rest_of(const TensorView& indexed, int32_t count, int64_t offset) {
  TensorView rest = indexed;
  rest.data = element_at(indexed.data, indexed.dtype, offset);
  rest.sizes += count;
  rest.strides += count;
  rest.ndim -= count;
  rest.numel = 1;
  for (int32_t d = 0; d < rest.ndim; d++) rest.numel *= rest.sizes[d];
  return rest;
}

}  // namespace

Status index_get(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  const auto count = static_cast<int32_t>(call.params_as<IndexGetParams>().num_indices);
  const Positions at = positions_of(call, x, 1, count);
  if (!at.status.ok()) return at.status;
  const int64_t width = rest_of(x, count, 0).numel;
  if (y.numel == 0) return kOk;
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(static_cast<int64_t>(at.offsets.size()), row_grain(width), [&](int64_t begin, int64_t end) {
      std::vector<T> buffer(static_cast<size_t>(width));
      for (int64_t i = begin; i < end; i++) {
        gather(rest_of(x, count, at.offsets[i]), 0, width, buffer.data());
        scatter(y, i * width, width, buffer.data());
      }
    });
  });
  return kOk;
}

Status index_put(const KernelCall& call) {
  const auto& p = call.params_as<IndexPutParams>();
  const TensorView &values = call.input(0), &y = call.output(0);
  const auto count = static_cast<int32_t>(p.num_indices);
  const Positions at = positions_of(call, y, 1, count);
  if (!at.status.ok()) return at.status;
  const int64_t width = rest_of(y, count, 0).numel;
  if (values.numel == 0) return kOk;
  with_compute_type(y.dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<T> value(static_cast<size_t>(width)), old(static_cast<size_t>(width));
    for (size_t i = 0; i < at.offsets.size(); i++) {
      const TensorView target = rest_of(y, count, at.offsets[i]);
      gather(values, static_cast<int64_t>(i) * width, width, value.data());
      if (p.accumulate != 0) {
        gather(target, 0, width, old.data());
        for (int64_t j = 0; j < width; j++) value[j] += old[j];
      }
      scatter(target, 0, width, value.data());
    }
  });
  return kOk;
}

Status nonzero(const KernelCall& call) {
  const TensorView &x = call.input(0), &count = call.output(0), &rows = call.output(1);
  auto* out = static_cast<int64_t*>(rows.data);
  int64_t found = 0;
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    T buffer[1024];
    for (int64_t at = 0; at < x.numel; at += 1024) {
      const int64_t n = x.numel - at < 1024 ? x.numel - at : 1024;
      gather(x, at, n, buffer);
      for (int64_t i = 0; i < n; i++) {
        if (buffer[i] == T(0)) continue;
        int64_t rest = at + i;
        for (int32_t d = x.ndim - 1; d >= 0; d--) {
          out[found * x.ndim + d] = rest % x.sizes[d];
          rest /= x.sizes[d];
        }
        found++;
      }
    }
  });
  *static_cast<int64_t*>(count.data) = found;
  return kOk;
}

}  // namespace shardwise::cpu
