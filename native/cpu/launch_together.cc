#include "launch_together.h"

#include "parallel_for.h"

namespace shardwise::cpu {

#define SW_POINTWISE(name, arity, classes, result, expression) Status name(const KernelCall& call);
#include "../generated/pointwise_ops.inc"
#undef SW_POINTWISE

namespace {

constexpr int64_t kBlock = 1024;  // threads share no cache line of an output
// eight slow calls on a chunk take less than a turn of the event loop
constexpr int64_t kGrainBlocks = 4;
// elements that pass through all calls at once, while a cache holds them
constexpr int64_t kChunk = 8 * kBlock;

enum KernelId : int32_t {
#define SW_KERNEL(id, name) id_of_##name = id,
#include "../generated/kernel_table.def"
#undef SW_KERNEL
  kNumIds
};

// By kernel id: the function if the kernel is element-wise.
struct Elementwise {
  Kernel run[kNumIds] = {};
  Elementwise() {
#define SW_POINTWISE(name, arity, classes, result, expression) run[id_of_##name] = name;
#include "../generated/pointwise_ops.inc"
#undef SW_POINTWISE
  }
};
const Elementwise elementwise;

// Only floating-point calls: integers may divide by zero, and then one of the calls fails.
bool is_piecewise(const KernelCall& call, int64_t numel) {
  if (call.num_outputs != 1 || call.num_inputs > 3 || !elementwise.run[call.kernel]) return false;
  bool floating = false;
  for (int32_t i = 0; i <= call.num_inputs; i++) {
    const TensorView& t = call.tensors[i];
    if (t.is_immediate) continue;
    if (t.numel != numel || !t.is_contiguous()) return false;
    if (!is_floating(t.dtype) && t.dtype != DType::Bool) return false;
    floating = floating || is_floating(t.dtype);
  }
  return floating;
}

// Each chunk of one is the same chunk of the other, or the two share no memory.
bool fit(const TensorView& a, const TensorView& b) {
  if (a.is_immediate || b.is_immediate) return true;
  if (a.data == b.data) return item_size(a.dtype) == item_size(b.dtype);
  const char *x = static_cast<const char*>(a.data), *y = static_cast<const char*>(b.data);
  return x + a.numel * item_size(a.dtype) <= y || y + b.numel * item_size(b.dtype) <= x;
}

// Whether no call reads at other indices what another one writes.
bool fits_behind(const KernelCall* const* calls, int32_t count, const KernelCall& next) {
  for (int32_t c = 0; c < count; c++) {
    const KernelCall& before = *calls[c];
    for (int32_t i = 0; i <= next.num_inputs; i++)
      if (!fit(before.output(0), next.tensors[i])) return false;
    for (int32_t i = 0; i < before.num_inputs; i++)
      if (!fit(before.tensors[i], next.output(0))) return false;
  }
  return true;
}

void run_chunk(const KernelCall& call, int64_t begin, int64_t count) {
  const int64_t stride = 1;
  TensorView views[4];
  for (int32_t i = 0; i <= call.num_inputs; i++) {
    views[i] = call.tensors[i];
    if (views[i].is_immediate) continue;
    views[i].data = static_cast<char*>(views[i].data) + begin * item_size(views[i].dtype);
    views[i].sizes = &count;
    views[i].strides = &stride;
    views[i].numel = count;
    views[i].ndim = 1;
  }
  KernelCall chunk = call;
  chunk.tensors = views;
  elementwise.run[call.kernel](chunk);
}

}  // namespace

int32_t launch_together(const KernelCall* const* calls, int32_t count) {
  const int64_t numel = calls[0]->output(0).numel;
  int32_t joined = 0;
  while (joined < count && is_piecewise(*calls[joined], numel) &&
         fits_behind(calls, joined, *calls[joined]))
    joined++;
  if (joined < 2) return 0;
  parallel_for((numel + kBlock - 1) / kBlock, kGrainBlocks, [&](int64_t first, int64_t last) {
    const int64_t end = last * kBlock < numel ? last * kBlock : numel;
    for (int64_t at = first * kBlock; at < end; at += kChunk)
      for (int32_t c = 0; c < joined; c++)
        run_chunk(*calls[c], at, end - at < kChunk ? end - at : kChunk);
  });
  return joined;
}

}  // namespace shardwise::cpu
