// Shared by the all-reduces between GPUs (peer_all_reduce.cu, peer_all_reduce_lines.cu): packets of
// a tensor in registers, their sums in the order of the ranks, and the end of a call in a failed
// group.
#pragma once
#include <type_traits>

#include "../primitives/dtype.cuh"
#include "../stream.h"
#include "peer_all_reduce.h"

namespace shardwise::cuda {

// ---- failed groups ----------------------------------------------------------------------------

// polls of host memory are slow: this is about every half millisecond
constexpr uint32_t kSpinsToLook = 1024;

__device__ __forceinline__ bool has_failed(const PeerCall& call) {
  return *const_cast<const volatile int32_t*>(call.stop) != 0;
}
__device__ __forceinline__ bool was_stopped(const PeerCall& call) {
  return *const_cast<const volatile int32_t*>(call.stopped) != 0;
}
__device__ __forceinline__ void set_stopped(const PeerCall& call) {
  *const_cast<volatile int32_t*>(call.stopped) = 1;
}

// ---- packets ----------------------------------------------------------------------------------

template <class T, int32_t kBytes>
union Packet {
  static constexpr int32_t kItems = kBytes / sizeof(T);
  std::conditional_t<kBytes == 8, uint2, uint4> words;
  T at[kItems];
  __device__ Packet() : words{} {}
};

// Element by element, `left` of them.
template <class T, int32_t kBytes>
__device__ __forceinline__ Packet<T, kBytes> load_elements(const T* from, int64_t left) {
  Packet<T, kBytes> packet;
#pragma unroll
  for (int i = 0; i < packet.kItems; i++)
    if (i < left) packet.at[i] = from[i];
  return packet;
}

template <class T, int32_t kBytes>
__device__ __forceinline__ void store_elements(T* to, const Packet<T, kBytes>& packet,
                                               int64_t left) {
#pragma unroll
  for (int i = 0; i < packet.kItems; i++)
    if (i < left) to[i] = packet.at[i];
}

inline bool is_aligned_to(const PeerCall& call, uintptr_t bytes) {
  return ((reinterpret_cast<uintptr_t>(call.in) | reinterpret_cast<uintptr_t>(call.out)) &
          (bytes - 1)) == 0;
}

// ---- sums --------------------------------------------------------------------------------------

// Calls use(both) with the function that combines two elements.
template <class C, class Use>
__device__ __forceinline__ void with_combine(Reduce reduce, Use use) {
  switch (reduce) {
    case Reduce::Product:
      return use([](C a, C b) { return a * b; });
    case Reduce::Min:
      return use([](C a, C b) { return a <= b || a != a ? a : b; });
    case Reduce::Max:
      return use([](C a, C b) { return a >= b || a != a ? a : b; });
    default:
      return use([](C a, C b) { return a + b; });
  }
}

// The sum of the packets of all ranks at one position.
template <class T, int32_t kBytes>
class PacketSum {
 public:
  using C = compute_t<T>;

  template <class Combine>
  __device__ __forceinline__ void add(Combine both, bool is_first,
                                      const Packet<T, kBytes>& packet) {
#pragma unroll
    for (int i = 0; i < kItems; i++) {
      const C value = to_compute<C>(packet.at[i]);
      sum_[i] = is_first ? value : both(sum_[i], value);
    }
  }

  __device__ __forceinline__ Packet<T, kBytes> rounded(Reduce reduce, int32_t size) {
    if (reduce == Reduce::Avg)
#pragma unroll
      for (int i = 0; i < kItems; i++) sum_[i] /= static_cast<C>(size);
    Packet<T, kBytes> result;
#pragma unroll
    for (int i = 0; i < kItems; i++) result.at[i] = from_compute<T>(sum_[i]);
    return result;
  }

 private:
  static constexpr int32_t kItems = Packet<T, kBytes>::kItems;
  C sum_[kItems] = {};
};

// ---- types -------------------------------------------------------------------------------------

// Calls use(tag, reduce) with the type in which the elements are added. Bools, 0 and 1, use "or"
// and "and".
template <class Use>
cudaError_t with_summed_type(const PeerCall& call, Use use) {
  switch (call.dtype) {
    case DType::Float32:
      return use(TypeTag<float>{}, call.reduce);
    case DType::Float64:
      return use(TypeTag<double>{}, call.reduce);
    case DType::Float16:
      return use(TypeTag<half_t>{}, call.reduce);
    case DType::BFloat16:
      return use(TypeTag<bfloat16_t>{}, call.reduce);
    case DType::Int64:
      return use(TypeTag<int64_t>{}, call.reduce);
    case DType::Int32:
      return use(TypeTag<int32_t>{}, call.reduce);
    case DType::Int8:
      return use(TypeTag<int8_t>{}, call.reduce);
    case DType::UInt8:
      return use(TypeTag<uint8_t>{}, call.reduce);
    case DType::Bool:
      return use(TypeTag<uint8_t>{}, call.reduce == Reduce::Sum || call.reduce == Reduce::Max
                                         ? Reduce::Max
                                         : Reduce::Min);
    default:
      return cudaErrorNotSupported;
  }
}

// Calls load(tag) for all these types, until one fails.
template <class Load>
cudaError_t load_summed_types(Load load) {
  cudaError_t code = cudaSuccess;
  const auto next = [&](auto... tags) { ((code = code == cudaSuccess ? load(tags) : code), ...); };
  next(TypeTag<float>{}, TypeTag<double>{}, TypeTag<half_t>{}, TypeTag<bfloat16_t>{});
  next(TypeTag<int64_t>{}, TypeTag<int32_t>{}, TypeTag<int8_t>{}, TypeTag<uint8_t>{});
  return code;
}

// ---- peer_all_reduce_lines.cu ------------------------------------------------------------------

cudaError_t peer_all_reduce_lines(const PeerCall& call, cudaStream_t stream);
cudaError_t load_peer_all_reduce_lines();

}  // namespace shardwise::cuda
