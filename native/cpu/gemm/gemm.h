// Matrix products of strided operands, for kernels/matmul.cc and kernels/attention.cc.
#pragma once
#include "dtype.h"
#include "engine.h"

namespace shardwise::cpu {

struct Operand {
  const void* data;
  int64_t row, col;  // strides in elements
};

// y[m, n] = alpha * a[m, k] b[k, n] + beta * c[m, n]; c.data is null if there is no c.
struct Product {
  int64_t m, n, k;
  Operand a, b, c;
  void* y;
  int64_t y_row, y_col;
  double alpha, beta;
};  // c may be y itself

// The engine of a floating type on this machine.
const Engine& engine_for(DType dtype);
// That of 16-bit operands whose product is float32, and c too.
const Engine& wide_engine_for(DType dtype);
const SoftmaxRows<float>& softmax_rows(float);
const SoftmaxRows<double>& softmax_rows(double);

// Uses the worker pool if `parallel` and the product is large enough. Uses scratch slots 0 to 2.
// The bits of y do not depend on the number of threads.
void gemm(const Engine& engine, const Product& product, bool parallel);

}  // namespace shardwise::cpu
