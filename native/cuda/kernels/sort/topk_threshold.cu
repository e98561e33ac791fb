// topk for k up to 512: a block reads its row, or segment of one, once, and keeps the candidates
// for the first k.
//
// Candidates are stored in shared memory in arrival order. When the buffer is full it is sorted by
// key and position and reduced to k; from then on only elements before the k-th are added. A batch
// of 2048 elements is counted first: if all that pass fit they are appended, else they are added
// 256 at a time. Batches are read in the order of their bit-reversed numbers, so that few elements
// pass in rising or falling rows too: of unordered elements k ln(n / k) pass, of an ordered row one
// batch in each power of two.
// Grid: a block of 256 threads for each row or segment. Bytes: x once, k values and indices.
// Operations: some six an element for its key, one comparison, and a scan of its warp if elements
// may pass; a sort of the candidates each time the buffer is full. The set of candidates does not
// depend on timing, and it is sorted at the end: deterministic; elements are copied with their
// bits.
// Source: PyTorch's topk. Technique: a falling threshold, as in queues of k-nearest-neighbour
// search (Johnson, Douze, Jegou 2017, arXiv:1702.08734), here by batches in shared memory. On an
// H200, k 50 of 1024 x 128256 in float32 (PyTorch): unordered 561 us (1570), rising 1537 (1604).
// Versions: batches in memory order 459, but rising 9591; keys loaded one after the other 717.
#include "topk.cuh"

namespace shardwise::cuda::sorting {
namespace {

constexpr int kThreads = 256, kItems = 8, kBatch = kThreads * kItems;
constexpr int64_t kLeastHeld = 512;

// The candidates of a block. All threads call its methods.
template <class Key>
struct Candidates {
  Key* keys;
  uint32_t* positions;
  int* slots;  // [3] counters of batches, then one for chunks of a batch; 0 before their use
  int capacity, k, count = 0;
  bool full = false;  // there are k, so that the last of them is the threshold
  Key limit = 0;
  uint32_t limit_position = 0;

  template <class Position>
  __device__ __forceinline__ bool passes(Key key, Position&& position) const {
    return !full || key < limit || (key == limit && position() < limit_position);
  }

  __device__ __noinline__ void keep_k() {
    for (int i = count + threadIdx.x; i < capacity; i += kThreads)
      keys[i] = ~Key(0), positions[i] = UINT32_MAX;
    radix::sort_shared(keys, positions, capacity);
    if (count >= k) full = true, count = k, limit = keys[k - 1], limit_position = positions[k - 1];
  }

  // Reserves `own` slots of a counter for this thread; returns the first.
  __device__ __forceinline__ int reserve(int own, int* counter) const {
    const int lane = threadIdx.x & 31;
    const int up_to = warp_scan_inclusive(own, SumOp());
    int base = 0;
    if (lane == 31 && up_to > 0) base = atomicAdd(counter, up_to);
    return __shfl_sync(kFullWarp, base, 31) + up_to - own;
  }

  __device__ __forceinline__ void put(int slot, Key key, uint32_t position) {
    keys[count + slot] = key;
    positions[count + slot] = position;
  }

  // Adds one element a thread; the block may have to reduce the buffer to k first.
  __device__ __forceinline__ void add_elements(bool valid, Key key, uint32_t position) {
    if (count + kThreads > capacity) {
      __syncthreads();
      keep_k();
    }
    const bool wanted = valid && passes(key, [=] { return position; });
    const int slot = reserve(wanted, slots + 3);
    if (wanted) put(slot, key, position);
    __syncthreads();
    count += slots[3];
    __syncthreads();
    if (threadIdx.x == 0) slots[3] = 0;
    __syncthreads();
  }
};

template <class Key, bool FromTensor>
__global__ void __launch_bounds__(kThreads, sizeof(Key) == 4 ? 4 : 2)
    threshold_kernel(const __grid_constant__ SortArgs args,
                     const __grid_constant__ SelectArgs<Key> select, int capacity) {
  extern __shared__ uint64_t shared[];
  __shared__ int slots[4];
  if (threadIdx.x < 4) slots[threadIdx.x] = 0;
  const Selection<Key, FromTensor> from(args, select);
  Key* const keys = reinterpret_cast<Key*>(shared);
  Candidates<Key> candidates = {keys, reinterpret_cast<uint32_t*>(keys + capacity), slots, capacity,
                                static_cast<int>(args.k)};
  __syncthreads();

  const uint32_t batches = static_cast<uint32_t>((from.count + kBatch - 1) / kBatch),
                 bits = 32 - __clz(batches - 1);
  int turn = 0;
#pragma unroll 1
  for (uint32_t n = 0; n < 1u << bits; n++) {
    const uint32_t reversed = bits > 0 ? __brev(n) >> (32 - bits) : 0;
    if (reversed >= batches) continue;
    const int64_t start = static_cast<int64_t>(reversed) * kBatch;
    const int left = static_cast<int>(from.count - start < kBatch ? from.count - start : kBatch);
    const auto item = [](int u) { return static_cast<int>(u * kThreads + threadIdx.x); };
    Key batch[kItems];
    {
      int64_t at[kItems];
#pragma unroll
      for (int u = 0; u < kItems; u++) at[u] = start + item(u);
      from.keys_of(args, at, batch);
    }
    uint32_t wanted = 0;
#pragma unroll
    for (int u = 0; u < kItems; u++)
      if (item(u) < left &&
          candidates.passes(batch[u], [&] { return from.position(start + item(u)); }))
        wanted |= 1u << u;
    const int slot = candidates.reserve(__popc(wanted), slots + turn);
    __syncthreads();
    const int total = slots[turn];
    turn = turn == 2 ? 0 : turn + 1;
    // read one batch ago, written one batch ahead
    if (threadIdx.x == 0) slots[turn == 2 ? 0 : turn + 1] = 0;
    if (total == 0) continue;
    if (candidates.count + total <= capacity) {
      int next = slot;
#pragma unroll
      for (int u = 0; u < kItems; u++)
        if (wanted >> u & 1) candidates.put(next++, batch[u], from.position(start + item(u)));
      candidates.count += total;
    } else {
#pragma unroll
      for (int u = 0; u < kItems; u++) {
        candidates.add_elements(item(u) < left, batch[u],
                                item(u) < left ? from.position(start + item(u)) : 0);
      }
    }
  }
  __syncthreads();
  candidates.keep_k();
  from.write(args, select, keys, candidates.positions);
}

}  // namespace

template <class Key, bool FromTensor>
void select_by_threshold(cudaStream_t stream, const SortArgs& args, const SelectArgs<Key>& select) {
  int64_t capacity = kLeastHeld;  // four times k, so that sorts are rare
  while (capacity < 4 * args.k) capacity *= 2;
  const int64_t blocks = args.rows * (FromTensor ? select.segments : 1);
  threshold_kernel<Key, FromTensor>
      <<<static_cast<unsigned>(blocks), kThreads, capacity * (sizeof(Key) + 4), stream>>>(
          args, select, static_cast<int>(capacity));
}

template void select_by_threshold<uint32_t, true>(cudaStream_t, const SortArgs&,
                                                  const SelectArgs<uint32_t>&);
template void select_by_threshold<uint32_t, false>(cudaStream_t, const SortArgs&,
                                                   const SelectArgs<uint32_t>&);
template void select_by_threshold<uint64_t, true>(cudaStream_t, const SortArgs&,
                                                  const SelectArgs<uint64_t>&);
template void select_by_threshold<uint64_t, false>(cudaStream_t, const SortArgs&,
                                                   const SelectArgs<uint64_t>&);

}  // namespace shardwise::cuda::sorting
