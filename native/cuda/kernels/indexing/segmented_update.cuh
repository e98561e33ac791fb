// Writes to targets that may repeat, in a fixed order; used by scatter, index_add and index_put.
//
// The caller gives every source position p (0 to count - 1) a key: its target. The keys are sorted
// with their positions (stable), so that the positions of one target are contiguous and in order.
// Then
//   Set      the last position of each target is copied
//   Add ...  target = target op source (op source ...), in float32, float64 or int64, rounded once
// A position may have many elements (`columns`): target element (key, c) is at key_offsets(key) +
// c_offsets(c), source element (p, c) at position_offsets(p) + c_offsets(c). Atomics would be
// simpler, but their order of sums, and so their rounding, depends on timing.
#pragma once
#include "../../primitives/offsets.cuh"
#include "../../primitives/reduce.cuh"
#include "../../stream.h"
#include "../sort/radix_sort.cuh"
#include "index_keys.cuh"

namespace shardwise::cuda::indexing {

enum class Combine : int32_t { Set, Add, Multiply, Max, Min };

template <class C>
__device__ __forceinline__ C join(Combine how, C a, C b) {
  switch (how) {
    case Combine::Multiply:
      return a * b;
    case Combine::Max:
      return MaxOp()(a, b);
    case Combine::Min:
      return MinOp()(a, b);
    default:
      return a + b;
  }
}

struct SegmentedUpdate {
  int64_t count, columns;
  uint64_t key_range;  // keys are below this
  Combine combine;
  double alpha;              // scales the source (Add)
  const TensorView* source;  // its data or scalar, and dtype
  const TensorView* target;
  Dims<1> positions, keys;
  Dims<2> column_dims;  // target, source
};

// Checks the range, computes the keys with `make_keys(Key*)` (called with uint32_t* or uint64_t*),
// sorts, updates.
template <class MakeKeys>
Status update_targets(const KernelCall& call, const SegmentedUpdate& update, MakeKeys&& make_keys);

namespace detail {
int64_t list_bytes(const SegmentedUpdate& update);
template <class Key>
Status update_sorted(const KernelCall& call, const SegmentedUpdate& update, const Key* keys,
                     const uint32_t* positions, void* list);

template <class Key, class MakeKeys>
Status update_with(const KernelCall& call, const SegmentedUpdate& update, MakeKeys&& make_keys) {
  Stream& stream = stream_of(call);
  const int64_t sort_bytes = radix::buffer_bytes<Key>(1, update.count);
  char* scratch = static_cast<char*>(stream.workspace(sort_bytes + list_bytes(update), call));
  if (!scratch) return Status{Code::OutOfMemory};
  auto buffers = radix::lay_out<Key>(scratch, 1, update.count);
  make_keys(buffers.keys[0]);
  radix::sort_pairs(stream.handle, buffers, radix::bits_for(update.key_range));
  return update_sorted<Key>(call, update, buffers.keys[buffers.result],
                            buffers.positions[buffers.result], scratch + sort_bytes);
}
}  // namespace detail

template <class MakeKeys>
Status update_targets(const KernelCall& call, const SegmentedUpdate& update, MakeKeys&& make_keys) {
  if (update.count == 0 || update.columns == 0) return kOk;
  if (update.count > kMax32)
    return fail(call.error, Code::Unsupported, "%s: more than 2^31 - 1 indices",
                kernel_name(call.kernel));
  if (update.key_range < (uint64_t(1) << 32))
    return detail::update_with<uint32_t>(call, update, make_keys);
  return detail::update_with<uint64_t>(call, update, make_keys);
}

}  // namespace shardwise::cuda::indexing
