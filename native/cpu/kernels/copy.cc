// copy: any dtype and strides to any other. Runs go by memcpy if possible, transposed planes by
// tiles, conversions through a buffer of the compute type that holds the source exactly.
#include "copy.h"

#include <cstring>

#include "layout.h"
#include "pointwise_table.h"

namespace shardwise::cpu {
namespace {

constexpr int64_t kGrain = 32768;  // the least elements worth waking a thread
constexpr int64_t kChunk = 512;    // elements converted at a time
constexpr int64_t kTile = 32;

char* at(const void* data, DType dtype, int64_t offset) {
  return static_cast<char*>(const_cast<void*>(data)) + offset * item_size(dtype);
}

ComputeType exact_type(DType dtype) {
  if (dtype == DType::Float64) return ComputeType::Double;
  return is_floating(dtype) ? ComputeType::Float : ComputeType::Int64;
}

void convert_run(DType from_dtype, const char* from, int64_t from_stride, DType to_dtype, char* to,
                 int64_t to_stride, int64_t n) {
  alignas(64) double buffer[kChunk];
  const PointwiseTable& table = pointwise_table();
  const int32_t type = static_cast<int32_t>(exact_type(from_dtype));
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    table.gather[type](from_dtype, at(from, from_dtype, i * from_stride), from_stride, buffer,
                       count);
    table.scatter[type](to_dtype, buffer, at(to, to_dtype, i * to_stride), to_stride, count);
  }
}

template <class U>
inline void raw_run(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n) {
  const U* source = static_cast<const U*>(from);
  U* target = static_cast<U*>(to);
  if (to_stride == 1 && from_stride == 1) {
    if (n >= 16) {
      memcpy(target, source, static_cast<size_t>(n) * sizeof(U));
    } else {
      for (int64_t i = 0; i < n; i++) target[i] = source[i];
    }
  } else if (from_stride == 0) {
    const U value = *source;
    if (to_stride == 1) {
      std::fill_n(target, n, value);
    } else {
      for (int64_t i = 0; i < n; i++) target[i * to_stride] = value;
    }
  } else {
    for (int64_t i = 0; i < n; i++) target[i * to_stride] = source[i * from_stride];
  }
}

// Calls body(U()) with the unsigned integer of the dtype's size.
template <class Body>
inline void with_raw_type(DType dtype, Body body) {
  switch (item_size(dtype)) {
    case 8:
      return body(uint64_t());
    case 4:
      return body(uint32_t());
    case 2:
      return body(uint16_t());
    default:
      return body(uint8_t());
  }
}

// 4-byte elements move as 4 x 4 blocks of vectors, available on every x86-64 and arm64.
template <class U>
inline void transpose_tile(const U* from, U* to) {
  for (int64_t i = 0; i < kTile; i++) {
    for (int64_t j = 0; j < kTile; j++) to[i * kTile + j] = from[j * kTile + i];
  }
}

template <>
inline void transpose_tile(const uint32_t* from, uint32_t* to) {
  typedef uint32_t Vector __attribute__((vector_size(16)));
  for (int64_t i = 0; i < kTile; i += 4) {
    for (int64_t j = 0; j < kTile; j += 4) {
      Vector r[4];
      for (int k = 0; k < 4; k++) memcpy(&r[k], from + (j + k) * kTile + i, 16);
      const Vector a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
      const Vector b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
      const Vector c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
      const Vector d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
      r[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
      r[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
      r[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
      r[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
      for (int k = 0; k < 4; k++) memcpy(to + (i + k) * kTile + j, &r[k], 16);
    }
  }
}

// `from` is contiguous along dim `along`, `to` along the last dim. A tile is read by short
// contiguous runs, transposed in the first-level cache, and written by short contiguous runs.
template <class U>
void copy_transposed(const Layout& whole, int32_t along, const TensorView& from,
                     const TensorView& to) {
  const int32_t last = whole.ndim - 1;
  const int64_t height = whole.sizes[along];
  const int64_t width = whole.sizes[last];
  const int64_t from_column = whole.strides[0][last];
  const int64_t to_row = whole.strides[1][along];
  const int64_t to_column = whole.strides[1][last];
  const int64_t strips = (height + kTile - 1) / kTile;
  // The rows of `outer` are the planes spanned by `along` and the last dim.
  Layout outer = whole;
  for (int32_t d = along; d < last; d++) {
    outer.sizes[d] = whole.sizes[d + 1];
    for (int32_t v = 0; v < 2; v++) outer.strides[v][d] = whole.strides[v][d + 1];
  }
  outer.ndim = last;
  const int64_t grain = std::max<int64_t>(1, kGrain / (kTile * width));
  parallel_for(outer.rows() * strips, grain, [&](int64_t begin, int64_t end) {
    alignas(64) U tile[kTile * kTile];
    alignas(64) U turned[kTile * kTile];
    for (int64_t unit = begin; unit < end; unit++) {
      const RowCursor cursor(outer, unit / strips);
      const int64_t i0 = unit % strips * kTile;
      const int64_t rows = std::min(kTile, height - i0);
      for (int64_t j0 = 0; j0 < width; j0 += kTile) {
        const int64_t columns = std::min(kTile, width - j0);
        const U* source =
            static_cast<const U*>(from.data) + cursor.offset[0] + i0 + j0 * from_column;
        for (int64_t j = 0; j < columns; j++) {
          if (rows == kTile) {
            memcpy(tile + j * kTile, source + j * from_column, kTile * sizeof(U));
          } else {
            memcpy(tile + j * kTile, source + j * from_column,
                   static_cast<size_t>(rows) * sizeof(U));
          }
        }
        transpose_tile<U>(tile, turned);
        for (int64_t i = 0; i < rows; i++) {
          copy_run(from.dtype, turned + i * kTile, 1, to.dtype,
                   at(to.data, to.dtype, cursor.offset[1] + (i0 + i) * to_row + j0 * to_column),
                   to_column, columns);
        }
      }
    }
  });
}

}  // namespace

void copy_run(DType from_dtype, const void* from, int64_t from_stride, DType to_dtype, void* to,
              int64_t to_stride, int64_t n) {
  if (from_dtype == to_dtype) {
    with_raw_type(from_dtype,
                  [&](auto u) { raw_run<decltype(u)>(from, from_stride, to, to_stride, n); });
  } else {
    convert_run(from_dtype, static_cast<const char*>(from), from_stride, to_dtype,
                static_cast<char*>(to), to_stride, n);
  }
}

void copy_view(const TensorView& from, const TensorView& to) {
  if (to.numel == 0) return;
  const Layout layout({&from, &to});
  if (layout.ndim > 1 && layout.stride(0) > 1 && layout.width() >= 8) {
    for (int32_t d = 0; d < layout.ndim - 1; d++) {
      if (layout.strides[0][d] != 1 || layout.sizes[d] < 8) continue;
      return with_raw_type(from.dtype,
                           [&](auto u) { copy_transposed<decltype(u)>(layout, d, from, to); });
    }
  }
  const int64_t from_stride = layout.stride(0);
  const int64_t to_stride = layout.stride(1);
  if (from.dtype != to.dtype) {
    each_run(layout, kGrain, [&](const int64_t* offset, int64_t n) {
      convert_run(from.dtype, at(from.data, from.dtype, offset[0]), from_stride, to.dtype,
                  at(to.data, to.dtype, offset[1]), to_stride, n);
    });
    return;
  }
  with_raw_type(from.dtype, [&](auto u) {
    using U = decltype(u);
    each_run(layout, kGrain, [&](const int64_t* offset, int64_t n) {
      raw_run<U>(static_cast<const U*>(from.data) + offset[0], from_stride,
                 static_cast<U*>(to.data) + offset[1], to_stride, n);
    });
  });
}

Status copy(const KernelCall& call) {
  const TensorView& x = call.input(0);
  if (x.is_immediate) return fail(call.error, Code::Invalid, "copy: the source must be a tensor");
  copy_view(x, call.output(0));
  return kOk;
}

}  // namespace shardwise::cpu
