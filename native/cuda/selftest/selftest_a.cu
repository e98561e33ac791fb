// Self-test of the element-wise, reduction, sorting, indexing and optimizer kernels of the CUDA
// backend, against references on the host. Prints PASS or FAIL per kernel; exits with 1 on a
// failure.
//
//   cmake --build build/cmake --target selftest_a, then build/selftest/selftest_a [group]
//   groups: pointwise memory reductions sort topk nonzero indexing steps
//   selftest_a sparse ...  few dtypes and no large tensors, for compute-sanitizer
//   selftest_a huge    tensors of more than 2^31 elements (16 GB)
//   selftest_a time    bandwidth of the kernels that matter most
//
// Needs no other kernels: names of generated/kernel_table.def that are not linked stay null.
#include "harness.h"
#include "scratch.h"

namespace shardwise::cuda {

#define SW_KERNEL(id, name) __attribute__((weak)) Status name(const KernelCall& call);
#include "../../generated/kernel_table.def"
#undef SW_KERNEL

extern const KernelEntry kKernels[] = {
#define SW_KERNEL(id, name) {#name, name},
#include "../../generated/kernel_table.def"
#undef SW_KERNEL
};
extern const int32_t kNumKernels = sizeof kKernels / sizeof kKernels[0];

const char* kernel_name(int32_t id) {
  return id >= 0 && id < kNumKernels ? kKernels[id].name : "?";
}

}  // namespace shardwise::cuda

namespace selftest {

const Backend* backend = nullptr;
void* stream = nullptr;
std::map<std::string, Tally> tallies;
int64_t large = 3000017;
bool sparse = false;

int32_t kernel_id(const std::string& name) {
  for (int32_t i = 0; i < backend->num_kernels; i++)
    if (name == backend->kernels[i].name) return i;
  printf("no kernel %s\n", name.c_str());
  exit(2);
}

}  // namespace selftest

int main(int argc, char** argv) {
  using namespace selftest;
  sparse = argc > 1 && std::string(argv[1]) == "sparse";
  if (sparse) large = 100003;
  if (getenv("SELFTEST_LARGE")) large = atoll(getenv("SELFTEST_LARGE"));
  const std::string only = argc > 1 + sparse ? argv[1 + sparse] : "";
  const std::pair<const char*, void (*)()> groups[] = {
      {"pointwise", test_pointwise}, {"memory", test_memory}, {"reductions", test_reductions},
      {"sort", test_sort},           {"topk", test_topk},     {"nonzero", test_nonzero},
      {"indexing", test_indexing},   {"steps", test_steps}};
  bool known = only.empty() || only == "huge" || only == "time";
  for (const auto& [name, group] : groups) known = known || only == name;
  if (!known) {
    printf("no group is called %s\n", only.c_str());
    return 2;
  }
  backend = shardwise_backend_v1();
  ErrorText error;
  DeviceInfo info;
  if (!backend->device_info(0, &info, &error).ok()) {
    printf("no device: %s\n", error.text);
    return 2;
  }
  printf("%s, %s\n", info.name, info.detail);
  static selftest::Scratch scratch{*backend};
  if (!backend->stream_create(0, 0, scratch.source(), &stream, &error).ok()) {
    printf("no stream: %s\n", error.text);
    return 2;
  }
  if (only == "time") {
    time_kernels();
    return 0;
  }
  if (only == "huge") test_huge();
  for (const auto& [name, group] : groups)
    if (only.empty() || only == name) {
      printf("... %s\n", name);
      fflush(stdout);
      group();
    }
  int failed = 0;
  for (const auto& [name, tally] : tallies) {
    printf("%s %-22s %4d cases%s%s\n", tally.failures ? "FAIL" : "PASS", name.c_str(), tally.cases,
           tally.failures ? ": " : "", tally.first.c_str());
    failed += tally.failures > 0;
  }
  printf("%zu kernels, %d failed\n", tallies.size(), failed);
  backend->stream_destroy(stream);
  return failed ? 1 : 0;
}
