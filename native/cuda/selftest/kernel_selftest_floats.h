// Harness for kernels of sums and products: tensors with a float64 host copy, calls, comparison
// with a tolerance. Every device buffer has guard zones that must not change, and so must the gaps
// of strided outputs.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../../generated/op_params.h"
#include "../../include/backend.h"
#include "kernel_selftest.h"
#include "random.h"
#include "scratch.h"

namespace selftest::floats {

using Sizes = std::vector<int64_t>;

// ---- element types on the host

inline double round_to(DType dtype, double v) {
  switch (dtype) {
    case DType::Float64:
      return v;
    case DType::Float32:
      return static_cast<float>(v);
    case DType::Float16:
    case DType::BFloat16: {
      if (!std::isfinite(v) || v == 0) return v;
      const int digits = dtype == DType::Float16 ? 11 : 8,
                lowest = dtype == DType::Float16 ? -14 : -126;
      int exponent = std::ilogb(v);
      if (exponent < lowest) exponent = lowest;
      const double unit = std::ldexp(1.0, exponent - digits + 1);
      const double rounded = std::nearbyint(v / unit) * unit;
      return dtype == DType::Float16 && std::fabs(rounded) > 65504
                 ? std::copysign(INFINITY, rounded)
                 : rounded;
    }
    case DType::Bool:
      return v != 0;
    default:
      return std::trunc(v);
  }
}

inline uint16_t bits_of_half(double v) {
  if (std::isnan(v)) return 0x7e00;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const double a = std::fabs(v);
  if (std::isinf(a)) return sign | 0x7c00;
  if (a < std::ldexp(1.0, -14)) return sign | static_cast<uint16_t>(a * std::ldexp(1.0, 24));
  const int e = std::ilogb(a);
  return sign | static_cast<uint16_t>((e + 15) << 10) |
         static_cast<uint16_t>((a / std::ldexp(1.0, e) - 1) * 1024);
}
inline double half_of_bits(uint16_t b) {
  const int e = b >> 10 & 31, m = b & 1023;
  const double a = e == 31  ? (m ? NAN : INFINITY)
                   : e == 0 ? m * std::ldexp(1.0, -24)
                            : (1 + m / 1024.0) * std::ldexp(1.0, e - 15);
  return b & 0x8000 ? -a : a;
}
inline uint16_t bits_of_bfloat(double v) {
  const float f = static_cast<float>(v);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>(bits >> 16);
}
inline double bfloat_of_bits(uint16_t b) {
  const uint32_t bits = uint32_t(b) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline void store_host(DType dtype, void* base, int64_t i, double v) {
  switch (dtype) {
    case DType::Float32:
      static_cast<float*>(base)[i] = static_cast<float>(v);
      break;
    case DType::Float64:
      static_cast<double*>(base)[i] = v;
      break;
    case DType::Float16:
      static_cast<uint16_t*>(base)[i] = bits_of_half(v);
      break;
    case DType::BFloat16:
      static_cast<uint16_t*>(base)[i] = bits_of_bfloat(v);
      break;
    case DType::Int64:
      static_cast<int64_t*>(base)[i] = static_cast<int64_t>(v);
      break;
    case DType::Int32:
      static_cast<int32_t*>(base)[i] = static_cast<int32_t>(v);
      break;
    case DType::Int16:
      static_cast<int16_t*>(base)[i] = static_cast<int16_t>(v);
      break;
    case DType::Int8:
      static_cast<int8_t*>(base)[i] = static_cast<int8_t>(v);
      break;
    default:
      static_cast<uint8_t*>(base)[i] = static_cast<uint8_t>(v);
      break;
  }
}
inline double load_host(DType dtype, const void* base, int64_t i) {
  switch (dtype) {
    case DType::Float32:
      return static_cast<const float*>(base)[i];
    case DType::Float64:
      return static_cast<const double*>(base)[i];
    case DType::Float16:
      return half_of_bits(static_cast<const uint16_t*>(base)[i]);
    case DType::BFloat16:
      return bfloat_of_bits(static_cast<const uint16_t*>(base)[i]);
    case DType::Int64:
      return static_cast<double>(static_cast<const int64_t*>(base)[i]);
    case DType::Int32:
      return static_cast<const int32_t*>(base)[i];
    case DType::Int16:
      return static_cast<const int16_t*>(base)[i];
    case DType::Int8:
      return static_cast<const int8_t*>(base)[i];
    default:
      return static_cast<const uint8_t*>(base)[i];
  }
}

inline Random& random_source() {
  static Random source(1);
  return source;
}

// ---- tensors

constexpr int64_t kGuard = 64;
constexpr double kUntouched = 77;  // value of guards and gaps; representable in every dtype

class Tensor {
 public:
  DType dtype = DType::Float32;
  Sizes sizes, strides;
  std::vector<double> values;  // of the storage, including guards
  void* device = nullptr;
  int64_t offset = 0;  // offset of the first element in the storage

  // An absent operand.
  Tensor() = default;

  // Contiguous, or with the given strides, `shift` elements after a 256-byte boundary.
  Tensor(DType type, Sizes shape, Sizes steps = {}, int64_t shift = 0)
      : dtype(type), sizes(shape), strides(steps) {
    if (strides.empty()) {
      strides.resize(sizes.size());
      int64_t step = 1;
      for (size_t d = sizes.size(); d-- > 0; step *= sizes[d]) strides[d] = step;
    }
    int64_t span = 1;
    for (size_t d = 0; d < sizes.size(); d++)
      span = sizes[d] == 0 ? 0 : span == 0 ? 0 : span + (sizes[d] - 1) * strides[d];
    const int64_t lead = 256 / item_size(dtype);
    offset = lead + shift;
    values.assign(static_cast<size_t>(offset + span + kGuard), kUntouched);
    cudaMalloc(&device, values.size() * item_size(dtype));
  }
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(dtype, other.dtype);
    std::swap(sizes, other.sizes);
    std::swap(strides, other.strides);
    std::swap(values, other.values);
    std::swap(device, other.device);
    std::swap(offset, other.offset);
    return *this;
  }
  ~Tensor() {
    if (device) cudaFree(device);
  }

  bool present() const { return device != nullptr; }
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : sizes) n *= s;
    return n;
  }
  int64_t index_of(const Sizes& at) const {
    int64_t i = offset;
    for (size_t d = 0; d < at.size(); d++) i += at[d] * strides[d];
    return i;
  }
  // Storage index of row-major element i.
  int64_t place(int64_t i) const {
    int64_t at = offset;
    for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) at += i % sizes[d] * strides[d];
    return at;
  }
  double get(int64_t i) const { return values[static_cast<size_t>(place(i))]; }
  double at(const Sizes& where) const { return values[static_cast<size_t>(index_of(where))]; }
  void set(int64_t i, double v) { values[static_cast<size_t>(place(i))] = round_to(dtype, v); }

  Tensor& fill(const std::function<double(int64_t)>& f) {
    for (int64_t i = 0, n = numel(); i < n; i++) set(i, f(i));
    return upload();
  }
  Tensor& normal(double scale = 1, double shift = 0) {
    return fill([&](int64_t) { return random_source().normal() * scale + shift; });
  }
  Tensor& upload() {
    std::vector<uint8_t> bytes(values.size() * item_size(dtype));
    for (size_t i = 0; i < values.size(); i++)
      store_host(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
    cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
    // the copy may complete after the call, and the kernels' stream does not wait for it
    cudaDeviceSynchronize();
    return *this;
  }
  // Reads the storage back; false if an element outside the view has changed.
  bool download() {
    std::vector<uint8_t> bytes(values.size() * item_size(dtype));
    cudaMemcpy(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost);
    std::vector<double> fresh(values.size());
    for (size_t i = 0; i < values.size(); i++)
      fresh[i] = load_host(dtype, bytes.data(), static_cast<int64_t>(i));
    std::vector<bool> inside(values.size(), false);
    for (int64_t i = 0, n = numel(); i < n; i++) inside[static_cast<size_t>(place(i))] = true;
    bool clean = true;
    for (size_t i = 0; i < values.size(); i++)
      clean = clean && (inside[i] || fresh[i] == values[i]);
    values = fresh;
    return clean;
  }
  TensorView view() const {
    TensorView v = {};
    v.dtype = dtype;
    v.is_immediate = !present();
    if (!present()) return v;
    v.data = static_cast<char*>(device) + offset * item_size(dtype);
    v.sizes = sizes.data();
    v.strides = strides.data();
    v.numel = numel();
    v.ndim = static_cast<int32_t>(sizes.size());
    return v;
  }
};

// ---- running and checking

struct Context {
  int failures = 0, checks = 0;
  double worst = 0;  // largest error of the running group
  std::string group;
  bool group_failed = false;
};
inline Context& context() {
  static Context c;
  return c;
}

inline void begin(const char* group) {
  context().group = group;
  context().group_failed = false;
  context().worst = 0;
}
inline void end() {
  printf("%s  %-44s worst error %.2f of the tolerance\n", context().group_failed ? "FAIL" : "PASS",
         context().group.c_str(), context().worst);
  fflush(stdout);
}
inline void problem(const std::string& what) {
  context().failures++;
  context().group_failed = true;
  if (context().failures <= 60) printf("      %s: %s\n", context().group.c_str(), what.c_str());
}

// Prints a line for all groups; returns the number of problems.
inline int print_problems() {
  if (context().checks > 0) printf("%d calls, %d problems\n", context().checks, context().failures);
  return context().failures;
}

template <class P>
Status launch(const char* name, const std::vector<const Tensor*>& inputs,
              const std::vector<const Tensor*>& outputs, const P& params, ErrorText* error) {
  std::vector<TensorView> views;
  for (const Tensor* t : inputs) views.push_back(t->view());
  for (const Tensor* t : outputs) views.push_back(t->view());
  KernelCall call = {};
  call.kernel = kernel_id(name);
  call.num_inputs = static_cast<int32_t>(inputs.size());
  call.num_outputs = static_cast<int32_t>(outputs.size());
  call.num_params = sizeof(P) / sizeof(double);
  call.tensors = views.data();
  call.params = reinterpret_cast<const double*>(&params);
  call.stream = stream;
  call.error = error;
  return backend->launch(call);
}

// Launches, waits, reads the outputs back. Returns the code of the first failure.
template <class P>
Code run_once(const std::string& what, const char* name, const std::vector<const Tensor*>& inputs,
              const std::vector<Tensor*>& outputs, const P& params, bool expect_error) {
  for (Tensor* t : outputs)
    if (t->present()) t->upload();
  ErrorText error;
  poison_scratch(stream);
  Status status = launch(name, inputs, std::vector<const Tensor*>(outputs.begin(), outputs.end()),
                         params, &error);
  ErrorText later;
  const Status waited = backend->stream_synchronize(stream, &later);
  if (status.ok() && !waited.ok()) {
    status = waited;
    error = later;
  }
  if (!status.ok() && !expect_error) problem(what + ": " + error.text);
  if (status.ok() && expect_error) problem(what + ": no error was reported");
  for (Tensor* t : outputs)
    if (t->present() && !t->download()) problem(what + ": wrote outside its output");
  return status.code;
}

// Runs the kernel twice from the same outputs; both runs must give the same bits. Under a sanitizer
// one run suffices.
template <class P>
Code run(const std::string& what, const char* name, const std::vector<const Tensor*>& inputs,
         const std::vector<Tensor*>& outputs, const P& params, bool expect_error = false) {
  context().checks++;
  std::vector<std::vector<double>> before, first;
  for (const Tensor* t : outputs) before.push_back(t->values);
  const Code code = run_once(what, name, inputs, outputs, params, expect_error);
  if (code != Code::Ok || options.sparse) return code;
  for (size_t i = 0; i < outputs.size(); i++) {
    first.push_back(outputs[i]->values);
    outputs[i]->values = before[i];
  }
  run_once(what + " again", name, inputs, outputs, params, false);
  for (size_t i = 0; i < outputs.size(); i++)
    if (std::memcmp(first[i].data(), outputs[i]->values.data(), first[i].size() * sizeof(double)) !=
        0)
      problem(what + ": two runs differ in output " + std::to_string(i));
  return code;
}

struct NoParams {
  double none = 0;
};

// The relative error of one rounding and of a float32 (float64) sum of moderate length.
inline double relative_tolerance(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return 1e-12;
    case DType::Float32:
      return 4e-6;
    case DType::Float16:
      return 1.0e-3;
    default:
      return 8e-3;
  }
}

// got == want within rtol |want| + atol. NaN equals NaN, infinities must agree.
inline void compare(const std::string& what, const Tensor& got, const std::vector<double>& want,
                    double rtol, double atol) {
  int reported = 0;
  for (int64_t i = 0, n = got.numel(); i < n; i++) {
    const double a = got.get(i), b = want[static_cast<size_t>(i)];
    if (std::isnan(a) && std::isnan(b)) continue;
    const double room = rtol * std::fabs(b) + atol;
    if (a == b) continue;
    const double share = std::isfinite(a) && std::isfinite(b) ? std::fabs(a - b) / room : 1e30;
    if (share > context().worst) context().worst = share;
    if (share <= 1) continue;
    if (reported++ == 0) {
      char text[200];
      snprintf(text, sizeof text, ": element %lld of %lld is %.9g, should be %.9g",
               static_cast<long long>(i), static_cast<long long>(n), a, b);
      problem(what + " " + dtype_name(got.dtype) + text);
    }
  }
}

inline std::string shape_text(const Sizes& sizes) {
  std::string text = "[";
  for (size_t d = 0; d < sizes.size(); d++) text += (d ? "," : "") + std::to_string(sizes[d]);
  return text + "]";
}

constexpr DType kFloats[] = {DType::Float32, DType::Float64, DType::Float16, DType::BFloat16};
inline bool left_out(DType dtype) { return options.sparse && dtype != DType::BFloat16; }

}  // namespace selftest::floats
