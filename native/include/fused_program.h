// Programs of the kernel fused_pointwise: pointwise ops and conversions over one iteration space.
// The parameters of a call are the program (lib/ops/fused-pointwise.ts writes it), all doubles:
//
//   numSteps
//   per step: op, computeType, result dtype, numOperands, (kind, value) of each operand,
//             numParams, the parameters
//   the number of the value that each output stores
//
// `op` is the id of a pointwise kernel, or -1 for a conversion: the operand itself. Values have
// numbers: the inputs, then the steps. An operand of kind 0 is the value of that number, which
// comes before the step, one of kind 1 is the number itself. A step converts its operands to its
// compute type, and rounds its result to its dtype as if it were stored and loaded again.
//
// Inputs, then outputs, are tensors of the same sizes with strides of their own.
#pragma once
#include <cmath>

#include "kernel_call.h"

namespace shardwise {

constexpr int32_t kMaxFusedOperands = 24;  // inputs and outputs
constexpr int32_t kMaxFusedSteps = 64;
constexpr int32_t kMaxFusedParams = 5;  // of a step
constexpr int32_t kMaxFusedArity = 3;

enum class FusedClass : int32_t { F, A, I };  // compute types, as in generated/pointwise_ops.inc

struct FusedOp {
  const char* name;
  int32_t arity;
  FusedClass classes;
  bool boolean;  // the result is bool
};

#define SW_RESULT_SAME false
#define SW_RESULT_BOOL true
#define SW_POINTWISE(name, arity, classes, result, expression) \
  {#name, arity, FusedClass::classes, SW_RESULT_##result},
constexpr FusedOp kFusedOps[] = {
#include "../generated/pointwise_ops.inc"
};
#undef SW_POINTWISE
#undef SW_RESULT_SAME
#undef SW_RESULT_BOOL
constexpr int32_t kNumFusedOps = sizeof kFusedOps / sizeof *kFusedOps;

constexpr const char* kKernelNames[] = {
#define SW_KERNEL(id, name) #name,
#include "../generated/kernel_table.def"
#undef SW_KERNEL
};
constexpr int32_t kNumKernelNames = sizeof kKernelNames / sizeof *kKernelNames;

// The place in pointwise_ops.inc of the pointwise op with a kernel id, or -1.
inline int32_t fused_op_of(int32_t kernel) {
  struct Places {
    int32_t of[kNumKernelNames];
    Places() {  // both lists are in the order of names
      int32_t next = 0;
      for (int32_t id = 0; id < kNumKernelNames; id++) {
        const bool known = next < kNumFusedOps && !strcmp(kKernelNames[id], kFusedOps[next].name);
        of[id] = known ? next++ : -1;
      }
    }
  };
  static const Places places;
  return kernel >= 0 && kernel < kNumKernelNames ? places.of[kernel] : -1;
}

struct FusedOperand {
  bool is_number;
  int32_t value;  // of a value: its number
  double number;
};

struct FusedStep {
  int32_t op;  // its place in pointwise_ops.inc and kFusedOps, or -1: a conversion
  ComputeType compute;
  DType dtype;
  int32_t num_operands;
  FusedOperand operands[kMaxFusedArity];
  double params[kMaxFusedParams];  // 0 behind those given
};

struct FusedProgram {
  int32_t num_inputs, num_steps, num_outputs;
  DType dtypes[kMaxFusedOperands + kMaxFusedSteps];  // by number of the value
  FusedStep steps[kMaxFusedSteps];
  int32_t outputs[kMaxFusedOperands];  // the value that each stores
};

namespace fused {

inline Status malformed(const KernelCall& call, const char* what, int32_t at) {
  return fail(call.error, Code::Invalid, "malformed program of fused_pointwise: %s (%d)", what, at);
}

class Reader {
 public:
  explicit Reader(const KernelCall& call) : call_(call) {}
  bool number(double* out) {
    if (at_ >= call_.num_params) return false;
    *out = call_.params[at_++];
    return true;
  }
  // A whole number from `least` on and below `end`.
  bool whole(int32_t* out, int32_t least, int32_t end) {
    double value;
    if (!number(&value) || !(value >= least && value < end) || std::trunc(value) != value)
      return false;
    *out = static_cast<int32_t>(value);
    return true;
  }
  bool is_at_end() const { return at_ == call_.num_params; }

 private:
  const KernelCall& call_;
  int32_t at_ = 0;
};

inline Status check_operands(const KernelCall& call) {
  const int32_t count = call.num_inputs + call.num_outputs;
  if (call.num_outputs < 1 || count > kMaxFusedOperands)
    return malformed(call, "number of operands", count);
  const TensorView& first = call.output(0);
  for (int32_t i = 0; i < count; i++) {
    const TensorView& view = call.tensors[i];
    if (view.is_immediate || view.ndim != first.ndim) return malformed(call, "operand", i);
    for (int32_t d = 0; d < view.ndim; d++)
      if (view.sizes[d] != first.sizes[d]) return malformed(call, "sizes of operand", i);
  }
  return kOk;
}

inline bool computes(const FusedOp& op, ComputeType type) {
  if (op.classes == FusedClass::A) return true;
  return (op.classes == FusedClass::I) == (type == ComputeType::Int64);
}

inline bool read_operand(Reader& in, int32_t num_values, FusedOperand* out) {
  int32_t kind;
  if (!in.whole(&kind, 0, 2)) return false;
  out->is_number = kind == 1;
  out->value = -1;
  out->number = 0;
  return out->is_number ? in.number(&out->number) : in.whole(&out->value, 0, num_values);
}

inline bool read_step(Reader& in, int32_t num_values, FusedStep* step) {
  int32_t kernel, compute, dtype, num_params;
  if (!in.whole(&kernel, -1, INT32_MAX) || !in.whole(&compute, 0, 3) ||
      !in.whole(&dtype, 0, kNumDTypes) || !in.whole(&step->num_operands, 1, kMaxFusedArity + 1))
    return false;
  step->compute = static_cast<ComputeType>(compute);
  step->dtype = static_cast<DType>(dtype);
  step->op = fused_op_of(kernel);
  if (kernel >= 0) {
    if (step->op < 0) return false;
    const FusedOp& op = kFusedOps[step->op];
    if (op.arity != step->num_operands || !computes(op, step->compute)) return false;
    if (op.boolean && step->dtype != DType::Bool) return false;
  } else if (step->num_operands != 1) {
    return false;
  }
  for (int32_t i = 0; i < step->num_operands; i++)
    if (!read_operand(in, num_values, &step->operands[i])) return false;
  if (!in.whole(&num_params, 0, kMaxFusedParams + 1)) return false;
  for (int32_t i = 0; i < kMaxFusedParams; i++) {
    step->params[i] = 0;
    if (i < num_params && !in.number(&step->params[i])) return false;
  }
  return true;
}

}  // namespace fused

// Reads and checks the program and the operands of a call: whatever the parameters are, a program
// that is returned as Ok is complete and refers to what exists.
inline Status decode(const KernelCall& call, FusedProgram& program) {
  const Status status = fused::check_operands(call);
  if (!status.ok()) return status;
  fused::Reader in(call);
  if (!in.whole(&program.num_steps, 1, kMaxFusedSteps + 1))
    return fused::malformed(call, "number of steps", 0);
  program.num_inputs = call.num_inputs;
  program.num_outputs = call.num_outputs;
  for (int32_t i = 0; i < call.num_inputs; i++) program.dtypes[i] = call.input(i).dtype;
  int32_t values = call.num_inputs;
  for (int32_t i = 0; i < program.num_steps; i++) {
    if (!fused::read_step(in, values, &program.steps[i])) return fused::malformed(call, "step", i);
    program.dtypes[values++] = program.steps[i].dtype;
  }
  for (int32_t i = 0; i < call.num_outputs; i++)
    if (!in.whole(&program.outputs[i], 0, values) ||
        call.output(i).dtype != program.dtypes[program.outputs[i]])
      return fused::malformed(call, "output", i);
  return in.is_at_end() ? kOk : fused::malformed(call, "parameters left over", call.num_params);
}

}  // namespace shardwise

// A symbol of cuda-backend.so: whether fused_pointwise runs on a device, so that graphs may be
// fused for it. The CPU's always does.
extern "C" bool shardwise_can_fuse(int32_t device);
