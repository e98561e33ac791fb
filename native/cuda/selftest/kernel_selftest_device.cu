// Cases without a host copy: timings of kernels by element (group time-elements) and tensors of
// more than 2^31 elements (group huge).
#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

struct DeviceTensor {
  Sizes sizes, strides;
  DType dtype;
  std::shared_ptr<void> memory;
  double scalar = 0;

  TensorView view() const {
    TensorView v = {};
    v.data = memory.get();
    v.sizes = sizes.data();
    v.strides = strides.data();
    v.numel = 1;
    for (int64_t s : sizes) v.numel *= s;
    v.scalar = scalar;
    v.dtype = dtype;
    v.ndim = static_cast<int32_t>(sizes.size());
    v.is_immediate = !memory;
    return v;
  }
  DeviceTensor transposed() const {
    DeviceTensor t = *this;
    std::swap(t.sizes[t.sizes.size() - 1], t.sizes[t.sizes.size() - 2]);
    std::swap(t.strides[t.sizes.size() - 1], t.strides[t.sizes.size() - 2]);
    return t;
  }
  DeviceTensor expanded(size_t dim, int64_t size) const {
    DeviceTensor t = *this;
    t.sizes[dim] = size;
    t.strides[dim] = 0;
    return t;
  }
};

DeviceTensor device_tensor(DType dtype, const Sizes& sizes) {
  DeviceTensor t;
  t.dtype = dtype;
  t.sizes = sizes;
  t.strides.assign(sizes.size(), 1);
  for (int d = static_cast<int>(sizes.size()) - 2; d >= 0; d--)
    t.strides[static_cast<size_t>(d)] =
        t.strides[static_cast<size_t>(d) + 1] * sizes[static_cast<size_t>(d) + 1];
  int64_t bytes = item_size(dtype);
  for (int64_t s : sizes) bytes *= s;
  void* pointer = nullptr;
  ErrorText error;
  if (!backend->allocate(0, bytes, &pointer, &error).ok()) {
    printf("allocation of %lld bytes failed: %s\n", static_cast<long long>(bytes), error.text);
    exit(2);
  }
  t.memory = std::shared_ptr<void>(pointer, [bytes](void* p) { backend->release(0, p, bytes); });
  return t;
}

DeviceTensor value(double v) {
  DeviceTensor t;
  t.dtype = DType::Float32;
  t.scalar = v;
  return t;
}

struct Launch {
  std::string name;
  std::vector<DeviceTensor> inputs, outputs;
  std::vector<double> params;

  bool operator()() const {
    std::vector<TensorView> views;
    for (const auto& t : inputs) views.push_back(t.view());
    for (const auto& t : outputs) views.push_back(t.view());
    ErrorText error;
    KernelCall call = {};
    call.kernel = kernel_id(name);
    call.num_inputs = static_cast<int32_t>(inputs.size());
    call.num_outputs = static_cast<int32_t>(outputs.size());
    call.num_params = static_cast<int32_t>(params.size());
    call.tensors = views.data();
    call.params = params.data();
    call.stream = stream;
    call.error = &error;
    const bool ok = backend->launch(call).ok();
    if (!ok) printf("%s: %s\n", name.c_str(), error.text);
    return ok;
  }
};

DeviceTensor random_tensor(DType dtype, const Sizes& sizes, double low = -1, double high = 1) {
  const DeviceTensor t = device_tensor(dtype, sizes);
  DeviceTensor index = value(0);
  index.dtype = DType::Int64;
  index.sizes = t.sizes;
  index.strides = t.strides;
  if (is_floating(dtype))
    Launch{"random_uniform", {index}, {t}, {7, 7, 0, low, high}}();
  else
    Launch{"random_integer", {index}, {t}, {7, 7, 0, low, high}}();
  return t;
}

void time(const char* label, double bytes, const Launch& launch, int runs = 20) {
  ErrorText error;
  void *start = nullptr, *end = nullptr;
  backend->event_create(0, true, &start, &error);
  backend->event_create(0, true, &end, &error);
  for (int i = 0; i < 3; i++)
    if (!launch()) return;
  backend->event_record(start, stream, &error);
  for (int i = 0; i < runs; i++) launch();
  backend->event_record(end, stream, &error);
  if (!backend->stream_synchronize(stream, &error).ok()) printf("%s: %s\n", label, error.text);
  double ms = 0;
  backend->event_elapsed_ms(start, end, &ms, &error);
  printf("%-44s %9.1f us  %7.0f GB/s\n", label, ms * 1000 / runs, bytes / (ms / runs) * 1e-6);
  backend->event_destroy(start);
  backend->event_destroy(end);
}

}  // namespace

void time_elements() {
  const int64_t n = int64_t(1) << 26, rows = 8192, columns = 8192;
  const double fn = static_cast<double>(n);
  const DType f32 = DType::Float32, bf16 = DType::BFloat16, i64 = DType::Int64;
  const DeviceTensor x = random_tensor(f32, {n}), y = device_tensor(f32, {n}),
                     xb = random_tensor(bf16, {n}), yb = device_tensor(bf16, {n});
  const DeviceTensor m = random_tensor(f32, {rows, columns}),
                     mo = device_tensor(f32, {rows, columns}),
                     mb = random_tensor(bf16, {rows, columns}),
                     mbo = device_tensor(bf16, {rows, columns}),
                     row = random_tensor(f32, {1, columns}),
                     rowb = random_tensor(bf16, {1, columns});
  const DeviceTensor one = device_tensor(f32, {}), per_row = device_tensor(f32, {rows}),
                     per_row_index = device_tensor(i64, {rows});
  const DeviceTensor small = random_tensor(f32, {1000}), small_out = device_tensor(f32, {1000});
  time("add, 1000 float32 (launch time)", 12e3, {"add", {small, small}, {small_out}, {0, 1}}, 1000);
  time("add, float32", 12 * fn, {"add", {x, x}, {y}, {0, 1}});
  time("add, bfloat16", 6 * fn, {"add", {xb, xb}, {yb}, {0, 1}});
  time("add a row, float32", 8 * fn, {"add", {m, row.expanded(0, rows)}, {mo}, {0, 1}});
  time("add a row, bfloat16", 4 * fn, {"add", {mb, rowb.expanded(0, rows)}, {mbo}, {0, 1}});
  time("add transposed, float32", 12 * fn, {"add", {m, m.transposed()}, {mo}, {0, 1}});
  time("add, float32 + bfloat16", 10 * fn, {"add", {x, xb}, {y}, {0, 1}});
  time("gelu, bfloat16", 4 * fn, {"gelu", {xb}, {yb}, {0}});
  time("sin, float32", 8 * fn, {"sin", {x}, {y}, {0}});
  time("copy, float32", 8 * fn, {"copy", {x}, {y}, {}});
  time("copy float32 to bfloat16", 6 * fn, {"copy", {x}, {yb}, {}});
  time("copy transposed, float32", 8 * fn, {"copy", {m.transposed()}, {mo}, {}});
  time("copy transposed, bfloat16", 4 * fn, {"copy", {mb.transposed()}, {mbo}, {}});
  time("fill, float32", 4 * fn, {"fill", {}, {y}, {1, 0}});
  DeviceTensor index = value(0);
  index.sizes = x.sizes;
  index.strides = x.strides;
  time("random_uniform, float32", 4 * fn, {"random_uniform", {index}, {y}, {1, 2, 0, 0, 1}});
  time("random_normal, float32", 4 * fn, {"random_normal", {index}, {y}, {1, 2, 0, 0, 1}});
  time("sum of all, float32", 4 * fn, {"reduce_sum", {x}, {one}, {1}});
  time("sum of all, bfloat16", 2 * fn, {"reduce_sum", {xb}, {one}, {1}});
  time("sum of rows, float32", 4 * fn, {"reduce_sum", {m}, {per_row}, {1}});
  time("sum of columns, float32", 4 * fn, {"reduce_sum", {m.transposed()}, {per_row}, {1}});
  time("sum of columns, bfloat16", 2 * fn, {"reduce_sum", {mb.transposed()}, {per_row}, {1}});
  time("argmax of rows, float32", 4 * fn, {"reduce_argmax", {m}, {per_row_index}, {1}});
  time("var of rows, bfloat16", 2 * fn,
       {"reduce_var", {mb}, {device_tensor(bf16, {rows}), device_tensor(bf16, {rows})}, {1, 1}});
  time("logsumexp of rows, float32", 4 * fn, {"reduce_logsumexp", {m}, {per_row}, {1}});
  time("cumsum of all, float32", 12 * fn, {"cumsum", {x}, {y}, {}});
  time("cumsum of rows, float32", 8 * fn, {"cumsum", {m}, {mo}, {}});
  time("cumsum of columns, float32", 8 * fn, {"cumsum", {m.transposed()}, {mo.transposed()}, {}});
  const DeviceTensor keys = random_tensor(f32, {n / 4}), sorted = device_tensor(f32, {n / 4}),
                     order = device_tensor(i64, {n / 4});
  time("sort of 16.7 million, float32", 4 * fn, {"sort", {keys}, {sorted, order}, {0}}, 5);
  time("sort of rows of 1000, float32", 4 * fn,
       {"sort",
        {random_tensor(f32, {16384, 1000})},
        {device_tensor(f32, {16384, 1000}), device_tensor(i64, {16384, 1000})},
        {0}},
       5);
  const DeviceTensor logits = random_tensor(f32, {16, 128256});
  time("topk 50 of 16 x 128256, float32", 4.0 * 16 * 128256,
       {"topk", {logits}, {device_tensor(f32, {16, 50}), device_tensor(i64, {16, 50})}, {50, 1}});
  const DeviceTensor table = random_tensor(bf16, {1, 50304, 1024}),
                     tokens = random_tensor(i64, {16384}, 0, 50304),
                     embedded = device_tensor(bf16, {1, 16384, 1024});
  time("index_select 16384 rows of 1024, bfloat16", 4.0 * 16384 * 1024,
       {"index_select", {table, tokens}, {embedded}, {}});
  time("index_add 16384 rows of 1024, bfloat16", 6.0 * 16384 * 1024,
       {"index_add", {tokens, embedded}, {table}, {1}});
  time("gather of columns, float32", 16 * fn / 4,
       {"gather",
        {m, random_tensor(i64, {rows, 2048}, 0, columns)},
        {device_tensor(f32, {rows, 2048})},
        {}});
  time("scatter add 1 per row, float32", 16.0 * rows,
       {"scatter",
        {random_tensor(i64, {rows, 1}, 0, columns), random_tensor(f32, {rows, 1})},
        {mo},
        {1}});
  std::vector<DeviceTensor> state;
  for (int i = 0; i < 4; i++)
    for (int t = 0; t < 64; t++)
      state.push_back(random_tensor(f32, {n / 64}, i == 3 ? 0.1 : -1, 1));
  time("adam_step, 64 tensors, float32", 28 * fn,
       {"adam_step", state, {}, {64, 1e-9, 0.9, 0.99, 1e-8, 0.1, 1, 0, 0, 0.5, 0.5, 1}});
  std::vector<DeviceTensor> gradients(state.begin() + 64, state.begin() + 128);
  time("foreach_norm, 64 tensors, float32", 4 * fn,
       {"foreach_norm", gradients, {device_tensor(f32, {64})}, {64}});
}

// More than 2^31 elements; needs about 16 GB.
void test_huge() {
  ErrorText error;
  const int64_t half = (int64_t(1) << 30) + 3 * 1024, n = 2 * half;
  const DeviceTensor x = device_tensor(DType::UInt8, {n}), y = device_tensor(DType::UInt8, {n});
  const auto poke = [&](const DeviceTensor& t, int64_t at, uint8_t v) {
    backend->copy(stream, static_cast<uint8_t*>(t.memory.get()) + at, &v, 1, CopyKind::HostToDevice,
                  &error);
    backend->stream_synchronize(stream, &error);
  };
  const auto peek = [&](const DeviceTensor& t, int64_t at) {
    uint8_t v = 0;
    backend->copy(stream, &v, static_cast<uint8_t*>(t.memory.get()) + at, 1, CopyKind::DeviceToHost,
                  &error);
    backend->stream_synchronize(stream, &error);
    return static_cast<int64_t>(v);
  };
  const auto scalar = [&](const char* name, const DeviceTensor& from, double reduced_ndim) {
    const DeviceTensor out = device_tensor(DType::Int64, {});
    Launch{name, {from}, {out}, {reduced_ndim}}();
    int64_t v = 0;
    backend->copy(stream, &v, out.memory.get(), 8, CopyKind::DeviceToHost, &error);
    backend->stream_synchronize(stream, &error);
    return v;
  };
  Launch{"fill", {}, {x}, {0, 1}}();
  report("fill", peek(x, n - 1) == 1, "huge: the last element is wrong");
  report("reduce_sum", scalar("reduce_sum", x, 1) == n, "huge: the sum is wrong");
  poke(x, n - 7, 9);
  report("reduce_argmax", scalar("reduce_argmax", x, 1) == n - 7, "huge: the place is wrong");
  DeviceTensor pairs = x;  // [2, half], transposed: element (i, j) is x[j * half + i]
  pairs.sizes = {half, 2};
  pairs.strides = {1, half};
  DeviceTensor target = y;
  target.sizes = {half, 2};
  target.strides = {2, 1};
  Launch{"copy", {pairs}, {target}, {}}();
  report("copy", peek(y, 2 * (half - 7) + 1) == 9 && peek(y, n - 1) == 1,
         "huge: a transposed copy is wrong");
  report("reduce_argmax", scalar("reduce_argmax", pairs, 2) == 2 * (half - 7) + 1,
         "huge: the place in a strided tensor is wrong");
  Launch{"fill", {}, {y}, {0, 0}}();
  Launch{"add", {pairs, target}, {target}, {2, 3}}();
  report("add", peek(y, 2 * (half - 7) + 1) == 9 && peek(y, n - 1) == 1 && peek(y, 0) == 1,
         "huge: a strided add is wrong");
  const DeviceTensor f = device_tensor(DType::BFloat16, {n + 5}),
                     g = device_tensor(DType::BFloat16, {n + 5}),
                     total = device_tensor(DType::Float32, {});
  Launch{"fill", {}, {f}, {2, 0}}();
  Launch{"neg", {f}, {g}, {0}}();
  Launch{"reduce_amax", {g}, {total}, {1}}();
  float v = 0;
  backend->copy(stream, &v, total.memory.get(), 4, CopyKind::DeviceToHost, &error);
  backend->stream_synchronize(stream, &error);
  report("neg", v == -2, "huge: an element was not negated");
}

}  // namespace selftest::bytes
