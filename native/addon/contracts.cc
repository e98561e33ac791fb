#include "contracts.h"

#include <cmath>

namespace shardwise {

namespace {

// ---- the rows of the generated table ----

enum class Shape : uint8_t {
  AtLeast,   // any sizes, then the `ndim` named dims
  Dims,      // exactly the named dims
  Same,      // the sizes of operand `of`
  SameRest,  // those of operand `of` before the `ndim` named dims
  Numel,     // as many elements as dims[0]
  NumelOf,   // as many elements as the operand at the same place in list `of`
};

constexpr uint8_t kOptional = 1, kDense = 2, kIndexView = 4, kAccumulated = 8;  // flags
constexpr uint16_t bit(DType dtype) { return uint16_t(1u << static_cast<int32_t>(dtype)); }
constexpr uint16_t kFloats =
    bit(DType::Float32) | bit(DType::Float64) | bit(DType::Float16) | bit(DType::BFloat16);
constexpr uint16_t kInt64 = bit(DType::Int64), kBool = bit(DType::Bool), kAnyDType = 0xffff;

// An operand: inputs from 0 on, outputs from -1 down.
using OperandIndex = int8_t;
constexpr OperandIndex kNone = INT8_MIN;

struct OperandRule {
  Shape shape;
  uint8_t flags;
  uint16_t dtypes;          // one bit each
  OperandIndex same_dtype;  // whose dtype it has, or none
  OperandIndex of;
  int8_t ndim;
  int8_t dims[4];  // slots of named dims; -1 - n is the size n
};

constexpr int32_t kMostDims = 8;

struct Operands {
  const KernelCall& call;
  int64_t dims[kMostDims];
  uint32_t bound = 0;  // which dims are known

  const TensorView& operator[](int32_t i) const {
    return call.tensors[i >= 0 ? i : call.num_inputs - 1 - i];
  }
  double param(int32_t i) const { return call.params[i]; }
  // A dim gets its size at its first use, and has it in all others.
  bool fits(int8_t dim, int64_t size) {
    if (dim < 0) return size == -1 - dim;
    const uint32_t mask = 1u << dim;
    if (bound & mask) return dims[dim] == size;
    bound |= mask;
    dims[dim] = size;
    return true;
  }
};

// Arguments are operands, dims, parameters or numbers: see `relations` in lib/core/operands.ts.
using Relation = bool (*)(const Operands&, const int8_t* args);

struct RelationRule {
  Relation holds;
  int8_t args[4];
};

// A dim that is a kernel parameter.
struct ParamDim {
  int8_t dim, param;
};

// Lists come after the single inputs, each of as many operands as the parameter `count` says.
struct Signature {
  int8_t inputs, lists, outputs, count;
  int16_t first_operand, first_relation;
  int8_t num_relations;
  int16_t first_param_dim;
  int8_t num_param_dims;
  const char* text;
};

struct Contract {
  int16_t signature, other;  // -1: none
  bool overwrites;
};

// ---- relations ----

// A parameter that counts something, or -1 where it cannot.
int64_t count_of(double value, int64_t most) {
  return value >= 0 && value <= static_cast<double>(most) && std::trunc(value) == value
             ? static_cast<int64_t>(value)
             : -1;
}

int64_t numel_between(const TensorView& v, int64_t from, int64_t to) {
  int64_t n = 1;
  for (int64_t d = from; d < to; d++) n *= v.sizes[d];
  return n;
}

bool below(const Operands& o, const int8_t* args) {
  return count_of(o.param(args[0]), args[1] - 1) >= 0;
}

bool atMost(const Operands& o, const int8_t* args) { return o.dims[args[0]] <= o.dims[args[1]]; }

bool divides(const Operands& o, const int8_t* args) {
  const int64_t divisor = o.dims[args[0]], n = o.dims[args[1]];
  return divisor == 0 ? n == 0 : n % divisor == 0;
}

bool rank(const Operands& o, const int8_t* args) { return o[args[0]].ndim == o.dims[args[1]]; }

bool within(const Operands& o, const int8_t* args) {
  const TensorView &inner = o[args[0]], &outer = o[args[1]];
  if (inner.ndim != outer.ndim) return false;
  for (int32_t d = 0; d + 1 < inner.ndim; d++)
    if (inner.sizes[d] > outer.sizes[d]) return false;
  return true;
}

bool reducesTo(const Operands& o, const int8_t* args) {
  const TensorView& x = o[args[0]];
  const int64_t reduced = count_of(o.param(args[2]), x.ndim);
  return reduced >= 0 && o[args[1]].numel == numel_between(x, 0, x.ndim - reduced);
}

bool slices(const Operands& o, const int8_t* args) {
  const TensorView& x = o[args[0]];
  const int64_t count = count_of(o.param(args[2]), x.ndim);
  if (count < 1) return false;
  const double numel =
      static_cast<double>(o.dims[args[3]]) * static_cast<double>(numel_between(x, count, x.ndim));
  return static_cast<double>(o[args[1]].numel) == numel;
}

// A start for each tile and one behind the last, and a word of flags for each 64 elements: tiles
// end where words do.
bool tiles(const Operands& o, const int8_t* args) {
  const int64_t tile = count_of(o.param(args[3]), int64_t(1) << 52), numel = o[args[2]].numel;
  if (tile < 64 || tile % 64 != 0) return false;
  return o[args[0]].numel == numel / tile + (numel % tile != 0) + 1 &&
         o[args[1]].numel == numel / 64 + (numel % 64 != 0);
}

#include "../generated/contracts.inc"

// ---- the checker ----

bool same_sizes(const TensorView& a, const TensorView& b, int32_t but_last) {
  if (a.ndim != b.ndim) return false;
  for (int32_t d = 0; d < a.ndim - but_last; d++)
    if (a.sizes[d] != b.sizes[d]) return false;
  return true;
}

bool last_dims_fit(const OperandRule& rule, Operands& o, const TensorView& v) {
  if (v.ndim < rule.ndim) return false;
  const int64_t* sizes = v.sizes + (v.ndim - rule.ndim);
  for (int32_t d = 0; d < rule.ndim; d++)
    if (!o.fits(rule.dims[d], sizes[d])) return false;
  return true;
}

bool dtype_fits(const OperandRule& rule, const Operands& o, const TensorView& v) {
  if (!(rule.dtypes & bit(v.dtype))) return false;
  if (rule.same_dtype == kNone) return true;
  const DType dtype = o[rule.same_dtype].dtype;
  if (!(rule.flags & kAccumulated)) return v.dtype == dtype;
  return v.dtype == (dtype == DType::Float64 ? DType::Float64 : DType::Float32);
}

// `of` is the operand that the rule refers to.
bool operand_fits(const OperandRule& rule, Operands& o, const TensorView& v, int32_t of) {
  if (v.is_immediate != ((rule.flags & kIndexView) != 0))
    return v.is_immediate && (rule.flags & kOptional);
  if (!dtype_fits(rule, o, v)) return false;
  if ((rule.flags & kDense) && v.numel > 0 && !v.is_contiguous()) return false;
  switch (rule.shape) {
    case Shape::AtLeast:
      return last_dims_fit(rule, o, v);
    case Shape::Dims:
      return v.ndim == rule.ndim && last_dims_fit(rule, o, v);
    case Shape::Same:
      return v.ndim >= rule.ndim && same_sizes(v, o[of], 0);
    case Shape::SameRest:
      return last_dims_fit(rule, o, v) && same_sizes(v, o[of], rule.ndim);
    case Shape::Numel:
      return o.fits(rule.dims[0], v.numel);
    case Shape::NumelOf:
      return v.numel == o[of].numel;
  }
  return false;
}

// The single inputs and the outputs are counted from `rules`, `lists` of `count` operands between.
bool lists_fit(const Signature& s, const OperandRule* rules, Operands& o, int64_t count) {
  const int64_t listed = s.lists * count;
  if (count < 0 || s.inputs + listed != o.call.num_inputs) return false;
  for (int64_t i = 0; i < listed; i++) {
    const OperandRule& rule = rules[s.inputs + i / count];
    const int64_t of = rule.of < s.inputs ? rule.of : s.inputs + (rule.of - s.inputs) * count;
    const bool in_list = rule.shape == Shape::NumelOf;
    if (!operand_fits(rule, o, o[static_cast<int32_t>(s.inputs + i)],
                      static_cast<int32_t>(in_list ? of + i % count : of)))
      return false;
  }
  return true;
}

bool fits(const Signature& s, const KernelCall& call) {
  Operands o{call, {}};
  for (int32_t i = 0; i < s.num_param_dims; i++) {
    const ParamDim& given = kParamDims[s.first_param_dim + i];
    o.fits(given.dim, count_of(call.params[given.param], int64_t(1) << 52));
  }
  const OperandRule* rules = &kOperands[s.first_operand];
  for (int32_t i = 0; i < s.inputs; i++)
    if (!operand_fits(rules[i], o, o[i], rules[i].of)) return false;
  if (s.lists > 0 && !lists_fit(s, rules, o, count_of(call.params[s.count], call.num_inputs)))
    return false;
  for (int32_t i = 0; i < s.outputs; i++) {
    const OperandRule& rule = rules[s.inputs + s.lists + i];
    if (!operand_fits(rule, o, call.output(i), rule.of)) return false;
  }
  for (int32_t i = 0; i < s.num_relations; i++) {
    const RelationRule& relation = kRelations[s.first_relation + i];
    if (!relation.holds(o, relation.args)) return false;
  }
  return true;
}

bool counts(const Signature& s, const KernelCall& call) {
  return (s.lists > 0 || s.inputs == call.num_inputs) && s.outputs == call.num_outputs;
}

}  // namespace

Status check_contract(const KernelCall& call, const KernelEntry* kernels, ErrorText* error) {
  const Contract& contract = kContracts[call.kernel];
  const Signature* expected = &kSignatures[contract.signature];
  if (contract.other >= 0 && !counts(*expected, call)) expected = &kSignatures[contract.other];
  if (counts(*expected, call) && fits(*expected, call)) return kOk;
  return fail(error, Code::Invalid,
              "malformed command: %d inputs and %d outputs of these sizes and dtypes do not fit "
              "the kernel %s, which expects %s",
              call.num_inputs, call.num_outputs, kernels[call.kernel].name, expected->text);
}

bool overwrites_outputs(int32_t kernel) { return kContracts[kernel].overwrites; }

}  // namespace shardwise
