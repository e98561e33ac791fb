// Self-test of the CUDA kernels on a machine with a GPU, against references on the host. It calls
// the kernels through the backend's table, without Node. Prints PASS or FAIL for each kernel or
// group of shapes; exits with 0 if all passed, 1 if one failed, 2 if it could not run.
//
//   cmake --build build/cmake --target kernel_selftest
//   build/selftest/kernel_selftest [quick] [wide] [sparse] [group ...]
//
//   list      prints the groups
//   no group  runs all groups that the list marks with *
//   quick     small shapes only; wide: long rows only
//   sparse    few dtypes and rows of each kind, each once, for compute-sanitizer
//   time      the four groups of timings, without tests
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernel_selftest_bytes.h"
#include "kernel_selftest_floats.h"

extern "C" const shardwise::Backend* shardwise_backend_v1();

namespace selftest {

Options options;
const Backend* backend = nullptr;
void* stream = nullptr;

int32_t kernel_id(const std::string& name) {
  for (int32_t i = 0; i < backend->num_kernels; i++)
    if (name == backend->kernels[i].name) return i;
  printf("no kernel is called %s\n", name.c_str());
  exit(2);
}

namespace {

enum class Kind { Test, Optional, Timing };
struct Group {
  const char* name;
  Kind kind;
  void (*run)();
  const char* what;
};

constexpr Group kGroups[] = {
    {"pointwise", Kind::Test, bytes::test_pointwise, "every pointwise op"},
    {"memory", Kind::Test, bytes::test_memory, "copies, fills, sequences, random numbers, dropout"},
    {"reductions", Kind::Test, bytes::test_reductions, "reductions and scans"},
    {"sort", Kind::Test, bytes::test_sort, "sort"},
    {"topk", Kind::Test, bytes::test_topk, "topk"},
    {"nonzero", Kind::Test, bytes::test_nonzero, "nonzero and nonzero_rows"},
    {"indexing", Kind::Test, bytes::test_indexing, "gather, scatter, take, index_add, index_put"},
    {"optimizer", Kind::Test, bytes::test_optimizer, "optimizer steps and foreach kernels"},
    {"copies", Kind::Test, bytes::test_copies, "copies of many tensors"},
    {"fused", Kind::Test, bytes::test_fused, "programs of pointwise steps, compiled by NVRTC"},
    {"softmax", Kind::Test, floats::test_softmax, "softmax and its gradient"},
    {"norms", Kind::Test, floats::test_norms, "layer_norm, rms_norm and their gradients"},
    {"entropy", Kind::Test, floats::test_cross_entropy, "cross_entropy and its gradient"},
    {"sums", Kind::Test, floats::test_sums,
     "add_rms_norm, rms_norm_backward of two gradients, scale_rows"},
    {"matmul", Kind::Test, floats::test_matmul, "the matmul kernels of this library"},
    {"cublaslt", Kind::Test, floats::test_cublaslt, "matmul by cuBLASLt"},
    {"sm90", Kind::Test, floats::test_sm90, "tiles and splits of matmul_sm90"},
    {"tf32x3", Kind::Test, floats::test_tf32x3, "float32 products as three of TF32"},
    {"attention", Kind::Test, floats::test_attention, "attention and its gradient"},
    {"huge", Kind::Optional, bytes::test_huge, "tensors of more than 2^31 elements, 16 GB"},
    {"fused-huge", Kind::Optional, bytes::test_fused_huge, "fused, 2^31 elements and more, 18 GB"},
    {"time-elements", Kind::Timing, bytes::time_elements, "bandwidth of kernels by element"},
    {"time-rows", Kind::Timing, floats::time_rows, "bandwidth of kernels by row"},
    {"time-fused", Kind::Timing, bytes::time_fused, "bandwidth and first launch of fused kernels"},
    {"time-products", Kind::Timing, floats::time_products, "TFLOP/s of matmul and attention"}};

void list_groups() {
  for (const Group& g : kGroups)
    printf("%c %-14s %s\n", g.kind == Kind::Test ? '*' : ' ', g.name, g.what);
}

// False for a word that is neither an option nor a group.
bool read_word(const char* word, std::vector<const Group*>* chosen) {
  if (strcmp(word, "quick") == 0) return options.quick = true;
  if (strcmp(word, "wide") == 0) return options.wide = true;
  if (strcmp(word, "sparse") == 0) return options.sparse = true;
  bool known = false;
  for (const Group& g : kGroups) {
    const bool named = strcmp(word, g.name) == 0;
    if (!named && !(strcmp(word, "time") == 0 && g.kind == Kind::Timing)) continue;
    chosen->push_back(&g);
    known = true;
  }
  return known;
}

bool open_device() {
  static Scratch scratch{*backend};
  ErrorText error;
  DeviceInfo info;
  if (!backend->device_info(0, &info, &error).ok()) {
    printf("no device: %s\n", error.text);
    return false;
  }
  printf("%s, %s\n", info.name, info.detail);
  if (backend->stream_create(0, 0, scratch.source(), &stream, &error).ok()) return true;
  printf("no stream: %s\n", error.text);
  return false;
}

}  // namespace
}  // namespace selftest

int main(int count, char** arguments) {
  using namespace selftest;
  setvbuf(stdout, nullptr, _IOLBF, 0);  // an interrupted run shows its results so far
  std::vector<const Group*> chosen;
  for (int i = 1; i < count; i++) {
    if (strcmp(arguments[i], "list") == 0) {
      list_groups();
      return 0;
    }
    if (read_word(arguments[i], &chosen)) continue;
    printf("%s is neither an option (quick, wide, sparse, time, list) nor one of these groups:\n",
           arguments[i]);
    list_groups();
    return 2;
  }
  if (chosen.empty())
    for (const Group& g : kGroups)
      if (g.kind == Kind::Test) chosen.push_back(&g);
  if (options.sparse) options.large = 100003;
  if (getenv("SELFTEST_LARGE")) options.large = atoll(getenv("SELFTEST_LARGE"));
  backend = shardwise_backend_v1();
  if (!open_device()) return 2;
  for (const Group* g : chosen) {
    printf("... %s\n", g->name);
    g->run();
  }
  const int failed = bytes::print_tallies() + floats::print_problems();
  backend->stream_destroy(stream);
  return failed == 0 ? 0 : 1;
}
