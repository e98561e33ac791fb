// Tests copy, fill, arange, linspace, tri, random_* and dropout.
#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

double rounded(double value, DType to) {
  switch (to) {
    case DType::Float32:
      return static_cast<float>(value);
    case DType::Float16:
      return __half2float(__double2half(value));
    case DType::BFloat16:
      return __bfloat162float(__double2bfloat16(value));
    default:
      return value;
  }
}

double converted(const Tensor& x, int64_t i, DType to) {
  if (to == DType::Bool) return x.value(i) != 0;
  if (is_floating(to)) return rounded(x.value(i), to);
  const int64_t v = is_floating(x.dtype) ? static_cast<int64_t>(x.value(i)) : x.integer(i);
  switch (to) {
    case DType::Int32:
      return static_cast<int32_t>(v);
    case DType::Int16:
      return static_cast<int16_t>(v);
    case DType::Int8:
      return static_cast<int8_t>(v);
    case DType::UInt8:
      return static_cast<uint8_t>(v);
    default:
      return static_cast<double>(v);
  }
}

void copy_case(const std::string& label, const Tensor& x, const Tensor& y) {
  if (!run("copy", {x}, {y}, {}).ok()) return;
  expect(
      "copy", label, y, [&](int64_t i) { return converted(x, i, y.dtype); }, 0);
}

void test_copy() {
  for (DType from : all_dtypes())
    for (DType to : all_dtypes()) {
      const Tensor x = uniform(from, {37, 24}, 3, is_floating(from) ? -90 : -100, 90);
      copy_case(std::string("from ") + dtype_name(from), x, make(to, {37, 24}));
      copy_case(std::string("transposed from ") + dtype_name(from), x.transpose(0, 1),
                make(to, {24, 37}));
      const Tensor wide = uniform(from, {37, 40}, 12, is_floating(from) ? -90 : -100, 90);
      // whole vectors of float32 (12), and of all dtypes (24)
      for (const int64_t n : {int64_t(12), int64_t(24)})
        copy_case(std::string("parts of rows from ") + dtype_name(from), wide.slice(1, 8, 1, n),
                  make(to, {37, n}));
    }
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Bool, DType::Float64}) {
    const Tensor x = uniform(dtype, {3, 70, 45, 8}, 4);
    copy_case("contiguous", x, make(dtype, {3, 70, 45, 8}));
    copy_case("permuted, rows dense", x.transpose(1, 2), make(dtype, {3, 45, 70, 8}));
    copy_case("permuted, rows not dense", x.transpose(1, 3), make(dtype, {3, 8, 45, 70}));
    copy_case("into a permuted output", x, make(dtype, {3, 8, 45, 70}).transpose(1, 3));
    copy_case("sliced", x.slice(1, 3, 2, 30).slice(3, 1, 1, 5), make(dtype, {3, 30, 45, 5}));
    copy_case("into a slice", uniform(dtype, {3, 30, 45, 5}, 5),
              x.clone().slice(1, 3, 2, 30).slice(3, 1, 1, 5));
    copy_case("expanded", uniform(dtype, {1, 50}, 6).expand(0, 33), make(dtype, {33, 50}));
    copy_case("empty", make(dtype, {0, 3}), make(dtype, {0, 3}));
    copy_case("scalar", uniform(dtype, {}, 7), make(dtype, {}));
    copy_case("large", uniform(dtype, {options.large}, 8), make(dtype, {options.large}));
    copy_case("large transposed", uniform(dtype, {1009, options.large / 1009}, 9).transpose(0, 1),
              make(dtype, {options.large / 1009, 1009}));
  }
  // Transposes in 16-byte vectors with whole and partial tiles; and sizes, strides and addresses
  // that do not allow vectors.
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Int32, DType::Float16})
    for (const Sizes& s : {Sizes{1, 128, 128}, Sizes{1, 64, 72}, Sizes{3, 136, 264},
                           Sizes{1, 520, 1000}, Sizes{2, 129, 128}, Sizes{1, 100, 300}}) {
      const Tensor x = uniform(dtype, s, 11);
      copy_case("transposed", x.transpose(1, 2), make(dtype, {s[0], s[2], s[1]}));
      copy_case("transposed slice", x.slice(2, 1, 1, s[2] - 8).transpose(1, 2),
                make(dtype, {s[0], s[2] - 8, s[1]}));
      copy_case("transposed into a slice", x.transpose(1, 2),
                make(dtype, {s[0], s[2], s[1] + 24}).slice(2, 8, 1, s[1]));
    }
  copy_case("large conversion", uniform(DType::Float32, {options.large / 8 * 8}, 10),
            make(DType::BFloat16, {options.large / 8 * 8}));
}

void test_fill() {
  for (DType dtype : all_dtypes())
    for (int64_t n : {0, 1, 15, 64, 1001}) {
      const double value = is_floating(dtype) ? -1.5 : dtype == DType::Bool ? 1 : 77;
      const Tensor y = make(dtype, {n});
      if (run("fill", {}, {y},
              is_floating(dtype) ? std::vector<double>{value, 0} : std::vector<double>{0, value})
              .ok())
        expect(
            "fill", "1-D", y, [&](int64_t) { return value; }, 0);
    }
  // More than one block; words of every width, by size and by alignment; and the elements beside
  // them.
  for (DType dtype : all_dtypes())
    for (int64_t n : {1024, 1025, 20000, 20001, 20002, 20004, 20008})
      for (int64_t start : {0, 1, 4}) {
        const double value = is_floating(dtype) ? -1.5 : 1;
        const Tensor all = fill_with(make(dtype, {start + n + 3}), [](int64_t) { return 0.0; });
        const Tensor y = all.slice(0, start, 1, n);
        if (run("fill", {}, {y},
                is_floating(dtype) ? std::vector<double>{value, 0} : std::vector<double>{0, value})
                .ok())
          expect(
              "fill", std::to_string(n) + " from " + std::to_string(start), all,
              [&](int64_t i) { return i >= start && i < start + n ? value : 0.0; }, 0);
      }
  const Tensor whole =
      fill_with(make(DType::Int32, {6, 10}), [](int64_t i) { return static_cast<double>(i); });
  const Tensor slice = whole.slice(1, 2, 3, 2);
  run("fill", {}, {slice}, {-1, 4294967294.0});  // -2
  expect_integers("fill", "slice", whole,
                  [&](int64_t i) { return i % 10 == 2 || i % 10 == 5 ? -2 : i; });
  const Tensor wide = make(DType::Int64, {5});
  run("fill", {}, {wide}, {1048576, 5});
  expect_integers("fill", "64 bits", wide, [](int64_t) { return (int64_t(1) << 52) + 5; });
}

void test_sequences() {
  for (DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Int64, DType::Int32})
    for (int64_t n : {int64_t(0), int64_t(1), int64_t(2), int64_t(1000), int64_t(5003)}) {
      const Tensor y = make(dtype, {n});
      if (run("arange", {}, {y}, {-3, 2}).ok())
        expect("arange", "n " + std::to_string(n), y,
               [](int64_t i) { return -3.0 + 2.0 * static_cast<double>(i); });
      if (!is_floating(dtype)) continue;
      if (run("linspace", {}, {y}, {-1, 3}).ok())
        expect("linspace", "n " + std::to_string(n), y, [&](int64_t i) {
          return n == 1 ? -1.0 : -1 + 4.0 * static_cast<double>(i) / static_cast<double>(n - 1);
        });
    }
}

void test_tri() {
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Int64, DType::Bool})
    for (int64_t diagonal : {-40, -2, 0, 3, 40})
      for (double upper : {0.0, 1.0}) {
        const Tensor x = uniform(dtype, {3, 17, 23}, 12, 1, 5);
        for (const Tensor& view : {x, x.transpose(1, 2)}) {
          const int64_t rows = view.sizes[1], columns = view.sizes[2];
          const Tensor y = make(dtype, view.sizes);
          if (run("tri", {view}, {y}, {static_cast<double>(diagonal), upper}).ok())
            expect(
                "tri", "diagonal " + std::to_string(diagonal), y,
                [&](int64_t i) {
                  const int64_t distance = i % columns - i / columns % rows;
                  return (upper != 0 ? distance >= diagonal : distance <= diagonal) ? view.value(i)
                                                                                    : 0.0;
                },
                0);
        }
      }
}

// Philox4x32-10 as native/README.md defines it, written independently of the kernels.
struct Words {
  uint32_t at[4];
};
Words philox(uint32_t seed_low, uint32_t seed_high, uint64_t counter, uint64_t offset) {
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                   static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32)};
  uint32_t k[2] = {seed_low, seed_high};
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
        static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    memcpy(c, next, sizeof c);
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

constexpr uint32_t kSeedLow = 4123456789u, kSeedHigh = 77u;
constexpr uint64_t kOffset = (uint64_t(9) << 32) + 5;

uint32_t word(uint64_t e) { return philox(kSeedLow, kSeedHigh, e / 4, kOffset).at[e % 4]; }
uint64_t wide_word(uint64_t e) {
  const Words w = philox(kSeedLow, kSeedHigh, e / 2, kOffset);
  return (static_cast<uint64_t>(w.at[e % 2 * 2 + 1]) << 32) | w.at[e % 2 * 2];
}
double uniform_value(uint64_t e) { return (word(e) >> 8) * 0x1p-24; }
double normal_value(uint64_t e) {
  const double u0 = uniform_value(e & ~uint64_t(1)), u1 = uniform_value(e | 1),
               radius = std::sqrt(-2 * std::log(1 - u0));
  return radius * (e % 2 ? std::sin(2 * M_PI * u1) : std::cos(2 * M_PI * u1));
}

Tensor index_view(const Sizes& sizes, const Sizes& strides, double first) {
  Tensor t = number(first, DType::Int64);
  t.sizes = sizes;
  t.strides = strides;
  return t;
}

void random_case(const Tensor& y, const Tensor& index, const std::string& label) {
  const auto element = [&](int64_t i) {
    return static_cast<uint64_t>(index.scalar) + static_cast<uint64_t>(index.at(i));
  };
  const double seed[] = {kSeedLow, kSeedHigh, static_cast<double>(kOffset)};
  const auto params = [&](std::initializer_list<double> more) {
    std::vector<double> p(seed, seed + 3);
    p.insert(p.end(), more);
    return p;
  };
  if (is_floating(y.dtype)) {
    if (run("random_uniform", {index}, {y}, params({-2, 3})).ok())
      expect("random_uniform", label, y, [&](int64_t i) {
        return -2 + 5 * (y.dtype == DType::Float64
                             ? static_cast<double>(wide_word(element(i)) >> 11) * 0x1p-53
                             : uniform_value(element(i)));
      });
    if (run("random_normal", {index}, {y}, params({0.5, 2})).ok())
      expect(
          "random_normal", label, y, [&](int64_t i) { return 0.5 + 2 * normal_value(element(i)); },
          4);  // logarithm, root, sine and products are rounded each
  }
  const int64_t high = y.dtype == DType::Bool ? 2 : 100,
                low = y.dtype == DType::UInt8 || y.dtype == DType::Bool ? 0 : -20;
  if (run("random_integer", {index}, {y},
          params({static_cast<double>(low), static_cast<double>(high)}))
          .ok())
    expect("random_integer", label, y, [&](int64_t i) {
      return static_cast<double>(
          low + static_cast<int64_t>(wide_word(element(i)) % static_cast<uint64_t>(high - low)));
    });
  if (y.dtype == DType::Int64)
    for (double span : {1.0, 2147483647.0, 4294967296.0, 4294967297.0, 1e15, 9007199254740991.0})
      if (run("random_integer", {index}, {y}, params({-3, span - 3})).ok())
        expect_integers(
            "random_integer", label + ", a span of " + std::to_string(span), y, [&](int64_t i) {
              return static_cast<int64_t>(wide_word(element(i)) % static_cast<uint64_t>(span)) - 3;
            });
  if (run("random_bernoulli", {index}, {y}, params({0.3})).ok())
    expect("random_bernoulli", label, y, [&](int64_t i) {
      return static_cast<double>(static_cast<float>(uniform_value(element(i))) < 0.3f);
    });
}

void dropout_case(const std::string& label, const Tensor& x, const Tensor& y, const Tensor& mask,
                  const Tensor& index, double p) {
  if (!run("dropout", {x, index}, {y, mask}, {kSeedLow, kSeedHigh, static_cast<double>(kOffset), p})
           .ok())
    return;
  const auto kept = [&](int64_t i) {
    const uint64_t element =
        static_cast<uint64_t>(index.scalar) + static_cast<uint64_t>(index.at(i));
    return static_cast<float>(uniform_value(element)) >= static_cast<float>(p);
  };
  expect("dropout", label + ", y", y,
         [&](int64_t i) { return kept(i) ? x.value(i) / (1 - p) : 0.0; });
  expect("dropout", label + ", mask", mask,
         [&](int64_t i) { return static_cast<double>(kept(i)); });
}

void test_dropout() {
  for (DType dtype : kFloats)
    for (double p : {0.0, 0.25, 1.0}) {
      const Tensor x = uniform(dtype, {20, 31}, 5);
      for (const Tensor& view : {x, x.transpose(0, 1)})
        dropout_case("2 dims", view, make(dtype, view.sizes), make(DType::Bool, view.sizes),
                     index_view(view.sizes, {view.sizes[1], 1}, 4), p);
    }
  // More than one block; operands at any address, all of them or one; elements that share no Philox
  // block.
  for (DType dtype : kFloats)
    for (int64_t n : {0, 1, 3, 1023, 1024, 1025, 4098, 5000}) {
      const auto from = [&](int64_t x, int64_t y, int64_t mask, double first) {
        dropout_case(std::to_string(n) + " from " + std::to_string(x) + std::to_string(y) +
                         std::to_string(mask),
                     uniform(dtype, {n}, 6, -3, 3, x), shifted(dtype, {n}, y),
                     shifted(DType::Bool, {n}, mask), index_view({n}, {1}, first), 0.4);
      };
      from(0, 0, 0, 8);
      from(0, 0, 0, 7);
      from(1, 0, 0, 8);
      from(0, 1, 0, 8);
      from(0, 0, 1, 8);
      from(1, 1, 1, 5);
    }
}

void test_random() {
  for (DType dtype : all_dtypes()) {
    random_case(make(dtype, {1001}), index_view({1001}, {1}, 0), "dense");
    random_case(make(dtype, {1001}), index_view({1001}, {1}, 6), "start 6");
    random_case(make(dtype, {}), index_view({}, {}, 3), "scalar");
    random_case(make(dtype, {12, 10}), index_view({12, 10}, {40, 1}, 13), "a shard of columns");
    random_case(make(dtype, {10, 12}).transpose(0, 1), index_view({12, 10}, {10, 1}, 0),
                "transposed output");
    random_case(make(dtype, {0}), index_view({0}, {1}, 0), "empty");
  }
  random_case(make(DType::Float32, {options.large}), index_view({options.large}, {1}, 8), "large");
}

}  // namespace

void test_memory() {
  test_copy();
  test_fill();
  test_sequences();
  test_tri();
  test_random();
  test_dropout();
}

}  // namespace selftest::bytes
