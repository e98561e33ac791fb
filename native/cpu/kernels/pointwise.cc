// Every pointwise kernel. An op is a loop over contiguous arrays of its compute type (float, double or int64_t) that g++
// vectorises; the engine brings the operands there: in place where they already are such arrays, else chunk by chunk through
// buffers on the stack. Compiled once per instruction set (SW_ISA_NAMESPACE).
#include "convert.h"
#include "math.h"
#include "normal.h"
#include "parallel_for.h"
#include "pointwise_table.h"

namespace shardwise::cpu {
namespace {

using Loop = void (*)(const void* const* inputs, void* output, int64_t n, const double* params);

// ---- the ops ----

#define SW_RESULT_SAME false
#define SW_RESULT_BOOL true
#define SW_POINTWISE(name_, arity_, classes, result, expression)                                              \
  struct Op_##name_ {                                                                                         \
    static constexpr PointwiseOp op = PointwiseOp::name_;                                                     \
    static constexpr int arity = arity_;                                                                      \
    static constexpr bool boolean = SW_RESULT_##result;                                                       \
    template <class T>                                                                                        \
    SW_MATH auto apply([[maybe_unused]] T x, [[maybe_unused]] T y, [[maybe_unused]] T z, [[maybe_unused]] T p0, \
                       [[maybe_unused]] T p1) {                                                               \
      return expression;                                                                                      \
    }                                                                                                         \
  };
#include "generated/pointwise_ops.inc"
#undef SW_POINTWISE

// How much work an element is: decides how finely a call is shared among threads, and how a loop ends.
enum class Cost { Memory, Vector, Libm };

template <class T>
constexpr Cost cost_of(PointwiseOp op) {
  using enum PointwiseOp;
  constexpr bool is_float = sizeof(T) == 4;
  if constexpr (T(0.5) == T(0)) {
    switch (op) {
      case floor_divide: case trunc_divide: case remainder: case fmod: case pow: return Cost::Libm;
      default: return Cost::Memory;
    }
  }
  switch (op) {
    case exp: case exp2: case expm1: case log: case log1p: case tanh: case sigmoid: case silu: case gelu_tanh: case softplus:
    case elu: case silu_backward: case gelu_tanh_backward: case softplus_backward: case elu_backward:
      return Cost::Vector;
    case log2: case log10: case sin: case cos: case tan: case asin: case acos: case atan: case sinh: case cosh: case asinh:
    case acosh: case atanh: case erf: case erfc: case gelu: case gelu_backward: case pow: case atan2: case fmod:
    case remainder: case floor_divide:
      return is_float ? Cost::Vector : Cost::Libm;
    default: return Cost::Memory;
  }
}

// Elements that a thread must get to be worth waking.
constexpr int64_t grain_of(Cost cost) { return cost == Cost::Memory ? 32768 : cost == Cost::Vector ? 8192 : 2048; }

// ---- loops ----

// Where the fast float version of an op holds only on part of its domain, the rest goes to libm element by element.
template <PointwiseOp op>
struct Guard {
  static constexpr bool present = false;
};
#define SW_GUARD(name, condition, expression)                                             \
  template <>                                                                             \
  struct Guard<PointwiseOp::name> {                                                       \
    static constexpr bool present = true;                                                 \
    SW_MATH bool outside(float x, [[maybe_unused]] float y) { return condition; }         \
    SW_MATH float slow([[maybe_unused]] float x, [[maybe_unused]] float y) { return expression; } \
  };
SW_GUARD(sin, m::abs(x) > m::kTrigLimit, __builtin_sinf(x))
SW_GUARD(cos, m::abs(x) > m::kTrigLimit, __builtin_cosf(x))
SW_GUARD(tan, m::abs(x) > m::kTrigLimit, __builtin_tanf(x))
SW_GUARD(fmod, m::abs(x) > m::kModuloLimit * m::abs(y), __builtin_fmodf(x, y))
SW_GUARD(remainder, m::abs(x) > m::kModuloLimit * m::abs(y), m::remainder_from(__builtin_fmodf(x, y), y))
SW_GUARD(floor_divide, m::abs(x) > m::kModuloLimit * m::abs(y), m::floor_divide_from(__builtin_fmodf(x, y), x, y))
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
    out[i] = static_cast<R>(Op::template apply<T>(x[i], Op::arity > 1 ? y[i] : T(0), Op::arity > 2 ? z[i] : T(0), p0, p1));
  }
}

// Ops of many instructions run whole vectors only, the tail padded to one: no second and third copy of a long loop.
constexpr int64_t kPad = 16;

template <class Op, class T, class R>
__attribute__((noinline, noclone)) void whole_vectors(const T* x, const T* y, const T* z, R* out, int64_t n, T p0, T p1) {
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

struct Entry {
  int32_t arity;
  bool boolean;
  Loop loop[3];  // by ComputeType; null: not defined there
  int64_t grain[3];
};

#define SW_LOOPS_F(op) {loop<op, float>, loop<op, double>, nullptr}
#define SW_LOOPS_A(op) {loop<op, float>, loop<op, double>, loop<op, int64_t>}
#define SW_LOOPS_I(op) {nullptr, nullptr, loop<op, int64_t>}
constexpr Entry kEntries[] = {
#define SW_POINTWISE(name, arity, classes, result, expression)      \
  {arity, SW_RESULT_##result, SW_LOOPS_##classes(Op_##name), \
   {grain_of(cost_of<float>(PointwiseOp::name)), grain_of(cost_of<double>(PointwiseOp::name)), \
    grain_of(cost_of<int64_t>(PointwiseOp::name))}},
#include "generated/pointwise_ops.inc"
#undef SW_POINTWISE
};

// ---- the engine ----

constexpr int64_t kBufferBytes = 4096;
constexpr DType kElementOf[3] = {DType::Float32, DType::Float64, DType::Int64};

template <class T>
void gather_erased(DType dtype, const void* from, int64_t stride, void* buffer, int64_t n) {
  gather(dtype, from, stride, static_cast<T*>(buffer), n);
}
template <class T>
void scatter_erased(DType dtype, const void* buffer, void* to, int64_t stride, int64_t n) {
  scatter(dtype, static_cast<const T*>(buffer), to, stride, n);
}

template <class T>
void fill_buffer(double value, void* buffer, int64_t n) {
  T v;
  from_double(value, &v);
  T* out = static_cast<T*>(buffer);
  for (int64_t i = 0; i < n; i++) out[i] = v;
}

enum class Path : int32_t {
  Direct,    // the loop works on the operand's own memory
  Rows,      // likewise, one row of the view at a time
  Constant,  // one value, filled into a buffer once
  Buffer,    // gathered into a buffer, or scattered from it, chunk by chunk
};

struct Plan {
  const TensorView* view[4];  // inputs, then the output in [3]
  Path path[4];
  const Entry* entry;
  const double* params;
  int32_t compute;
  int64_t row;  // width of the rows of Path::Rows; 0 without
};

bool is_constant(const TensorView& view) {
  if (view.is_immediate) return true;
  for (int32_t d = 0; d < view.ndim; d++) {
    if (view.strides[d] != 0 && view.sizes[d] != 1) return false;
  }
  return true;
}

void gather_view(const TensorView& view, int64_t begin, int64_t n, int32_t compute, void* buffer) {
  switch (static_cast<ComputeType>(compute)) {
    case ComputeType::Float: return gather(view, begin, n, static_cast<float*>(buffer));
    case ComputeType::Double: return gather(view, begin, n, static_cast<double*>(buffer));
    case ComputeType::Int64: return gather(view, begin, n, static_cast<int64_t*>(buffer));
  }
}

void scatter_view(const TensorView& view, int64_t begin, int64_t n, int32_t compute, bool boolean, const void* buffer) {
  if (boolean) return scatter(view, begin, n, static_cast<const uint8_t*>(buffer));
  switch (static_cast<ComputeType>(compute)) {
    case ComputeType::Float: return scatter(view, begin, n, static_cast<const float*>(buffer));
    case ComputeType::Double: return scatter(view, begin, n, static_cast<const double*>(buffer));
    case ComputeType::Int64: return scatter(view, begin, n, static_cast<const int64_t*>(buffer));
  }
}

void fill_constant(const TensorView& view, int32_t compute, void* buffer, int64_t n) {
  switch (static_cast<ComputeType>(compute)) {
    case ComputeType::Float:
      return view.is_immediate ? fill_buffer<float>(view.scalar, buffer, n)
                               : gather(view.dtype, view.data, 0, static_cast<float*>(buffer), n);
    case ComputeType::Double:
      return view.is_immediate ? fill_buffer<double>(view.scalar, buffer, n)
                               : gather(view.dtype, view.data, 0, static_cast<double*>(buffer), n);
    case ComputeType::Int64:
      return view.is_immediate ? fill_buffer<int64_t>(view.scalar, buffer, n)
                               : gather(view.dtype, view.data, 0, static_cast<int64_t*>(buffer), n);
  }
}

__attribute__((noinline)) void run_chunks(const Plan& plan, int64_t begin, int64_t end) {
  alignas(64) char buffers[4][kBufferBytes];
  const int64_t chunk = kBufferBytes / item_size(kElementOf[plan.compute]);
  const Loop loop = plan.entry->loop[plan.compute];
  const int32_t arity = plan.entry->arity;
  const void* inputs[3] = {buffers[0], buffers[1], buffers[2]};
  for (int32_t i = 0; i < arity; i++) {
    if (plan.path[i] != Path::Constant) continue;
    fill_constant(*plan.view[i], plan.compute, buffers[i], end - begin < chunk ? end - begin : chunk);
  }
  for (int64_t at = begin; at < end;) {
    int64_t n = end - at < chunk ? end - at : chunk;
    if (plan.row > 0) {
      const int64_t left = plan.row - at % plan.row;
      n = left < n ? left : n;
    }
    for (int32_t i = 0; i < arity; i++) {
      const TensorView& view = *plan.view[i];
      switch (plan.path[i]) {
        case Path::Direct: inputs[i] = element_at(view.data, view.dtype, at); break;
        case Path::Rows: inputs[i] = element_at(view.data, view.dtype, offset_of(view, at)); break;
        case Path::Constant: break;
        case Path::Buffer: gather_view(view, at, n, plan.compute, buffers[i]); break;
      }
    }
    const TensorView& out = *plan.view[3];
    switch (plan.path[3]) {
      case Path::Direct: loop(inputs, element_at(out.data, out.dtype, at), n, plan.params); break;
      case Path::Rows: loop(inputs, element_at(out.data, out.dtype, offset_of(out, at)), n, plan.params); break;
      default:
        loop(inputs, buffers[3], n, plan.params);
        scatter_view(out, at, n, plan.compute, plan.entry->boolean, buffers[3]);
    }
    at += n;
  }
}

// Pieces are multiples of this, so that threads do not share cache lines of a contiguous output.
constexpr int64_t kBlock = 1024;

template <class Body>
SW_MATH void share(int64_t n, int64_t grain, Body body) {
  if (n <= grain) return body(int64_t{0}, n);
  parallel_for((n + kBlock - 1) / kBlock, grain / kBlock, [&](int64_t begin, int64_t end) {
    body(begin * kBlock, end * kBlock < n ? end * kBlock : n);
  });
}

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

bool divides(PointwiseOp op) {
  return op == PointwiseOp::floor_divide || op == PointwiseOp::trunc_divide || op == PointwiseOp::remainder ||
         op == PointwiseOp::fmod;
}

Code run(const KernelCall& call, PointwiseOp op) {
  const Entry& entry = kEntries[static_cast<int32_t>(op)];
  const TensorView& out = call.output(0);
  const int64_t n = out.numel;
  if (n == 0) return Code::Ok;
  const int32_t compute = static_cast<int32_t>(call.params[0]);
  const Loop loop = entry.loop[compute];
  if (!loop) return Code::Unsupported;
  double params[2] = {0, 0};
  for (int32_t i = 1; i < call.num_params && i <= 2; i++) params[i - 1] = call.params[i];

  const DType element = kElementOf[compute];
  Plan plan;
  plan.entry = &entry;
  plan.params = params;
  plan.compute = compute;
  plan.row = 0;
  plan.view[3] = &out;
  plan.path[3] = out.dtype == (entry.boolean ? DType::Bool : element) && out.is_contiguous() ? Path::Direct : Path::Buffer;
  bool direct = plan.path[3] == Path::Direct;
  bool buffered = !direct;
  for (int32_t i = 0; i < entry.arity; i++) {
    const TensorView& view = call.input(i);
    plan.view[i] = &view;
    plan.path[i] = !view.is_immediate && view.dtype == element && view.is_contiguous() ? Path::Direct
                   : is_constant(view)                                                  ? Path::Constant
                                                                                        : Path::Buffer;
    direct &= plan.path[i] == Path::Direct;
    buffered |= plan.path[i] == Path::Buffer;
  }
  if (compute == static_cast<int32_t>(ComputeType::Int64) && divides(op) && has_zero(call.input(1), n)) {
    return Code::Invalid;
  }
  const int64_t grain = entry.grain[compute];
  if (direct) {
    share(n, grain, [&](int64_t begin, int64_t end) {
      const void* inputs[3] = {};
      for (int32_t i = 0; i < entry.arity; i++) inputs[i] = element_at(plan.view[i]->data, element, begin);
      loop(inputs, element_at(out.data, out.dtype, begin), end - begin, params);
    });
    return Code::Ok;
  }
  // Rows that are long enough are used where they are.
  constexpr int64_t long_row = 256;
  if (buffered && out.ndim > 1 && out.sizes[out.ndim - 1] >= long_row) {
    for (int32_t i = 0; i < 4; i++) {
      if (i >= entry.arity && i != 3) continue;
      const TensorView& view = *plan.view[i];
      const DType wanted = i == 3 && entry.boolean ? DType::Bool : element;
      if (plan.path[i] != Path::Buffer || view.dtype != wanted || view.strides[view.ndim - 1] != 1) continue;
      plan.path[i] = Path::Rows;
      plan.row = out.sizes[out.ndim - 1];
    }
  }
  share(n, grain, [&](int64_t begin, int64_t end) { run_chunks(plan, begin, end); });
  return Code::Ok;
}

}  // namespace

namespace SW_ISA_NAMESPACE {
extern const PointwiseTable pointwise_table = {
    run,
    {gather_erased<float>, gather_erased<double>, gather_erased<int64_t>},
    {scatter_erased<float>, scatter_erased<double>, scatter_erased<int64_t>},
    philox_words,
    make_normals<float>,
    make_normals<double>,
};
}

}  // namespace shardwise::cpu
