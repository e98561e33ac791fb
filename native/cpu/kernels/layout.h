// Iterates over views of equal sizes together: drops dims of size 1, orders the others by the
// strides of the last view (its smallest stride innermost) and merges them if all views allow it.
// For kernels that do not depend on the order of elements.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "../../include/kernel_call.h"
#include "../parallel_for.h"

namespace shardwise::cpu {

constexpr int32_t kMaxViews = 4;

struct Layout {
  int32_t ndim = 0;  // at least 1
  int32_t num_views = 0;
  int64_t sizes[kMaxDims];
  int64_t strides[kMaxViews][kMaxDims];

  explicit Layout(std::initializer_list<const TensorView*> views) {
    const TensorView& last = **(views.end() - 1);
    num_views = static_cast<int32_t>(views.size());
    int32_t order[kMaxDims];
    for (int32_t d = 0; d < last.ndim; d++) {
      if (last.sizes[d] != 1) order[ndim++] = d;
    }
    std::stable_sort(order, order + ndim,
                     [&](int32_t a, int32_t b) { return last.strides[a] > last.strides[b]; });
    int32_t v = 0;
    for (const TensorView* view : views) {
      for (int32_t d = 0; d < ndim; d++) strides[v][d] = view->strides[order[d]];
      v++;
    }
    for (int32_t d = 0; d < ndim; d++) sizes[d] = last.sizes[order[d]];
    merge();
  }

  int64_t rows() const {
    int64_t n = 1;
    for (int32_t d = 0; d < ndim - 1; d++) n *= sizes[d];
    return n;
  }
  int64_t width() const { return sizes[ndim - 1]; }
  int64_t stride(int32_t view) const { return strides[view][ndim - 1]; }

 private:
  void merge() {
    if (ndim == 0) {
      ndim = 1;
      sizes[0] = 1;
      for (int32_t v = 0; v < num_views; v++) strides[v][0] = 1;
      return;
    }
    int32_t to = 0;
    for (int32_t d = 1; d < ndim; d++) {
      bool joins = true;
      for (int32_t v = 0; v < num_views; v++) joins &= strides[v][to] == strides[v][d] * sizes[d];
      if (joins) {
        sizes[to] *= sizes[d];
      } else {
        sizes[++to] = sizes[d];
      }
      for (int32_t v = 0; v < num_views; v++) strides[v][to] = strides[v][d];
    }
    ndim = to + 1;
  }
};

// The offsets of a row in every view, row after row.
struct RowCursor {
  const Layout& layout;
  int64_t offset[kMaxViews] = {};

  RowCursor(const Layout& layout, int64_t row) : layout(layout) {
    for (int32_t d = layout.ndim - 2; d >= 0; d--) {
      coord[d] = row % layout.sizes[d];
      row /= layout.sizes[d];
      for (int32_t v = 0; v < layout.num_views; v++) offset[v] += coord[d] * layout.strides[v][d];
    }
  }

  void next() {
    for (int32_t d = layout.ndim - 2; d >= 0; d--) {
      for (int32_t v = 0; v < layout.num_views; v++) offset[v] += layout.strides[v][d];
      if (++coord[d] < layout.sizes[d]) return;
      for (int32_t v = 0; v < layout.num_views; v++) offset[v] -= coord[d] * layout.strides[v][d];
      coord[d] = 0;
    }
  }

 private:
  int64_t coord[kMaxDims];
};

// Calls run(offsets, n) for runs of n elements along the innermost dim, shared among threads that
// get at least `grain` elements each; offsets[v] is the start of the run in view v. Long rows are
// split.
template <class Run>
void each_run(const Layout& layout, int64_t grain, Run run) {
  constexpr int64_t longest = 8192;
  const int64_t width = layout.width();
  const int64_t parts = (width + longest - 1) / longest;
  const int64_t length = parts == 1 ? width : longest;
  parallel_for(layout.rows() * parts, std::max<int64_t>(1, grain / length),
               [&](int64_t begin, int64_t end) {
                 RowCursor cursor(layout, begin / parts);
                 int64_t part = begin % parts;
                 for (int64_t unit = begin; unit < end; unit++) {
                   const int64_t start = part * length;
                   int64_t offsets[kMaxViews];
                   for (int32_t v = 0; v < layout.num_views; v++)
                     offsets[v] = cursor.offset[v] + start * layout.stride(v);
                   run(offsets, std::min(length, width - start));
                   if (++part == parts) {
                     part = 0;
                     cursor.next();
                   }
                 }
               });
}

}  // namespace shardwise::cpu
