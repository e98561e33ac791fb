// wide_product: y[1, m, n] = a b + c with a and b of 16 bits, c and y of float32. As matmul of 16
// bits (matmul.cc), without the rounding at the end.
#include "gemm/gemm.h"
#include "kernel_call.h"

namespace shardwise::cpu {

Status wide_product(const KernelCall& call) {
  const TensorView &a = call.input(0), &b = call.input(1), &c = call.input(2), &y = call.output(0);
  if (y.numel == 0) return kOk;
  Product p{};
  p.m = y.sizes[1];
  p.n = y.sizes[2];
  p.k = a.sizes[2];
  p.alpha = p.beta = 1;
  // The stride of a dim of size 1 is arbitrary: 1 is what the readers prefer.
  p.a = {a.data, a.strides[1], p.k == 1 ? 1 : a.strides[2]};
  p.b = {b.data, b.strides[1], p.n == 1 ? 1 : b.strides[2]};
  if (!c.is_immediate) p.c = {c.data, c.strides[1], c.strides[2]};
  p.y = y.data;
  p.y_row = p.n;
  p.y_col = 1;
  gemm(wide_engine_for(a.dtype), p, true);
  return kOk;
}

}  // namespace shardwise::cpu
