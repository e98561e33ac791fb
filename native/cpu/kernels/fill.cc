// fill, arange, linspace, tri: tensors from numbers, or from their own coordinates.
#include <cmath>
#include <cstring>

#include "../../generated/op_params.h"
#include "../parallel_for.h"
#include "copy.h"
#include "layout.h"
#include "pointwise_table.h"

namespace shardwise::cpu {
namespace {

constexpr int64_t kChunk = 512;
constexpr int64_t kGrain = 16384;

// Writes value(i) for every i of a 1-D output; T, a compute type, is what value returns.
template <class T, class Value>
void generate(const TensorView& y, ComputeType type, Value value) {
  const auto scatter = pointwise_table().scatter[static_cast<int32_t>(type)];
  const int64_t stride = y.ndim > 0 ? y.strides[0] : 1;
  parallel_for(y.numel, kGrain, [&](int64_t begin, int64_t end) {
    T buffer[kChunk];
    for (int64_t i = begin; i < end; i += kChunk) {
      const int64_t n = std::min(kChunk, end - i);
      for (int64_t k = 0; k < n; k++) buffer[k] = value(i + k);
      scatter(y.dtype, buffer, static_cast<char*>(y.data) + i * stride * item_size(y.dtype), stride,
              n);
    }
  });
}

bool is_integer(double v) { return std::trunc(v) == v && std::fabs(v) <= 0x1p53; }

}  // namespace

Status fill(const KernelCall& call) {
  const FillParams& p = call.params_as<FillParams>();
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  alignas(8) char value[8];
  if (is_floating(y.dtype)) {
    copy_run(DType::Float64, &p.value_high, 0, y.dtype, value, 1, 1);
  } else {
    const uint64_t high = static_cast<uint64_t>(static_cast<int64_t>(p.value_high)) << 32;
    const uint64_t bits = high + static_cast<uint64_t>(static_cast<int64_t>(p.value_low));
    copy_run(DType::Int64, &bits, 0, y.dtype, value, 1, 1);
  }
  const int64_t strides[kMaxDims] = {};
  TensorView x = y;
  x.data = value;
  x.strides = strides;
  copy_view(x, y);
  return kOk;
}

Status arange(const KernelCall& call) {
  const ArangeParams p = call.params_as<ArangeParams>();
  const TensorView& y = call.output(0);
  if (!is_floating(y.dtype) && is_integer(p.start) && is_integer(p.step)) {
    const uint64_t start = static_cast<uint64_t>(static_cast<int64_t>(p.start));
    const uint64_t step = static_cast<uint64_t>(static_cast<int64_t>(p.step));
    generate<int64_t>(y, ComputeType::Int64, [=](int64_t i) {
      return static_cast<int64_t>(start + step * static_cast<uint64_t>(i));
    });
  } else {
    generate<double>(y, ComputeType::Double,
                     [=](int64_t i) { return p.start + static_cast<double>(i) * p.step; });
  }
  return kOk;
}

Status linspace(const KernelCall& call) {
  const LinspaceParams p = call.params_as<LinspaceParams>();
  const TensorView& y = call.output(0);
  const int64_t n = y.numel;
  const int64_t middle = n / 2;
  const double step = n > 1 ? (p.end - p.start) / static_cast<double>(n - 1) : 0.0;
  generate<double>(y, ComputeType::Double, [=](int64_t i) {
    return i < middle || n == 1 ? p.start + step * static_cast<double>(i)
                                : p.end - step * static_cast<double>(n - 1 - i);
  });
  return kOk;
}

Status tri(const KernelCall& call) {
  const TriParams& p = call.params_as<TriParams>();
  const TensorView& x = call.input(0);
  const TensorView& y = call.output(0);
  if (y.numel == 0) return kOk;
  const int64_t m = x.sizes[x.ndim - 2];
  const int64_t n = x.sizes[x.ndim - 1];
  const int64_t stride = x.strides[x.ndim - 1];
  const int64_t diagonal = static_cast<int64_t>(p.diagonal);
  const bool upper = p.upper != 0;
  const int64_t size = item_size(y.dtype);
  parallel_for(y.numel / n, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      int64_t offset = 0;
      int64_t rest = row;
      for (int32_t d = x.ndim - 2; d >= 0; d--) {
        offset += rest % x.sizes[d] * x.strides[d];
        rest /= x.sizes[d];
      }
      // Keeps [first, last) of the row.
      const int64_t edge = row % m + diagonal;
      const int64_t first = upper ? std::clamp<int64_t>(edge, 0, n) : 0;
      const int64_t last = upper ? n : std::clamp<int64_t>(edge + 1, 0, n);
      char* target = static_cast<char*>(y.data) + row * n * size;
      memset(target, 0, static_cast<size_t>(first * size));
      copy_run(x.dtype,
               static_cast<const char*>(x.data) + (offset + first * stride) * item_size(x.dtype),
               stride, y.dtype, target + first * size, 1, last - first);
      memset(target + last * size, 0, static_cast<size_t>((n - last) * size));
    }
  });
  return kOk;
}

}  // namespace shardwise::cpu
