// Times the row kernels (norms, softmax, cross entropy, AdamW, transposes, casts, index_add) of one or more builds of the CUDA
// backend through the seam: graphs of some calls over rotating inputs, the builds in turn, medians of six replays, share of 4.25
// TB/s.
//   g++ -O1 -std=c++20 -I. -I/usr/local/cuda/include bench/native/rows_time.cc -L/usr/local/cuda/lib64 -lcudart_static -ldl
//   -lpthread -lrt
//   ./a.out cuda-backend.so [another.so ...] [part of a name ...]
// peer_rows.py times the same with PyTorch.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "native/cuda/selftest/scratch.h"
#include "native/include/backend.h"
using namespace shardwise;
using Sizes = std::vector<int64_t>;
constexpr DType H = DType::BFloat16, F = DType::Float32, I = DType::Int64;

static std::vector<uint8_t> pool_of(DType t, double lo, int64_t range) {
  std::vector<uint8_t> out(size_t(1 << 20) * item_size(t));
  uint64_t s = 88172645463325252ull;
  auto bits = [&] {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s * 0x2545f4914f6cdd1dull;
  };
  for (int i = 0; i < (1 << 20); i++) {
    if (t == I) {
      int64_t v = int64_t((bits() >> 16) % uint64_t(range));
      memcpy(&out[size_t(i) * 8], &v, 8);
      continue;
    }
    float v =
        float((double(bits() >> 11) * 0x1p-53 + double(bits() >> 11) * 0x1p-53 + double(bits() >> 11) * 0x1p-53 - 1.5) * 2 + lo);
    uint32_t b;
    memcpy(&b, &v, 4);
    if (t == F)
      memcpy(&out[size_t(i) * 4], &b, 4);
    else {
      uint16_t h = uint16_t((b + 0x7fff + (b >> 16 & 1)) >> 16);
      memcpy(&out[size_t(i) * 2], &h, 2);
    }
  }
  return out;
}
struct Buf {
  void* p = nullptr;
  Sizes sizes, strides;
  DType t;
  int64_t n = 1;
  Buf(DType type, Sizes s, double lo = 0, int64_t range = 1000) : sizes(s), t(type) {
    strides.resize(s.size());
    for (size_t d = s.size(); d-- > 0; n *= s[d]) strides[d] = n;
    auto pool = pool_of(t, lo, range);
    const int64_t bytes = n * item_size(t), have = int64_t(pool.size());
    if (cudaMalloc(&p, size_t(bytes) + 256)) {
      printf("no memory\n");
      exit(2);
    }
    cudaMemcpy(p, pool.data(), size_t(std::min(bytes, have)), cudaMemcpyHostToDevice);
    for (int64_t at = have; at < bytes; at *= 2)
      cudaMemcpy((char*)p + at, p, size_t(std::min(at, bytes - at)), cudaMemcpyDeviceToDevice);
  }
  ~Buf() { cudaFree(p); }
  TensorView view() const {
    TensorView v = {};
    v.data = p;
    v.sizes = sizes.data();
    v.strides = strides.data();
    v.ndim = int32_t(sizes.size());
    v.numel = n;
    v.dtype = t;
    return v;
  }
};
using B = std::shared_ptr<Buf>;
static B buf(DType t, Sizes s, double lo = 0, int64_t range = 1000) { return std::make_shared<Buf>(t, s, lo, range); }
struct Build {
  const Backend* b;
  void* stream;
  selftest::Scratch* scratch;
};
static std::vector<Build> builds;
static std::vector<std::string> filters;
struct Call {
  std::string kernel;
  std::vector<B> in, out;
  std::vector<double> params;
  void* zero = nullptr;
  int64_t zero_bytes = 0;
};

static int id(const Backend* b, const std::string& k) {
  for (int i = 0; i < b->num_kernels; i++)
    if (b->kernels[i].name && k == b->kernels[i].name) return i;
  return -1;
}
static bool wanted(const std::string& name) {
  if (filters.empty()) return true;
  for (auto& f : filters)
    if (name.find(f) != std::string::npos) return true;
  return false;
}
static void time_case(const std::string& name, double bytes, const std::function<std::vector<Call>(int)>& make,
                      int max_sets = 4) {
  if (!wanted(name)) return;
  int sets = std::max(1, std::min(max_sets, int(4e8 / bytes) + 1));
  std::vector<std::vector<Call>> all;
  for (int i = 0; i < sets; i++) {
    all.push_back(make(i));
    for (size_t k = 0; i > 0 && k < all[i].size(); k++) {
      all[i][k].out = all[0][k].out;
      all[i][k].zero = all[0][k].zero;
    }  // as from a caching allocator
  }
  std::vector<std::vector<double>> us(builds.size());
  cudaEvent_t e0, e1;
  cudaEventCreate(&e0);
  cudaEventCreate(&e1);
  ErrorText error;
  std::string failed;
  auto once = [&](size_t which, int set) {
    const Build& b = builds[which];
    for (Call& c : all[size_t(set)]) {
      std::vector<TensorView> views;
      TensorView absent = {};
      absent.is_immediate = true;
      for (auto& x : c.in) views.push_back(x ? x->view() : absent);
      for (auto& x : c.out) views.push_back(x ? x->view() : absent);
      KernelCall k = {};
      k.kernel = id(b.b, c.kernel);
      if (k.kernel < 0) {
        failed = "no kernel " + c.kernel;
        return;
      }
      k.num_inputs = int(c.in.size());
      k.num_outputs = int(c.out.size());
      k.num_params = 16;
      c.params.resize(16);
      k.tensors = views.data();
      k.params = c.params.data();
      k.stream = b.stream;
      k.error = &error;
      if (c.zero) cudaMemsetAsync(c.zero, 0, size_t(c.zero_bytes), *static_cast<cudaStream_t*>(b.stream));
      if (!b.b->launch(k).ok()) failed = error.text;
    }
  };
  const int runs = std::max(2, std::min(60, int(6e-3 / (bytes / 3.5e12))));
  std::vector<cudaGraphExec_t> graphs(builds.size(), nullptr);
  for (int rep = 0; rep < 7 && failed.empty(); rep++)
    for (size_t w = 0; w < builds.size() && failed.empty(); w++) {
      cudaStream_t s = *static_cast<cudaStream_t*>(builds[w].stream);
      if (rep == 0) {
        for (int i = 0; i < 2; i++) once(w, i % sets);
        cudaStreamSynchronize(s);
        if (!failed.empty()) break;
        cudaGraph_t graph = nullptr;
        cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed);
        for (int i = 0; i < runs; i++) once(w, i % sets);
        if (cudaStreamEndCapture(s, &graph) != cudaSuccess || cudaGraphInstantiate(&graphs[w], graph, 0) != cudaSuccess) {
          failed = "no graph";
          cudaGetLastError();
          break;
        }
        cudaGraphDestroy(graph);
      }
      cudaEventRecord(e0, s);
      cudaGraphLaunch(graphs[w], s);
      cudaEventRecord(e1, s);
      if (cudaEventSynchronize(e1) != cudaSuccess) {
        failed = cudaGetErrorString(cudaGetLastError());
        break;
      }
      float ms;
      cudaEventElapsedTime(&ms, e0, e1);
      if (rep > 0) us[w].push_back(ms * 1000 / runs);
    }
  for (cudaGraphExec_t g : graphs)
    if (g) cudaGraphExecDestroy(g);
  cudaEventDestroy(e0);
  cudaEventDestroy(e1);
  printf("%-44s", name.c_str());
  if (!failed.empty())
    printf(" FAILED %s", failed.c_str());
  else
    for (auto& v : us) {
      std::sort(v.begin(), v.end());
      printf(" | %9.1f us (min %9.1f) %5.2f TB/s %3.0f%%", v[v.size() / 2], v[0], bytes / v[v.size() / 2] * 1e-6,
             bytes / v[v.size() / 2] * 1e-6 / 4.25 * 100);
    }
  printf("\n");
  fflush(stdout);
}
int main(int argc, char** argv) {
  for (int i = 1; i < argc; i++) {
    std::string a = argv[i];
    if (a.size() > 3 && a.substr(a.size() - 3) == ".so") {
      void* h = dlopen(a.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (!h) {
        printf("%s\n", dlerror());
        return 2;
      }
      auto f = (const Backend* (*)())dlsym(h, "shardwise_backend_v1");
      Build b;
      b.b = f();
      b.scratch = new selftest::Scratch{*b.b};
      ErrorText e;
      if (!b.b->stream_create(0, 0, b.scratch->source(), &b.stream, &e).ok()) {
        printf("no stream %s\n", e.text);
        return 2;
      }
      builds.push_back(b);
    } else
      filters.push_back(a);
  }
  time_case(
      "copy 1GiB", 2.0 * (1 << 30), [](int) { return std::vector<Call>{{"copy", {buf(F, {1 << 28})}, {buf(F, {1 << 28})}, {}}}; },
      1);
  for (auto s : {Sizes{32768, 4096}, {8192, 4096}, {16384, 768}, {16384, 4096}, {8192, 16384}, {65536, 256}}) {
    std::string sh = " " + std::to_string(s[0]) + "x" + std::to_string(s[1]);
    double b = double(s[0] * s[1] * 2);
    if (s[1] != 4096 || s[0] != 16384) {
      time_case("layer_norm fwd bf16" + sh, 2 * b, [&](int) {
        return std::vector<Call>{
            {"layer_norm", {buf(H, s), buf(H, {s[1]}), buf(H, {s[1]})}, {buf(H, s), buf(F, {s[0]}), buf(F, {s[0]})}, {1e-5}}};
      });
      time_case("layer_norm bwd bf16" + sh, 3 * b, [&](int) {
        return std::vector<Call>{{"layer_norm_backward",
                                  {buf(H, s), buf(H, s), buf(F, {s[0]}), buf(F, {s[0]}, 3), buf(H, {s[1]})},
                                  {buf(H, s), buf(H, {s[1]}), buf(H, {s[1]})},
                                  {}}};
      });
    } else {
      time_case("rms_norm fwd bf16" + sh, 2 * b, [&](int) {
        return std::vector<Call>{{"rms_norm", {buf(H, s), buf(H, {s[1]})}, {buf(H, s), buf(F, {s[0]})}, {1e-5}}};
      });
      time_case("rms_norm bwd bf16" + sh, 3 * b, [&](int) {
        return std::vector<Call>{
            {"rms_norm_backward", {buf(H, s), buf(H, s), buf(F, {s[0]}, 3), buf(H, {s[1]})}, {buf(H, s), buf(H, {s[1]})}, {}}};
      });
    }
  }
  struct S {
    DType t;
    Sizes s;
  };
  for (auto s : {S{H, {8192, 4096}}, S{H, {8192, 16384}}, S{F, {2048, 131072}}}) {
    std::string sh = std::string(s.t == H ? " bf16 " : " fp32 ") + std::to_string(s.s[0]) + "x" + std::to_string(s.s[1]);
    double b = double(s.s[0] * s.s[1] * item_size(s.t));
    time_case("softmax fwd" + sh, 2 * b,
              [&](int) { return std::vector<Call>{{"softmax", {buf(s.t, s.s)}, {buf(s.t, s.s)}, {}}}; });
    time_case("softmax bwd" + sh, 3 * b,
              [&](int) { return std::vector<Call>{{"softmax_backward", {buf(s.t, s.s), buf(s.t, s.s)}, {buf(s.t, s.s)}, {}}}; });
  }
  {
    int64_t r = 8192, n = 128256;
    double b = double(r * n * 2);
    B x, gx, t, loss, lse, g;
    bool any = false;
    for (const char* what : {"cross_entropy fwd 8192x128256", "cross_entropy bwd 8192x128256",
                             "cross_entropy fwd+bwd 8192x128256", "cross_entropy loss_and_gradient"})
      any = any || wanted(what);
    if (any) {
      x = buf(H, {r, n});
      gx = buf(H, {r, n});
      t = buf(I, {r}, 0, n);
      loss = buf(F, {r});
      lse = buf(F, {r}, 13);
      g = buf(F, {r});
    }
    time_case(
        "cross_entropy fwd 8192x128256", b,
        [&](int) { return std::vector<Call>{{"cross_entropy", {x, t, nullptr}, {loss, lse}, {-100, 0}}}; }, 1);
    time_case(
        "cross_entropy bwd 8192x128256", 2 * b,
        [&](int) { return std::vector<Call>{{"cross_entropy_backward", {g, x, lse, t, nullptr}, {gx}, {-100, 0}}}; }, 1);
    time_case(
        "cross_entropy fwd+bwd 8192x128256", 2 * b,
        [&](int) {
          return std::vector<Call>{{"cross_entropy", {x, t, nullptr}, {loss, lse}, {-100, 0}},
                                   {"cross_entropy_backward", {g, x, lse, t, nullptr}, {gx}, {-100, 0}}};
        },
        1);
    time_case(
        "cross_entropy loss_and_gradient", 2 * b,
        [&](int) { return std::vector<Call>{{"cross_entropy", {x, t, nullptr, g}, {loss, lse, gx}, {-100, 0}}}; }, 1);
  }
  auto adam = [](std::vector<int64_t> numels) {
    Call c;
    c.kernel = "adam_step";
    for (int role = 0; role < 4; role++)
      for (int64_t n : numels) c.in.push_back(buf(F, {n}, role == 3 ? 4 : 0));
    c.params = {double(numels.size()), 1e-3, .9, .999, 1e-8, .01, 1, 0, 0, .1, .001, 1};
    return std::vector<Call>{c};
  };
  if (wanted("adamw 32x4096^2"))
    time_case("adamw 32x4096^2", 28.0 * 32 * 4096 * 4096, [&](int) { return adam(std::vector<int64_t>(32, 4096 * 4096)); }, 1);
  std::vector<int64_t> gpt2{50257 * 768, 1024 * 768};
  for (int l = 0; l < 12; l++)
    for (int64_t n : {768, 768, 768 * 2304, 2304, 768 * 768, 768, 768, 768, 768 * 3072, 3072, 3072 * 768, 768}) gpt2.push_back(n);
  gpt2.push_back(768);
  gpt2.push_back(768);
  double total = 0;
  for (auto n : gpt2) total += double(n);
  time_case("adamw gpt2 148", 28.0 * total, [&](int) { return adam(gpt2); }, 1);
  time_case(
      "transpose 16384^2 bf16", 4.0 * 16384 * 16384,
      [](int) {
        auto x = buf(H, {16384, 16384});
        std::swap(x->strides[0], x->strides[1]);
        return std::vector<Call>{{"copy", {x}, {buf(H, {16384, 16384})}, {}}};
      },
      1);
  time_case("transpose 4096^2 fp32", 8.0 * 4096 * 4096, [](int) {
    auto x = buf(F, {4096, 4096});
    std::swap(x->strides[0], x->strides[1]);
    return std::vector<Call>{{"copy", {x}, {buf(F, {4096, 4096})}, {}}};
  });
  time_case("transpose [16,1024,12,64] 1<->2", 4.0 * 16 * 1024 * 768, [](int) {
    auto x = buf(H, {16, 12, 1024, 64});
    x->strides = {1024 * 768, 64, 768, 1};
    return std::vector<Call>{{"copy", {x}, {buf(H, {16, 12, 1024, 64})}, {}}};
  });
  time_case(
      "cast fp32 1GiB -> bf16", 1.5 * (1 << 30),
      [](int) { return std::vector<Call>{{"copy", {buf(F, {1 << 28})}, {buf(H, {1 << 28})}, {}}}; }, 1);
  time_case(
      "cast bf16 1GiB -> fp32", 3.0 * (1 << 30),
      [](int) { return std::vector<Call>{{"copy", {buf(H, {1 << 29})}, {buf(F, {1 << 29})}, {}}}; }, 1);
  for (DType t : {H, F}) {
    std::string d = t == H ? "bf16" : "fp32";
    double e = item_size(t);
    time_case(
        "embedding bwd " + d + " (with zeros)", e * (128256.0 + 3 * 16384) * 4096,
        [&](int) {
          auto y = buf(t, {1, 128256, 4096});
          Call c{"index_add", {buf(I, {16384}, 0, 128256), buf(t, {1, 16384, 4096})}, {y}, {1}};
          c.zero = y->p;
          c.zero_bytes = y->n * item_size(t);
          return std::vector<Call>{c};
        },
        1);
    time_case(
        "index_add alone " + d, e * (3 * 16384.0) * 4096,
        [&](int) {
          auto y = buf(t, {1, 128256, 4096});
          return std::vector<Call>{{"index_add", {buf(I, {16384}, 0, 128256), buf(t, {1, 16384, 4096})}, {y}, {1}}};
        },
        1);
  }
  return 0;
}
