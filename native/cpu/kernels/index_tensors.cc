// index_get, index_put, nonzero and nonzero_rows.
#include <cstring>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_math.h"
#include "target_order.h"

namespace shardwise::cpu {

namespace {

struct Positions {
  std::vector<int64_t> offsets;  // in elements of the indexed tensor, one for each position
  Status status = kOk;
};

// The offsets that the index tensors select together; negative indices count from the end.
Positions positions_of(const KernelCall& call, const TensorView& indexed, int32_t first_input,
                       int32_t count) {
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
        out.status = fail(call.error, Code::Index,
                          "index %lld at position %lld is out of range for dim %d of size %lld",
                          static_cast<long long>(values[i]), static_cast<long long>(i), k,
                          static_cast<long long>(size));
        return out;
      }
      out.offsets[i] += v * indexed.strides[k];
    }
  }
  return out;
}

// The dims after the indexed ones, as a view that starts at an offset.
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

// Sets bit i % 64 of flags[i / 64] if element i is not 0, for a tile of elements; returns the
// number of set bits.
template <class T>
int64_t flag_elements(const TensorView& x, int64_t begin, int64_t tile, uint64_t* flags) {
  const int64_t end = x.numel - begin < tile ? x.numel : begin + tile;
  int64_t found = 0;
  T buffer[1024];
  for (int64_t at = begin; at < end; at += 1024) {
    const int64_t n = end - at < 1024 ? end - at : 1024;
    gather(x, at, n, buffer);
    uint8_t set[1024] = {};
    for (int64_t i = 0; i < n; i++) set[i] = buffer[i] != T(0);
    for (int64_t i = 0; i < n; i += 64) {
      uint64_t word = 0;
      for (int64_t k = 0; k < 64; k += 8) {
        uint64_t bytes;  // the product collects their lowest bits in its upper byte
        std::memcpy(&bytes, set + i + k, 8);
        word |= bytes * 0x0102040810204080u >> 56 << k;
      }
      flags[(at + i) / 64] = word;
      found += __builtin_popcountll(word);
    }
  }
  return found;
}

// The coordinates of the flagged elements of a tile, at most `count`.
void write_rows(const TensorView& shape, const uint64_t* flags, int64_t begin, int64_t tile,
                int64_t count, int64_t* rows) {
  const int32_t last = shape.ndim - 1;
  const int64_t end = shape.numel - begin < tile ? shape.numel : begin + tile,
                width = shape.sizes[last];
  // all coordinates but the last, of the line that begins with element `line`
  int64_t outer[kMaxDims] = {}, line = 0;
  for (int64_t i = begin; i < end && count > 0; i += 64)
    for (uint64_t left = flags[i / 64]; left != 0 && count > 0; left &= left - 1, count--) {
      const int64_t element = i + __builtin_ctzll(left);
      if (element - line >= width) {
        const int64_t lines = (element - line) / width;
        line += lines * width;
        if (last > 0) outer[last - 1] += lines;
        for (int32_t d = last - 1; d > 0 && outer[d] >= shape.sizes[d]; d--) {
          outer[d - 1] += outer[d] / shape.sizes[d];
          outer[d] %= shape.sizes[d];
        }
      }
      for (int32_t d = 0; d < last; d++) *rows++ = outer[d];
      *rows++ = element - line;
    }
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
    parallel_for(static_cast<int64_t>(at.offsets.size()), row_grain(width),
                 [&](int64_t begin, int64_t end) {
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
    std::vector<T> value(static_cast<size_t>(width)), sum(static_cast<size_t>(width));
    const auto n = static_cast<int64_t>(at.offsets.size());
    const bool adds = p.accumulate != 0;
    const TargetOrder order(at.offsets.data(), n, y.dtype, adds);
    order.for_each_run([&](int64_t offset, int64_t begin, int64_t end) {
      const TensorView target = rest_of(y, count, offset);
      if (adds) gather(target, 0, width, sum.data());
      for (int64_t i = begin; i < end; i++) {
        gather(values, order[i] * width, width, value.data());
        for (int64_t j = 0; j < width; j++) sum[j] = adds ? sum[j] + value[j] : value[j];
      }
      scatter(target, 0, width, sum.data());
    });
  });
  return kOk;
}

Status nonzero(const KernelCall& call) {
  const TensorView& x = call.input(0);
  const auto tile = static_cast<int64_t>(call.params_as<NonzeroParams>().tile);
  auto* starts = static_cast<int64_t*>(call.output(0).data);
  auto* flags = static_cast<uint64_t*>(call.output(1).data);
  const int64_t tiles = call.output(0).numel - 1;
  starts[0] = 0;
  with_compute_type(x.dtype, [&](auto type) {
    parallel_for(tiles, row_grain(tile), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; t++)
        starts[t + 1] = flag_elements<decltype(type)>(x, t * tile, tile, flags);
    });
  });
  for (int64_t t = 0; t < tiles; t++) starts[t + 1] += starts[t];
  return kOk;
}

Status nonzero_rows(const KernelCall& call) {
  const TensorView &shape = call.input(0), &rows = call.output(0);
  if (rows.numel == 0) return kOk;
  const auto tile = static_cast<int64_t>(call.params_as<NonzeroRowsParams>().tile);
  const auto* starts = static_cast<const int64_t*>(call.input(1).data);
  const auto* flags = static_cast<const uint64_t*>(call.input(2).data);
  parallel_for(call.input(1).numel - 1, row_grain(tile), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; t++) {
      // Never writes outside of the rows, whatever the flags say.
      const int64_t first = starts[t],
                    last = starts[t + 1] < rows.sizes[0] ? starts[t + 1] : rows.sizes[0];
      if (first < 0 || first >= last) continue;
      write_rows(shape, flags, t * tile, tile, last - first,
                 static_cast<int64_t*>(rows.data) + first * shape.ndim);
    }
  });
  return kOk;
}

}  // namespace shardwise::cpu
