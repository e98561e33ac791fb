// One elementwise update over many tensors in few launches: optimizer steps and foreach ops.
//
// A step works on `Roles` tensors at a time (parameter, gradient, state ...), element by element.
// The kernel arguments contain pointers and sizes of up to kMaxTensors groups; blocks take chunks
// of 1024 elements (4 KB of float32) and find their tensor by bisection. A thread loads two words
// of 4 elements of each role before it computes. The words of neighbours are neighbours: with 8
// contiguous elements a thread, a store wrote half of each sector. Groups that are not dense take a
// slow path.
// Versions, AdamW of the 148 tensors of GPT-2 on one H200, us: 8 contiguous elements, 256 threads,
// chunks of 8192 902; this one 825, chunks of 2048 to 8192 831 to 867; 256 threads 839 to 864; one
// word 836 to 859, four 871 to 1024; through shared memory by bulk copies 877 to 1442; evict-first
// stores and loads that bypass L1 within 1 %.
//
// An update is a struct with: Value (float or double), kRoles, kReads and kWrites (bit r: role r),
//   and template <int N> void operator()(Value (&v)[kRoles][N]) const. One whose numbers differ
//   between tensors has of_group(index), which returns the update of a group, and
//   skips(index), which returns whether the group stays as it is.
#pragma once
#include "../stream.h"
#include "group.cuh"
#include "offsets.cuh"
#include "pdl.cuh"

namespace shardwise::cuda::multi {

constexpr int kThreads = 128;
constexpr int kWord = 4;   // elements
constexpr int kWords = 2;  // words in flight per thread
constexpr int64_t kStep = kThreads * kWord;
constexpr int64_t kChunk = kStep * kWords;
constexpr int kMaxTensors = 256;

template <int Roles>
struct Entry {
  void* data[Roles];
  int64_t numel;
  int32_t first_chunk;
  int32_t index;  // index of the tensor in the call
  bool aligned;   // 16-byte accesses
};

// `Size`: elements of a chunk.
template <int Roles, int64_t Size = kChunk>
struct Table {
  int32_t count = 0;
  int32_t chunks = 0;
  uint32_t present = 0;  // bit r: the call has role r
  DType dtypes[Roles] = {};
  Entry<Roles> entries[kMaxTensors];
};

template <int Roles, int64_t Size>
__device__ __forceinline__ int find_entry(const Table<Roles, Size>& table, int32_t chunk) {
  int low = 0, high = table.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.entries[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <class Update>
__device__ __forceinline__ bool reads(uint32_t present, int r) {
  return ((Update::kReads >> r) & 1) && ((present >> r) & 1);
}
template <class Update>
__device__ __forceinline__ bool writes(uint32_t present, int r) {
  return ((Update::kWrites >> r) & 1) && ((present >> r) & 1);
}

// The work of a block: elements [begin, end) of a tensor; those before `rest` are read as words.
template <int Roles, int64_t Size>
struct Chunk {
  const Entry<Roles>& entry;
  int64_t begin, end, rest;

  __device__ __forceinline__ explicit Chunk(const Table<Roles, Size>& table)
      : entry(table.entries[find_entry(table, static_cast<int32_t>(blockIdx.x))]),
        begin((static_cast<int32_t>(blockIdx.x) - entry.first_chunk) * Size),
        end(begin + Size < entry.numel ? begin + Size : entry.numel),
        rest(entry.aligned ? end - (end - begin) % kWord : begin) {}
};

template <class Update>
__device__ __forceinline__ decltype(auto) update_of(const Update& update, int32_t index) {
  if constexpr (requires { update.of_group(index); })
    return update.of_group(index);
  else
    return (update);
}

template <class Update>
__device__ __forceinline__ bool is_skipped(const Update& update, int32_t index) {
  if constexpr (requires { update.skips(index); })
    return update.skips(index);
  else
    return false;
}

template <class Update>
__global__ void __launch_bounds__(kThreads)
    update_dense(const __grid_constant__ Table<Update::kRoles, kChunk> table, const Update update) {
  pdl_begin();
  using C = typename Update::Value;
  constexpr int R = Update::kRoles;
  const Chunk<R, kChunk> chunk(table);
  void* const(&data)[R] = chunk.entry.data;
  const int64_t first = chunk.begin + threadIdx.x * kWord;
  uint4 raw[kWords][R][sizeof(C) / 4] = {};  // zeros for an absent role
#pragma unroll
  for (int w = 0; w < kWords; w++)
    if (first + w * kStep < chunk.rest)
#pragma unroll
      for (int r = 0; r < R; r++)
        if (reads<Update>(table.present, r))
          load_raw4(data[r], first + w * kStep, table.dtypes[r], raw[w][r]);
  if (is_skipped(update, chunk.entry.index)) return;
  const auto& own = update_of(update, chunk.entry.index);
#pragma unroll
  for (int w = 0; w < kWords; w++)
    if (first + w * kStep < chunk.rest) {
      C v[R][kWord];
#pragma unroll
      for (int r = 0; r < R; r++) convert_raw4(raw[w][r], table.dtypes[r], v[r]);
      own(v);
#pragma unroll
      for (int r = 0; r < R; r++)
        if (writes<Update>(table.present, r))
          store_group_floating(data[r], first + w * kStep, table.dtypes[r], v[r]);
    }
  for (int64_t i = chunk.rest + threadIdx.x; i < chunk.end; i += kThreads) {
    C v[R][1];
#pragma unroll
    for (int r = 0; r < R; r++) {
      v[r][0] = C(0);
      if (reads<Update>(table.present, r)) load_group_floating(data[r], i, table.dtypes[r], v[r]);
    }
    own(v);
#pragma unroll
    for (int r = 0; r < R; r++)
      if (writes<Update>(table.present, r)) store_group_floating(data[r], i, table.dtypes[r], v[r]);
  }
}

template <int Roles>
struct StridedGroup {
  void* data[Roles];
  DType dtypes[Roles];
  uint32_t present;
  int32_t index;  // index of the group in the call
  int64_t numel;
  OffsetCalculator<Roles> offsets;
};

template <class Update>
__global__ void __launch_bounds__(kThreads)
    update_strided(const __grid_constant__ StridedGroup<Update::kRoles> group,
                   const Update update) {
  pdl_begin();
  using C = typename Update::Value;
  constexpr int R = Update::kRoles;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= group.numel || is_skipped(update, group.index)) return;
  const Offsets<R> at = group.offsets.get(i);
  C v[R][1];
#pragma unroll
  for (int r = 0; r < R; r++) {
    v[r][0] = C(0);
    if (reads<Update>(group.present, r))
      load_group_floating(group.data[r], at[r], group.dtypes[r], v[r]);
  }
  update_of(update, group.index)(v);
#pragma unroll
  for (int r = 0; r < R; r++)
    if (writes<Update>(group.present, r))
      store_group_floating(group.data[r], at[r], group.dtypes[r], v[r]);
}

// Tensor `i` of role `r` if every role has `count` of them, one role after the other from input
// `from` on; null if absent.
inline const TensorView* role_of(const KernelCall& call, int32_t from, int32_t count, int32_t r,
                                 int32_t i) {
  const int32_t at = from + r * count + i;
  return at < call.num_inputs && !call.tensors[at].is_immediate ? &call.tensors[at] : nullptr;
}

template <class Update>
void launch_strided(const KernelCall& call, const TensorView* const (&views)[Update::kRoles],
                    int32_t index, const Update& update) {
  constexpr int R = Update::kRoles;
  StridedGroup<R> group;
  Dims<R> dims;
  group.index = index;
  group.present = 0;
  group.numel = views[0]->numel;
  for (int r = 0; r < R; r++) {
    group.data[r] = views[r] ? views[r]->data : nullptr;
    group.dtypes[r] = views[r] ? views[r]->dtype : DType::Float32;
    if (views[r]) group.present |= 1u << r;
  }
  for (int32_t d = 0; d < views[0]->ndim; d++) {
    int64_t stride[R];
    for (int r = 0; r < R; r++) stride[r] = views[r] ? views[r]->strides[d] : 0;
    dims.push(views[0]->sizes[d], stride);
  }
  dims.sort_by_stride();
  dims.collapse();
  group.offsets = dims.template calculator<kMaxDims>();
  launch_pdl(update_strided<Update>, {blocks_of(ceil_div(group.numel, kThreads)), kThreads},
             stream_of(call), group, update);
}

// Adds a dense group to the table. The caller has checked the dtypes and the space.
template <int R, int64_t Size>
void add_entry(Table<R, Size>& table, const TensorView* const (&views)[R], int32_t index) {
  Entry<R>& entry = table.entries[table.count++];
  entry.numel = views[0]->numel;
  entry.first_chunk = table.chunks;
  entry.index = index;
  entry.aligned = true;
  for (int r = 0; r < R; r++) {
    entry.data[r] = views[r] ? views[r]->data : nullptr;
    entry.aligned = entry.aligned && is_aligned(entry.data[r], 16);
  }
  table.chunks += static_cast<int32_t>(ceil_div(entry.numel, Size));
}

// Whether the group has other dtypes or roles than those in the table.
template <int R, int64_t Size>
bool differs(const Table<R, Size>& table, const TensorView* const (&views)[R]) {
  for (int r = 0; r < R; r++)
    if (((table.present >> r) & 1) != (views[r] != nullptr) ||
        (views[r] && table.dtypes[r] != views[r]->dtype))
      return true;
  return false;
}

template <int R, int64_t Size>
void start_table(Table<R, Size>& table, const TensorView* const (&views)[R]) {
  table.count = table.chunks = 0;
  table.present = 0;
  for (int r = 0; r < R; r++) {
    table.dtypes[r] = views[r] ? views[r]->dtype : DType::Float32;
    if (views[r]) table.present |= 1u << r;
  }
}

// Runs an update over groups 0 to count-1, whose tensors begin at input `from`.
// `make(TypeTag<float or double>)` builds it: double if any role is float64. Skips a group whose
// second tensor (the gradient) is absent; another absent one of the `required` roles is an error.
template <template <class> class Update, class Make>
Status for_each_group(const KernelCall& call, int32_t count, uint32_t required, Make&& make,
                      int32_t from = 0) {
  constexpr int R = Update<float>::kRoles;
  const Stream& stream = stream_of(call);
  Table<R> table;
  const auto with_update = [&](bool wide, auto&& body) {
    if (wide)
      body(make(TypeTag<double>{}));
    else
      body(make(TypeTag<float>{}));
  };
  bool table_wide = false;
  const auto flush = [&] {
    if (table.count > 0 && table.chunks > 0)
      with_update(table_wide, [&](auto update) {
        launch_pdl(update_dense<decltype(update)>, {blocks_of(table.chunks), kThreads}, stream,
                   table, update);
      });
    table.count = table.chunks = 0;
  };
  for (int32_t i = 0; i < count; i++) {
    const TensorView* views[R];
    bool skip = false, dense = true, wide = false;
    for (int r = 0; r < R; r++) {
      views[r] = role_of(call, from, count, r, i);
      if (!views[r]) {
        if (r != 1 && ((required >> r) & 1))
          return fail(call.error, Code::Invalid, "%s: tensor %d of group %d is missing",
                      kernel_name(call.kernel), r, i);
        skip = skip || ((required >> r) & 1);
        continue;
      }
      if (!is_floating(views[r]->dtype)) return unsupported(call, views[r]->dtype);
      dense = dense && views[r]->is_contiguous();
      wide = wide || views[r]->dtype == DType::Float64;
    }
    if (skip || views[0]->numel == 0) continue;
    if (!dense) {
      with_update(wide, [&](auto update) { launch_strided(call, views, i, update); });
      continue;
    }
    if (table.count == kMaxTensors || (table.count > 0 && differs(table, views)) ||
        table.chunks + ceil_div(views[0]->numel, kChunk) > kMax32)
      flush();
    if (table.count == 0) start_table(table, views);
    table_wide = wide;
    add_entry(table, views, i);
  }
  flush();
  return launched(call);
}

}  // namespace shardwise::cuda::multi
