// Programs of fused_pointwise for its self-tests, and the comparison with the kernels of their steps,
// launched one by one: every bit must be the same, but for the bits of a NaN.
#pragma once
#include <chrono>

#include "../../include/fused_program.h"
#include "../fused/nvrtc.h"
#include "../fused/programs.h"
#include "../fused/source.h"
#include "../fused/space.h"
#include "kernel_selftest_bytes.h"

namespace selftest::bytes {

namespace fused = shardwise::cuda::fused;
namespace nvrtc = shardwise::cuda::nvrtc;

constexpr const char* kName = "fused_pointwise";

struct Operand {
  int value;  // -1: the number
  double number;
};
inline Operand value(int v) { return {v, 0}; }
inline Operand constant(double n) { return {-1, n}; }

struct Step {
  std::string op;  // "": a conversion
  ComputeType compute;
  DType dtype;
  std::vector<Operand> operands;
  std::vector<double> params;
};

struct Program {
  std::vector<Step> steps;
  std::vector<int> outputs;

  std::vector<double> words() const {
    std::vector<double> w = {static_cast<double>(steps.size())};
    const auto add = [&](double number) { w.push_back(number); };
    for (const Step& s : steps) {
      add(s.op.empty() ? -1 : kernel_id(s.op));
      add(static_cast<double>(s.compute));
      add(static_cast<double>(s.dtype));
      add(static_cast<double>(s.operands.size()));
      for (const Operand& o : s.operands) {
        add(o.value < 0);
        add(o.value < 0 ? o.number : o.value);
      }
      add(static_cast<double>(s.params.size()));
      for (double p : s.params) add(p);
    }
    for (int o : outputs) add(o);
    return w;
  }
};

// ---- results step by step ----------------------------------------------------------------------

inline Tensor run_step(const Step& step, const std::vector<Tensor>& values, const Sizes& sizes) {
  Tensor result = make(step.dtype, sizes);
  std::vector<Tensor> operands;
  for (const Operand& o : step.operands)
    operands.push_back(o.value < 0 ? number(o.number) : values[static_cast<size_t>(o.value)]);
  if (step.op.empty()) {
    run("copy", operands, {result}, {});
    return result;
  }
  std::vector<double> params = {static_cast<double>(step.compute)};
  params.insert(params.end(), step.params.begin(), step.params.end());
  params.resize(5, 0.0);
  run(step.op, operands, {result}, params);
  return result;
}

// All values: inputs, then results.
inline std::vector<Tensor> run_steps(const Program& program, const std::vector<Tensor>& inputs,
                                     const Sizes& sizes) {
  std::vector<Tensor> values = inputs;
  for (const Step& step : program.steps) values.push_back(run_step(step, values, sizes));
  return values;
}

// ---- what is needed to find a fault without another run -----------------------------------------

inline TensorView view_of(const Tensor& t) {
  TensorView v = {};
  v.data = t.storage->device ? t.storage->device_data() + t.offset * item_size(t.dtype) : nullptr;
  v.sizes = t.sizes.data();
  v.strides = t.strides.data();
  v.numel = t.numel();
  v.dtype = t.dtype;
  v.ndim = static_cast<int32_t>(t.sizes.size());
  return v;
}

inline std::string text_of(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (int64_t n : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

inline int num_explained = 0;

// Prints program, operands, source, and the messages of NVRTC.
inline void explain(const Program& program, const std::vector<Tensor>& inputs,
                    const std::vector<Tensor>& outputs) {
  if (num_explained++ >= 3) return;
  std::vector<TensorView> views;
  for (const Tensor& t : inputs) views.push_back(view_of(t));
  for (const Tensor& t : outputs) views.push_back(view_of(t));
  const std::vector<double> words = program.words();
  ErrorText error;
  KernelCall call = {};
  call.num_inputs = static_cast<int32_t>(inputs.size());
  call.num_outputs = static_cast<int32_t>(outputs.size());
  call.num_params = static_cast<int32_t>(words.size());
  call.tensors = views.data();
  call.params = words.data();
  call.error = &error;
  FusedProgram decoded;
  if (!decode(call, decoded).ok()) {
    printf("  not decoded: %s\n", error.text);
    return;
  }
  fused::Space space;
  const fused::Layout layout = fused::lay_out(call, fused::widest_vector(call), &space);
  const fused::Source source = fused::write_source(decoded, layout);
  printf("---- the program:\n%s", fused::describe(decoded).c_str());
  for (size_t i = 0; i < views.size(); i++) {
    const Tensor& t = i < inputs.size() ? inputs[i] : outputs[i - inputs.size()];
    printf("%s %zu: %s, sizes %s, strides %s, offset %lld, access %d\n",
           i < inputs.size() ? "input" : "output", i, dtype_name(t.dtype), text_of(t.sizes).c_str(),
           text_of(t.strides).c_str(), static_cast<long long>(t.offset),
           static_cast<int>(layout.access[i]));
  }
  printf("width %d, tail %d, %d dims\n", layout.width, layout.has_tail, layout.ndim);
  printf("%s\n", source.text.substr(source.text.rfind("namespace shardwise")).c_str());
  std::string code, log;
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
  const bool compiled = nvrtc::compile(source.name, source.text, major * 10 + minor, &code, &log);
  printf("NVRTC %s: %s, %zu bytes\n%s\n----\n", nvrtc::report(), compiled ? "compiles it" : "fails",
         code.size(), log.c_str());
}

// ---- comparison ---------------------------------------------------------------------------------

inline bool is_same(const Tensor& a, const Tensor& b, int64_t i) {
  if (a.dtype == DType::Bool) return (*a.raw(i) != 0) == (*b.raw(i) != 0);
  if (memcmp(a.raw(i), b.raw(i), static_cast<size_t>(item_size(a.dtype))) == 0) return true;
  return is_floating(a.dtype) && std::isnan(a.value(i)) && std::isnan(b.value(i));
}

inline std::string bits_text(const Tensor& t, int64_t i) {
  uint64_t bits = 0;
  memcpy(&bits, t.raw(i), static_cast<size_t>(item_size(t.dtype)));
  char text[80];
  snprintf(text, sizeof text, "%.17g (%s 0x%llx)", t.value(i), dtype_name(t.dtype),
           static_cast<unsigned long long>(bits));
  return text;
}

// The first element that differs, with all values of it; "" if there is none.
inline std::string difference(const Program& program, const std::vector<Tensor>& values,
                              const std::vector<Tensor>& outputs) {
  for (size_t o = 0; o < outputs.size(); o++) {
    const Tensor& want = values[static_cast<size_t>(program.outputs[o])];
    int64_t first = -1, count = 0;
    for (int64_t i = 0; i < want.numel(); i++)
      if (!is_same(outputs[o], want, i) && count++ == 0) first = i;
    if (count == 0) continue;
    std::string text = "output " + std::to_string(o) + ": " + std::to_string(count) + " of " +
                       std::to_string(want.numel()) + " differ; element " + std::to_string(first) +
                       " is " + bits_text(outputs[o], first) + ", should be " +
                       bits_text(want, first) + "; all values of it:";
    for (size_t v = 0; v < values.size(); v++)
      text += "\n    v" + std::to_string(v) + " = " + bits_text(values[v], first);
    return text;
  }
  return "";
}

// Bytes of the storage that belong to no element of the view.
inline bool has_whole_gaps(const Tensor& t) {
  std::vector<uint8_t> bytes = t.storage->host;
  if (bytes.empty()) return true;
  const auto item = static_cast<size_t>(item_size(t.dtype));
  for (int64_t i = 0; i < t.numel(); i++)
    memset(bytes.data() + (t.raw(i) - t.storage->host.data()), kUntouched, item);
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == kUntouched; });
}

inline void check(const std::string& label, const Program& program,
                  const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs) {
  const std::vector<Tensor> values = run_steps(program, inputs, outputs[0].sizes);
  ErrorText error;
  std::string fault;
  if (!run(kName, inputs, outputs, program.words(), &error).ok())
    fault = error.text;
  else
    fault = difference(program, values, outputs);
  for (size_t o = 0; fault.empty() && o < outputs.size(); o++)
    if (!has_whole_gaps(outputs[o]))
      fault = "output " + std::to_string(o) + ": it wrote between the elements";
  report(kName, fault.empty(), label + ": " + fault);
  if (fault.empty()) return;
  printf("FAIL %s: %s\n", label.c_str(), fault.c_str());
  explain(program, inputs, outputs);
}

// ---- for all tests ------------------------------------------------------------------------------

constexpr ComputeType kFloat = ComputeType::Float;

inline Program swiglu(DType dtype) {
  return {
      {{"silu", kFloat, dtype, {value(0)}, {}}, {"mul", kFloat, dtype, {value(2), value(1)}, {}}},
      {3}};
}

// Of the gradient, gate and up: the gradients of gate and up.
inline Program swiglu_backward(DType dtype) {
  return {{{"silu", kFloat, dtype, {value(1)}, {}},
           {"mul", kFloat, dtype, {value(0), value(3)}, {}},
           {"mul", kFloat, dtype, {value(0), value(2)}, {}},
           {"silu_backward", kFloat, dtype, {value(5), value(1)}, {}}},
          {6, 4}};
}

// NVRTC by SHARDWISE_NVRTC_PATH (a file), else where the loader finds it.
inline bool find_nvrtc() {
  static const bool found = [] {
    if (const char* path = getenv("SHARDWISE_NVRTC_PATH")) nvrtc::look_at(path);
    const bool available = fused::is_available(0);
    printf("%s NVRTC: %s\n", available ? "found" : "FAIL without", nvrtc::report());
    return available;
  }();
  if (!found) report(kName, false, "there is no NVRTC: set SHARDWISE_NVRTC_PATH to a file");
  return found;
}

inline double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace selftest::bytes
