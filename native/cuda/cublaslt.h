// cuBLASLt, opened at run time if the machine has it. Needs no header of it: cublaslt.cc declares
// the few functions used.
#pragma once
#include "stream.h"

namespace shardwise::cuda::lt {

enum class State { Ready, Absent, Misconfigured };

// Sets the paths and names to try, one a line, in order; before the first product.
// lib/native/libraries.ts finds them.
void look_at(const char* candidates);

// Opens the library on the first call (later calls return the kept answer). With
// SHARDWISE_CUBLASLT_PATH set, a library that does not open is Misconfigured; the value "off" means
// Absent.
State state();

// The path and version found, or one line per candidate with the reason why it was refused.
const char* report();

// The version as the library reports it, 130100; 0 without one.
int64_t version();

// false: product() declines everything. For tests, and for comparisons with our own kernels.
void allow(bool on);

// D = alpha op(A) op(B) + beta C (+ bias), column-major as in cuBLASLt: D and C are rows x columns,
// the inner size is `inner`. Leading dimensions and batch strides are in elements.
struct Product {
  DType dtype = DType::Float32;  // of all operands: float32, float64, float16, bfloat16
  int64_t rows = 0, columns = 0, inner = 0, batch = 1;
  struct Matrix {
    const void* data = nullptr;
    bool transposed = false;
    int64_t leading = 0, batch_stride = 0;
  } a, b, c, d;                // c.data may equal d.data; null: beta is 0
  const void* bias = nullptr;  // `rows` elements added to every column
  double alpha = 1, beta = 0;
  // index of the algorithm among the library's proposals
  int32_t suggestion = 0;
  bool tf32 = false;        // float32: may round operands to TF32
  bool wide = false;        // c and d are float32, of 16-bit operands
  void* scratch = nullptr;  // kScratchBytes from the caller; null: from the stream
};
constexpr int32_t kSuggestions = 8;
constexpr size_t kScratchBytes = size_t(32) << 20;

enum class Outcome { Done, Declined, Failed };

// Declined: the library is missing or has no (such) algorithm for this; nothing was launched.
// Failed: `status` has the reason.
Outcome product(const Product& p, Stream& stream, const KernelCall& call, Status* status);

}  // namespace shardwise::cuda::lt
