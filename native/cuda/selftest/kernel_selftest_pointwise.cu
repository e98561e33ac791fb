// Tests every op of generated/pointwise_ops.inc against the same expression on the host in float64
// or int64.
#include <initializer_list>

#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

// The reference of a function is that of the C++ standard library with the same name. The functions
// below have none there, or another meaning, and are written a second time: a reference from the
// kernel's own source would prove nothing.
namespace m {
using namespace std;

double round(double x) { return std::nearbyint(x); }
int64_t round(int64_t x) { return x; }
template <class T>
T sign(T x) {
  return x > 0 ? 1 : x < 0 ? -1 : 0;
}
bool is_inf(double x) { return std::isinf(x); }
bool is_inf(int64_t) { return false; }
bool is_finite(double x) { return std::isfinite(x); }
bool is_finite(int64_t) { return true; }
template <class T>
T maximum(T a, T b) {
  return a != a ? a : b != b ? b : a > b ? a : b;
}
template <class T>
T minimum(T a, T b) {
  return a != a ? a : b != b ? b : a < b ? a : b;
}
using std::pow;
int64_t pow(int64_t x, int64_t y) {
  if (y < 0) return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
  int64_t r = 1;
  while (y-- > 0) r *= x;
  return r;
}
using std::fmod;
int64_t fmod(int64_t x, int64_t y) { return y == 0 ? 0 : x % y; }
double trunc_divide(double x, double y) { return std::trunc(x / y); }
int64_t trunc_divide(int64_t x, int64_t y) { return y == 0 ? 0 : x / y; }
double floor_divide(double x, double y) { return std::floor(x / y); }
int64_t floor_divide(int64_t x, int64_t y) {
  return y == 0 ? 0
                : static_cast<int64_t>(std::floor(static_cast<double>(x) / static_cast<double>(y)));
}
double remainder(double x, double y) { return x - std::floor(x / y) * y; }
int64_t remainder(int64_t x, int64_t y) { return y == 0 ? 0 : x - floor_divide(x, y) * y; }
int64_t shift_left(int64_t x, int64_t y) {
  return y < 0 || y > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(x) << y);
}
int64_t shift_right(int64_t x, int64_t y) { return x >> (y < 0 || y > 63 ? 63 : y); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu_backward(double g, double x) { return g * sigmoid(x) * (1 + x * (1 - sigmoid(x))); }
double gelu_backward(double g, double x) {
  return g * (0.5 * (1 + std::erf(x * std::sqrt(0.5))) +
              x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI));
}
double gelu_tanh_backward(double g, double x) {
  const double beta = std::sqrt(2 / M_PI), t = std::tanh(beta * (x + 0.044715 * x * x * x));
  return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * beta * (1 + 3 * 0.044715 * x * x));
}
}  // namespace m

struct Op {
  const char* name;
  const char* expression;
  int arity;
  char classes;
  bool gives_bool;
  double (*floating)(double, double, double, double, double);
  int64_t (*integer)(int64_t, int64_t, int64_t, int64_t, int64_t);
};

#define SW_FLOATING_F true
#define SW_FLOATING_A true
#define SW_FLOATING_I false
#define SW_INTEGER_F false
#define SW_INTEGER_A true
#define SW_INTEGER_I true
#define SW_BOOL_SAME false
#define SW_BOOL_BOOL true
#define SW_POINTWISE(name_, arity_, classes_, result_, expression_) \
  struct name_##_reference {                                        \
    template <class T>                                              \
    static T apply(T x, T y, T z, T p0, T p1) {                     \
      (void)x, (void)y, (void)z, (void)p0, (void)p1;                \
      return static_cast<T>(expression_);                           \
    }                                                               \
    template <class T, bool Use>                                    \
    static T call(T x, T y, T z, T p0, T p1) {                      \
      if constexpr (Use)                                            \
        return apply<T>(x, y, z, p0, p1);                           \
      else                                                          \
        return T(0);                                                \
    }                                                               \
  };
#include "../../generated/pointwise_ops.inc"
#undef SW_POINTWISE

const Op kOps[] = {
#define SW_POINTWISE(name_, arity_, classes_, result_, expression_) \
  {#name_,                                                          \
   #expression_,                                                    \
   arity_,                                                          \
   #classes_[0],                                                    \
   SW_BOOL_##result_,                                               \
   name_##_reference::call<double, SW_FLOATING_##classes_>,         \
   name_##_reference::call<int64_t, SW_INTEGER_##classes_>},
#include "../../generated/pointwise_ops.inc"
#undef SW_POINTWISE
};

// The tests follow from the expression of an op, not from its name.
bool calls(const Op& op, std::initializer_list<const char*> functions) {
  const std::string expression = op.expression;
  for (const char* function : functions)
    if (expression.find("m::" + std::string(function) + "(") != std::string::npos) return true;
  return false;
}

bool divides(const Op& op) {
  return calls(op, {"floor_divide", "trunc_divide", "remainder", "fmod"});
}

// Ops with discontinuous results get multiples of 1/4 as operands, so that rounding does not decide
// the result.
bool jumps(const Op& op) {
  return op.gives_bool || divides(op) || calls(op, {"floor", "ceil", "round", "trunc", "sign"});
}

// Whether input 0 is a condition of dtype bool.
bool has_condition(const Op& op) { return std::string(op.expression).find("x != T(0) ?") == 0; }

// Whether the op selects, compares or rounds without arithmetic: its results are exact for NaN and
// infinities as well.
bool is_exact(const Op& op) {
  std::string rest = op.expression;
  for (const char* function : {"abs", "floor", "ceil", "round", "trunc", "sign", "maximum",
                               "minimum", "is_inf", "is_finite"}) {
    const std::string call = "m::" + std::string(function) + "(";
    for (size_t at; (at = rest.find(call)) != std::string::npos;) rest.erase(at, call.size());
  }
  return op.classes != 'I' && rest.find("m::") == std::string::npos &&
         rest.find_first_of("+-*/") == std::string::npos;
}

Tensor operand(const Op& op, int which, DType dtype, const Sizes& sizes, uint64_t seed) {
  Tensor t = uniform(dtype, sizes, seed, is_floating(dtype) ? -3 : -9, is_floating(dtype) ? 3 : 9);
  if (is_floating(dtype) && jumps(op))
    fill_with(t, [&](int64_t i) { return std::round(t.value(i) * 4) / 4; });
  if (which > 0 && divides(op))
    fill_with(t, [&](int64_t i) { return t.value(i) == 0 ? 1 : t.value(i); });
  if (dtype == DType::UInt8)
    fill_with(t, [&](int64_t i) { return static_cast<double>(t.integer(i) % 7); });
  return t;
}

double as_double(const Tensor& t, int64_t i) { return t.storage ? t.value(i) : t.scalar; }
int64_t as_integer(const Tensor& t, int64_t i) {
  return t.storage ? t.integer(i) : static_cast<int64_t>(t.scalar);
}

void check(const Op& op, const std::string& label, ComputeType compute, std::vector<Tensor> inputs,
           Tensor y, bool in_place = false) {
  const bool integer = compute == ComputeType::Int64;
  const std::vector<double> params = {static_cast<double>(compute), integer ? 2.0 : 0.5,
                                      integer ? 3.0 : 1.25, 0.0, 0.0};
  std::vector<Tensor> before;
  for (const Tensor& t : inputs) before.push_back(t.storage ? t.clone() : t);
  while (before.size() < 3) before.push_back(number(0));
  if (in_place) y = inputs[0];
  if (!run(op.name, inputs, {y}, params).ok()) return;
  const bool low = y.dtype == DType::Float16 || y.dtype == DType::BFloat16;
  const double slack = low ? 1 : calls(op, {"tan", "pow"}) ? 10 : 2;
  expect(
      op.name, label, y,
      [&](int64_t i) {
        double r;
        if (integer) {
          r = static_cast<double>(op.integer(as_integer(before[0], i), as_integer(before[1], i),
                                             as_integer(before[2], i), 2, 3));
        } else {
          r = op.floating(as_double(before[0], i), as_double(before[1], i), as_double(before[2], i),
                          0.5, 1.25);
        }
        if (y.dtype == DType::Bool) return static_cast<double>(r != 0);
        if (y.dtype == DType::Int32)
          return static_cast<double>(static_cast<int32_t>(static_cast<int64_t>(r)));
        if (y.dtype == DType::UInt8)
          return static_cast<double>(static_cast<uint8_t>(static_cast<int64_t>(r)));
        if (y.dtype == DType::Float16) return static_cast<double>(__half2float(__double2half(r)));
        return r;
      },
      slack);
}

std::vector<Tensor> operands(const Op& op, DType dtype, const Sizes& sizes) {
  std::vector<Tensor> list;
  for (int k = 0; k < op.arity; k++)
    list.push_back(
        operand(op, k, has_condition(op) && k == 0 ? DType::Bool : dtype, sizes, 11 + k));
  return list;
}

void test_floats(const Op& op) {
  const auto out = [&](DType dtype) { return op.gives_bool ? DType::Bool : dtype; };
  for (DType dtype : kFloats) {
    const ComputeType compute = dtype == DType::Float64 ? ComputeType::Double : ComputeType::Float;
    for (int64_t n :
         {int64_t(0), int64_t(1), int64_t(7), int64_t(1003), int64_t(4096), int64_t(16384 + 5)}) {
      if (n > 5000 && dtype == DType::Float64) continue;
      check(op, "1-D of " + std::to_string(n), compute, operands(op, dtype, {n}),
            make(out(dtype), {n}));
    }
    // Broadcast: a row and a column.
    std::vector<Tensor> list = operands(op, dtype, {24, 40});
    if (op.arity > 1) list[1] = operand(op, 1, dtype, {1, 40}, 21).expand(0, 24);
    check(op, "row broadcast", compute, list, make(out(dtype), {24, 40}));
    list = operands(op, dtype, {24, 40});
    list[0] = operand(op, 0, list[0].dtype, {24, 1}, 22).expand(1, 40);
    check(op, "column broadcast", compute, list, make(out(dtype), {24, 40}));
    // Sizes of whole vectors for float32 and its bool results, not for shorter dtypes.
    list.clear();
    for (const Tensor& t : operands(op, dtype, {24, 20})) list.push_back(t.slice(1, 4, 1, 12));
    check(op, "parts of rows", compute, list, make(out(dtype), {24, 12}));
    // A transposed operand, a strided output, three dims.
    list = operands(op, dtype, {5, 24, 16});
    list[op.arity - 1] =
        operand(op, op.arity - 1, list[op.arity - 1].dtype, {16, 24, 5}, 23).transpose(0, 2);
    check(op, "transposed", compute, list, make(out(dtype), {5, 24, 16}));
    check(op, "strided output", compute, operands(op, dtype, {9, 13}),
          make(out(dtype), {9, 26}).slice(1, 1, 2, 13));
    check(op, "transposed output", compute, operands(op, dtype, {32, 64}),
          make(out(dtype), {64, 32}).transpose(0, 1));
    if (!op.gives_bool && !has_condition(op))
      check(op, "in place", compute, operands(op, dtype, {777}), Tensor(), true);
    if (op.arity > 1) {
      list = operands(op, dtype, {4104});
      list[op.arity - 1] = number(0.75);
      check(op, "a number last", compute, list, make(out(dtype), {4104}));
      list = operands(op, dtype, {4104});
      if (!has_condition(op)) list[0] = number(1.25);
      check(op, "a number first", compute, list, make(out(dtype), {4104}));
    }
  }
  std::vector<Tensor> list = operands(op, DType::Float32, {3000});
  list[op.arity - 1] = operand(op, op.arity - 1, DType::BFloat16, {3000}, 31);
  check(op, "mixed dtypes", ComputeType::Float, list, make(out(DType::Float32), {3000}));
}

void test_integers(const Op& op) {
  for (DType dtype : {DType::Int64, DType::Int32, DType::UInt8}) {
    const DType out = op.gives_bool ? DType::Bool : dtype;
    for (int64_t n : {int64_t(0), int64_t(1), int64_t(1003)})
      check(op, "1-D of " + std::to_string(n), ComputeType::Int64, operands(op, dtype, {n}),
            make(out, {n}));
    std::vector<Tensor> list = operands(op, dtype, {6, 14});
    list[op.arity - 1] =
        operand(op, op.arity - 1, list[op.arity - 1].dtype, {14, 6}, 41).transpose(0, 1);
    check(op, "transposed", ComputeType::Int64, list, make(out, {6, 14}));
  }
}

}  // namespace

void test_pointwise() {
  for (const Op& op : kOps) {
    if (op.classes != 'I') test_floats(op);
    if (op.classes != 'F') test_integers(op);
  }
  // NaN and infinities.
  const double inf = INFINITY, nan = NAN, special[] = {nan, inf, -inf, 0, -0.0, 1};
  for (const Op& op : kOps) {
    if (!is_exact(op) || op.arity > 2) continue;
    const Tensor x =
        fill_with(make(DType::Float32, {36}), [&](int64_t i) { return special[i % 6]; });
    const Tensor y =
        fill_with(make(DType::Float32, {36}), [&](int64_t i) { return special[i / 6]; });
    check(op, "special values", ComputeType::Float,
          op.arity == 1 ? std::vector<Tensor>{x} : std::vector<Tensor>{x, y},
          make(op.gives_bool ? DType::Bool : DType::Float32, {36}));
  }
}

}  // namespace selftest::bytes
