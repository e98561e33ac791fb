// Times the matmul kernel of the CPU backend beside OpenBLAS (opened with dlopen, so that nothing
// links to it). Both run in turns on the same operands, the median of the rounds counts. See
// README.md for how to build and run it.
#include <dirent.h>
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "generated/op_params.h"
#include "isa.h"
#include "kernel_call.h"
#include "parallel_for.h"

namespace shardwise::cpu {
Status matmul(const KernelCall& call);
}

namespace {

using namespace shardwise;

struct Shape {
  const char* note;
  DType dtype;
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;
};

const Shape kShapes[] = {
    {"square", DType::Float32, 1, 256, 256, 256, false, false},
    {"square", DType::Float32, 1, 512, 512, 512, false, false},
    {"square", DType::Float32, 1, 1000, 1000, 1000, false, false},
    {"square", DType::Float32, 1, 1024, 1024, 1024, false, false},
    {"square", DType::Float32, 1, 1024, 1024, 1024, false, true},
    {"square", DType::Float32, 1, 2048, 2048, 2048, false, false},
    {"square", DType::Float32, 1, 2048, 2048, 2048, true, false},
    {"square", DType::Float64, 1, 1024, 1024, 1024, false, false},
    {"square", DType::BFloat16, 1, 512, 512, 512, false, false},
    {"square", DType::BFloat16, 1, 1024, 1024, 1024, false, false},
    {"square", DType::BFloat16, 1, 2048, 2048, 2048, false, false},
    {"square", DType::BFloat16, 1, 2048, 2048, 2048, false, true},
    {"square", DType::Float16, 1, 2048, 2048, 2048, false, false},
    {"tiny", DType::Float32, 1, 8, 8, 8, false, false},
    {"tiny", DType::Float32, 1, 16, 16, 16, false, true},
    {"small", DType::Float32, 1, 32, 32, 32, false, false},
    {"small", DType::Float32, 1, 64, 64, 64, false, false},
    {"small", DType::Float32, 1, 128, 128, 128, false, true},
    {"mlp layer 1", DType::Float32, 1, 64, 128, 784, false, false},
    {"mlp layer 1, w as [out, in]", DType::Float32, 1, 64, 128, 784, false, true},
    {"mlp layer 2", DType::Float32, 1, 64, 10, 128, false, false},
    {"mlp layer 2, w as [out, in]", DType::Float32, 1, 64, 10, 128, false, true},
    {"gradient of w1", DType::Float32, 1, 784, 128, 64, true, false},
    {"gradient of w2", DType::Float32, 1, 128, 10, 64, true, false},
    {"gradient of hidden", DType::Float32, 1, 64, 128, 10, false, true},
    {"skinny", DType::Float32, 1, 4, 4096, 4096, false, false},
    {"skinny", DType::Float32, 1, 16, 4096, 4096, false, true},
    {"skinny", DType::Float32, 1, 4096, 4096, 16, false, false},
    {"skinny", DType::Float32, 1, 10000, 3, 256, false, false},
    {"vector-matrix", DType::Float32, 1, 1, 4096, 4096, false, false},
    {"vector-matrix", DType::Float32, 1, 1, 4096, 4096, false, true},
    {"vector-matrix", DType::BFloat16, 1, 1, 4096, 4096, false, true},
    {"matrix-vector", DType::Float32, 1, 4096, 1, 4096, false, false},
    {"heads", DType::Float32, 64, 64, 64, 64, false, true},
    {"heads", DType::BFloat16, 64, 64, 64, 64, false, true},
    {"heads", DType::Float32, 12, 512, 512, 64, false, true},
};

using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);
using Dgemm = void (*)(int, int, int, int, int, int, double, const double*, int, const double*, int,
                       double, double*, int);

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// On some virtual machines the scheduler leaves two busy threads on one core for milliseconds; this
// gives each its own.
void pin_threads() {
  DIR* tasks = opendir("/proc/self/task");
  int next = 1;
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  while (const dirent* entry = readdir(tasks)) {
    const int id = atoi(entry->d_name);
    if (id == 0) continue;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(id == getpid() ? 0 : cores > 1 ? 1 + (next++ - 1) % (cores - 1) : 0, &set);
    sched_setaffinity(id, sizeof set, &set);
  }
  closedir(tasks);
}

struct Tensor {
  std::vector<char> memory;
  int64_t sizes[3], strides[3];
  DType dtype;

  Tensor(DType type, int64_t batch, int64_t rows, int64_t columns, bool transposed)
      : memory(static_cast<size_t>(batch * rows * columns * item_size(type))),
        sizes{batch, rows, columns},
        strides{rows * columns, transposed ? 1 : columns, transposed ? rows : 1},
        dtype(type) {
    uint32_t state = 12345;
    for (int64_t i = 0; i < batch * rows * columns; i++) {
      state = state * 1664525u + 1013904223u;
      const float x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
      uint32_t bits;
      memcpy(&bits, &x, 4);
      const double wide = x;
      const uint16_t high =
          static_cast<uint16_t>(dtype == DType::Float16 ? 0x3000 + (state >> 22) : bits >> 16);
      char* to = memory.data() + i * item_size(dtype);
      memcpy(to,
             dtype == DType::Float32   ? static_cast<const void*>(&x)
             : dtype == DType::Float64 ? static_cast<const void*>(&wide)
                                       : &high,
             static_cast<size_t>(item_size(dtype)));
    }
  }
  TensorView view() {
    return {memory.data(), sizes, strides, sizes[0] * sizes[1] * sizes[2], 0, dtype, 3, false};
  }
};

struct Result {
  double median, best;
};

Result summarize(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

template <class F>
double time_of(F&& run, int repeats) {
  run();
  const double start = now();
  for (int i = 0; i < repeats; i++) run();
  return (now() - start) / repeats;
}

}  // namespace

int main(int argc, char** argv) {
  const char* path = "libopenblas.so.0";
  int rounds = 15;
  bool pin = false;
  const char* only = "";
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--pin"))
      pin = true;
    else if (!strcmp(argv[i], "--blas") && i + 1 < argc)
      path = argv[++i];
    else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = atoi(argv[++i]);
    else if (!strcmp(argv[i], "--only") && i + 1 < argc)
      only = argv[++i];
    else
      return printf(
                 "usage: gemm_bench [--blas path of libopenblas.so.0] [--rounds n] [--only note] "
                 "[--pin]\n"),
             2;
  }
  void* blas = dlopen(path, RTLD_NOW);
  const auto sgemm = blas ? reinterpret_cast<Sgemm>(dlsym(blas, "cblas_sgemm")) : nullptr;
  const auto dgemm = blas ? reinterpret_cast<Dgemm>(dlsym(blas, "cblas_dgemm")) : nullptr;
  if (blas) {
    const auto core = reinterpret_cast<char* (*)()>(dlsym(blas, "openblas_get_corename"));
    const char* asked = getenv("OPENBLAS_CORETYPE");
    printf("OpenBLAS core type %s (%s)\n", core ? core() : "?", asked ? asked : "chosen by itself");
  } else {
    printf("without OpenBLAS: %s\n", dlerror());
  }
  printf("instruction set level %d, bf16 %d, %d threads\n",
         static_cast<int>(cpu::cpu_features().isa), cpu::cpu_features().avx512_bf16,
         cpu::num_threads());
  printf("%-28s %-9s %5s %5s %5s %5s %2s | %10s %8s %8s | %10s %8s | %6s %8s\n", "", "dtype",
         "batch", "m", "n", "k", "ab", "us", "GFLOP/s", "best", "BLAS us", "GFLOP/s", "ratio",
         "max diff");
  for (const Shape& s : kShapes) {
    if (!strstr(s.note, only)) continue;
    Tensor a(s.dtype, s.batch, s.m, s.k, s.a_transposed),
        b(s.dtype, s.batch, s.k, s.n, s.b_transposed), y(s.dtype, s.batch, s.m, s.n, false),
        z(s.dtype, s.batch, s.m, s.n, false);
    MatmulParams params{1, 0};
    TensorView views[] = {
        a.view(), b.view(), {nullptr, nullptr, nullptr, 0, 0, s.dtype, 0, true}, y.view()};
    ErrorText error;
    KernelCall call{};
    call.num_inputs = 3;
    call.num_outputs = 1;
    call.tensors = views;
    call.params = reinterpret_cast<const double*>(&params);
    call.error = &error;
    const auto ours = [&] { cpu::matmul(call); };
    const bool compare =
        (s.dtype == DType::Float32 && sgemm) || (s.dtype == DType::Float64 && dgemm);
    const auto theirs = [&] {
      const int m = static_cast<int>(s.m), n = static_cast<int>(s.n), k = static_cast<int>(s.k);
      const int ta = s.a_transposed ? 112 : 111, tb = s.b_transposed ? 112 : 111,
                lda = s.a_transposed ? m : k, ldb = s.b_transposed ? k : n;
      for (int64_t i = 0; i < s.batch; i++) {
        const auto at = [&](Tensor& t) {
          return t.memory.data() + i * t.strides[0] * item_size(s.dtype);
        };
        if (s.dtype == DType::Float32) {
          sgemm(101, ta, tb, m, n, k, 1, reinterpret_cast<float*>(at(a)), lda,
                reinterpret_cast<float*>(at(b)), ldb, 0, reinterpret_cast<float*>(at(z)), n);
        } else {
          dgemm(101, ta, tb, m, n, k, 1, reinterpret_cast<double*>(at(a)), lda,
                reinterpret_cast<double*>(at(b)), ldb, 0, reinterpret_cast<double*>(at(z)), n);
        }
      }
    };
    const double flops = 2.0 * static_cast<double>(s.batch * s.m) * static_cast<double>(s.n * s.k);
    ours();
    if (compare) theirs();
    if (pin) pin_threads();
    const double once = time_of(ours, 1);
    const int repeats = std::max(1, static_cast<int>(2e-3 / (once + 1e-9)));
    std::vector<double> mine, blas_times;
    for (int r = 0; r < rounds; r++) {
      mine.push_back(time_of(ours, repeats));
      if (compare) blas_times.push_back(time_of(theirs, repeats));
    }
    const Result us = summarize(mine);
    printf("%-28s %-9s %5ld %5ld %5ld %5ld %d%d | %10.2f %8.1f %8.1f |", s.note,
           dtype_name(s.dtype), s.batch, s.m, s.n, s.k, s.a_transposed, s.b_transposed,
           us.median * 1e6, flops / us.median * 1e-9, flops / us.best * 1e-9);
    if (compare) {
      const Result them = summarize(blas_times);
      double difference = 0;
      for (int64_t i = 0; i < s.batch * s.m * s.n; i++) {
        const double x = s.dtype == DType::Float32 ? reinterpret_cast<float*>(y.memory.data())[i]
                                                   : reinterpret_cast<double*>(y.memory.data())[i];
        const double w = s.dtype == DType::Float32 ? reinterpret_cast<float*>(z.memory.data())[i]
                                                   : reinterpret_cast<double*>(z.memory.data())[i];
        difference = std::max(difference, std::fabs(x - w));
      }
      printf(" %10.2f %8.1f | %6.2f %8.1e", them.median * 1e6, flops / them.median * 1e-9,
             them.median / us.median, difference);
    }
    printf("\n");
    fflush(stdout);
  }
}
