// bernoulli_probabilities, multinomial_weights: copies of what elements are drawn by. The command
// fails if nothing can be drawn by a value, the first one whatever the number of threads.
#include <atomic>
#include <limits>

#include "../../include/draw_fault.h"
#include "../../include/kernel_call.h"
#include "../row_math.h"

namespace shardwise::cpu {
namespace {

#define SW_CHECKS(T)                                                         \
  SW_CLONES bool within(const T* x, T most, int64_t n) {                     \
    int32_t outside = 0;                                                     \
    for (int64_t i = 0; i < n; i++) outside |= !(x[i] >= 0 && x[i] <= most); \
    return outside == 0;                                                     \
  }                                                                          \
  SW_CLONES int64_t above_zero(const T* x, int64_t n) {                      \
    int64_t count = 0;                                                       \
    for (int64_t i = 0; i < n; i++) count += x[i] > 0;                       \
    return count;                                                            \
  }
SW_CHECKS(float)
SW_CHECKS(double)
#undef SW_CHECKS

void lower_to(std::atomic<int64_t>& least, int64_t value) {
  int64_t seen = least.load();
  while (value < seen && !least.compare_exchange_weak(seen, value)) {
  }
}

// Copies x to y. Returns the first position whose value is not in [0, most], or numel.
template <class T>
int64_t copy_within(const TensorView& x, T* y, T most) {
  std::atomic<int64_t> first{x.numel};
  parallel_for(x.numel, row_grain(1), [&](int64_t begin, int64_t end) {
    gather(x, begin, end - begin, y + begin);
    if (within(y + begin, most, end - begin)) return;
    int64_t at = begin;
    while (y[at] >= 0 && y[at] <= most) at++;
    lower_to(first, at);
  });
  return first;
}

// The first row with fewer elements above 0 than `least`, or the number of rows.
template <class T>
int64_t first_poor_row(const T* y, int64_t rows, int64_t n, int64_t least) {
  std::atomic<int64_t> first{rows};
  parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
      if (above_zero(y + row * n, n) < least) return lower_to(first, row);
  });
  return first;
}

}  // namespace

Status bernoulli_probabilities(const KernelCall& call) {
  const TensorView &x = call.input(0), &y = call.output(0);
  Status status = kOk;
  with_float_type(y.dtype, [&](auto type) {
    auto* to = static_cast<decltype(type)*>(y.data);
    const int64_t at = copy_within(x, to, decltype(type)(1));
    if (at < x.numel) status = fail_draw(call.error, "", {DrawFault::Probability, to[at], at, 0});
  });
  return status;
}

Status multinomial_weights(const KernelCall& call) {
  const TensorView &x = call.input(0), &least_view = call.input(1), &y = call.output(0);
  const auto least = static_cast<int64_t>(least_view.is_immediate ? least_view.scalar : 1);
  Status status = kOk;
  if (x.numel == 0) return status;
  with_float_type(y.dtype, [&](auto type) {
    using T = decltype(type);
    auto* to = static_cast<T*>(y.data);
    const int64_t at = copy_within(x, to, std::numeric_limits<T>::max());
    if (at < x.numel) {
      status = fail_draw(call.error, "", {DrawFault::Weight, to[at], at, least});
      return;
    }
    const int64_t n = x.sizes[x.ndim - 1], rows = x.numel / n;
    const int64_t row = first_poor_row(to, rows, n, least);
    if (row == rows) return;
    const int64_t count = above_zero(to + row * n, n);
    const auto kind = count == 0 ? DrawFault::NoWeight : DrawFault::FewWeights;
    status = fail_draw(call.error, "", {kind, static_cast<double>(count), row, least});
  });
  return status;
}

}  // namespace shardwise::cpu
