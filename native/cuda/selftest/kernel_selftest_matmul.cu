// Tests products against float64 (integers against int64) on the CPU, with and without cuBLASLt.
#include "../cublaslt.h"
#include "../kernels/matmul/matmul_table.h"
#include "kernel_selftest_matmul.h"

namespace selftest::floats {
namespace {

// Odd: unaligned rows. Strided: no dim has stride 1.
enum class Order { Rows, Columns, Padded, Odd, Strided };
const char* name_of(Order o) {
  constexpr const char* names[] = {"rows", "columns", "padded", "odd", "strided"};
  return names[static_cast<int>(o)];
}

Tensor matrix(DType dtype, int64_t batch, int64_t rows, int64_t columns, Order order,
              bool broadcast = false) {
  const auto steps = [&](int64_t row, int64_t column, int64_t whole) {
    return Sizes{broadcast ? 0 : whole, row, column};
  };
  switch (order) {
    case Order::Columns:
      return Tensor(dtype, {batch, rows, columns}, steps(1, rows, rows * columns));
    case Order::Padded:
      return Tensor(dtype, {batch, rows, columns}, steps(columns + 24, 1, rows * (columns + 24)));
    case Order::Odd:
      return Tensor(dtype, {batch, rows, columns}, steps(columns + 1, 1, rows * (columns + 1) + 1),
                    1);
    case Order::Strided:
      return Tensor(dtype, {batch, rows, columns},
                    steps(columns * 2 + 1, 2, rows * (columns * 2 + 1)));
    default:
      return Tensor(dtype, {batch, rows, columns}, steps(columns, 1, rows * columns));
  }
}

enum class Addend { None, Full, Row, Column, Batch };

struct Case {
  DType dtype;
  int64_t batch, m, n, k;
  Order a, b, y;
  Addend c = Addend::None;
  double alpha = 1, beta = 1;
  bool broadcast_b = false;
};

void matmul_case(const Case& q) {
  const bool floats = is_floating(q.dtype);
  const std::string what = std::to_string(q.batch) + "x" + std::to_string(q.m) + "x" +
                           std::to_string(q.n) + "x" + std::to_string(q.k) + " " + name_of(q.a) +
                           "/" + name_of(q.b) + "/" + name_of(q.y) +
                           (q.c != Addend::None ? " +c" + std::to_string(int(q.c)) : "") +
                           (q.broadcast_b ? " one b" : "");
  Tensor a = matrix(q.dtype, q.batch, q.m, q.k, q.a),
         b = matrix(q.dtype, q.batch, q.k, q.n, q.b, q.broadcast_b),
         y = matrix(q.dtype, q.batch, q.m, q.n, q.y), c;
  auto value = [&](int64_t) {
    return floats ? random_source().normal()
                  : double(random_source().bits() % 7) -
                        (q.dtype == DType::UInt8 || q.dtype == DType::Bool ? 0 : 3);
  };
  a.fill(value);
  b.fill(value);
  if (q.c == Addend::Full) c = matrix(q.dtype, q.batch, q.m, q.n, Order::Padded);
  if (q.c == Addend::Row) c = Tensor(q.dtype, {q.batch, q.m, q.n}, {0, 0, 1});
  if (q.c == Addend::Column) c = Tensor(q.dtype, {q.batch, q.m, q.n}, {0, 1, 0});
  if (q.c == Addend::Batch) c = Tensor(q.dtype, {q.batch, q.m, q.n}, {0, q.n, 1});
  if (c.present()) c.fill(value);
  std::vector<double> want(static_cast<size_t>(q.batch * q.m * q.n));
  for (int64_t i = 0; i < q.batch; i++)
    for (int64_t r = 0; r < q.m; r++)
      for (int64_t s = 0; s < q.n; s++) {
        double v = q.alpha * product_at(a, b, i, r, s) +
                   (c.present() && q.beta != 0 ? q.beta * c.at({i, r, s}) : 0);
        if (q.dtype == DType::Bool) v = v != 0;
        if (q.dtype == DType::Int8) v = static_cast<int8_t>(static_cast<int64_t>(v));
        if (q.dtype == DType::UInt8) v = static_cast<uint8_t>(static_cast<int64_t>(v));
        want[static_cast<size_t>((i * q.m + r) * q.n + s)] = v;
      }
  run(what, "matmul", {&a, &b, &c}, {&y}, MatmulParams{q.alpha, q.beta});
  const double rtol = relative_tolerance(q.dtype), inner = q.dtype == DType::Float64 ? 1e-14 : 3e-7;
  if (floats)
    compare(what, y, want, rtol,
            (30 + double(q.k) * 2) * inner * 0.3 * std::fabs(q.alpha) +
                (q.c == Addend::None ? 0 : 4 * inner));
  else
    compare(what, y, want, 0, 0.1);
}

void all_cases(DType dtype, bool library) {
  begin((std::string("matmul ") + dtype_name(dtype) + (library ? ", cuBLASLt" : ", own kernels"))
            .c_str());
  const Order R = Order::Rows, C = Order::Columns, P = Order::Padded, O = Order::Odd,
              S = Order::Strided;
  const bool floats = is_floating(dtype);
  std::vector<Sizes> shapes = {{1, 1, 1, 1},     {2, 3, 5, 7},    {3, 64, 64, 64},
                               {1, 17, 64, 33},  {2, 65, 67, 71}, {1, 130, 140, 100},
                               {1, 128, 128, 32}};
  if (!options.quick && floats)
    shapes.insert(shapes.end(), {{1, 300, 257, 513}, {2, 200, 136, 264}, {5, 100, 72, 8}});
  if (options.sparse) shapes = {{1, 17, 64, 33}, {2, 65, 67, 71}, {1, 130, 140, 100}};
  for (const Sizes& s : shapes) {
    for (const Order a : {R, C})
      for (const Order b : {R, C})
        for (const Order y : {R, P}) matmul_case({dtype, s[0], s[1], s[2], s[3], a, b, y});
    matmul_case({dtype, s[0], s[1], s[2], s[3], O, O, O});
    matmul_case({dtype, s[0], s[1], s[2], s[3], S, C, R});
    matmul_case({dtype, s[0], s[1], s[2], s[3], P, S, S});
    matmul_case({dtype, s[0], s[1], s[2], s[3], R, R, C});
    for (const Addend c : {Addend::Full, Addend::Row, Addend::Column, Addend::Batch}) {
      matmul_case({dtype, s[0], s[1], s[2], s[3], R, C, R, c, 1, 1});
      matmul_case({dtype, s[0], s[1], s[2], s[3], R, R, P, c, floats ? 0.5 : 2, 3});
      matmul_case({dtype, s[0], s[1], s[2], s[3], R, R, C, c, 2, 1});
    }
    matmul_case({dtype, s[0], s[1], s[2], s[3], R, R, R, Addend::Full, 1, 0});
    matmul_case({dtype, s[0], s[1], s[2], s[3], P, C, P, Addend::None, 1, 1, true});
    matmul_case({dtype, s[0], s[1], s[2], s[3], R, C, R, Addend::Full, 1, 1, true});
    matmul_case({dtype, s[0], s[1], s[2], s[3], R, C, R, Addend::Row, 1, 1, true});
  }
  // Few rows or columns; k = 0; empty.
  for (const int64_t m : {1, 2, 3, 5, 8, 9})
    for (const int64_t k : {128, 264, 1000}) {
      if (options.sparse && (m == 2 || m == 8 || k == 128)) continue;
      matmul_case({dtype, 1, m, 100, k, R, C, R, Addend::Row});
      matmul_case({dtype, 2, 70, m, k, R, C, R});
      matmul_case({dtype, 2, m, 77, k, P, C, P, Addend::Full, 2, floats ? 0.5 : 3});
    }
  // Long columns, few and many.
  for (const int64_t m : {1, 2, 3, 5, 8})
    for (const int64_t k : {4120, 10000}) {
      matmul_case({dtype, 1, m, 7, k, R, C, R, Addend::Row});
      matmul_case({dtype, 2, 6, m, k, P, C, P, Addend::Full, 2, floats ? 0.5 : 3});
    }
  if (floats) matmul_case({dtype, 1, 1, 2051, 4104, R, C, R});
  matmul_case({dtype, 3, 1, 9, 4120, R, C, R});
  matmul_case({dtype, 2, 5, 6, 0, R, R, R});
  matmul_case({dtype, 2, 5, 6, 0, R, R, P, Addend::Row, 1, 2});
  matmul_case({dtype, 1, 0, 6, 3, R, R, R});
  matmul_case({dtype, 0, 4, 6, 3, R, R, R});
  end();
}

// More than 8 tile rows of matmul_sm80.cu: chosen by a table, and by rows that no other kernel
// takes.
void panels(DType dtype) {
  begin((std::string("matmul ") + dtype_name(dtype) + ", tile rows in panels").c_str());
  const auto expect_last = [](const char* wanted) {
    char last[80];
    shardwise::cuda::last_matmul(0, last, sizeof last);
    if (std::strcmp(last, wanted) != 0) problem(std::string(wanted) + " was not taken but " + last);
  };
  const Order R = Order::Rows, C = Order::Columns, O = Order::Odd;
  for (const Sizes& s : {Sizes{1, 1032, 136, 40}, Sizes{2, 1160, 72, 24}, Sizes{1, 1304, 264, 72}})
    for (const Order a : {R, C})
      for (const Order b : {R, C}) {
        if (options.quick && s[1] > 1160) continue;
        const char* layout = a == R ? (b == C ? "nt" : "nn") : (b == C ? "tt" : "tn");
        std::string line = std::string(dtype_name(dtype)) + " " + layout;
        for (const int64_t size : s) line += " " + std::to_string(size);
        line += " tensor-core tensor-core";
        ErrorText error;
        if (!shardwise::cuda::load_matmul_table(0, line.c_str(), &error).ok()) problem(error.text);
        const Addend c = s[1] == 1160 ? Addend::Full : Addend::None;
        matmul_case({dtype, s[0], s[1], s[2], s[3], a, b, Order::Padded, c, 0.5, 3});
        expect_last("tensor-core table");
      }
  shardwise::cuda::load_matmul_table(0, "", nullptr);
  for (const Sizes& s : {Sizes{1027, 141, 45}, Sizes{1281, 70, 33}}) {
    matmul_case({dtype, 1, s[0], s[1], s[2], O, O, O, Addend::Row});
    expect_last("tensor-core rule");
  }
  end();
}

using shardwise::cuda::matmul_route;
using shardwise::cuda::MatmulRoute;

}  // namespace

void test_matmul() {
  shardwise::cuda::lt::allow(false);
  matmul_route() = MatmulRoute::Own;
  for (const DType dtype : kFloats)
    if (dtype == DType::Float32 || !left_out(dtype)) all_cases(dtype, false);
  for (const DType dtype : {DType::Float16, DType::BFloat16})
    if (!left_out(dtype)) panels(dtype);
  shardwise::cuda::lt::allow(true);
  matmul_route() = MatmulRoute::Measured;
  for (const DType dtype : {DType::Int64, DType::Int32, DType::Int8, DType::UInt8, DType::Bool})
    if (dtype == DType::Int32 || !left_out(dtype)) all_cases(dtype, false);
}

void test_cublaslt() {
  printf("cuBLASLt: %s\n", shardwise::cuda::lt::report());
  if (shardwise::cuda::lt::state() != shardwise::cuda::lt::State::Ready) return;
  matmul_route() = MatmulRoute::Library;
  for (const DType dtype : kFloats) all_cases(dtype, true);
  matmul_route() = MatmulRoute::Measured;
}

}  // namespace selftest::floats
