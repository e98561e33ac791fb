// scale_rows: multiplies the rows of output(0) [n, m] in place by the factors input(0) [n]. Rows
// with factor 1 stay untouched.
#include "kernel_call.h"
#include "row_buffer.h"
#include "row_math.h"

namespace shardwise::cpu {

Status scale_rows(const KernelCall& call) {
  const TensorView &factors = call.input(0), &out = call.output(0);
  const int64_t rows = out.sizes[0], n = out.sizes[1];
  with_float_type(out.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
      RowBuffer<T> buffer(n);
      for (int64_t row = begin; row < end; row++) {
        T factor;
        gather(factors, row, 1, &factor);
        if (factor == T(1)) continue;
        const T* x = read_row(out, row, n, buffer.data());
        T* y = row_target(out, row, n, buffer.data());
        row_affine(x, factor, T(0), y, n);
        store_row(out, row, n, y, buffer.data());
      }
    });
  });
  return kOk;
}

}  // namespace shardwise::cpu
