// sort and topk along the last dim. Stable; NaN counts as larger than every number.
#include <algorithm>
#include <vector>

#include "generated/op_params.h"
#include "kernel_call.h"
#include "row_math.h"

namespace shardwise::cpu {

namespace {

template <class T>
struct Item {
  T value;
  int64_t index;
};

template <class T>
bool less(T a, T b) {
  return a < b || (b != b && a == a);
}

// Calls order(items of a row) and writes the first `keep` values and indices.
template <class Order>
Status by_rows(const KernelCall& call, int64_t keep, Order order) {
  const TensorView &x = call.input(0), &values = call.output(0), &indices = call.output(1);
  if (values.numel == 0) return kOk;
  const int64_t n = x.ndim ? x.sizes[x.ndim - 1] : 1;
  with_compute_type(x.dtype, [&](auto type) {
    using T = decltype(type);
    parallel_for(x.numel / n, row_grain(n * 8), [&](int64_t begin, int64_t end) {
      std::vector<T> row_values(static_cast<size_t>(n));
      std::vector<int64_t> row_indices(static_cast<size_t>(n));
      std::vector<Item<T>> items(static_cast<size_t>(n));
      for (int64_t row = begin; row < end; row++) {
        gather(x, row * n, n, row_values.data());
        for (int64_t i = 0; i < n; i++) items[i] = {row_values[i], i};
        order(items);
        for (int64_t i = 0; i < keep; i++) {
          row_values[i] = items[i].value;
          row_indices[i] = items[i].index;
        }
        scatter(values, row * keep, keep, row_values.data());
        scatter(indices, row * keep, keep, row_indices.data());
      }
    });
  });
  return kOk;
}

}  // namespace

Status sort(const KernelCall& call) {
  const bool descending = call.params_as<SortParams>().descending != 0;
  const TensorView& x = call.input(0);
  return by_rows(call, x.ndim ? x.sizes[x.ndim - 1] : 1, [&](auto& items) {
    std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
      return descending ? less(b.value, a.value) : less(a.value, b.value);
    });
  });
}

Status topk(const KernelCall& call) {
  const auto& p = call.params_as<TopkParams>();
  const bool largest = p.largest != 0;
  const auto k = static_cast<int64_t>(p.k);
  return by_rows(call, k, [&](auto& items) {
    std::partial_sort(
        items.begin(), items.begin() + k, items.end(), [&](const auto& a, const auto& b) {
          const bool first = largest ? less(b.value, a.value) : less(a.value, b.value);
          const bool second = largest ? less(a.value, b.value) : less(b.value, a.value);
          return first || (!second && a.index < b.index);
        });
  });
}

}  // namespace shardwise::cpu
