// cumsum and cumprod along the last dim.
#include <vector>

#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

template <bool Product>
Status scan(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  if (x.numel == 0) return kOk;
  const int64_t n = x.sizes[x.ndim - 1];
  with_compute_type(y.dtype, [&](auto type) {
    using T = decltype(type);
    using A = std::conditional_t<std::is_same_v<T, int64_t>, int64_t, double>;
    parallel_for(x.numel / n, row_grain(n), [&](int64_t begin, int64_t end) {
      RowBuffer<T> buffer(n);
      for (int64_t row = begin; row < end; row++) {
        gather(x, row * n, n, buffer.data());
        A total = Product ? 1 : 0;
        for (int64_t i = 0; i < n; i++) {
          if (Product)
            total *= static_cast<A>(buffer[i]);
          else
            total += static_cast<A>(buffer[i]);
          buffer[i] = static_cast<T>(total);
        }
        scatter(y, row * n, n, buffer.data());
      }
    });
  });
  return kOk;
}

}  // namespace

Status cumsum(const KernelCall& call) { return scan<false>(call); }
Status cumprod(const KernelCall& call) { return scan<true>(call); }

}  // namespace shardwise::cpu
