// foreach_copy, split_with_sizes_copy and chunk_cat: rows of many tensors, which the threads share.
#include <algorithm>
#include <cstring>
#include <vector>

#include "copy.h"
#include "copy_rows.h"
#include "generated/op_params.h"
#include "parallel_for.h"

namespace shardwise::cpu {

namespace {

constexpr int64_t kLongest = 16384;  // elements of a run
constexpr int64_t kGrain = 2;        // the least runs worth waking a thread

struct Run {
  int32_t copy;
  int64_t row, begin, count;
};

void* at(const TensorView& t, int64_t element) {
  return static_cast<char*>(t.data) + element * item_size(t.dtype);
}

void copy_part(const RowsCopy& c, const Run& run) {
  const int64_t group = run.row / c.group_rows, row = run.row % c.group_rows;
  const int64_t filled =
      std::clamp<int64_t>(filled_length(c.length, c.group_size, row) - run.begin, 0, run.count);
  const int64_t from = c.x_offset + (group == 0 ? 0 : group * c.group_size) + row * c.x_stride;
  const int64_t to = c.y_offset + run.row * c.y_stride + run.begin;
  if (filled > 0)
    copy_run(c.x->dtype, at(*c.x, from + run.begin), 1, c.y->dtype, at(*c.y, to), 1, filled);
  if (filled < run.count)
    memset(at(*c.y, to + filled), 0,
           static_cast<size_t>((run.count - filled) * item_size(c.y->dtype)));
}

// All rows, the runs of which the threads share.
void copy_all(const std::vector<RowsCopy>& copies) {
  std::vector<Run> runs;
  for (size_t i = 0; i < copies.size(); i++)
    for (int64_t row = 0; row < copies[i].rows; row++)
      for (int64_t at = 0; at < copies[i].length; at += kLongest)
        runs.push_back(
            {static_cast<int32_t>(i), row, at, std::min(kLongest, copies[i].length - at)});
  parallel_for(static_cast<int64_t>(runs.size()), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) copy_part(copies[runs[i].copy], runs[i]);
  });
}

}  // namespace

Status foreach_copy(const KernelCall& call) {
  const auto count = static_cast<int32_t>(call.params_as<ForeachCopyParams>().count);
  std::vector<RowsCopy> copies;
  for (int32_t i = 0; i < count; i++) {
    const TensorView &y = call.input(i), &x = call.input(count + i);
    if (y.is_contiguous() && x.is_contiguous()) {
      RowsCopy copy;
      copy.x = &x;
      copy.y = &y;
      copy.length = y.numel;
      copies.push_back(copy);
    } else if (have_same_sizes(y, x)) {
      copy_view(x, y);
    } else {
      return fail(call.error, Code::Invalid, "source %d has other sizes than its target", i);
    }
  }
  copy_all(copies);
  return kOk;
}

Status split_with_sizes_copy(const KernelCall& call) {
  const auto count = static_cast<int32_t>(call.params_as<SplitWithSizesCopyParams>().count);
  std::vector<RowsCopy> copies;
  const Status status =
      plan_split(call, count, [&](const RowsCopy& copy) { copies.push_back(copy); });
  if (status.ok()) copy_all(copies);
  return status;
}

Status chunk_cat(const KernelCall& call) {
  const auto& p = call.params_as<ChunkCatParams>();
  std::vector<RowsCopy> copies;
  const Status status =
      plan_chunks(call, static_cast<int32_t>(p.count), static_cast<int64_t>(p.chunks),
                  [&](const RowsCopy& copy) { copies.push_back(copy); });
  if (status.ok()) copy_all(copies);
  return status;
}

}  // namespace shardwise::cpu
