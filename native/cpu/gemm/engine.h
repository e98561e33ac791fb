// The functions of one instruction set for matrix products and attention, as tables. The files
// gemm_<isa>.cc fill them, gemm.cc picks one at first use. Contains plain data only: objects
// compiled with AVX-512 include it.
#pragma once
#include <stdint.h>

#include "weight_dropout.h"

namespace shardwise::cpu {

// y[m, n] (+)= alpha * a[m, k] b[k, n]. Strides and k count packed elements. Row panels of `a`
// (Engine::mr rows) are a_panel apart, column panels of `b` (Engine::nr columns) b_panel apart;
// within a panel `b` has unit column stride, `a` any strides.
struct Block {
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_col, a_panel;
  const void* b;
  int64_t b_row, b_panel;
  void* y;
  int64_t y_row;
  double alpha;
  bool accumulate;
};

// One for each (instruction set, element type). A packed element holds `unit` source elements along
// k: 2 for native bfloat16.
struct Engine {
  int32_t mr, nr;
  int32_t unit;
  int32_t source_bytes, packed_bytes, sum_bytes;
  int32_t result_bytes;  // of an element of c and y
  bool direct;           // source elements are packed elements: blocks may read operands in place

  void (*block)(const Block& block);

  // Panels of `width` along the first dim of source[length, k]: panel p is packed[k / unit][width].
  // Lanes beyond `length` keep their contents; if k is odd and unit is 2, zeros complete the last
  // pair. Writes up to 64 bytes past an end of panel.
  void (*pack)(void* packed, int64_t width, const void* source, int64_t length, int64_t k,
               int64_t length_stride, int64_t k_stride);

  // sum[m, n] = beta * c[m, n], from source elements and from those of results, and
  // y[m, n] = round(sum[m, n]).
  void (*load)(void* sum, int64_t sum_row, const void* c, int64_t row, int64_t col, double beta,
               int64_t m, int64_t n);
  void (*load_result)(void* sum, int64_t sum_row, const void* c, int64_t row, int64_t col,
                      double beta, int64_t m, int64_t n);
  void (*store)(void* y, int64_t row, int64_t col, const void* sum, int64_t sum_row, int64_t m,
                int64_t n);

  // Up to kSkinnyRows rows of `a` (converted, unit stride in k) against n columns of b, read once
  // and in place. dots: b has unit stride along k, columns b_stride apart. strip: b has unit stride
  // along n, rows b_stride apart.
  void (*dots)(int64_t m, int64_t n, int64_t k, const void* a, int64_t a_row, const void* b,
               int64_t b_stride, void* y, int64_t y_row, double alpha, bool accumulate);
  void (*strip)(int64_t m, int64_t n, int64_t k, const void* a, int64_t a_row, const void* b,
                int64_t b_stride, void* y, int64_t y_row, double alpha, bool accumulate);
};

constexpr int32_t kSkinnyRows = 4;

struct DropoutKey {
  uint32_t seed_low, seed_high, offset_low, offset_high;
  WeightDropout weights;
};

// Row operations of attention, see softmax_rows.inc.
template <class T>
struct SoftmaxRows {
  // Maxima of the first valid[r] elements of each row; NaN wins.
  void (*maxima)(const T* x, int64_t stride, int64_t rows, const int64_t* valid, T* result);
  // x = exp(x - subtract[r]) and 0 beyond the valid ones; sums[r] is their sum.
  void (*exponentials)(T* x, int64_t stride, int64_t rows, int64_t columns, const int64_t* valid,
                       const T* subtract, T* sums);
  void (*scale)(T* x, int64_t n, T factor);
  void (*multiply)(T* y, const T* x, const T* factors, int64_t n);  // y = x * factors
  T (*dot)(const T* a, const T* b, int64_t n);
  // dp = p * (dp - delta) * scale
  void (*gradients)(T* dp, const T* p, int64_t n, T delta, T scale);
  // The factors of elements index, index + 1 ...; the first is a multiple of 8.
  void (*keep_factors)(T* factors, int64_t n, const DropoutKey& key, uint64_t index);
};

struct Engines {
  Engine float32, float64, float16, bfloat16;
  SoftmaxRows<float> softmax_float;
  SoftmaxRows<double> softmax_double;
};

const Engines* engines_baseline();
const Engines* engines_avx2();
const Engines* engines_avx512();
// turns the bfloat16 engine of AVX-512 into one that uses vdpbf16ps
void use_avx512_bf16(Engine& bfloat16);

}  // namespace shardwise::cpu
