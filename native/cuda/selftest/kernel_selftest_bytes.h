// Harness for kernels with exact references: tensors with the same bytes on host and device, calls
// through the backend's table, comparison. Counts the failures of each kernel and prints the first
// one.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../../generated/op_params.h"
#include "../../include/backend.h"
#include "kernel_selftest.h"
#include "random.h"
#include "scratch.h"

namespace selftest::bytes {

using Sizes = std::vector<int64_t>;

struct Tally {
  int cases = 0, failures = 0;
  std::string first;
};

inline std::map<std::string, Tally> tallies;

constexpr uint8_t kUntouched = 0xCD;  // fills outputs before a run, and guards
constexpr size_t kGuard = 256;        // bytes before and after the memory that a kernel may write

struct Storage {
  std::vector<uint8_t> host;  // including both guards
  void* device = nullptr;
  explicit Storage(int64_t bytes)
      : host(bytes > 0 ? static_cast<size_t>(bytes) + 2 * kGuard : 0, kUntouched) {
    ErrorText error;
    if (bytes > 0 &&
        !backend->allocate(0, static_cast<int64_t>(host.size()), &device, &error).ok()) {
      printf("allocation of %lld bytes failed: %s\n", static_cast<long long>(bytes), error.text);
      exit(2);
    }
  }
  uint8_t* data() { return host.data() + kGuard; }
  char* device_data() { return device ? static_cast<char*>(device) + kGuard : nullptr; }
  bool has_whole_guards() const {
    const auto is_touched = [](uint8_t byte) { return byte != kUntouched; };
    return host.empty() || (std::none_of(host.begin(), host.begin() + kGuard, is_touched) &&
                            std::none_of(host.end() - kGuard, host.end(), is_touched));
  }
  ~Storage() {
    if (device) backend->release(0, device, static_cast<int64_t>(host.size()));
  }
  Storage(const Storage&) = delete;
  void transfer(bool up) {
    ErrorText error;
    if (host.empty()) return;
    const auto n = static_cast<int64_t>(host.size());
    const Status s =
        up ? backend->copy(stream, device, host.data(), n, CopyKind::HostToDevice, &error)
           : backend->copy(stream, host.data(), device, n, CopyKind::DeviceToHost, &error);
    if (s.ok())
      backend->stream_synchronize(stream, nullptr);
    else
      printf("copy failed: %s\n", error.text);
  }
};

// A view of a storage, or an immediate, or an index view (an immediate with sizes and strides).
struct Tensor {
  DType dtype = DType::Float32;
  Sizes sizes, strides;
  int64_t offset = 0;
  std::shared_ptr<Storage> storage;
  double scalar = 0;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  int64_t at(int64_t linear) const {
    int64_t where = offset;
    for (int d = static_cast<int>(sizes.size()) - 1; d >= 0; d--)
      where += linear % sizes[d] * strides[d], linear /= sizes[d];
    return where;
  }
  uint8_t* raw(int64_t linear) const { return storage->data() + at(linear) * item_size(dtype); }
  template <class T>
  T read(int64_t i) const {
    T v;
    memcpy(&v, raw(i), sizeof v);
    return v;
  }
  template <class T>
  void write(int64_t i, T v) const {
    memcpy(raw(i), &v, sizeof v);
  }

  int64_t integer(int64_t i) const {
    switch (dtype) {
      case DType::Int64:
        return read<int64_t>(i);
      case DType::Int32:
        return read<int32_t>(i);
      case DType::Int16:
        return read<int16_t>(i);
      case DType::Int8:
        return read<int8_t>(i);
      case DType::UInt8:
        return read<uint8_t>(i);
      case DType::Bool:
        return read<uint8_t>(i) != 0;
      default:
        return static_cast<int64_t>(value(i));
    }
  }
  double value(int64_t i) const {
    switch (dtype) {
      case DType::Float32:
        return read<float>(i);
      case DType::Float64:
        return read<double>(i);
      case DType::Float16:
        return __half2float(read<__half>(i));
      case DType::BFloat16:
        return __bfloat162float(read<__nv_bfloat16>(i));
      default:
        return static_cast<double>(integer(i));
    }
  }
  void set(int64_t i, double v) const {
    switch (dtype) {
      case DType::Float32:
        return write(i, static_cast<float>(v));
      case DType::Float64:
        return write(i, v);
      case DType::Float16:
        return write(i, __double2half(v));
      case DType::BFloat16:
        return write(i, __double2bfloat16(v));
      case DType::Int64:
        return write(i, static_cast<int64_t>(v));
      case DType::Int32:
        return write(i, static_cast<int32_t>(v));
      case DType::Int16:
        return write(i, static_cast<int16_t>(v));
      case DType::Int8:
        return write(i, static_cast<int8_t>(v));
      case DType::UInt8:
        return write(i, static_cast<uint8_t>(static_cast<int64_t>(v)));
      default:
        return write(i, static_cast<uint8_t>(v != 0));
    }
  }
  Tensor transpose(int a, int b) const {
    Tensor t = *this;
    std::swap(t.sizes[a], t.sizes[b]);
    std::swap(t.strides[a], t.strides[b]);
    return t;
  }
  Tensor expand(int dim, int64_t size) const {  // `dim` has size 1
    Tensor t = *this;
    t.sizes[dim] = size;
    t.strides[dim] = 0;
    return t;
  }
  Tensor slice(int dim, int64_t start, int64_t step, int64_t size) const {
    Tensor t = *this;
    t.offset += start * strides[dim];
    t.sizes[dim] = size;
    t.strides[dim] *= step;
    return t;
  }
  Tensor clone() const;
};

// Contiguous, from element `start` of its storage on.
inline Tensor shifted(DType dtype, const Sizes& sizes, int64_t start) {
  Tensor t;
  t.offset = start;
  t.dtype = dtype;
  t.sizes = sizes;
  t.strides.assign(sizes.size(), 1);
  for (int d = static_cast<int>(sizes.size()) - 2; d >= 0; d--)
    t.strides[d] = t.strides[d + 1] * (sizes[d + 1] > 0 ? sizes[d + 1] : 1);
  t.storage = std::make_shared<Storage>((start + t.numel()) * item_size(dtype));
  return t;
}

inline Tensor make(DType dtype, const Sizes& sizes) { return shifted(dtype, sizes, 0); }

inline Tensor Tensor::clone() const {
  Tensor t = make(dtype, sizes);
  for (int64_t i = 0; i < numel(); i++) memcpy(t.raw(i), raw(i), item_size(dtype));
  return t;
}

inline Tensor number(double value, DType dtype = DType::Float32) {
  Tensor t;
  t.dtype = dtype;
  t.scalar = value;
  return t;
}

inline Tensor fill_with(Tensor t, const std::function<double(int64_t)>& f) {
  for (int64_t i = 0; i < t.numel(); i++) t.set(i, f(i));
  return t;
}

inline Tensor uniform(DType dtype, const Sizes& sizes, uint64_t seed, double low = -3,
                      double high = 3, int64_t start = 0) {
  Random random(seed);
  return fill_with(shifted(dtype, sizes, start), [&](int64_t) {
    return dtype == DType::Bool ? random.uniform(0, 1) < 0.5 : random.uniform(low, high);
  });
}

inline void report(const std::string& kernel, bool ok, const std::string& message) {
  Tally& tally = tallies[kernel];
  tally.cases++;
  if (ok) return;
  tally.failures++;
  if (tally.first.empty()) tally.first = message;
}

// Prints a line for each kernel; returns how many failed.
inline int print_tallies() {
  int failed = 0;
  for (const auto& [name, tally] : tallies) {
    printf("%s %-22s %4d cases%s%s\n", tally.failures ? "FAIL" : "PASS", name.c_str(), tally.cases,
           tally.failures ? ": " : "", tally.first.c_str());
    failed += tally.failures > 0;
  }
  if (!tallies.empty()) printf("%zu kernels, %d failed\n", tallies.size(), failed);
  return failed;
}

using Contents = std::map<Storage*, std::vector<uint8_t>>;

// Runs a kernel repeatedly: restores its tensors before each run and reads them afterwards.
struct Runner {
  KernelCall call;
  Contents before;  // contents of all storages; empty if they stay on the device

  Status once() {
    for (auto& [storage, bytes] : before) {
      storage->host = bytes;
      storage->transfer(true);
    }
    poison_scratch(stream);
    Status status = backend->launch(call);
    const Status done = backend->stream_synchronize(stream, status.ok() ? call.error : nullptr);
    for (auto& [storage, bytes] : before) storage->transfer(false);
    return status.ok() ? done : status;
  }
};

// Runs a kernel twice; both runs must give the same bits and must not touch the guards. Outputs
// keep their contents, for in-place kernels. `transfer` false: one run with the contents of the
// device.
inline Status run(const std::string& name, const std::vector<Tensor>& inputs,
                  const std::vector<Tensor>& outputs, const std::vector<double>& params,
                  ErrorText* error = nullptr, bool transfer = true) {
  std::vector<TensorView> views;
  std::vector<const Tensor*> all;
  Runner runner = {};
  for (const Tensor& t : inputs) all.push_back(&t);
  for (const Tensor& t : outputs) all.push_back(&t);
  for (const Tensor* t : all) {
    if (t->storage && transfer) runner.before[t->storage.get()] = t->storage->host;
    TensorView v = {};
    v.data = t->storage && t->storage->device
                 ? t->storage->device_data() + t->offset * item_size(t->dtype)
                 : nullptr;
    v.sizes = t->sizes.data();
    v.strides = t->strides.data();
    v.numel = t->numel();
    v.scalar = t->scalar;
    v.dtype = t->dtype;
    v.ndim = static_cast<int32_t>(t->sizes.size());
    v.is_immediate = !t->storage;
    views.push_back(v);
  }
  ErrorText own;
  KernelCall& call = runner.call;
  call.kernel = kernel_id(name);
  call.num_inputs = static_cast<int32_t>(inputs.size());
  call.num_outputs = static_cast<int32_t>(outputs.size());
  call.num_params = static_cast<int32_t>(params.size());
  call.tensors = views.data();
  call.params = params.data();
  call.stream = stream;
  call.error = error ? error : &own;
  const Status status = runner.once();
  if (!status.ok() && !error) report(name, false, std::string("status: ") + own.text);
  if (!status.ok()) return status;
  Contents first;
  for (const auto& [storage, bytes] : runner.before) {
    first[storage] = storage->host;
    if (!storage->has_whole_guards()) report(name, false, "it wrote outside of its tensors");
  }
  if (!transfer || options.sparse) return status;
  runner.once();
  for (const auto& [storage, bytes] : first)
    if (storage->host != bytes) report(name, false, "two runs differ");
  return status;
}

inline double tolerance(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 1e-11;
    case DType::Float32:
      return 2e-5;
    case DType::Float16:
      return 1.5e-3;
    case DType::BFloat16:
      return 1e-2;
    default:
      return 0;
  }
}

// Compares every element with `reference(i)`. `slack` multiplies the tolerance of the dtype.
inline void expect(const std::string& kernel, const std::string& label, const Tensor& got,
                   const std::function<double(int64_t)>& reference, double slack = 1) {
  const double tol = tolerance(got.dtype) * slack;
  for (int64_t i = 0; i < got.numel(); i++) {
    const double a = got.value(i), exact = reference(i);
    const double b = got.dtype == DType::Float16 && std::fabs(exact) > 65519
                         ? std::copysign(INFINITY, exact)
                         : exact;
    const bool same = a == b || (std::isnan(a) && std::isnan(b)) ||
                      std::fabs(a - b) <= tol * (std::fabs(b) + 0.1);
    if (same) continue;
    char text[320];
    snprintf(text, sizeof text, "%s (%s): element %lld is %.9g, expected %.9g", label.c_str(),
             dtype_name(got.dtype), static_cast<long long>(i), a, b);
    return report(kernel, false, text);
  }
  report(kernel, true, "");
}

inline void expect_integers(const std::string& kernel, const std::string& label, const Tensor& got,
                            const std::function<int64_t(int64_t)>& reference) {
  for (int64_t i = 0; i < got.numel(); i++) {
    const int64_t a = got.integer(i), b = reference(i);
    if (a == b) continue;
    char text[320];
    snprintf(text, sizeof text, "%s (%s): element %lld is %lld, expected %lld", label.c_str(),
             dtype_name(got.dtype), static_cast<long long>(i), static_cast<long long>(a),
             static_cast<long long>(b));
    return report(kernel, false, text);
  }
  report(kernel, true, "");
}

const DType kFloats[] = {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16};
// All values; in sparse runs only the first and the last.
template <class T>
std::vector<T> ends_of(std::initializer_list<T> all) {
  return options.sparse ? std::vector<T>{*all.begin(), *(all.end() - 1)} : std::vector<T>(all);
}
inline std::vector<DType> all_dtypes() {
  if (options.sparse) return {DType::Float32, DType::BFloat16, DType::Int64, DType::Bool};
  return {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16, DType::Int64,
          DType::Int32,   DType::Int16,   DType::Int8,    DType::UInt8,    DType::Bool};
}

}  // namespace selftest::bytes
