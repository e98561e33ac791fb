// All-reduce of small tensors between GPUs that can write to each other's memory: each rank sends all it has to all others and sums what
// comes, in the order of the ranks, so that all have the same bits. One trip over the wire in place of a ring's 2 (n - 1).
//
// Layout: a tensor is cut into packets of 8 bytes. A packet on its way has the call's number behind each 4 bytes: 8 bytes are written at
// once, so who reads the number reads the data too, and neither fences nor flags beside the data are needed. A rank's mailbox has a place
// for each packet of each rank, twice: the calls take turns. When a rank writes into a place for the second time, all others have done the
// call between, and so have read what was there before.
// Bytes: 2 (n - 1) of the tensor's out and as many in, at each rank. Numerics: float32 sums of float16 and bfloat16, rounded once, as on the
// CPU. Who waits for a rank that does not come looks at the host's word whether the group has failed; then what it writes is undefined, and its
// later calls send nothing, as their inputs may come of that.
// Source: the low-latency protocol of NCCL (arXiv:2507.04786); one-shot all-reduce of TensorRT-LLM and PyTorch's symmetric memory.
#include "peer_all_reduce.h"

#include "../primitives/dtype.cuh"
#include "../stream.h"

namespace shardwise::cuda {
namespace {

constexpr int32_t kThreads = 256;
constexpr uint32_t kSpinsToLook = 1024;  // the host's memory is far: this is about every half millisecond

__device__ __forceinline__ void send(char* to, uint2 data, uint32_t number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(data.x), "r"(number), "r"(data.y) : "memory");
}

// False if the group has failed.
__device__ __forceinline__ bool receive(const char* from, uint32_t number, const int32_t* stop, uint2* data) {
  for (uint32_t spins = 1;; spins++) {
    uint32_t first, second;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(data->x), "=r"(first), "=r"(data->y), "=r"(second)
                 : "l"(from)
                 : "memory");
    if (first == number && second == number) return true;
    if (spins % kSpinsToLook == 0 && *const_cast<const volatile int32_t*>(stop) != 0) return false;
  }
}

template <class T>
union Packet {
  static constexpr int kItems = kPacketData / sizeof(T);
  uint2 words;
  T at[kItems];
  __device__ Packet() : words{} {}
};

template <class C>
__device__ __forceinline__ C combine(Reduce reduce, C a, C b) {
  switch (reduce) {
    case Reduce::Product: return a * b;
    case Reduce::Min: return a <= b || a != a ? a : b;
    case Reduce::Max: return a >= b || a != a ? a : b;
    default: return a + b;
  }
}

// Where the tensor's packet is whole and aligned, at once.
template <class T>
__device__ __forceinline__ Packet<T> load_packet(const T* from, int64_t left, bool aligned) {
  Packet<T> packet;
  if (aligned && left >= Packet<T>::kItems) packet.words = *reinterpret_cast<const uint2*>(from);
  else
#pragma unroll
    for (int i = 0; i < Packet<T>::kItems; i++)
      if (i < left) packet.at[i] = from[i];
  return packet;
}

template <class T>
__device__ __forceinline__ void store_packet(T* to, const Packet<T>& packet, int64_t left, bool aligned) {
  if (aligned && left >= Packet<T>::kItems) *reinterpret_cast<uint2*>(to) = packet.words;
  else
#pragma unroll
    for (int i = 0; i < Packet<T>::kItems; i++)
      if (i < left) to[i] = packet.at[i];
}

template <class T>
__global__ void __launch_bounds__(kThreads) peer_all_reduce_kernel(const __grid_constant__ PeerCall call, Reduce reduce, bool aligned) {
  using C = compute_t<T>;
  constexpr int items = Packet<T>::kItems;
  const int32_t rank = call.rank, size = call.size;
  const int64_t turn = (call.number & 1) * size;
  const auto place = [&](int32_t owner, int32_t sender, int64_t p) {
    return call.mailboxes[owner] + ((turn + sender) * kPeerPackets + p) * kPacketBytes;
  };
  const bool has_stopped = *const_cast<const volatile int32_t*>(call.stopped) != 0;
  for (int64_t p = int64_t(blockIdx.x) * kThreads + threadIdx.x; p * items < call.count; p += int64_t(gridDim.x) * kThreads) {
    const int64_t left = call.count - p * items;
    const Packet<T> own = load_packet(static_cast<const T*>(call.in) + p * items, left, aligned);
    if (has_stopped) return;
    for (int32_t step = 1; step < size; step++) {
      const int32_t other = rank + step < size ? rank + step : rank + step - size;
      send(place(other, rank, p), own.words, call.number);
    }
    C sum[items];
    for (int32_t r = 0; r < size; r++) {
      Packet<T> part = own;
      if (r != rank && !receive(place(rank, r, p), call.number, call.stop, &part.words)) {
        *const_cast<volatile int32_t*>(call.stopped) = 1;
        return;
      }
#pragma unroll
      for (int i = 0; i < items; i++) {
        const C value = to_compute<C>(part.at[i]);
        sum[i] = r == 0 ? value : combine(reduce, sum[i], value);
      }
    }
    Packet<T> result;
#pragma unroll
    for (int i = 0; i < items; i++) result.at[i] = from_compute<T>(reduce == Reduce::Avg ? sum[i] / static_cast<C>(size) : sum[i]);
    store_packet(static_cast<T*>(call.out) + p * items, result, left, aligned);
  }
}

template <class T>
cudaError_t launch(const PeerCall& call, Reduce reduce, cudaStream_t stream) {
  const int64_t packets = ceil_div(call.count, Packet<T>::kItems);
  const bool aligned = ((reinterpret_cast<uintptr_t>(call.in) | reinterpret_cast<uintptr_t>(call.out)) & (kPacketData - 1)) == 0;
  peer_all_reduce_kernel<T><<<static_cast<unsigned>(ceil_div(packets, kThreads)), kThreads, 0, stream>>>(call, reduce, aligned);
  return cudaPeekAtLastError();
}

template <class... T>
cudaError_t load() {
  cudaFuncAttributes ignored;
  cudaError_t code = cudaSuccess;
  ((code = code == cudaSuccess ? cudaFuncGetAttributes(&ignored, peer_all_reduce_kernel<T>) : code), ...);
  return code;
}

}  // namespace

bool is_for_peers(const CollectiveCall& call, int32_t size) {
  return call.kind == Collective::AllReduce && size > 1 && size <= kMostPeers && call.count > 0 && call.dtype != DType::Int16 &&
         call.count <= kMostPeerBytes / item_size(call.dtype);
}

cudaError_t load_peer_all_reduce() { return load<float, double, half_t, bfloat16_t, int64_t, int32_t, int8_t, uint8_t>(); }

cudaError_t peer_all_reduce(const PeerCall& call, cudaStream_t stream) {
  switch (call.dtype) {
    case DType::Float32: return launch<float>(call, call.reduce, stream);
    case DType::Float64: return launch<double>(call, call.reduce, stream);
    case DType::Float16: return launch<half_t>(call, call.reduce, stream);
    case DType::BFloat16: return launch<bfloat16_t>(call, call.reduce, stream);
    case DType::Int64: return launch<int64_t>(call, call.reduce, stream);
    case DType::Int32: return launch<int32_t>(call, call.reduce, stream);
    case DType::Int8: return launch<int8_t>(call, call.reduce, stream);
    case DType::UInt8: return launch<uint8_t>(call, call.reduce, stream);
    case DType::Bool: {  // "or" and "and", of 0 and 1
      const bool ors = call.reduce == Reduce::Sum || call.reduce == Reduce::Max;
      return launch<uint8_t>(call, ors ? Reduce::Max : Reduce::Min, stream);
    }
    default: return cudaErrorNotSupported;
  }
}

}  // namespace shardwise::cuda
