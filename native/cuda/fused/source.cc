// Writes a kernel as text: the headers that it needs (embedded by CMake), the expressions of its
// ops, and a function of four parts: offsets, loads, steps of each element, stores.
//
// A thread has either a vector of `width` elements, or kScattered elements 256 apart (layout.h).
// Values are v0, v1, ... as in the program, the results before they are rounded r0, r1, ...
#include "source.h"

#include <cstdarg>
#include <cstdint>
#include <cstring>

namespace shardwise::cuda::fused {
namespace {

constexpr const char* kHeaders =
#include "fused_headers.inc"
    ;

// The types of <cstdint>, which NVRTC does not have.
constexpr const char* kIntegerTypes = R"(namespace shardwise::cuda {
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
}
)";

constexpr const char* kExpressions[] = {
#define SW_POINTWISE(name, arity, classes, result, expression) #expression,
#include "../../generated/pointwise_ops.inc"
#undef SW_POINTWISE
};

const char* element_type(DType dtype) {  // of elements.cuh
  return dtype == DType::Bool ? "boolean" : dtype_name(dtype);
}

const char* compute_type(ComputeType type) {
  constexpr const char* names[] = {"float", "double", "int64_t"};
  return names[static_cast<int32_t>(type)];
}

__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...) {
  char buffer[512];
  va_list args;
  va_start(args, format);
  vsnprintf(buffer, sizeof buffer, format, args);
  va_end(args);
  return buffer;
}

// number_as of primitives/dtype.cuh: integers saturate, NaN is 0.
int64_t saturated(double value) {
  if (value >= 9223372036854775807.0) return INT64_MAX;
  if (value <= -9223372036854775808.0) return INT64_MIN;
  return value == value ? static_cast<int64_t>(value) : 0;
}

// Declares a number that the compiler does not see, so that it treats the expression as that of the
// op's own kernel, which gets numbers at run time. The assembler sees it.
std::string declare_number(const std::string& name, ComputeType type, double value) {
  if (type == ComputeType::Float) {
    const float number = static_cast<float>(value);
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return text("  float %s;\n  asm(\"mov.b32 %%0, 0x%08x;\" : \"=f\"(%s));\n", name.c_str(), bits,
                name.c_str());
  }
  uint64_t bits;
  const int64_t integer = saturated(value);
  memcpy(&bits, type == ComputeType::Double ? static_cast<const void*>(&value) : &integer,
         sizeof bits);
  return text("  %s %s;\n  asm(\"mov.b64 %%0, 0x%016llx;\" : \"=%c\"(%s));\n", compute_type(type),
              name.c_str(), static_cast<unsigned long long>(bits),
              type == ComputeType::Double ? 'd' : 'l', name.c_str());
}

std::string number_name(int32_t step, char kind, int32_t index) {
  return text("n%d%c%d", step, kind, index);
}

class Writer {
 public:
  Writer(const FusedProgram& program, const Layout& layout)
      : p_(program), layout_(layout), width_(layout.elements_of_thread()) {
    find_uses();
  }

  Source write() {
    const std::string name = kernel_name();
    out_ += kIntegerTypes;
    out_ += kHeaders;
    out_ += "namespace shardwise::cuda::fused {\n";
    write_ops();
    write_arguments();
    add("extern \"C\" __global__ void __launch_bounds__(%d)\n%s(const __grid_constant__ Arguments "
        "args) {\n",
        kThreads, name.c_str());
    write_index();
    write_offsets();
    out_ += "  begin_grid();\n";
    for (int32_t i = 0; i < p_.num_inputs; i++)
      if (is_used_[i]) write_load(i);
    write_numbers();
    for (int32_t i = 0; i < p_.num_outputs; i++)
      add("  %s o%d[%d];\n", result_type(p_.outputs[i]), i, width_);
    add("#pragma unroll\n  for (int j = 0; j < %d; j++) {\n", width_);
    write_steps();
    out_ += "  }\n";
    for (int32_t i = 0; i < p_.num_outputs; i++) write_store(i);
    out_ += "}\n}\n";
    return {name, out_};
  }

 private:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    char buffer[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    out_ += buffer;
  }

  bool has_vectors() const { return layout_.width > 1; }
  const FusedStep& step_of(int32_t value) const { return p_.steps[value - p_.num_inputs]; }
  const char* dtype_of(int32_t value) const { return element_type(p_.dtypes[value]); }

  // What is computed for an output or a later step.
  void find_uses() {
    for (int32_t i = 0; i < p_.num_outputs; i++) is_used_[p_.outputs[i]] = true;
    for (int32_t value = p_.num_inputs + p_.num_steps - 1; value >= p_.num_inputs; value--) {
      const FusedStep& step = step_of(value);
      for (int32_t k = 0; is_used_[value] && k < step.num_operands; k++)
        if (!step.operands[k].is_number) is_used_[step.operands[k].value] = true;
    }
  }

  // What an output of this value is rounded from.
  const char* result_type(int32_t value) const {
    if (value >= p_.num_inputs) return compute_type(step_of(value).compute);
    switch (p_.dtypes[value]) {
      case DType::Float64:
        return "double";
      case DType::Bool:
        return "bool";
      default:
        return is_floating(p_.dtypes[value]) ? "float" : "int64_t";
    }
  }

  std::string kernel_name() const {
    std::string name = "fused";
    for (int32_t i = 0; i < p_.num_steps && name.size() < 60; i++)
      if (p_.steps[i].op >= 0) name += std::string("_") + kFusedOps[p_.steps[i].op].name;
    return name;
  }

  void write_ops() {
    bool is_written[kNumFusedOps] = {};
    for (int32_t i = 0; i < p_.num_steps; i++) {
      const int32_t op = p_.steps[i].op;
      if (op < 0 || is_written[op]) continue;
      is_written[op] = true;
      add("struct %s_op {\n"
          "  template <class T>\n"
          "  static __device__ __forceinline__ auto apply(T x, T y, T z, T p0, T p1, T p2, T p3) "
          "{\n"
          "    return %s;\n"
          "  }\n};\n",
          kFusedOps[op].name, kExpressions[op]);
    }
  }

  int32_t num_strided() const {
    int32_t count = 0;
    for (int32_t i = 0; i < layout_.num_operands; i++) count += layout_.is_strided(i);
    return count;
  }

  void write_arguments() {
    add("struct Arguments {\n  int64_t count;\n  uint32_t zero, unused;\n  char* data[%d];\n",
        layout_.num_operands);
    if (layout_.ndim > 1) add("  Divide sizes[%d];\n", layout_.ndim - 1);
    if (layout_.ndim > 0) add("  int64_t strides[%d][%d];\n", layout_.ndim, num_strided());
    out_ += "};\n";
  }

  void write_index() {
    add("  const int64_t thread = static_cast<int64_t>(blockIdx.x) * %d + threadIdx.x;\n",
        has_vectors() ? kThreads : kThreads * kScattered);
    if (has_vectors()) {
      add("  const int64_t left = args.count - thread * %d;\n  if (left <= 0) return;\n", width_);
      if (layout_.has_tail) add("  const bool whole = left >= %d;\n", width_);
      return;
    }
    add("  int64_t index[%d];\n  bool valid[%d];\n#pragma unroll\n"
        "  for (int j = 0; j < %d; j++) {\n"
        "    index[j] = thread + j * %d;\n"
        "    valid[j] = index[j] < args.count;\n"
        "    if (!valid[j]) index[j] = args.count - 1;\n"
        "  }\n",
        width_, width_, width_, kThreads);
  }

  // The offsets of strided operands, in bytes: at0, at1, ... in the order of the strides.
  void write_offsets() {
    if (layout_.ndim == 0) return;
    const int32_t strided = num_strided();
    for (int32_t i = 0; i < strided; i++)
      add(has_vectors() ? "  int64_t at%d = 0;\n" : "  int64_t at%d[4] = {};\n", i);
    if (!has_vectors()) add("#pragma unroll\n  for (int j = 0; j < %d; j++) {\n", width_);
    const char* from = has_vectors() ? "thread" : "index[j]";
    const char* element = has_vectors() ? "" : "[j]";
    add("  %s rest = static_cast<%s>(%s);\n", index_type(), index_type(), from);
    for (int32_t d = 0; d < layout_.ndim; d++) {
      if (d + 1 < layout_.ndim)
        add("  const int64_t c%d = args.sizes[%d].remainder(rest);\n", d, d);
      else
        add("  const int64_t c%d = rest;\n", d);
      for (int32_t i = 0; i < strided; i++)
        add("  at%d%s += c%d * args.strides[%d][%d];\n", i, element, d, d, i);
    }
    if (!has_vectors()) out_ += "  }\n";
  }

  const char* index_type() const { return layout_.ndim > 1 ? "uint32_t" : "int64_t"; }

  // Where the vector of an operand starts, or its element j.
  std::string address(int32_t operand, const char* type) const {
    switch (layout_.access[operand]) {
      case Access::Scalar:
        return text("args.data[%d]", operand);
      case Access::Linear:
        return has_vectors()
                   ? text("args.data[%d] + thread * (%d * %s::bytes)", operand, width_, type)
                   : text("args.data[%d] + index[j] * %s::bytes", operand, type);
      default: {
        int32_t place = 0;
        for (int32_t i = 0; i < operand; i++) place += layout_.is_strided(i);
        return text("args.data[%d] + at%d%s", operand, place, has_vectors() ? "" : "[j]");
      }
    }
  }

  bool is_single(int32_t operand) const {  // one element for all of a thread
    return layout_.access[operand] == Access::Scalar || layout_.access[operand] == Access::Splat;
  }

  void write_load(int32_t i) {
    const char* type = dtype_of(i);
    const std::string from = address(i, type);
    if (is_single(i)) {
      add("  uint32_t x%d[words_of(%s::bytes)];\n  load<%s::bytes>(x%d, %s);\n", i, type, type, i,
          from.c_str());
    } else if (!has_vectors()) {
      add("  uint32_t x%d[%d][words_of(%s::bytes)];\n#pragma unroll\n"
          "  for (int j = 0; j < %d; j++) load<%s::bytes>(x%d[j], %s);\n",
          i, width_, type, width_, type, i, from.c_str());
    } else {
      add("  uint32_t x%d[words_of(%s::bytes * %d)];\n", i, type, width_);
      if (layout_.has_tail) out_ += "  if (whole)\n  ";
      add("  load<%s::bytes * %d>(x%d, %s);\n", type, width_, i, from.c_str());
      if (layout_.has_tail)
        add("  else\n    load_some<%s, %d>(x%d, %s, left);\n", type, width_, i, from.c_str());
    }
  }

  void write_numbers() {
    for (int32_t s = 0; s < p_.num_steps; s++) {
      const FusedStep& step = p_.steps[s];
      if (!is_used_[p_.num_inputs + s]) continue;
      for (int32_t k = 0; k < step.num_operands; k++)
        if (step.operands[k].is_number)
          out_ += declare_number(number_name(s, 'x', k), step.compute, step.operands[k].number);
      if (step.op < 0) continue;
      for (int32_t k = 0; k < 4; k++)
        if (reads_param(step.op, k))
          out_ += declare_number(number_name(s, 'p', k), step.compute, step.params[k]);
    }
  }

  static bool reads_param(int32_t op, int32_t index) {
    return strstr(kExpressions[op], text("p%d", index).c_str()) != nullptr;
  }

  void write_steps() {
    for (int32_t i = 0; i < p_.num_inputs; i++) {
      if (!is_used_[i]) continue;
      const bool scattered = !has_vectors() && !is_single(i);
      add("    const auto v%d = %s::get(x%d%s, %s);\n", i, dtype_of(i), i, scattered ? "[j]" : "",
          has_vectors() && !is_single(i) ? "j" : "0");
    }
    for (int32_t s = 0; s < p_.num_steps; s++)
      if (is_used_[p_.num_inputs + s]) write_step(s);
    for (int32_t i = 0; i < p_.num_outputs; i++) {
      const int32_t value = p_.outputs[i];
      add("    o%d[j] = %c%d;\n", i, value < p_.num_inputs ? 'v' : 'r', value);
    }
  }

  std::string operand(int32_t s, int32_t k) const {
    const FusedStep& step = p_.steps[s];
    if (k >= step.num_operands) return text("%s(0)", compute_type(step.compute));
    if (step.operands[k].is_number) return number_name(s, 'x', k);
    const std::string value =
        text("static_cast<%s>(v%d)", compute_type(step.compute), step.operands[k].value);
    return step.op < 0 ? value : text("apart<%d>(%s)", s * kMaxFusedArity + k, value.c_str());
  }

  void write_step(int32_t s) {
    const FusedStep& step = p_.steps[s];
    const int32_t value = p_.num_inputs + s;
    const char* compute = compute_type(step.compute);
    std::string result = operand(s, 0);
    if (step.op >= 0) {
      result =
          text("static_cast<%s>(%s_op::apply(%s", compute, kFusedOps[step.op].name, result.c_str());
      for (int32_t k = 1; k < kMaxFusedArity; k++) result += ", " + operand(s, k);
      for (int32_t k = 0; k < 4; k++)
        result +=
            reads_param(step.op, k) ? ", " + number_name(s, 'p', k) : text(", %s(0)", compute);
      result += "))";
    }
    add("    const %s r%d = %s;\n", compute, value, result.c_str());
    const std::string rounded = text("%s::round(r%d)", dtype_of(value), value);
    add(may_fuse_with_next(step) ? "    const auto v%d = sealed(%s, args.zero);\n"
                                 : "    const auto v%d = %s;\n",
        value, rounded.c_str());
  }

  // Whether nothing but a seal is between the last operation of a step and the first of the next.
  static bool may_fuse_with_next(const FusedStep& step) {
    return step.op >= 0 && !kFusedOps[step.op].boolean &&
           ((step.compute == ComputeType::Float && step.dtype == DType::Float32) ||
            (step.compute == ComputeType::Double && step.dtype == DType::Float64));
  }

  void write_store(int32_t i) {
    const int32_t operand = p_.num_inputs + i;
    const char* type = dtype_of(p_.outputs[i]);
    const std::string to = address(operand, type);
    if (!has_vectors()) {
      add("#pragma unroll\n  for (int j = 0; j < %d; j++) {\n"
          "    uint32_t words[words_of(%s::bytes)];\n"
          "    const %s one[1] = {o%d[j]};\n"
          "    pack<%s>(one, words);\n"
          "    if (valid[j]) store<%s::bytes>(%s, words);\n  }\n",
          width_, type, result_type(p_.outputs[i]), i, type, type, to.c_str());
      return;
    }
    add("  uint32_t y%d[words_of(%s::bytes * %d)];\n  pack<%s>(o%d, y%d);\n", i, type, width_, type,
        i, i);
    if (layout_.has_tail) out_ += "  if (whole)\n  ";
    add("  store<%s::bytes * %d>(%s, y%d);\n", type, width_, to.c_str(), i);
    if (layout_.has_tail)
      add("  else\n    store_some<%s, %d>(%s, y%d, left);\n", type, width_, to.c_str(), i);
  }

  const FusedProgram& p_;
  const Layout& layout_;
  const int32_t width_;  // elements of a thread
  bool is_used_[kMaxFusedOperands + kMaxFusedSteps] = {};
  std::string out_;
};

}  // namespace

int32_t widest_vector(const KernelCall& call) {
  int32_t width = 8;
  for (int32_t i = 0; i < call.num_outputs; i++) {
    const auto fits = static_cast<int32_t>(16 / item_size(call.output(i).dtype));
    width = fits < width ? fits : width;
  }
  constexpr double kMostUnrolled = 192;  // steps
  while (width > 2 && width * call.params[0] > kMostUnrolled) width /= 2;
  return width;
}

Source write_source(const FusedProgram& program, const Layout& layout) {
  return Writer(program, layout).write();
}

std::string describe(const FusedProgram& program) {
  std::string lines;
  for (int32_t i = 0; i < program.num_inputs; i++)
    lines += text("v%d: %s\n", i, dtype_name(program.dtypes[i]));
  for (int32_t s = 0; s < program.num_steps; s++) {
    const FusedStep& step = program.steps[s];
    lines += text("v%d: %s = %s(", program.num_inputs + s, dtype_name(step.dtype),
                  step.op < 0 ? "convert" : kFusedOps[step.op].name);
    for (int32_t k = 0; k < step.num_operands; k++) {
      lines += k == 0 ? "" : ", ";
      lines += step.operands[k].is_number ? text("%.17g", step.operands[k].number)
                                          : text("v%d", step.operands[k].value);
    }
    for (int32_t k = 0; step.op >= 0 && k < 4; k++)
      if (strstr(kExpressions[step.op], text("p%d", k).c_str()))
        lines += text(", p%d = %.17g", k, step.params[k]);
    lines += text(") in %s\n", compute_type(step.compute));
  }
  lines += "outputs:";
  for (int32_t i = 0; i < program.num_outputs; i++) lines += text(" v%d", program.outputs[i]);
  return lines + "\n";
}

}  // namespace shardwise::cuda::fused
