// fused_pointwise on more than 2^31 elements, and its timings: bandwidth beside a copy of the same
// bytes, host time of a launch, and the first launch of a program.
#include <cstdlib>

#include "kernel_selftest_fused.h"

namespace selftest::bytes {
namespace {

// Device memory with the same pool of values again and again.
struct Block {
  void* device = nullptr;
  int64_t bytes;
  explicit Block(int64_t size, DType dtype = DType::UInt8) : bytes(size) {
    ErrorText error;
    if (!backend->allocate(0, bytes, &device, &error).ok()) {
      printf("allocation of %lld bytes failed: %s\n", static_cast<long long>(bytes), error.text);
      exit(2);
    }
    Random random(3);
    const int64_t item = item_size(dtype), pool = (int64_t(1) << 20) - 3;
    Tensor values = make(dtype, {pool});
    for (int64_t i = 0; i < pool; i++)
      values.set(i, is_floating(dtype) ? random.normal() : random.integer(0, 100));
    for (int64_t at = 0; at < bytes; at += pool * item)
      cudaMemcpy(static_cast<char*>(device) + at, values.raw(0),
                 static_cast<size_t>(std::min(bytes - at, pool * item)), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
  }
  Block(const Block&) = delete;
  ~Block() { backend->release(0, device, bytes); }
};

// A view of a block with its sizes and strides.
struct BlockView {
  const Block& block;
  DType dtype;
  Sizes sizes, strides;
  TensorView view() const {
    TensorView v = {};
    v.data = block.device;
    v.sizes = sizes.data();
    v.strides = strides.data();
    v.numel = 1;
    for (int64_t s : sizes) v.numel *= s;
    v.dtype = dtype;
    v.ndim = static_cast<int32_t>(sizes.size());
    return v;
  }
};

bool launch_blocks(const std::string& name, const std::vector<BlockView>& operands, int num_outputs,
                   const std::vector<double>& words, ErrorText* error) {
  std::vector<TensorView> views;
  for (const BlockView& b : operands) views.push_back(b.view());
  std::vector<double> params = words;
  params.resize(std::max<size_t>(words.size(), kMinParams), 0.0);
  KernelCall call = {};
  call.kernel = kernel_id(name);
  call.num_outputs = num_outputs;
  call.num_inputs = static_cast<int32_t>(operands.size()) - num_outputs;
  call.num_params = static_cast<int32_t>(words.size());
  call.tensors = views.data();
  call.params = params.data();
  call.stream = stream;
  call.error = error;
  return backend->launch(call).ok();
}

// Compares two blocks at their start, their end, and around each multiple of 2^31 elements.
std::string difference(const Block& a, const Block& b, int64_t item) {
  constexpr int64_t kWindow = int64_t(8) << 20;
  std::vector<char> left(kWindow), right(kWindow);
  for (int64_t at = 0; at < a.bytes; at += (item << 31) / 4) {
    const int64_t from = std::max<int64_t>(0, std::min(at - kWindow / 2, a.bytes - kWindow));
    const int64_t n = std::min(kWindow, a.bytes - from);
    cudaMemcpy(left.data(), static_cast<char*>(a.device) + from, static_cast<size_t>(n),
               cudaMemcpyDeviceToHost);
    cudaMemcpy(right.data(), static_cast<char*>(b.device) + from, static_cast<size_t>(n),
               cudaMemcpyDeviceToHost);
    for (int64_t i = 0; i < n; i++)
      if (left[i] != right[i])
        return "byte " + std::to_string(from + i) + " of " + std::to_string(a.bytes) + " differs";
  }
  return "";
}

void test_huge_dense() {
  const DType H = DType::BFloat16;
  const int64_t n = (int64_t(1) << 31) + 8 * 3000 + 3;
  Block x(n * 2, H), y(n * 2, H), fused_result(n * 2, H), silu(n * 2, H);
  const auto flat = [&](const Block& b) { return BlockView{b, H, {n}, {1}}; };
  ErrorText error;
  bool ok =
      launch_blocks(kName, {flat(x), flat(y), flat(fused_result)}, 1, swiglu(H).words(), &error);
  ok = ok && launch_blocks("silu", {flat(x), flat(silu)}, 1, {0}, &error);
  ok = ok && launch_blocks("mul", {flat(silu), flat(y), flat(silu)}, 1, {0}, &error);
  ok = ok && backend->stream_synchronize(stream, &error).ok();
  const std::string fault = ok ? difference(fused_result, silu, 2) : error.text;
  report(kName, fault.empty(), "more than 2^31 elements: " + fault);
}

// Offsets beyond 32 bits, so in several launches.
void test_huge_rows() {
  const DType B = DType::UInt8;
  const int64_t rows = (int64_t(1) << 16) + 5, columns = (int64_t(1) << 15) + 1, n = rows * columns;
  Block x(n, B), row(columns, B), fused_result(n, B), sum(n, B);
  const auto whole = [&](const Block& b) { return BlockView{b, B, {rows, columns}, {columns, 1}}; };
  const BlockView broadcast{row, B, {rows, columns}, {0, 1}};
  const Program program = {{{"add", ComputeType::Int64, B, {value(0), value(1)}, {3}}}, {2}};
  ErrorText error;
  bool ok =
      launch_blocks(kName, {whole(x), broadcast, whole(fused_result)}, 1, program.words(), &error);
  ok = ok && launch_blocks("add", {whole(x), broadcast, whole(sum)}, 1, {2, 3}, &error);
  ok = ok && backend->stream_synchronize(stream, &error).ok();
  const std::string fault = ok ? difference(fused_result, sum, 1) : error.text;
  report(kName, fault.empty(), "more than 2^31 elements with a row: " + fault);
}

// ---- timings ------------------------------------------------------------------------------------

double microseconds(const std::function<bool()>& launch, int runs) {
  ErrorText error;
  void *first = nullptr, *last = nullptr;
  backend->event_create(0, true, &first, &error);
  backend->event_create(0, true, &last, &error);
  bool ok = true;
  for (int i = -3; i < runs && ok; i++) {
    if (i == 0) backend->event_record(first, stream, &error);
    ok = launch();
  }
  backend->event_record(last, stream, &error);
  backend->stream_synchronize(stream, &error);
  double ms = 0;
  backend->event_elapsed_ms(first, last, &ms, &error);
  backend->event_destroy(first);
  backend->event_destroy(last);
  return ok ? ms * 1000 / runs : 1e12;
}

void print_bandwidth(const char* what, double us, double bytes) {
  printf("  %-52s %9.1f us  %7.0f GB/s\n", what, us, bytes / us * 1e-3);
}

double copy_time(const Block& from, const Block& to, int64_t bytes) {
  ErrorText error;
  return microseconds(
      [&] {
        return backend
            ->copy(stream, to.device, from.device, bytes, CopyKind::DeviceToDevice, &error)
            .ok();
      },
      20);
}

void time_swiglu() {
  const DType H = DType::BFloat16;
  const int64_t rows = 16384, columns = 8192, n = rows * columns, bytes = n * 2;
  Block a(bytes, H), b(bytes, H), c(bytes, H), y(bytes * 5 / 2, H), z(bytes, H);
  const auto flat = [&](const Block& t) { return BlockView{t, H, {n}, {1}}; };
  ErrorText error;
  const auto fused_time = [&](const std::vector<BlockView>& operands, int outputs,
                              const Program& p) {
    const std::vector<double> words = p.words();
    const double us =
        microseconds([&] { return launch_blocks(kName, operands, outputs, words, &error); }, 20);
    if (us > 1e11) printf("  %s\n", error.text);
    return us;
  };
  const auto one = [&](const char* op, const std::vector<BlockView>& operands) {
    return microseconds([&] { return launch_blocks(op, operands, 1, {0}, &error); }, 20);
  };
  print_bandwidth("silu(a) * b, fused", fused_time({flat(a), flat(b), flat(y)}, 1, swiglu(H)),
                  3.0 * bytes);
  print_bandwidth("silu(a) * b, two kernels",
                  one("silu", {flat(a), flat(z)}) + one("mul", {flat(z), flat(b), flat(y)}),
                  5.0 * bytes);
  print_bandwidth("a * b", one("mul", {flat(a), flat(b), flat(y)}), 3.0 * bytes);
  {
    Block from(bytes * 3 / 2);
    print_bandwidth("a copy of the same bytes", copy_time(from, y, bytes * 3 / 2), 3.0 * bytes);
  }
  print_bandwidth("its backward, fused (3 read, 2 written)",
                  fused_time({flat(a), flat(b), flat(c), flat(y), flat(z)}, 2, swiglu_backward(H)),
                  5.0 * bytes);
  {
    Block from(bytes * 5 / 2);
    print_bandwidth("a copy of the same bytes", copy_time(from, y, bytes * 5 / 2), 5.0 * bytes);
  }
  const BlockView row{b, H, {rows, columns}, {0, 1}}, column{c, H, {rows, columns}, {1, 0}};
  const auto whole = [&](const Block& t) { return BlockView{t, H, {rows, columns}, {columns, 1}}; };
  print_bandwidth("silu(a) * row, fused", fused_time({whole(a), row, whole(y)}, 1, swiglu(H)),
                  2.0 * bytes);
  print_bandwidth("silu(a) * column, fused", fused_time({whole(a), column, whole(y)}, 1, swiglu(H)),
                  2.0 * bytes);
  const BlockView odd{b, H, {rows, columns - 1}, {columns, 1}},
      odd_out{y, H, {rows, columns - 1}, {columns - 1, 1}};
  print_bandwidth(
      "silu(a) * b of rows without vectors, fused",
      fused_time({BlockView{a, H, {rows, columns - 1}, {columns, 1}}, odd, odd_out}, 1, swiglu(H)),
      3.0 * bytes);
  Program mixed = {
      {{"mul", kFloat, DType::Float32, {value(0), value(1)}, {}}, {"", kFloat, H, {value(2)}, {}}},
      {3, 2}};
  const int64_t m = n / 2;
  print_bandwidth("float32 * bfloat16, stored in both dtypes",
                  fused_time({BlockView{a, DType::Float32, {m}, {1}}, BlockView{b, H, {m}, {1}},
                              BlockView{z, H, {m}, {1}}, BlockView{y, DType::Float32, {m}, {1}}},
                             2, mixed),
                  12.0 * static_cast<double>(m));
}

void time_host() {
  const DType H = DType::BFloat16;
  Block a(4096, H), b(4096, H), y(4096, H);
  const auto flat = [&](const Block& t) { return BlockView{t, H, {1024}, {1}}; };
  ErrorText error;
  const std::vector<double> words = swiglu(H).words();
  std::vector<TensorView> views;
  const std::vector<BlockView> operands = {flat(a), flat(b), flat(y)};
  for (const BlockView& o : operands) views.push_back(o.view());
  const auto time = [&](const char* name, const std::vector<double>& params) {
    KernelCall call = {};
    call.kernel = kernel_id(name);
    call.num_inputs = 2;
    call.num_outputs = 1;
    call.num_params = static_cast<int32_t>(params.size());
    call.tensors = views.data();
    call.params = params.data();
    call.stream = stream;
    call.error = &error;
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
      const double start = wall_seconds();
      for (int i = 0; i < 500; i++) backend->launch(call);
      best = std::min(best, (wall_seconds() - start) / 500);
      backend->stream_synchronize(stream, &error);
    }
    printf("  host time of a launch: %-36s %7.0f ns\n", name, best * 1e9);
  };
  time(kName, words);
  time("mul", std::vector<double>(kMinParams, 0.0));
}

void time_compilation() {
  char folder[] = "/tmp/shardwise-selftest-XXXXXX";
  if (!mkdtemp(folder)) return;
  const DType H = DType::BFloat16;
  Block a(4096, H), y(4096, H);
  const BlockView from{a, H, {1024}, {1}}, to{y, H, {1024}, {1}};
  const auto first_launch = [&](const char* what, const char* cache, double number) {
    setenv("SHARDWISE_TUNE_CACHE", cache, 1);
    const Program program = {{{"mul", kFloat, H, {value(0), constant(number)}, {}},
                              {"gelu", kFloat, H, {value(1)}, {}},
                              {"add", kFloat, H, {value(2), value(0)}, {1}}},
                             {3}};
    ErrorText error;
    const double start = wall_seconds();
    const bool ok = launch_blocks(kName, {from, to}, 1, program.words(), &error);
    backend->stream_synchronize(stream, &error);
    printf("  first launch of a program: %-30s %9.2f ms %s\n", what, (wall_seconds() - start) * 1e3,
           ok ? "" : error.text);
  };
  first_launch("compiled, the first one", folder, 1.5);
  first_launch("compiled", folder, 2.5);
  first_launch("compiled, not kept", "off", 3.5);
}

}  // namespace

void test_fused_huge() {
  if (!find_nvrtc()) return;
  test_huge_dense();
  test_huge_rows();
}

void time_fused() {
  if (!find_nvrtc()) return;
  time_compilation();
  time_swiglu();
  time_host();
}

}  // namespace selftest::bytes
