// Every pointwise kernel. An op is a loop over contiguous arrays of its compute type (float, double
// or int64_t) that g++ vectorises. The engine provides the operands: in place if they are such
// arrays, else chunk by chunk through buffers on the stack. Compiled once per instruction set
// (SW_ISA_NAMESPACE).
#include "../convert.h"
#include "../math.h"
#include "../normal.h"
#include "pointwise_engine.h"
#include "pointwise_table.h"

namespace shardwise::cpu {
namespace {

// ---- the ops ----

#define SW_RESULT_SAME false
#define SW_RESULT_BOOL true
#define SW_POINTWISE(name_, arity_, classes, result, expression)                         \
  struct Op_##name_ {                                                                    \
    static constexpr PointwiseOp op = PointwiseOp::name_;                                \
    static constexpr int arity = arity_;                                                 \
    static constexpr bool boolean = SW_RESULT_##result;                                  \
    template <class T>                                                                   \
    SW_MATH auto apply([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z, \
                       [[maybe_unused]] T p0, [[maybe_unused]] T p1) {                   \
      return expression;                                                                 \
    }                                                                                    \
  };
#include "../../generated/pointwise_ops.inc"
#undef SW_POINTWISE

// The cost of an element: determines the chunks of a call on several threads, and the end of a
// loop. Entries have it as PointwiseCost in lib/core/op.ts.
enum class Cost { Memory, Division, Vector, Libm };

constexpr Cost kCosts[] = {
#define SW_POINTWISE_COST(name, cost) Cost::cost,
#include "../../generated/pointwise_costs.inc"
#undef SW_POINTWISE_COST
};

// The cost in one compute type: Memory, Vector, or Libm for a call or a division per element.
template <class T>
constexpr Cost cost_of(PointwiseOp op) {
  const Cost cost = kCosts[static_cast<int32_t>(op)];
  constexpr bool is_integer = T(0.5) == T(0);
  if (cost == Cost::Division) return is_integer ? Cost::Libm : Cost::Memory;
  if (is_integer) return cost == Cost::Libm ? Cost::Libm : Cost::Memory;
  return cost == Cost::Libm && sizeof(T) == 4 ? Cost::Vector : cost;
}

// The least elements worth waking a thread.
constexpr int64_t grain_of(Cost cost) {
  return cost == Cost::Memory ? 32768 : cost == Cost::Vector ? 8192 : 2048;
}

// ---- loops ----

// If the fast float version of an op is valid only on part of its domain, libm computes the rest
// element by element.
template <PointwiseOp op>
struct Guard {
  static constexpr bool present = false;
};
#define SW_GUARD(name, condition, expression)                                                     \
  template <>                                                                                     \
  struct Guard<PointwiseOp::name> {                                                               \
    static constexpr bool present = true;                                                         \
    SW_MATH bool outside(float x, [[maybe_unused]] float y) { return condition; }                 \
    SW_MATH float slow([[maybe_unused]] float x, [[maybe_unused]] float y) { return expression; } \
  };
SW_GUARD(sin, m::abs(x) > m::kTrigLimit, __builtin_sinf(x))
SW_GUARD(cos, m::abs(x) > m::kTrigLimit, __builtin_cosf(x))
SW_GUARD(tan, m::abs(x) > m::kTrigLimit, __builtin_tanf(x))
SW_GUARD(fmod, m::abs(x) > m::kModuloLimit * m::abs(y), __builtin_fmodf(x, y))
SW_GUARD(remainder, m::abs(x) > m::kModuloLimit * m::abs(y),
         m::remainder_from(__builtin_fmodf(x, y), y))
SW_GUARD(floor_divide, m::abs(x) > m::kModuloLimit * m::abs(y),
         m::floor_divide_from(__builtin_fmodf(x, y), x, y))
#undef SW_GUARD

template <class Op, class T>
struct Element {
  using Result = T;
};
template <class Op, class T>
  requires(Op::boolean)
struct Element<Op, T> {
  using Result = uint8_t;
};

template <class Op, class T, class R>
SW_MATH void straight(const T* x, const T* y, const T* z, R* out, int64_t n, T p0, T p1) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; i++) {
    out[i] = static_cast<R>(Op::template apply<T>(x[i], Op::arity > 1 ? y[i] : T(0),
                                                  Op::arity > 2 ? z[i] : T(0), p0, p1));
  }
}

// Ops of many instructions run whole vectors only, with a padded tail: no second and third copy of
// a long loop.
constexpr int64_t kPad = 16;

template <class Op, class T, class R>
__attribute__((noinline, noclone)) void whole_vectors(const T* x, const T* y, const T* z, R* out,
                                                      int64_t n, T p0, T p1) {
  straight<Op, T, R>(x, y, z, out, n & ~(kPad - 1), p0, p1);
}

template <class Op, class T, class R>
SW_MATH void padded(const T* x, const T* y, const T* z, R* out, int64_t n, T p0, T p1) {
  const int64_t whole = n & ~(kPad - 1);
  if (whole > 0) whole_vectors<Op, T, R>(x, y, z, out, whole, p0, p1);
  if (whole == n) return;
  const T* inputs[3] = {x, y, z};
  T tail[3][kPad];
  R result[kPad];
  for (int a = 0; a < Op::arity; a++) {
    for (int64_t i = 0; i < kPad; i++) tail[a][i] = inputs[a][whole + i < n ? whole + i : whole];
  }
  whole_vectors<Op, T, R>(tail[0], tail[1], tail[2], result, kPad, p0, p1);
  for (int64_t i = whole; i < n; i++) out[i] = result[i - whole];
}

template <class Op>
SW_MATH void guarded(const float* x, const float* y, float* out, int64_t n) {
  constexpr int64_t block = 512;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t length = n - begin < block ? n - begin : block;
    const float* u = x + begin;
    const float* v = Op::arity > 1 ? y + begin : u;
    int32_t outside = 0;
    for (int64_t i = 0; i < length; i++) outside |= Guard<Op::op>::outside(u[i], v[i]);
    if (!outside) {
      padded<Op, float, float>(u, v, u, out + begin, length, 0.0f, 0.0f);
    } else {
      for (int64_t i = 0; i < length; i++) {
        const float a = u[i];
        const float b = v[i];
        if (Guard<Op::op>::outside(a, b)) {
          out[begin + i] = Guard<Op::op>::slow(a, b);
        } else {
          out[begin + i] = Op::template apply<float>(a, b, 0.0f, 0.0f, 0.0f);
        }
      }
    }
  }
}

template <class Op, class T>
void loop(const void* const* inputs, void* output, int64_t n, const double* params) {
  using R = typename Element<Op, T>::Result;
  T p0, p1;
  from_double(params[0], &p0);
  from_double(params[1], &p1);
  const T* x = static_cast<const T*>(inputs[0]);
  const T* y = static_cast<const T*>(inputs[1]);
  const T* z = static_cast<const T*>(inputs[2]);
  R* out = static_cast<R*>(output);
  if constexpr (sizeof(T) == 4 && Guard<Op::op>::present) {
    guarded<Op>(x, y, out, n);
  } else if constexpr (cost_of<T>(Op::op) == Cost::Vector) {
    padded<Op, T, R>(x, y, z, out, n, p0, p1);
  } else {
    straight<Op, T, R>(x, y, z, out, n, p0, p1);
  }
}

// ---- the table of ops ----

#define SW_LOOPS_F(op) \
  { loop<op, float>, loop<op, double>, nullptr }
#define SW_LOOPS_A(op) \
  { loop<op, float>, loop<op, double>, loop<op, int64_t> }
#define SW_LOOPS_I(op) \
  { nullptr, nullptr, loop<op, int64_t> }
constexpr PointwiseEntry kEntries[] = {
#define SW_POINTWISE(name, arity, classes, result, expression)                                 \
  {arity,                                                                                      \
   SW_RESULT_##result,                                                                         \
   SW_LOOPS_##classes(Op_##name),                                                              \
   {grain_of(cost_of<float>(PointwiseOp::name)), grain_of(cost_of<double>(PointwiseOp::name)), \
    grain_of(cost_of<int64_t>(PointwiseOp::name))}},
#include "../../generated/pointwise_ops.inc"
#undef SW_POINTWISE
};

// ---- launch ----

bool has_zero(const TensorView& divisor, int64_t n) {
  int64_t buffer[kBufferBytes / 8];
  constexpr int64_t chunk = kBufferBytes / 8;
  const bool constant = is_constant(divisor);
  int64_t zeros = 0;
  for (int64_t at = 0; at < n && zeros == 0; at += chunk) {
    const int64_t length = constant ? 1 : (n - at < chunk ? n - at : chunk);
    if (constant) {
      fill_constant(divisor, static_cast<int32_t>(ComputeType::Int64), buffer, 1);
    } else {
      gather(divisor, at, length, buffer);
    }
    for (int64_t i = 0; i < length; i++) zeros += buffer[i] == 0;
    if (constant) break;
  }
  return zeros != 0;
}

Code run(const KernelCall& call, PointwiseOp op) {
  const PointwiseEntry& entry = kEntries[static_cast<int32_t>(op)];
  if (call.output(0).numel == 0) return Code::Ok;
  const int32_t compute = static_cast<int32_t>(call.params[0]);
  if (!entry.loop[compute]) return Code::Unsupported;
  if (compute == static_cast<int32_t>(ComputeType::Int64) && divides(op) &&
      has_zero(call.input(1), call.output(0).numel)) {
    return Code::Invalid;
  }
  double params[2] = {0, 0};
  for (int32_t i = 1; i < call.num_params && i <= 2; i++) params[i - 1] = call.params[i];
  run_elementwise(call, {entry.loop[compute], entry.grain[compute], params, entry.arity, compute,
                         entry.boolean});
  return Code::Ok;
}

}  // namespace

namespace SW_ISA_NAMESPACE {
extern const PointwiseTable pointwise_table = {
    run,
    {gather_erased<float>, gather_erased<double>, gather_erased<int64_t>},
    {scatter_erased<float>, scatter_erased<double>, scatter_erased<int64_t>},
    kEntries,
    gather_view,
    scatter_view,
    philox_words,
    make_normals<float>,
    make_normals<double>,
};
}

}  // namespace shardwise::cpu
