#include "contracts.h"

#include <array>
#include <cmath>
#include <utility>

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

constexpr uint8_t kOptional = 1, kDense = 2, kIndexView = 4, kAccumulated = 8,
                  kIndices = 16;  // flags
constexpr uint16_t bit(DType dtype) { return uint16_t(1u << static_cast<int32_t>(dtype)); }
constexpr uint16_t kFloats =
    bit(DType::Float32) | bit(DType::Float64) | bit(DType::Float16) | bit(DType::BFloat16);
constexpr uint16_t kFloat64 = bit(DType::Float64), kInt64 = bit(DType::Int64),
                   kBool = bit(DType::Bool), kAnyDType = 0xffff;

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
  uint32_t bound = 0;  // which dims are known
  int64_t dims[kMostDims] = {};

  explicit Operands(const KernelCall& given) : call(given) {}

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
  int16_t signature, other;  // -1: none; without any, the kernel checks its operands
  bool overwrites, has_indices;
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

bool inside(const Operands& o, const int8_t* args) {
  const int64_t first = count_of(o.param(args[0]), o.dims[args[2]]);
  return first >= 0 && o.dims[args[1]] <= o.dims[args[2]] - first;
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

// ---- the checker: one function for each signature, with its rows as constants ----

bool same_sizes(const TensorView& a, const TensorView& b, int32_t but_last) {
  if (a.ndim != b.ndim) return false;
  for (int32_t d = 0; d < a.ndim - but_last; d++)
    if (a.sizes[d] != b.sizes[d]) return false;
  return true;
}

template <int kRow>
bool dtype_fits(const Operands& o, const TensorView& v) {
  constexpr OperandRule rule = kOperands[kRow];
  if constexpr (rule.dtypes != kAnyDType)
    if (!(rule.dtypes & bit(v.dtype))) return false;
  if constexpr (rule.same_dtype == kNone) return true;
  const DType dtype = o[rule.same_dtype].dtype;
  if constexpr (!(rule.flags & kAccumulated)) return v.dtype == dtype;
  return v.dtype == (dtype == DType::Float64 ? DType::Float64 : DType::Float32);
}

template <int kRow>
bool last_dims_fit(Operands& o, const TensorView& v) {
  constexpr OperandRule rule = kOperands[kRow];
  const int64_t* sizes = v.sizes + (v.ndim - rule.ndim);
#pragma GCC unroll 4
  for (int32_t d = 0; d < rule.ndim; d++)
    if (!o.fits(rule.dims[d], sizes[d])) return false;
  return true;
}

// `of` is the operand that the row refers to, if it does.
template <int kRow>
bool shape_fits(Operands& o, const TensorView& v, int32_t of) {
  constexpr OperandRule rule = kOperands[kRow];
  switch (rule.shape) {
    case Shape::AtLeast:
      return v.ndim >= rule.ndim && last_dims_fit<kRow>(o, v);
    case Shape::Dims:
      return v.ndim == rule.ndim && last_dims_fit<kRow>(o, v);
    case Shape::Same:
      return v.ndim >= rule.ndim && same_sizes(v, o[of], 0);
    case Shape::SameRest:
      return v.ndim >= rule.ndim && last_dims_fit<kRow>(o, v) && same_sizes(v, o[of], rule.ndim);
    case Shape::Numel:
      return o.fits(rule.dims[0], v.numel);
    case Shape::NumelOf:
      return v.numel == o[of].numel;
  }
  return false;
}

bool overlap(const TensorView& a, const TensorView& b) {
  if (!a.data || !b.data) return false;  // memory that is yet to be allocated
  const char *first = static_cast<char*>(a.data), *second = static_cast<char*>(b.data);
  return first < second + b.reach() && second < first + a.reach();
}

// A kernel checks indices before it writes: an output on their memory would change them behind it.
bool overlaps_outputs(const Operands& o, const TensorView& indices) {
  for (int32_t i = 0; i < o.call.num_outputs; i++)
    if (overlap(indices, o.call.output(i))) return true;
  return false;
}

template <int kRow>
bool operand_fits(Operands& o, const TensorView& v, int32_t of = kOperands[kRow].of) {
  constexpr OperandRule rule = kOperands[kRow];
  if (v.is_immediate != ((rule.flags & kIndexView) != 0))
    return v.is_immediate && (rule.flags & kOptional);
  if ((rule.flags & kDense) && v.numel > 0 && !v.is_contiguous()) return false;
  if ((rule.flags & kIndices) && overlaps_outputs(o, v)) return false;
  return dtype_fits<kRow>(o, v) && shape_fits<kRow>(o, v, of);
}

// List `kList` of `count` operands, which lists of the same length precede.
template <int kSignature, int kList>
bool list_fits(Operands& o, int32_t count) {
  constexpr Signature s = kSignatures[kSignature];
  constexpr int kRow = s.first_operand + s.inputs + kList;
  constexpr OperandRule rule = kOperands[kRow];
  for (int32_t i = 0; i < count; i++) {
    const int32_t of =
        rule.shape == Shape::NumelOf ? s.inputs + (rule.of - s.inputs) * count + i : rule.of;
    if (!operand_fits<kRow>(o, o[s.inputs + kList * count + i], of)) return false;
  }
  return true;
}

template <int kSignature, int... kInput, int... kList, int... kOutput, int... kRelation>
bool all_fit(Operands& o, [[maybe_unused]] int32_t count, std::integer_sequence<int, kInput...>,
             std::integer_sequence<int, kList...>, std::integer_sequence<int, kOutput...>,
             std::integer_sequence<int, kRelation...>) {
  constexpr Signature s = kSignatures[kSignature];
  constexpr int kFirstOutput = s.first_operand + s.inputs + s.lists;
  return (operand_fits<s.first_operand + kInput>(o, o[kInput]) && ...) &&
         (list_fits<kSignature, kList>(o, count) && ...) &&
         (operand_fits<kFirstOutput + kOutput>(o, o[-1 - kOutput]) && ...) &&
         (kRelations[s.first_relation + kRelation].holds(
              o, kRelations[s.first_relation + kRelation].args) &&
          ...);
}

bool counts(const Signature& s, const KernelCall& call) {
  return (s.lists > 0 || s.inputs == call.num_inputs) && s.outputs == call.num_outputs;
}

template <int kSignature>
bool fits(const KernelCall& call) {
  constexpr Signature s = kSignatures[kSignature];
  if (!counts(s, call)) return false;
  Operands o{call};
  for (int32_t i = 0; i < s.num_param_dims; i++) {
    const ParamDim& given = kParamDims[s.first_param_dim + i];
    o.fits(given.dim, count_of(call.params[given.param], int64_t(1) << 52));
  }
  int32_t count = 0;
  if constexpr (s.lists > 0) {
    count = static_cast<int32_t>(count_of(call.params[s.count], call.num_inputs));
    if (count < 0 || s.inputs + int64_t(s.lists) * count != call.num_inputs) return false;
  }
  return all_fit<kSignature>(o, count, std::make_integer_sequence<int, s.inputs>{},
                             std::make_integer_sequence<int, s.lists>{},
                             std::make_integer_sequence<int, s.outputs>{},
                             std::make_integer_sequence<int, s.num_relations>{});
}

using Fits = bool (*)(const KernelCall&);
constexpr int kNumSignatures = sizeof kSignatures / sizeof kSignatures[0];

template <int... kSignature>
constexpr std::array<Fits, kNumSignatures> checkers(std::integer_sequence<int, kSignature...>) {
  return {fits<kSignature>...};
}

constexpr std::array<Fits, kNumSignatures> kCheckers =
    checkers(std::make_integer_sequence<int, kNumSignatures>{});

bool fits_signature(int16_t signature, const KernelCall& call) {
  return kCheckers[static_cast<size_t>(signature)](call);
}

}  // namespace

Status check_contract(const KernelCall& call, const KernelEntry* kernels, ErrorText* error) {
  const Contract& contract = kContracts[call.kernel];
  if (contract.signature < 0) return kOk;
  if (fits_signature(contract.signature, call)) return kOk;
  if (contract.other >= 0 && fits_signature(contract.other, call)) return kOk;
  const Signature& first = kSignatures[contract.signature];
  const Signature& expected =
      contract.other < 0 || counts(first, call) ? first : kSignatures[contract.other];
  return fail(error, Code::Invalid,
              "malformed command: %d inputs and %d outputs of these sizes, dtypes and addresses do "
              "not fit the kernel %s, which expects %s",
              call.num_inputs, call.num_outputs, kernels[call.kernel].name, expected.text);
}

bool overwrites_outputs(int32_t kernel) { return kContracts[kernel].overwrites; }

bool has_indices(int32_t kernel) { return kContracts[kernel].has_indices; }

}  // namespace shardwise
