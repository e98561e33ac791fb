// The groups and options of kernel_selftest, and the device that all groups use. Two harnesses
// compare results: kernel_selftest_bytes.h keeps the bytes of a tensor on the host and suits
// kernels with exact references; kernel_selftest_floats.h keeps float64 values and suits sums and
// products. A single harness would round twice or keep two host copies of each tensor.
#pragma once
#include <cstdint>
#include <string>

#include "../../include/backend.h"

namespace selftest {

using namespace shardwise;

struct Options {
  bool quick = false;       // small shapes only
  bool wide = false;        // rows of more than 2000 elements only
  bool sparse = false;      // few dtypes and cases, each once, small tensors: for compute-sanitizer
  int64_t large = 3000017;  // elements of the "large" cases; SELFTEST_LARGE sets another number
};
extern Options options;
extern const Backend* backend;
extern void* stream;

// Ends the program if no kernel has this name.
int32_t kernel_id(const std::string& name);

namespace bytes {
void test_pointwise();
void test_memory();
void test_reductions();
void test_sort();
void test_topk();
void test_nonzero();
void test_indexing();
void test_optimizer();
void test_copies();
void test_huge();
void test_fused();
void test_fused_huge();
void time_fused();
void time_elements();
}  // namespace bytes

namespace floats {
void test_softmax();
void test_norms();
void test_cross_entropy();
void test_sums();
void test_matmul();
void test_cublaslt();
void test_sm90();
void test_tf32x3();
void test_attention();
void time_rows();
void time_products();
}  // namespace floats

}  // namespace selftest
