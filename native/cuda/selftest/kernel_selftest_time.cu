// Timings of kernels by row and of products: the mean of 20 launches between two events after 3
// warm-ups, with random inputs.
#include "../cublaslt.h"
#include "../kernels/matmul/matmul.h"
#include "kernel_selftest_floats.h"

namespace selftest::floats {
namespace {

// A tensor without a host copy, filled with normal numbers of a small pool.
struct Big {
  void* device = nullptr;
  Sizes sizes, strides;
  DType dtype;

  Big(DType type, Sizes shape) : sizes(shape), dtype(type) {
    strides.resize(sizes.size());
    int64_t n = 1;
    for (size_t d = sizes.size(); d-- > 0; n *= sizes[d]) strides[d] = n;
    const int64_t pool = 1 << 20, bytes = n * item_size(dtype);
    std::vector<uint8_t> host(static_cast<size_t>((n < pool ? n : pool) * item_size(dtype)));
    for (int64_t i = 0; i < (n < pool ? n : pool); i++)
      store_host(dtype, host.data(), i,
                 dtype == DType::Int64 ? double(random_source().bits() % 1000)
                                       : round_to(dtype, random_source().normal()));
    cudaMalloc(&device, static_cast<size_t>(bytes));
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(host.size()))
      cudaMemcpy(static_cast<char*>(device) + at, host.data(),
                 static_cast<size_t>(bytes - at < static_cast<int64_t>(host.size())
                                         ? bytes - at
                                         : static_cast<int64_t>(host.size())),
                 cudaMemcpyHostToDevice);
  }
  Big(const Big&) = delete;
  ~Big() { cudaFree(device); }
  Big& transpose() {
    std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
    std::swap(strides[sizes.size() - 1], strides[sizes.size() - 2]);
    return *this;
  }
  TensorView view() const {
    TensorView v = {};
    v.data = device;
    v.sizes = sizes.data();
    v.strides = strides.data();
    v.ndim = static_cast<int32_t>(sizes.size());
    v.numel = 1;
    for (int64_t s : sizes) v.numel *= s;
    v.dtype = dtype;
    return v;
  }
};

template <class P>
double microseconds(const char* name, const std::vector<const Big*>& inputs,
                    const std::vector<const Big*>& outputs, const P& params) {
  std::vector<TensorView> views;
  TensorView absent = {};
  absent.is_immediate = true;
  for (const Big* b : inputs) views.push_back(b ? b->view() : absent);
  for (const Big* b : outputs) views.push_back(b ? b->view() : absent);
  ErrorText error;
  KernelCall call = {};
  call.kernel = kernel_id(name);
  call.num_inputs = static_cast<int32_t>(inputs.size());
  call.num_outputs = static_cast<int32_t>(outputs.size());
  call.tensors = views.data();
  call.params = reinterpret_cast<const double*>(&params);
  call.stream = stream;
  call.error = &error;
  void *first = nullptr, *last = nullptr;
  backend->event_create(0, true, &first, &error);
  backend->event_create(0, true, &last, &error);
  constexpr int kRuns = 20;
  for (int i = -3; i < kRuns; i++) {
    if (i == 0) backend->event_record(first, stream, &error);
    if (!backend->launch(call).ok()) {
      printf("%s: %s\n", name, error.text);
      return 1e12;
    }
  }
  backend->event_record(last, stream, &error);
  backend->stream_synchronize(stream, &error);
  double ms = 0;
  backend->event_elapsed_ms(first, last, &ms, &error);
  backend->event_destroy(first);
  backend->event_destroy(last);
  return ms * 1000 / kRuns;
}

void bandwidth(const char* what, double us, double bytes) {
  printf("  %-58s %9.1f us  %6.2f TB/s\n", what, us, bytes / us * 1e-6);
}
void rate(const char* what, double us, double flops) {
  printf("  %-58s %9.1f us  %6.1f TFLOP/s\n", what, us, flops / us * 1e-6);
}

void time_matmul() {
  using namespace shardwise::cuda;
  const DType H = DType::BFloat16, F = DType::Float32, D = DType::Float64;
  const struct {
    DType dtype;
    int64_t m, n, k;
    bool transposed_b;
  } shapes[] = {
      {H, 8192, 8192, 8192, true}, {H, 4096, 4096, 4096, true}, {H, 4096, 4096, 4096, false},
      {H, 2048, 2048, 2048, true}, {H, 1000, 3000, 6216, true}, {H, 512, 4096, 14336, true},
      {H, 16, 14336, 4096, true},  {H, 8, 14336, 4096, true},   {H, 1, 14336, 4096, true},
      {H, 1, 4096, 4096, true},    {F, 4096, 4096, 4096, true}, {F, 4096, 4096, 4096, false},
      {D, 2048, 2048, 2048, true}, {F, 8, 8, 8, false},         {H, 64, 64, 64, true}};
  for (const bool library : {false, true}) {
    if (library && lt::state() != lt::State::Ready) continue;
    matmul_route() = library ? MatmulRoute::Library : MatmulRoute::Own;
    for (const auto& s : shapes) {
      Big a(s.dtype, {s.m, s.k}), b(s.dtype, s.transposed_b ? Sizes{s.n, s.k} : Sizes{s.k, s.n}),
          y(s.dtype, {s.m, s.n});
      if (s.transposed_b) b.transpose();
      const double us = microseconds("matmul", {&a, &b, nullptr}, {&y}, MatmulParams{1, 1});
      const std::string what = std::string("matmul ") + (library ? "with cuBLASLt " : "own ") +
                               dtype_name(s.dtype) + " " + shape_text({s.m, s.n, s.k}) +
                               (s.transposed_b ? " NT" : " NN");
      rate(what.c_str(), us, 2.0 * double(s.m) * double(s.n) * double(s.k));
      if (s.m <= 16 && s.n > 1000)
        bandwidth("   of the weight", us, double(s.n) * double(s.k) * double(item_size(s.dtype)));
    }
  }
  matmul_route() = MatmulRoute::Measured;
}

void time_attention() {
  const struct {
    DType dtype;
    int64_t batch, heads, kv_heads, length, depth;
    bool causal;
  } shapes[] = {
      {DType::BFloat16, 2, 32, 32, 8192, 64, true},  {DType::BFloat16, 2, 16, 16, 8192, 128, true},
      {DType::BFloat16, 1, 32, 8, 8192, 128, true},  {DType::BFloat16, 8, 16, 16, 2048, 128, false},
      {DType::BFloat16, 16, 12, 12, 1024, 64, true}, {DType::Float32, 4, 12, 12, 1024, 64, true},
      {DType::BFloat16, 1, 8, 8, 2048, 256, true}};
  for (const auto& s : shapes) {
    Big q(s.dtype, {s.batch, s.heads, s.length, s.depth}),
        k(s.dtype, {s.batch, s.kv_heads, s.length, s.depth}), v(s.dtype, k.sizes),
        out(s.dtype, q.sizes), lse(DType::Float32, {s.batch, s.heads, s.length}),
        g(s.dtype, q.sizes), gq(s.dtype, q.sizes), gk(s.dtype, k.sizes), gv(s.dtype, k.sizes);
    const double scale = 1 / std::sqrt(double(s.depth)),
                 flops = 4.0 * double(s.batch * s.heads) * double(s.length) * double(s.length) *
                         double(s.depth) * (s.causal ? 0.5 : 1);
    const std::string what = std::string(dtype_name(s.dtype)) + " b" + std::to_string(s.batch) +
                             " h" + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) +
                             " s" + std::to_string(s.length) + " d" + std::to_string(s.depth) +
                             (s.causal ? " causal" : "");
    rate(("attention " + what).c_str(),
         microseconds("attention", {&q, &k, &v, nullptr}, {&out, &lse},
                      AttentionParams{scale, double(s.causal), 0, 0, 0, 0}),
         flops);
    rate(("attention_backward " + what).c_str(),
         microseconds("attention_backward", {&g, &q, &k, &v, nullptr, &out, &lse}, {&gq, &gk, &gv},
                      AttentionBackwardParams{scale, double(s.causal), 0, 0, 0, 0}),
         2.5 * flops);
  }
}

}  // namespace

void time_rows() {
  const DType H = DType::BFloat16, F = DType::Float32;
  const struct {
    DType dtype;
    int64_t rows, n;
  } shapes[] = {{H, 8192, 4096}, {H, 32768, 4096}, {H, 8192, 16384}, {H, 16384, 768},
                {H, 262144, 64}, {H, 8192, 50257}, {H, 16384, 4096}, {F, 512, 768},
                {F, 8192, 4096}, {F, 2048, 131072}};
  for (const auto& s : shapes) {
    Big x(s.dtype, {s.rows, s.n}), g(s.dtype, {s.rows, s.n}), y(s.dtype, {s.rows, s.n}),
        w(s.dtype, {s.n}), b(s.dtype, {s.n}), mean(F, {s.rows}), rstd(F, {s.rows}),
        gw(s.dtype, {s.n}), gb(s.dtype, {s.n});
    const double bytes = double(s.rows) * double(s.n) * double(item_size(s.dtype));
    const std::string shape =
        std::string(" ") + dtype_name(s.dtype) + " " + shape_text({s.rows, s.n});
    bandwidth(("softmax" + shape).c_str(), microseconds("softmax", {&x}, {&y}, NoParams{}),
              2 * bytes);
    bandwidth(("softmax_backward" + shape).c_str(),
              microseconds("softmax_backward", {&g, &x}, {&y}, NoParams{}), 3 * bytes);
    // float32: with the result in bfloat16, too
    const bool wide = s.dtype == F;
    Big sum(s.dtype, {s.rows, s.n}), low_rows(H, {wide ? s.rows : 1, s.n});
    const Big* low = wide ? &low_rows : nullptr;
    const double low_bytes = wide ? bytes / 2 : 0;
    bandwidth(("layer_norm" + shape).c_str(),
              microseconds("layer_norm", {&x, &w, &b, nullptr}, {&y, &mean, &rstd, low, nullptr},
                           LayerNormParams{1e-5}),
              2 * bytes + low_bytes);
    bandwidth(("layer_norm_backward" + shape).c_str(),
              microseconds("layer_norm_backward", {&g, &x, &mean, &rstd, &w, nullptr},
                           {&y, &gw, &gb, low}, NoParams{}),
              3 * bytes + low_bytes);
    bandwidth(("rms_norm" + shape).c_str(),
              microseconds("rms_norm", {&x, &w}, {&y, &rstd, low}, RmsNormParams{1e-5}),
              2 * bytes + low_bytes);
    bandwidth(
        ("rms_norm_backward" + shape).c_str(),
        microseconds("rms_norm_backward", {&g, &x, &rstd, &w, nullptr}, {&y, &gw, low}, NoParams{}),
        3 * bytes + low_bytes);
    bandwidth(
        ("rms_norm_backward, two gradients" + shape).c_str(),
        microseconds("rms_norm_backward", {&g, &x, &rstd, &w, &sum}, {&y, &gw, low}, NoParams{}),
        4 * bytes + low_bytes);
    bandwidth(
        ("add_rms_norm" + shape).c_str(),
        microseconds("add_rms_norm", {&x, &g, &w}, {&y, &sum, &rstd, low}, AddRmsNormParams{1e-5}),
        4 * bytes + low_bytes);
    if (!wide) continue;
    // As compiled graphs call it: a branch in bfloat16, and the norm in bfloat16 alone.
    Big branch(H, {s.rows, s.n});
    bandwidth(("add_rms_norm in bfloat16" + shape).c_str(),
              microseconds("add_rms_norm", {&x, &branch, &w}, {nullptr, &sum, &rstd, low},
                           AddRmsNormParams{1e-5}),
              3 * bytes);
    bandwidth(("layer_norm of a sum in bfloat16" + shape).c_str(),
              microseconds("layer_norm", {&x, &w, &b, &branch}, {nullptr, &mean, &rstd, low, &sum},
                           LayerNormParams{1e-5}),
              3 * bytes);
  }
  for (const int64_t n : {32000, 50257, 128256}) {
    const int64_t rows = 8192;
    Big x(H, {rows, n}), gx(H, {rows, n}), target(DType::Int64, {rows}), loss(F, {rows}),
        lse(F, {rows}), g(F, {rows}), score(DType::Float64, {rows}), lse64(DType::Float64, {rows});
    const double bytes = double(rows) * double(n) * 2;
    const std::string shape = " bfloat16 " + shape_text({rows, n});
    bandwidth(("cross_entropy" + shape).c_str(),
              microseconds("cross_entropy", {&x, &target, nullptr}, {&loss, &lse},
                           CrossEntropyParams{-100, 0}),
              bytes);
    bandwidth(("cross_entropy_backward" + shape).c_str(),
              microseconds("cross_entropy_backward", {&g, &x, &lse, &target, nullptr}, {&gx},
                           CrossEntropyBackwardParams{-100, 0, 0, double(n)}),
              2 * bytes);
    bandwidth(("cross_entropy_statistics" + shape).c_str(),
              microseconds("cross_entropy_statistics", {&x, &target, nullptr}, {&lse64, &score},
                           CrossEntropyStatisticsParams{-100, 0, 0, double(n)}),
              bytes);
    Big one(F, {1});
    bandwidth(("cross_entropy and gradient" + shape).c_str(),
              microseconds("cross_entropy", {&x, &target, nullptr, &one}, {&loss, &lse, &gx},
                           CrossEntropyParams{-100, 0}),
              2 * bytes);
    g.strides = {0};
    bandwidth(("scale_rows" + shape).c_str(), microseconds("scale_rows", {&g}, {&gx}, NoParams{}),
              2 * bytes);
    const float unit = 1;
    cudaMemcpy(g.device, &unit, 4, cudaMemcpyHostToDevice);
    bandwidth(("scale_rows by 1" + shape).c_str(),
              microseconds("scale_rows", {&g}, {&gx}, NoParams{}), 0);
  }
}

void time_products() {
  time_matmul();
  time_attention();
}

}  // namespace selftest::floats
