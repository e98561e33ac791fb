// Tests foreach_copy, split_with_sizes_copy and chunk_cat.
#include "kernel_selftest_bytes.h"

namespace selftest::bytes {
namespace {

// Equal dtypes, the three floats, and pairs that convert element by element.
const std::pair<DType, DType> kPairs[] = {
    {DType::Float32, DType::Float32},  {DType::BFloat16, DType::BFloat16},
    {DType::UInt8, DType::UInt8},      {DType::Int64, DType::Int64},
    {DType::BFloat16, DType::Float32}, {DType::Float32, DType::BFloat16},
    {DType::Float16, DType::Float32},  {DType::BFloat16, DType::Float16},
    {DType::Float64, DType::Float32},  {DType::Int32, DType::Float16},
    {DType::Float32, DType::Bool},
};

// Expects `x`, rounded as the kernel rounds: through one tensor of the dtype.
void expect_copy(const std::string& kernel, const std::string& label, const Tensor& y,
                 const std::function<double(int64_t)>& x) {
  const Tensor rounded = make(y.dtype, {1});
  expect(kernel, label, y, [&](int64_t i) {
    rounded.set(0, x(i));
    return rounded.value(0);
  });
}

// Sizes around words, vectors and chunks, from several offsets.
const int64_t kSizes[] = {1, 7, 0, 515, 4095, 4096, 4097, 16384, 16401, 50001};

void test_foreach_copy() {
  for (const auto& [from, to] : kPairs) {
    std::vector<Tensor> y, x;
    uint64_t seed = 1;
    // 30 repeats: more tensors than a launch takes
    for (int64_t repeat = 0; repeat < 30; repeat++)
      for (int64_t size : kSizes) {
        if (repeat > 3 && size > 600) continue;
        x.push_back(uniform(from, {size}, seed++, -3, 3, repeat % 4));
        y.push_back(shifted(to, {size}, repeat % 3));
      }
    x.push_back(uniform(from, {8, 300}, seed++));  // rows of both, of y alone, columns
    y.push_back(make(to, {8, 307}).slice(1, 2, 1, 300));
    x.push_back(uniform(from, {8, 400}, seed++).slice(1, 0, 1, 31));
    y.push_back(make(to, {8, 31}));
    x.push_back(uniform(from, {40, 30}, seed++).transpose(0, 1));
    y.push_back(make(to, {30, 40}));
    x.push_back(uniform(from, {1, 30}, seed++).expand(0, 20));
    y.push_back(make(to, {20, 30}));
    x.push_back(uniform(from, {300, 5}, seed++).slice(1, 1, 1, 3));
    y.push_back(make(to, {300, 3}));
    std::vector<Tensor> all = y;
    all.insert(all.end(), x.begin(), x.end());
    if (!run("foreach_copy", all, {}, {static_cast<double>(y.size())}).ok()) continue;
    for (size_t t = 0; t < y.size(); t++)
      expect_copy("foreach_copy",
                  std::string("from ") + dtype_name(from) + ", tensor " + std::to_string(t), y[t],
                  [&, t = t](int64_t i) { return x[t].value(i); });
  }
}

void test_split() {
  for (const auto& [from, to] : kPairs)
    for (int64_t rows : {1, 2, 7}) {
      int64_t width = 0;
      std::vector<Tensor> tensors(1);
      for (int64_t size : kSizes) {
        tensors.push_back(shifted(to, {rows, size}, size % 5));
        width += size;
      }
      tensors[0] = uniform(from, {rows, width}, 9);
      const double count = static_cast<double>(tensors.size() - 1);
      if (!run("split_with_sizes_copy", tensors, {}, {count}).ok()) continue;
      int64_t column = 0;
      for (size_t t = 1; t < tensors.size(); t++) {
        const int64_t size = tensors[t].sizes[1];
        expect_copy("split_with_sizes_copy",
                    std::string("from ") + dtype_name(from) + ", part " + std::to_string(t - 1),
                    tensors[t], [&, column = column](int64_t i) {
                      return tensors[0].value(i / size * width + column + i % size);
                    });
        column += size;
      }
    }
}

void test_chunk_cat() {
  for (const auto& [from, to] : kPairs)
    for (int64_t chunks : {1, 3, 8})
      for (int64_t outer : {1, 3}) {
        std::vector<Tensor> x;
        std::vector<int64_t> lengths;
        int64_t width = 0;
        for (int64_t size : kSizes)
          for (int64_t inner : {1, 5}) {
            if (size * inner > 60000 || (outer > 1 && size > 5000)) continue;
            x.push_back(uniform(from, {outer, size, inner}, 70 + static_cast<uint64_t>(size)));
            lengths.push_back((size + chunks - 1) / chunks * inner);
            width += lengths.back();
          }
        const Tensor y = make(to, {outer * chunks, width});
        if (!run("chunk_cat", x, {y}, {static_cast<double>(x.size()), static_cast<double>(chunks)})
                 .ok())
          continue;
        int64_t column = 0;
        for (size_t t = 0; t < x.size(); t++) {
          const int64_t length = lengths[t], numel = x[t].sizes[1] * x[t].sizes[2];
          Tensor part = y.slice(1, column, 1, length);
          expect_copy("chunk_cat",
                      std::string("from ") + dtype_name(from) + ", tensor " + std::to_string(t),
                      part, [&](int64_t i) {
                        const int64_t row = i / length, at = row % chunks * length + i % length;
                        return at < numel ? x[t].value(row / chunks * numel + at) : 0.0;
                      });
          column += length;
        }
      }
}

}  // namespace

void test_copies() {
  test_foreach_copy();
  test_split();
  test_chunk_cat();
}

}  // namespace selftest::bytes
