// Attention as its kernels see it, with what hides or drops a score. attention.cu says who computes what.
#pragma once
#include <cfloat>

#include "../primitives/dtype.cuh"
#include "../primitives/philox.cuh"
#include "../stream.h"

namespace shardwise::cuda {

// A [batch, head, position, feature] operand of any strides.
struct HeadView {
  const void* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;

  __host__ __device__ int64_t offset(int64_t batch, int64_t head) const { return batch * batch_stride + head * head_stride; }
};

struct AttentionProblem {
  DType dtype = DType::Float32;
  int64_t batch = 0, heads = 0, kv_heads = 0, queries = 0, keys = 0, depth = 0, value_depth = 0;
  HeadView q, k, v;
  HeadView mask;  // [batch, head, query, key], 0 strides where it is broadcast; data is null without a mask
  DType mask_dtype = DType::Bool;
  double scale = 1;
  bool causal = false;
  float dropout = 0;
  double keep_scale = 1;  // 1 / (1 - dropout)
  PhiloxKey key;

  // forward: written. backward: read.
  void* out = nullptr;  // [batch, head, query, value_depth], contiguous
  void* lse = nullptr;  // [batch, head, query], natural logarithm; -inf for a row that sees nothing
  DType lse_dtype = DType::Float32;

  // backward only
  HeadView g;
  void *gq = nullptr, *gk = nullptr, *gv = nullptr;  // contiguous; null if not wanted
  void* delta = nullptr;                             // [batch, head, query] sums of g out, in the accumulation type
};

// Hopper's tensor cores: float16 and bfloat16 without mask and dropout. False, and nothing done, where they do not apply
// (attention_wgmma.cuh says where). The backward pass needs so many bytes at p.delta; 0: it does not apply.
bool attention_wgmma_forward(const AttentionProblem& p, const Stream& stream);
bool attention_wgmma_backward(const AttentionProblem& p, const Stream& stream);
int64_t attention_wgmma_scratch(const AttentionProblem& p, const DeviceFacts& facts);
int& attention_wgmma_taken();  // how many calls of this thread they took, for the self test
// Tensor cores: float16 and bfloat16 with depth and value_depth up to 128, on devices with enough shared memory per block.
bool attention_mma_applies(const AttentionProblem& p, const DeviceFacts& facts, bool backward);
void attention_mma_forward(const AttentionProblem& p, const Stream& stream);
void attention_mma_backward(const AttentionProblem& p, const Stream& stream);
// CUDA cores: every floating dtype, any depth.
void attention_simt_forward(const AttentionProblem& p, cudaStream_t stream);
void attention_simt_backward(const AttentionProblem& p, cudaStream_t stream);

#if defined(__CUDACC__)

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ __forceinline__ float exp2_fast(float v) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}

// A logarithm in base 2, finite where `v` is: of a row that the lowest number of a mask hides whole, all keys have the same part.
__device__ __forceinline__ float to_log2(float v) {
  const float out = v * kLog2E;
  return out == -INFINITY && v != -INFINITY ? -FLT_MAX : out;
}

// What the mask adds to the score of (query, key), which must exist: 0 or -inf for a bool mask.
template <class C>
__device__ __forceinline__ C mask_value(const AttentionProblem& p, int64_t base, int64_t query, int64_t key) {
  const int64_t at = base + query * p.mask.row_stride + key * p.mask.column_stride;
  switch (p.mask_dtype) {
    case DType::Float32:
      return static_cast<C>(static_cast<const float*>(p.mask.data)[at]);
    case DType::BFloat16:
      return to_compute<C>(static_cast<const bfloat16_t*>(p.mask.data)[at]);
    case DType::Float16:
      return to_compute<C>(static_cast<const half_t*>(p.mask.data)[at]);
    case DType::Float64:
      return static_cast<C>(static_cast<const double*>(p.mask.data)[at]);
    default:
      return static_cast<const uint8_t*>(p.mask.data)[at] ? C(0) : C(-INFINITY);
  }
}

// Whether (query, key) of head `head_index` (batch * heads + head) survives dropout.
__device__ __forceinline__ bool survives(const AttentionProblem& p, int64_t head_index, int64_t query, int64_t key) {
  return uniform_of_element(p.key, static_cast<uint64_t>((head_index * p.queries + query) * p.keys + key)) >= p.dropout;
}

#endif

}  // namespace shardwise::cuda
