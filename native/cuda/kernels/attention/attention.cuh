// The attention problem as its kernels get it, mask and dropout included. attention.cu chooses the
// kernel.
#pragma once
#include <cfloat>

#include "../../../include/weight_dropout.h"
#include "../../primitives/dtype.cuh"
#include "../../primitives/philox.cuh"
#include "../../stream.h"

namespace shardwise::cuda {

// A [batch, head, position, feature] operand of any strides.
struct HeadView {
  const void* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0, column_stride = 0;

  __host__ __device__ int64_t offset(int64_t batch, int64_t head) const {
    return batch * batch_stride + head * head_stride;
  }
};

// A [batch, head, position, feature] result with contiguous features. No data: it is not needed.
struct HeadResult {
  void* data = nullptr;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;

  operator HeadView() const { return {data, batch_stride, head_stride, row_stride, 1}; }
  __host__ __device__ int64_t offset(int64_t batch, int64_t head) const {
    return batch * batch_stride + head * head_stride;
  }
  // the first row of a head
  template <class T>
  __device__ T* head(int64_t batch, int64_t head) const {
    return static_cast<T*>(data) + offset(batch, head);
  }
};

// Changes of scores and weights besides the causal mask.
struct ScoreMods {
  int64_t queries = 0, keys = 0;
  // [batch, head, query, key], stride 0 in broadcast dims; data is null without a mask
  HeadView mask;
  DType mask_dtype = DType::Bool;
  WeightDropout dropout;
  PhiloxKey key;
};

struct AttentionProblem : ScoreMods {
  DType dtype = DType::Float32;
  int64_t batch = 0, heads = 0, kv_heads = 0, depth = 0, value_depth = 0;
  HeadView q, k, v;
  double scale = 1;
  bool causal = false;

  // Whether scores change before their maximum is taken. Kernels for unmodified scores multiply by
  // a positive scale at the end.
  bool is_modified() const {
    return mask.data || dropout.drop_below > 0 || !(static_cast<float>(scale) > 0);
  }

  HeadResult out;  // forward only
  // written by forward, read by backward
  void* lse = nullptr;  // [batch, head, query], natural logarithm; -inf for a fully masked row
  DType lse_dtype = DType::Float32;

  // backward only
  HeadView g, y;  // y: the output of forward
  HeadResult gq, gk, gv;
  // for CUDA cores: [batch, head, query] sums of g out, in the accumulation type
  void* delta = nullptr;
  float* row_stats = nullptr;  // for tensor cores: the output of attention_row_stats
};

// Hopper's tensor cores: float16 and bfloat16. Returns false, and launches nothing, for other
// problems (attention_sm90.cuh has the conditions).
bool attention_sm90_forward(const AttentionProblem& p, const Stream& stream);
bool attention_sm90_backward(const AttentionProblem& p, const Stream& stream);
// number of calls of this thread that the kernels took, for the self-test
int& attention_sm90_taken();
// Statistics for the backward pass on tensor cores. Each head has blocks of 64 queries: first their
// lse in base 2, then their delta. A query that does not exist or is fully masked has lse +inf,
// which makes its P zero.
constexpr int kStatRows = 64, kStatBlock = 2 * kStatRows;
SW_HOST_DEVICE inline int64_t attention_stat_blocks(const AttentionProblem& p) {
  return (p.queries + 2 * kStatRows - 1) / (2 * kStatRows) * 2;
}
inline int64_t attention_row_stats_bytes(const AttentionProblem& p) {
  return p.batch * p.heads * attention_stat_blocks(p) * kStatBlock * 4;
}
void attention_row_stats(const AttentionProblem& p, cudaStream_t stream);
// Tensor cores: float16 and bfloat16 with depth and value_depth up to 128, on devices with enough
// shared memory per block. They take every problem that Hopper's kernels take.
bool attention_sm80_applies(const AttentionProblem& p, const DeviceFacts& facts);
void attention_sm80_forward(const AttentionProblem& p, const Stream& stream);
void attention_sm80_backward(const AttentionProblem& p, const Stream& stream);
// CUDA cores: every floating dtype, any depth.
void attention_simt_forward(const AttentionProblem& p, cudaStream_t stream);
void attention_simt_backward(const AttentionProblem& p, cudaStream_t stream);

#if defined(__CUDACC__)

__device__ __forceinline__ int64_t stat_place(int64_t query) {
  return query / kStatRows * kStatBlock + query % kStatRows;
}

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ __forceinline__ float exp2_fast(float v) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}

// A base-2 logarithm that is finite if `v` is: in a row whose keys all have the lowest number as
// mask, all keys get the same weight.
__device__ __forceinline__ float to_log2(float v) {
  const float out = v * kLog2E;
  return isinf(out) && !isinf(v) ? copysignf(FLT_MAX, out) : out;
}

// What the mask adds to the score of (query, key), which must exist: 0 or -inf for a bool mask.
template <class C>
__device__ __forceinline__ C mask_value(const AttentionProblem& p, int64_t base, int64_t query,
                                        int64_t key) {
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

// The Philox counter for 8 weights: those of (query, key) and the neighbouring keys in head
// `head_index` (batch * heads + head).
__device__ __forceinline__ uint64_t dropout_counter(const ScoreMods& p, int64_t head_index,
                                                    int64_t query, int64_t key) {
  return static_cast<uint64_t>((head_index * p.queries + query) * ((p.keys + 7) >> 3) + (key >> 3));
}

// Whether dropout keeps this weight.
__device__ __forceinline__ bool survives(const ScoreMods& p, int64_t head_index, int64_t query,
                                         int64_t key) {
  const uint32_t word = word_of(philox(p.key, dropout_counter(p, head_index, query, key)),
                                static_cast<int>(key >> 1 & 3));
  return (word >> (key & 1) * 16 & 0xffff) >= p.dropout.drop_below;
}

#endif

}  // namespace shardwise::cuda
