// Self test of matmul, softmax, norms, cross entropy and attention on a GPU machine: every kernel
// against float64 on the CPU, then timings with bandwidth or TFLOP/s. Prints PASS or FAIL per
// group; exits with 0 if all passed.
//
// Build and run: cmake --build build/cmake --target selftest_b, then build/selftest/selftest_b
// Arguments: `quick` for small shapes only, `wide` for long rows only, `sparse` for a few rows of
// each kind (for compute-sanitizer), `time` for timings only (`time rows`: of row kernels), and any
// of softmax norms entropy sums matmul cublaslt wgmma tf32x3 attention.
#include "scratch.h"
#include "selftest_b.h"

extern "C" const shardwise::Backend* shardwise_backend_v1();

int main(int count, char** arguments) {
  using namespace selftest;
  setvbuf(stdout, nullptr, _IOLBF, 0);  // what is known shows also of a run that is cut short
  const struct {
    const char* name;
    void (*test)();
  } groups[] = {{"softmax", test_softmax}, {"norms", test_norms},   {"entropy", test_cross_entropy},
                {"sums", test_sums},       {"matmul", test_matmul}, {"cublaslt", test_cublaslt},
                {"wgmma", test_wgmma},     {"tf32x3", test_tf32x3}, {"attention", test_attention}};
  for (int i = 1; i < count; i++) {
    bool known = false;
    for (const char* word : {"quick", "wide", "sparse", "time", "rows"})
      known = known || std::strcmp(arguments[i], word) == 0;
    for (const auto& g : groups) known = known || std::strcmp(arguments[i], g.name) == 0;
    if (known) continue;
    printf("no group is called %s\n", arguments[i]);
    return 2;
  }
  Context& c = context();
  c.backend = shardwise_backend_v1();
  ErrorText error;
  static selftest::Scratch scratch{*c.backend};
  if (!c.backend->stream_create(0, 0, scratch.source(), &c.stream, &error).ok()) {
    printf("no stream: %s\n", error.text);
    return 2;
  }
  auto given = [&](const char* word) {
    for (int i = 1; i < count; i++)
      if (std::strcmp(arguments[i], word) == 0) return true;
    return false;
  };
  c.quick = given("quick");
  c.wide = given("wide");
  c.sparse = given("sparse");
  bool some = given("time");
  for (const auto& g : groups) some = some || given(g.name);
  for (const auto& g : groups)
    if (!some || given(g.name)) g.test();
  printf("%d calls, %d problems\n", c.checks, c.failures);
  if (c.failures == 0 && (!some || given("time"))) given("rows") ? time_rows() : time_all();
  c.backend->stream_destroy(c.stream);
  return c.failures == 0 ? 0 : 1;
}
