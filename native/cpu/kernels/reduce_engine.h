// Applies a reducer over the last dims of a view. Chunks are reduced in lanes and combined in a
// wide total, neighbouring rows in a cascade, so errors grow with the logarithm of the length. The
// result does not depend on the number of threads.
//
// A reducer of T has a total A, and: start(), the empty total; chunk(a, x, n), a total with n more
// elements; combine(a, b), that of both in order; finish(a, n), the values of all outputs for n
// elements in all. With kColumns also column(a, x, n): one more element for each of n totals.
#pragma once
#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "kernel_call.h"
#include "row_math.h"

namespace shardwise::cpu {
namespace {

constexpr int64_t kChunk = 2048;

struct Extent {
  int64_t outer, inner;
};

inline Extent extent_of(const TensorView& x, double reduced_ndim) {
  const int32_t reduced = static_cast<int32_t>(reduced_ndim);
  Extent e{1, 1};
  for (int32_t d = 0; d < x.ndim; d++) (d < x.ndim - reduced ? e.outer : e.inner) *= x.sizes[d];
  return e;
}

template <class R, class A>
void finish_row(const R& reducer, const KernelCall& call, int64_t row, const A& total,
                int64_t inner) {
  const auto values = reducer.finish(total, inner);
  for (size_t k = 0; k < values.size(); k++)
    scatter(call.output(static_cast<int32_t>(k)), row, 1, &values[k]);
}

// The elements from `begin` to `end` of one row.
template <class T, class R>
auto reduce_range(const R& reducer, const TensorView& x, bool direct, int64_t begin, int64_t end) {
  T buffer[kChunk];
  auto total = reducer.start();
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = end - at < kChunk ? end - at : kChunk;
    const T* run = buffer;
    if (direct)
      run = static_cast<const T*>(x.data) + at;
    else
      gather(x, at, n, buffer);
    total = reducer.chunk(total, run, n);
  }
  return total;
}

// The totals of many neighbouring columns. A total of the first level takes kRun rows, one of the
// next kRun of those, and so on: no element is added to a much larger total.
template <class R>
class Cascade {
 public:
  static constexpr int64_t kWidth = 512, kRun = 64;
  using A = decltype(std::declval<R>().start());

  Cascade(const R& reducer, int64_t width) : reducer_(reducer), width_(width) {
    for (auto& level : levels_) std::fill_n(level, width, reducer.start());
  }
  // The totals to which the next kRun rows are added; then carry().
  A* run() { return levels_[0]; }
  void carry() {
    int64_t runs = ++runs_;
    for (int level = 0; level + 1 < kLevels; level++, runs /= kRun) {
      A *from = levels_[level], *to = levels_[level + 1];
      for (int64_t i = 0; i < width_; i++) to[i] = reducer_.combine(to[i], from[i]);
      std::fill_n(from, width_, reducer_.start());
      if (runs % kRun) return;
    }
  }
  A total(int64_t column) const {
    A all = levels_[kLevels - 1][column];
    for (int level = kLevels - 2; level >= 0; level--)
      all = reducer_.combine(all, levels_[level][column]);
    return all;
  }

 private:
  static constexpr int kLevels = 4;

  const R& reducer_;
  int64_t width_, runs_ = 0;
  A levels_[kLevels][kWidth];
};

// Reduces the leading dims of a [rows, columns] matrix with neighbouring columns: whole runs of
// columns at a time.
template <class T, class R>
void reduce_columns(const R& reducer, const KernelCall& call, const Extent& e) {
  const TensorView& x = call.input(0);
  constexpr int64_t kWidth = Cascade<R>::kWidth;
  constexpr size_t kOutputs = std::tuple_size_v<decltype(reducer.finish(reducer.start(), 0))>;
  parallel_for(e.outer, kWidth, [&](int64_t begin, int64_t end) {
    T buffer[kWidth], results[kOutputs][kWidth];
    for (int64_t at = begin; at < end; at += kWidth) {
      const int64_t n = end - at < kWidth ? end - at : kWidth;
      Cascade<R> cascade(reducer, n);
      for (int64_t r = 0; r < e.inner; r++) {
        const char* from = element_at(x.data, x.dtype, at + r * x.strides[1]);
        const T* run = buffer;
        if (x.dtype == dtype_of<T>())
          run = reinterpret_cast<const T*>(from);
        else
          gather(x.dtype, from, 1, buffer, n);
        reducer.column(cascade.run(), run, n);
        if ((r + 1) % Cascade<R>::kRun == 0) cascade.carry();
      }
      for (int64_t i = 0; i < n; i++) {
        const auto values = reducer.finish(cascade.total(i), e.inner);
        for (size_t k = 0; k < kOutputs; k++) results[k][i] = values[k];
      }
      for (size_t k = 0; k < kOutputs; k++)
        scatter(call.output(static_cast<int32_t>(k)), at, n, results[k]);
    }
  });
}

// One long row, split at fixed offsets so that threads share it; the chunks are combined in order.
template <class T, class R>
void reduce_whole(const R& reducer, const KernelCall& call, int64_t inner, int64_t part) {
  const int64_t parts = (inner + part - 1) / part;
  const auto partial = std::make_unique<decltype(reducer.start())[]>(static_cast<size_t>(parts));
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; p++)
      partial[p] = reduce_range<T>(reducer, call.input(0), true, p * part,
                                   (p + 1) * part < inner ? (p + 1) * part : inner);
  });
  auto total = partial[0];
  for (int64_t p = 1; p < parts; p++) total = reducer.combine(total, partial[p]);
  finish_row(reducer, call, 0, total, inner);
}

template <class T, class R>
void reduce_with(const R& reducer, const KernelCall& call) {
  constexpr int64_t kPart = 1 << 16;
  const TensorView& x = call.input(0);
  const Extent e = extent_of(x, call.params[0]);
  const bool direct = x.dtype == dtype_of<T>() && x.is_contiguous();
  if (e.outer == 0) return;
  if (e.outer == 1 && direct && e.inner >= 2 * kPart)
    return reduce_whole<T>(reducer, call, e.inner, kPart);
  if constexpr (R::kColumns) {
    const bool columns = x.ndim == 2 && call.params[0] == 1 && x.strides[0] == 1 &&
                         x.strides[1] >= 1 && e.outer > 1 && e.inner > 0;
    if (columns) return reduce_columns<T>(reducer, call, e);
  }
  parallel_for(e.outer, row_grain(e.inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++)
      finish_row(reducer, call, row,
                 reduce_range<T>(reducer, x, direct, row * e.inner, (row + 1) * e.inner), e.inner);
  });
}

}  // namespace
}  // namespace shardwise::cpu
