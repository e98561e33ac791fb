// foreach_copy (y_i = x_i), split_with_sizes_copy (y_i = columns of x) and chunk_cat (columns of
// y = x_i in chunks, padded by zeros), with conversion of the dtype: many tensors, few launches.
//
// Layout: the kernel arguments contain up to 256 copies of rows (copy_rows.h); the rows are divided
// into chunks, a block of 256 threads for each, which finds its copy by bisection. Tensors of one
// pair of dtypes share launches. Equal dtypes move as bytes, 16 KB a chunk, in the widest words in
// which both sides of a row can be aligned, 4 words in flight per thread. The three floats convert
// 16 bytes of y per thread, 4096 elements a chunk, if x is aligned where y is; other pairs of
// dtypes element by element. Tensors that are not rows of some length go to `copy`, one by one.
// Bytes: x and y once. Operations: the conversion of each element, as in copy.cu.
// Source: PyTorch's _foreach_copy_, split_with_sizes_copy and _chunk_cat.
#include <vector>

#include "../../../generated/op_params.h"
#include "../../../include/backend.h"
#include "../../../include/copy_rows.h"
#include "../../primitives/dtype.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/pdl.cuh"
#include "../../primitives/vector.cuh"
#include "../../stream.h"

namespace shardwise::cuda {

Status copy(const KernelCall& call);

namespace {

constexpr int kThreads = 256;
constexpr int kMaxCopies = 256;
constexpr int kUnroll = 4;
constexpr int64_t kByteChunk = 16384;
constexpr int64_t kElementChunk = 4096;
// Rows that are shorter and many would be blocks with little work: `copy` takes their tensor.
constexpr int64_t kShortRow = 1024;  // bytes
constexpr int64_t kManyRows = 64;

// Lengths and strides in the unit of the launch: bytes or elements.
struct Entry {
  const char* x;
  char* y;
  int64_t length, x_stride, y_stride, group_size;
  int32_t group_rows, chunks_per_row;
  int32_t first_chunk;
};

struct Table {
  int32_t count = 0;
  int32_t chunks = 0;
  DType x_dtype, y_dtype;
  Entry entries[kMaxCopies];
};
static_assert(sizeof(Table) <= 32000, "the arguments of a kernel");

// The work of a block: `count` units of y, of which the first `filled` come from x.
struct Part {
  int64_t x, y;  // units from the pointers of the entry
  int32_t count, filled;
};

__device__ __forceinline__ const Entry& find_entry(const Table& table, int32_t chunk) {
  int low = 0, high = table.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.entries[middle].first_chunk <= chunk)
      low = middle;
    else
      high = middle - 1;
  }
  return table.entries[low];
}

template <int64_t Chunk>
__device__ __forceinline__ Part part_of(const Entry& entry, int32_t block) {
  const int32_t chunk = block - entry.first_chunk;
  const int32_t row = chunk / entry.chunks_per_row;
  const int32_t group = row / entry.group_rows, in_group = row - group * entry.group_rows;
  const int64_t begin = (chunk - row * entry.chunks_per_row) * Chunk;
  const int64_t left = entry.length - begin;
  const int64_t filled = filled_length(entry.length, entry.group_size, in_group) - begin;
  Part part;
  part.count = static_cast<int32_t>(left < Chunk ? left : Chunk);
  part.filled = static_cast<int32_t>(filled < 0 ? 0 : filled < part.count ? filled : part.count);
  part.x = (group == 0 ? 0 : group * entry.group_size) + in_group * entry.x_stride + begin;
  part.y = row * entry.y_stride + begin;
  return part;
}

// The bytes up to the next multiple of `to`, at most `most`.
__device__ __forceinline__ int32_t bytes_to(const void* p, int32_t to, int32_t most) {
  const int32_t bytes = static_cast<int32_t>(-reinterpret_cast<uintptr_t>(p) & (to - 1));
  return bytes < most ? bytes : most;
}

// Both sides are aligned alike for words.
template <class Word>
__device__ __forceinline__ void move_as(const char* x, char* y, int32_t bytes) {
  constexpr int32_t kSize = sizeof(Word);
  const int32_t head = bytes_to(y, kSize, bytes), words = (bytes - head) / kSize;
  const int32_t tail = head + words * kSize, thread = static_cast<int32_t>(threadIdx.x);
  const Word* from = reinterpret_cast<const Word*>(x + head);
  Word* to = reinterpret_cast<Word*>(y + head);
  for (int32_t first = thread; first < words; first += kThreads * kUnroll) {
    Word word[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; u++)
      if (first + u * kThreads < words) word[u] = from[first + u * kThreads];
#pragma unroll
    for (int u = 0; u < kUnroll; u++)
      if (first + u * kThreads < words) to[first + u * kThreads] = word[u];
  }
  if (thread < head) y[thread] = x[thread];
  if (tail + thread < bytes) y[tail + thread] = x[tail + thread];
}

__device__ __forceinline__ void clear(char* y, int32_t bytes) {
  const int32_t head = bytes_to(y, 16, bytes), words = (bytes - head) / 16;
  const int32_t tail = head + words * 16, thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < words; i += kThreads)
    reinterpret_cast<uint4*>(y + head)[i] = make_uint4(0, 0, 0, 0);
  if (thread < head) y[thread] = 0;
  if (tail + thread < bytes) y[tail + thread] = 0;
}

__global__ void __launch_bounds__(kThreads) move_rows(const __grid_constant__ Table table) {
  pdl_begin();
  const Entry& entry = find_entry(table, static_cast<int32_t>(blockIdx.x));
  const Part part = part_of<kByteChunk>(entry, static_cast<int32_t>(blockIdx.x));
  const char* x = entry.x + part.x;
  char* y = entry.y + part.y;
  const uintptr_t apart = reinterpret_cast<uintptr_t>(x) ^ reinterpret_cast<uintptr_t>(y);
  if ((apart & 15) == 0)
    move_as<uint4>(x, y, part.filled);
  else if ((apart & 7) == 0)
    move_as<uint2>(x, y, part.filled);
  else if ((apart & 3) == 0)
    move_as<uint32_t>(x, y, part.filled);
  else if ((apart & 1) == 0)
    move_as<uint16_t>(x, y, part.filled);
  else
    move_as<uint8_t>(x, y, part.filled);
  if (part.filled < part.count) clear(y + part.filled, part.count - part.filled);
}

template <class To, class From>
__global__ void __launch_bounds__(kThreads) convert_rows(const __grid_constant__ Table table) {
  pdl_begin();
  constexpr int V = kVec16<To>;  // more would split the halves of a sector over two stores
  constexpr int kFromBytes = V * sizeof(From) < 16 ? V * sizeof(From) : 16;
  const Entry& entry = find_entry(table, static_cast<int32_t>(blockIdx.x));
  const Part part = part_of<kElementChunk>(entry, static_cast<int32_t>(blockIdx.x));
  const From* x = reinterpret_cast<const From*>(entry.x) + part.x;
  To* y = reinterpret_cast<To*>(entry.y) + part.y;
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const int32_t head = bytes_to(y, 16, part.filled * sizeof(To)) / static_cast<int32_t>(sizeof(To));
  const bool aligned = (reinterpret_cast<uintptr_t>(x + head) & (kFromBytes - 1)) == 0;
  const int32_t vectors = aligned ? (part.filled - head) / V : 0;
  for (int32_t first = thread; first < vectors; first += kThreads * kUnroll) {
    Vec<From, V> in[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; u++)
      if (first + u * kThreads < vectors)
        in[u] = load_vec<V>(x + head + (first + u * kThreads) * V);
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      if (first + u * kThreads >= vectors) continue;
      Vec<To, V> out;
#pragma unroll
      for (int i = 0; i < V; i++) out[i] = from_compute<To>(to_compute<float>(in[u][i]));
      store_global(y + head + (first + u * kThreads) * V, out);
    }
  }
  if (thread < head) y[thread] = from_compute<To>(to_compute<float>(x[thread]));
  for (int32_t i = head + vectors * V + thread; i < part.filled; i += kThreads)
    y[i] = from_compute<To>(to_compute<float>(x[i]));
  for (int32_t i = part.filled + thread; i < part.count; i += kThreads)
    y[i] = from_compute<To>(0.0f);
}

template <class C>
__global__ void __launch_bounds__(kThreads) convert_rows_any(const __grid_constant__ Table table) {
  pdl_begin();
  const Entry& entry = find_entry(table, static_cast<int32_t>(blockIdx.x));
  const Part part = part_of<kElementChunk>(entry, static_cast<int32_t>(blockIdx.x));
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < part.count; i += kThreads) {
    const C value = i < part.filled ? load_any<C>(entry.x, part.x + i, table.x_dtype) : C(0);
    store_any<C>(entry.y, part.y + i, table.y_dtype, value);
  }
}

using RowsKernel = void (*)(Table);

bool is_small_float(DType dtype) { return is_floating(dtype) && dtype != DType::Float64; }

template <class From>
RowsKernel convert_from(DType to) {
  switch (to) {
    case DType::Float32:
      return convert_rows<float, From>;
    case DType::Float16:
      return convert_rows<half_t, From>;
    default:
      return convert_rows<bfloat16_t, From>;
  }
}

RowsKernel kernel_for(DType from, DType to) {
  if (from == to) return move_rows;
  if (is_small_float(from) && is_small_float(to)) {
    if (from == DType::Float32) return convert_from<float>(to);
    if (from == DType::Float16) return convert_from<half_t>(to);
    return convert_from<bfloat16_t>(to);
  }
  if (!is_floating(from)) return convert_rows_any<int64_t>;
  return from == DType::Float64 ? convert_rows_any<double> : convert_rows_any<float>;
}

int64_t chunks_per_row(const RowsCopy& copy) {
  return copy.x->dtype == copy.y->dtype
             ? ceil_div(copy.length * item_size(copy.y->dtype), kByteChunk)
             : ceil_div(copy.length, kElementChunk);
}

// Collects the copies of one pair of dtypes and launches full tables.
class Launcher {
 public:
  Launcher(const KernelCall& call, DType from, DType to)
      : stream_(stream_of(call)),
        kernel_(kernel_for(from, to)),
        unit_(from == to ? item_size(from) : 1) {
    table_.x_dtype = from;
    table_.y_dtype = to;
  }

  void add(const RowsCopy& copy) {
    const int64_t per_row = chunks_per_row(copy);
    if (table_.count == kMaxCopies || table_.chunks + per_row * copy.rows > kMax32) flush();
    Entry& entry = table_.entries[table_.count++];
    entry.x = static_cast<const char*>(copy.x->data) + copy.x_offset * item_size(copy.x->dtype);
    entry.y = static_cast<char*>(copy.y->data) + copy.y_offset * item_size(copy.y->dtype);
    entry.length = copy.length * unit_;
    entry.x_stride = copy.x_stride * unit_;
    entry.y_stride = copy.y_stride * unit_;
    entry.group_size = copy.group_size == INT64_MAX ? INT64_MAX : copy.group_size * unit_;
    entry.group_rows = static_cast<int32_t>(copy.group_rows);
    entry.chunks_per_row = static_cast<int32_t>(per_row);
    entry.first_chunk = table_.chunks;
    table_.chunks += static_cast<int32_t>(per_row * copy.rows);
  }

  void flush() {
    if (table_.chunks > 0)
      launch_pdl(kernel_, {blocks_of(table_.chunks), kThreads}, stream_, table_);
    table_.count = table_.chunks = 0;
  }

 private:
  const Stream& stream_;
  RowsKernel kernel_;
  int64_t unit_;
  Table table_;
};

// Launches the copies, those of one pair of dtypes together.
Status launch_all(const KernelCall& call, const std::vector<RowsCopy>& copies) {
  for (const RowsCopy& copy : copies)
    if (copy.rows > kMax32 / chunks_per_row(copy))
      return fail(call.error, Code::Unsupported, "%lld rows are too many for one launch",
                  static_cast<long long>(copy.rows));
  std::vector<bool> done(copies.size());
  for (size_t first = 0; first < copies.size(); first++) {
    if (done[first]) continue;
    const DType from = copies[first].x->dtype, to = copies[first].y->dtype;
    Launcher launcher(call, from, to);
    for (size_t i = first; i < copies.size(); i++) {
      if (done[i] || copies[i].x->dtype != from || copies[i].y->dtype != to) continue;
      launcher.add(copies[i]);
      done[i] = true;
    }
    launcher.flush();
  }
  return launched(call);
}

// Whether y = x is a copy of rows.
bool as_rows(const TensorView& x, const TensorView& y, RowsCopy* out) {
  out->x = &x;
  out->y = &y;
  out->length = y.numel;
  if (x.is_contiguous() && y.is_contiguous()) return true;
  if (!have_same_sizes(x, y)) return false;
  Dims<2> dims = dims_of<2>({&y, &x});
  dims.sort_by_stride();
  dims.collapse();
  const int32_t inner = dims.ndim - 1;
  if (inner > 1 || dims.strides[0][inner] != 1 || dims.strides[1][inner] != 1) return false;
  if (inner == 0) return true;
  out->length = dims.sizes[1];
  out->rows = out->group_rows = dims.sizes[0];
  out->y_stride = dims.strides[0][0];
  out->x_stride = dims.strides[1][0];
  return out->rows <= kManyRows ||
         (out->rows <= kMax32 && out->length * item_size(y.dtype) >= kShortRow);
}

}  // namespace

Status foreach_copy(const KernelCall& call) {
  const auto count = static_cast<int32_t>(call.params_as<ForeachCopyParams>().count);
  std::vector<RowsCopy> copies;
  for (int32_t i = 0; i < count; i++) {
    const TensorView &y = call.input(i), &x = call.input(count + i);
    if (y.numel == 0) continue;
    RowsCopy rows;
    if (as_rows(x, y, &rows)) {
      copies.push_back(rows);
      continue;
    }
    if (!have_same_sizes(x, y))
      return fail(call.error, Code::Invalid, "source %d has other sizes than its target", i);
    TensorView operands[] = {x, y};
    KernelCall single = call;
    single.num_inputs = single.num_outputs = 1;
    single.tensors = operands;
    const Status status = copy(single);
    if (!status.ok()) return status;
  }
  return launch_all(call, copies);
}

Status split_with_sizes_copy(const KernelCall& call) {
  const auto count = static_cast<int32_t>(call.params_as<SplitWithSizesCopyParams>().count);
  std::vector<RowsCopy> copies;
  const Status status =
      plan_split(call, count, [&](const RowsCopy& rows) { copies.push_back(rows); });
  return status.ok() ? launch_all(call, copies) : status;
}

Status chunk_cat(const KernelCall& call) {
  const auto& p = call.params_as<ChunkCatParams>();
  std::vector<RowsCopy> copies;
  const Status status =
      plan_chunks(call, static_cast<int32_t>(p.count), static_cast<int64_t>(p.chunks),
                  [&](const RowsCopy& rows) { copies.push_back(rows); });
  return status.ok() ? launch_all(call, copies) : status;
}

}  // namespace shardwise::cuda
