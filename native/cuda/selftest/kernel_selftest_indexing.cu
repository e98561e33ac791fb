// Tests index_select, index_add, gather, scatter, index_get and index_put, and the error reports of
// indices out of range.
#include <algorithm>

#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

Tensor indices(const Sizes& sizes, int64_t n, uint64_t seed, DType dtype = DType::Int64,
               int64_t low = 0) {
  Random random(seed);
  return fill_with(make(dtype, sizes),
                   [&](int64_t) { return static_cast<double>(random.integer(low, n)); });
}

// The element of t at the given coordinates, as a linear index.
int64_t linear(const Tensor& t, const Sizes& at) {
  int64_t i = 0;
  for (size_t d = 0; d < at.size(); d++) i = i * t.sizes[d] + at[d];
  return i;
}

void test_index_select() {
  for (DType dtype : ends_of({DType::Float32, DType::BFloat16, DType::Int64, DType::Bool}))
    for (DType index_dtype : ends_of({DType::Int64, DType::Int32}))
      for (const Sizes& s : {Sizes{1, 50, 64}, Sizes{3, 20, 7}, Sizes{4, 9, 1}, Sizes{2, 5, 0}}) {
        const Tensor x = uniform(dtype, s, 1), index = indices({33}, s[1], 2, index_dtype);
        for (const Tensor& view : {x, x.transpose(0, 2)}) {
          if (view.sizes[1] == 0) continue;
          const Tensor y = make(dtype, {view.sizes[0], 33, view.sizes[2]});
          if (!run("index_select", {view, index}, {y}, {}).ok()) continue;
          const int64_t b = view.sizes[2];
          expect(
              "index_select", "3 dims", y,
              [&](int64_t i) {
                return view.value(linear(view, {i / b / 33, index.integer(i / b % 33), i % b}));
              },
              0);
        }
      }
}

// More words than one block handles; rows of every word width; operands that start at any address.
void test_index_select_blocks() {
  for (DType dtype : ends_of({DType::Float32, DType::BFloat16, DType::Int64, DType::Bool}))
    for (int64_t width : {1, 24, 64, 65})
      for (int64_t k : {0, 1, 400, 1025})
        for (int64_t start : {0, 1, 8}) {
          const Tensor x = uniform(dtype, {2, 40, width}, 1, -3, 3, start),
                       index = indices({k + 1}, 40, 2).slice(0, 1, 1, k),
                       y = shifted(dtype, {2, k, width}, start);
          if (!run("index_select", {x, index}, {y}, {}).ok()) continue;
          expect(
              "index_select",
              std::to_string(k) + " of " + std::to_string(width) + " from " + std::to_string(start),
              y,
              [&](int64_t i) {
                return x.value(linear(x, {i / width / k, index.integer(i / width % k), i % width}));
              },
              0);
        }
}

void test_index_add() {
  for (DType dtype : ends_of({DType::Float32, DType::BFloat16, DType::Float64, DType::Int32}))
    for (int64_t k : {0, 1, 40, 3000})
      for (const Sizes& s : {Sizes{1, 10, 40}, Sizes{3, 300, 5}, Sizes{1, 1, 1}, Sizes{1, 700, 264},
                             Sizes{1, 90, 2304}}) {
        if (k * s[2] > 1000000 && s[1] > 100) continue;
        const Tensor index = indices({k}, s[1], 3),
                     source = uniform(dtype, {s[0], k, s[2]}, 4, -5, 5),
                     y = uniform(dtype, s, 5, -5, 5), base = y.clone();
        const double alpha = is_floating(dtype) ? 0.5 : 2;
        std::vector<double> expected, magnitude;
        for (int64_t i = 0; i < y.numel(); i++)
          expected.push_back(base.value(i)), magnitude.push_back(1);
        for (int64_t a = 0; a < s[0]; a++)
          for (int64_t j = 0; j < k; j++)
            for (int64_t b = 0; b < s[2]; b++)
              expected[static_cast<size_t>(linear(y, {a, index.integer(j), b}))] +=
                  alpha * source.value(linear(source, {a, j, b}));
        if (!run("index_add", {index, source}, {y}, {alpha}).ok()) continue;
        expect(
            "index_add", "k " + std::to_string(k), y,
            [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 10);
      }
}

void test_gather() {
  for (DType dtype : all_dtypes()) {
    const Tensor x = uniform(dtype, {6, 8, 30}, 6), index = indices({5, 8, 11}, 30, 7);
    const Tensor y = make(dtype, {5, 8, 11});
    if (run("gather", {x, index}, {y}, {}).ok())
      expect(
          "gather", "3 dims", y,
          [&](int64_t i) {
            return x.value(linear(x, {i / 88, i / 11 % 8, index.integer(i)}));
          },
          0);
    const Tensor view = x.transpose(1, 2), index2 = indices({6, 30, 4}, 8, 8, DType::Int32),
                 y2 = make(dtype, {6, 4, 30}).transpose(1, 2);
    if (run("gather", {view, index2}, {y2}, {}).ok())
      expect(
          "gather", "strided", y2,
          [&](int64_t i) {
            return view.value(linear(view, {i / 120, i / 4 % 30, index2.integer(i)}));
          },
          0);
  }
  // One element less and more than a block handles, several blocks, one element, no element;
  // operands that start at any address.
  for (DType dtype : ends_of({DType::Float32, DType::BFloat16, DType::Int64, DType::Bool}))
    for (int64_t n : {0, 1, 255, 1023, 1024, 1025, 3001})
      for (int64_t rows : {1, 3})
        for (int64_t start : {0, 1}) {
          const Tensor x = uniform(dtype, {rows, 41}, 6).slice(1, start, 1, 40),
                       index = indices({rows, n + start}, 40, 7).slice(1, start, 1, n),
                       y = make(dtype, {rows, n + start}).slice(1, start, 1, n);
          if (!run("gather", {x, index}, {y}, {}).ok()) continue;
          expect(
              "gather",
              std::to_string(rows) + " rows of " + std::to_string(n) + " from " +
                  std::to_string(start),
              y,
              [&](int64_t i) {
                return x.value(linear(x, {i / n, index.integer(i)}));
              },
              0);
        }
}

double combined(int reduce, double a, double b) {
  switch (reduce) {
    case 1:
      return a + b;
    case 2:
      return a * b;
    case 3:
      return std::fmax(a, b);
    case 4:
      return std::fmin(a, b);
    default:
      return b;
  }
}

void scatter_case(const std::string& label, const Tensor& index, const Tensor& source,
                  const Tensor& y, int reduce) {
  const Tensor before = y.clone();
  const int64_t k = index.sizes.back();
  std::vector<double> expected;
  for (int64_t i = 0; i < y.numel(); i++) expected.push_back(before.value(i));
  for (int64_t i = 0; i < index.numel(); i++) {
    Sizes at(index.sizes.size());
    int64_t rest = i / k;
    for (int64_t d = static_cast<int64_t>(at.size()) - 2; d >= 0; d--)
      at[static_cast<size_t>(d)] = rest % index.sizes[static_cast<size_t>(d)],
      rest /= index.sizes[static_cast<size_t>(d)];
    at.back() = index.integer(i);
    double& target = expected[static_cast<size_t>(linear(y, at))];
    target = combined(reduce, target, source.storage ? source.value(i) : source.scalar);
  }
  if (!run("scatter", {index, source}, {y}, {static_cast<double>(reduce)}).ok()) return;
  expect(
      "scatter", label + ", reduce " + std::to_string(reduce), y,
      [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 10);
}

void test_scatter() {
  for (DType dtype :
       ends_of({DType::Float32, DType::BFloat16, DType::Float64, DType::Int64, DType::Int32}))
    for (int reduce : ends_of({1, 0, 2, 3, 4})) {
      const double low = reduce == 2 && !is_floating(dtype) ? 1
                         : reduce == 2                      ? 0.99
                                                            : -5,
                   high = reduce == 2 ? is_floating(dtype) ? 1.01 : 1.5 : 5;
      const auto x = [&](const Sizes& s, uint64_t seed) {
        return uniform(dtype, s, seed, low, high);
      };
      scatter_case("short rows", indices({5, 7, 12}, 9, 1), x({5, 7, 12}, 2), x({6, 7, 9}, 3),
                   reduce);
      scatter_case("long rows", indices({3, 500}, 40, 4), x({3, 500}, 5), x({3, 40}, 6), reduce);
      scatter_case("histogram", indices({5000}, 3, 7), x({5000}, 8), x({3}, 9), reduce);
      scatter_case("rows of a block", indices({2, 3, 2048}, 3000, 20), x({2, 3, 2048}, 21),
                   x({2, 3, 3000}, 22), reduce);
      scatter_case("few targets", indices({2, 1025}, 2, 23), x({2, 1025}, 24), x({2, 2}, 25),
                   reduce);
      if (reduce < 2)
        scatter_case("many targets", indices({2, 65}, (1 << 21) + 9, 26), x({2, 65}, 27),
                     x({2, (1 << 21) + 9}, 28), reduce);
      scatter_case("longer rows", indices({3, 2049}, 500, 29), x({3, 2049}, 30), x({3, 500}, 31),
                   reduce);
      scatter_case("strided", indices({90, 20}, 11, 10, DType::Int32).transpose(0, 1),
                   x({90, 20}, 11).transpose(0, 1), x({11, 20}, 12).transpose(0, 1), reduce);
      scatter_case("a number", indices({4, 100}, 50, 13), number(1.0, dtype), x({4, 50}, 14),
                   reduce);
      scatter_case("no index", indices({4, 0}, 50, 13), x({4, 0}, 1), x({4, 50}, 14), reduce);
    }
}

void index_get_case(const std::string& label, const Tensor& x, const std::vector<Tensor>& index,
                    int64_t start = 0) {
  const int64_t k = static_cast<int64_t>(index.size()), positions = index[0].numel();
  Sizes sizes = index[0].sizes;
  int64_t rest = 1;
  for (size_t d = index.size(); d < x.sizes.size(); d++)
    sizes.push_back(x.sizes[d]), rest *= x.sizes[d];
  const Tensor y = shifted(x.dtype, sizes, start);
  std::vector<Tensor> inputs = {x};
  inputs.insert(inputs.end(), index.begin(), index.end());
  if (!run("index_get", inputs, {y}, {static_cast<double>(k)}).ok()) return;
  const auto row = [&](int64_t p) {
    int64_t r = 0;
    for (size_t i = 0; i < index.size(); i++) {
      const int64_t v = index[i].integer(p);
      r = r * x.sizes[i] + (v < 0 ? v + x.sizes[i] : v);
    }
    return r;
  };
  expect(
      "index_get", label, y, [&](int64_t i) { return x.value(row(i / rest) * rest + i % rest); },
      0);
  // index_put of the values read plus fresh ones: without accumulation the last of equal targets
  // wins, with it all are added.
  for (bool accumulate : {false, true}) {
    const Tensor values = uniform(x.dtype, sizes, 99, -5, 5, start), before = x.clone(),
                 target = fill_with(shifted(x.dtype, x.sizes, start),
                                    [&](int64_t i) { return before.value(i); });
    std::vector<double> expected;
    for (int64_t i = 0; i < x.numel(); i++) expected.push_back(before.value(i));
    for (int64_t p = 0; p < positions; p++)
      for (int64_t c = 0; c < rest; c++) {
        double& t = expected[static_cast<size_t>(row(p) * rest + c)];
        t = accumulate ? t + values.value(p * rest + c) : values.value(p * rest + c);
      }
    std::vector<Tensor> put = {values};
    put.insert(put.end(), index.begin(), index.end());
    if (run("index_put", put, {target}, {static_cast<double>(k), accumulate ? 1.0 : 0.0}).ok())
      expect(
          "index_put", label + (accumulate ? " accumulate" : ""), target,
          [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 10);
  }
}

void test_index_tuples() {
  for (DType dtype : ends_of({DType::Float32, DType::BFloat16, DType::Float64, DType::Int64})) {
    const Tensor x = uniform(dtype, {12, 9, 32}, 1, -5, 5);
    index_get_case("1 index", x, {indices({50}, 12, 2, DType::Int64, -12)});
    index_get_case("1 index of 2 dims", x, {indices({5, 8}, 12, 3).transpose(0, 1)});
    index_get_case("scalar index", x, {indices({}, 12, 3)});
    index_get_case("2 indices", x,
                   {indices({7, 6}, 12, 4, DType::Int64, -12),
                    indices({6, 7}, 9, 5, DType::Int32).transpose(0, 1)});
    index_get_case(
        "3 indices", x,
        {indices({3000}, 12, 6), indices({3000}, 9, 7), indices({1}, 32, 8).expand(0, 3000)});
    index_get_case("odd rest", uniform(dtype, {6, 5, 3}, 9), {indices({40}, 6, 10)});
    index_get_case("many", uniform(dtype, {300, 4}, 9), {indices({5000}, 300, 10)});
    index_get_case("no index", x, {indices({0}, 12, 2)});
    for (int64_t start : {1, 2, 8})  // the last start is a multiple of 16 bytes for 16-bit dtypes
      index_get_case("from " + std::to_string(start), uniform(dtype, {70, 7, 40}, 9, -5, 5, start),
                     {indices({60}, 70, 3)}, start);
  }
}

// More keys than 32 bits can count, in little memory: the large dims have stride 0, so equal
// targets have equal keys.
void test_wide_keys() {
  const int64_t outer = (int64_t(1) << 21) + 1, inner = 4099;
  for (DType dtype : ends_of({DType::Float32, DType::BFloat16, DType::Float64, DType::Int64}))
    for (int64_t rest : {3, 128})  // element by element, and rows of vectors
      for (const Sizes& s : {Sizes{50, 700}, Sizes{3000, inner}, Sizes{3000, 40}}) {
        const int64_t count = s[0], used = s[1];
        const std::string label =
            "wide keys, " + std::to_string(count) + " of " + std::to_string(used);
        const Tensor whole = uniform(dtype, {inner, rest}, 1, -5, 5), before = whole.clone(),
                     values = uniform(dtype, {count, rest}, 3, -5, 5),
                     y = make(dtype, {count, rest}), b = indices({count}, used, 2),
                     a = make(DType::Int64, {count});
        fill_with(a,
                  [&](int64_t i) { return static_cast<double>(outer - 1 - b.integer(i) * 511); });
        Tensor many = whole;
        many.sizes = {outer, inner, rest};
        many.strides = {0, rest, 1};
        if (run("index_get", {many, a, b}, {y}, {2}).ok())
          expect(
              "index_get", label, y,
              [&](int64_t i) { return before.value(b.integer(i / rest) * rest + i % rest); }, 0);
        for (bool accumulate : {false, true}) {
          std::vector<double> expected;
          for (int64_t i = 0; i < whole.numel(); i++)
            expected.push_back(before.value(i)), whole.set(i, before.value(i));
          for (int64_t i = 0; i < values.numel(); i++) {
            double& t = expected[static_cast<size_t>(b.integer(i / rest) * rest + i % rest)];
            t = accumulate ? t + values.value(i) : values.value(i);
          }
          if (run("index_put", {values, a, b}, {many}, {2, accumulate ? 1.0 : 0.0}).ok())
            expect(
                "index_put", label, whole,
                [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 10);
        }
      }
}

// The same for scatter, whose rows share memory and own different columns, and for index_add to one
// target.
void test_wide_rows() {
  const int64_t rows = 4001, n = 1100003, k = 70, own = n / rows;
  Random random(4);
  for (DType dtype : ends_of({DType::Float32, DType::Int64}))
    for (int reduce : {0, 1}) {
      const Tensor whole = uniform(dtype, {n}, 1, -5, 5),
                   source = uniform(dtype, {rows, k}, 2, -5, 5),
                   index = make(DType::Int64, {rows, k});
      fill_with(index, [&](int64_t i) {
        return static_cast<double>(i / k * own + random.integer(0, own));
      });
      std::vector<double> expected;
      for (int64_t i = 0; i < n; i++) expected.push_back(whole.value(i));
      for (int64_t i = 0; i < index.numel(); i++) {
        double& target = expected[static_cast<size_t>(index.integer(i))];
        target = combined(reduce, target, source.value(i));
      }
      Tensor many = whole;
      many.sizes = {rows, n};
      many.strides = {0, 1};
      if (run("scatter", {index, source}, {many}, {static_cast<double>(reduce)}).ok())
        expect(
            "scatter", "wide keys", whole,
            [&](int64_t i) { return expected[static_cast<size_t>(i)]; }, 10);
    }
  const int64_t size = (int64_t(1) << 32) + 10, target = size - 3;
  for (DType dtype : ends_of({DType::Float32, DType::BFloat16, DType::Int32}))
    for (int64_t count : {1, 9, 100})
      for (int64_t width : {5, 128}) {
        const Tensor whole = uniform(dtype, {1, 1, width}, 1, -5, 5), before = whole.clone(),
                     source = uniform(dtype, {1, count, width}, 2, -5, 5),
                     index = fill_with(make(DType::Int64, {count}),
                                       [&](int64_t) { return static_cast<double>(target); });
        if (!run("index_add", {index, source}, {whole.expand(1, size)}, {2}).ok()) continue;
        expect(
            "index_add", "wide keys", whole,
            [&](int64_t i) {
              double sum = before.value(i);
              for (int64_t j = 0; j < count; j++) sum += 2 * source.value(j * width + i);
              return sum;
            },
            10);
      }
}

void test_bad_indices() {
  struct Bad {
    const char* kernel;
    std::vector<Tensor> inputs, outputs;
    std::vector<double> params;
    const char* expected;
  };
  const auto bad_index = [](const Sizes& sizes, int64_t position, double value) {
    const Tensor t = fill_with(make(DType::Int64, sizes), [](int64_t) { return 0.0; });
    t.set(position, value);
    return t;
  };
  const auto f = [](const Sizes& s) { return uniform(DType::Float32, s, 1); };
  const std::vector<Bad> list = {
      {"index_select",
       {f({1, 5, 4}), bad_index({6}, 3, 5)},
       {f({1, 6, 4})},
       {},
       "index 5 at position 3 is out of range for size 5"},
      {"index_select",
       {f({1, 5, 4}), bad_index({6}, 2, -1)},
       {f({1, 6, 4})},
       {},
       "index -1 at position 2 is out of range for size 5"},
      {"index_add",
       {bad_index({6}, 4, 7), f({1, 6, 4})},
       {f({1, 5, 4})},
       {1},
       "index 7 at position 4 is out of range for size 5"},
      {"gather",
       {f({2, 5}), bad_index({2, 3}, 4, 9)},
       {f({2, 3})},
       {},
       "index 9 at position 4 is out of range for size 5"},
      {"scatter",
       {bad_index({2, 3}, 5, -2), f({2, 3})},
       {f({2, 5})},
       {0},
       "index -2 at position 5 is out of range for size 5"},
      {"index_get",
       {f({5, 4}), bad_index({6}, 1, -6)},
       {f({6, 4})},
       {1},
       "index -6 at position 1 is out of range for size 5"},
      {"index_put",
       {f({6, 4}), bad_index({6}, 1, 5)},
       {f({5, 4})},
       {1, 0},
       "index 5 at position 1 is out of range for size 5"},
  };
  for (const Bad& b : list) {
    ErrorText error;
    const Status status = run(b.kernel, b.inputs, b.outputs, b.params, &error);
    const bool ok = status.code == Code::Index && strstr(error.text, b.expected) &&
                    strstr(error.text, b.kernel);
    report(b.kernel, ok, std::string("expected an index error, got: ") + error.text);
    ErrorText none;
    report(b.kernel, backend->stream_synchronize(stream, &none).ok(),
           "the error is still there after it was read");
  }
}

}  // namespace

void test_indexing() {
  test_index_select();
  test_index_select_blocks();
  test_index_add();
  test_gather();
  test_scatter();
  test_index_tuples();
  test_wide_keys();
  test_wide_rows();
  test_bad_indices();
}

}  // namespace selftest::bytes
