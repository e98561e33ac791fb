// All-reduce of small tensors between GPUs that can write to each other's memory, in one shot: each
// rank sends its whole tensor to all others and sums all of them in the order of the ranks, so that
// all get the same bits. One trip over the wire, where a ring takes 2 (n - 1).
//
// Layout: a tensor is split into packets of 8 bytes, a thread for each, in blocks of 256. On the
// wire a packet has the number of the call after each 4 bytes: 8 bytes are written at once, so a
// reader that sees the number has the data too, without fences or separate flags. A rank's mailbox
// has a slot for each packet of each rank, twice: calls alternate. When a rank writes into a slot
// again, all others have completed the call in between, and so have read the slot before.
// Operations: n - 1 additions an element at each rank.
// Bytes: 2 (n - 1) of the tensor's out and as many in, at each rank. Numerics: float32 sums of
// float16 and bfloat16, rounded once, as on the CPU. A rank that waits for a missing one polls a
// word of the host that says whether the group has failed. Its output is undefined then, and its
// later calls send nothing, since their inputs may depend on it.
// Source: the low-latency protocol of NCCL (arXiv:2507.04786); one-shot all-reduce of TensorRT-LLM
// and of PyTorch's symmetric memory. On the device, H200s, us (NCCL in a graph): two GPUs, 8 B 3.3
// (10.6), 16 KiB 3.7 (11.8), 64 KiB 4.1 (12.2), 256 KiB 5.5 (13.5); four, 3.9 (13.4), 4.6 (15.8),
// 5.8 (16.3), 9.6 (16.7). Larger tensors use lines (peer_all_reduce_lines.cu). No other version was
// timed.
#include "peer_sums.cuh"

namespace shardwise::cuda {
namespace {

constexpr int32_t kThreads = 256;

__device__ __forceinline__ void send(char* to, uint2 data, uint32_t number) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(data.x),
               "r"(number), "r"(data.y)
               : "memory");
}

// False if the group has failed.
__device__ __forceinline__ bool receive(const char* from, const PeerCall& call, uint2* data) {
  for (uint32_t spins = 1;; spins++) {
    uint32_t first, second;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(data->x), "=r"(first), "=r"(data->y), "=r"(second)
                 : "l"(from)
                 : "memory");
    if (first == call.number && second == call.number) return true;
    if (spins % kSpinsToLook == 0 && has_failed(call)) return false;
  }
}

template <class T>
using Own = Packet<T, kPacketData>;

// Loads at once if the tensor's packet is whole and aligned.
template <class T>
__device__ __forceinline__ Own<T> load_packet(const T* from, int64_t left, bool aligned) {
  if (!aligned || left < Own<T>::kItems) return load_elements<T, kPacketData>(from, left);
  Own<T> packet;
  packet.words = *reinterpret_cast<const uint2*>(from);
  return packet;
}

template <class T>
__device__ __forceinline__ void store_packet(T* to, const Own<T>& packet, int64_t left,
                                             bool aligned) {
  if (aligned && left >= packet.kItems)
    *reinterpret_cast<uint2*>(to) = packet.words;
  else
    store_elements(to, packet, left);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    peer_all_reduce_kernel(const __grid_constant__ PeerCall call, Reduce reduce, bool aligned) {
  constexpr int items = Own<T>::kItems;
  const int32_t rank = call.rank, size = call.size;
  const int64_t turn = (call.number & 1) * size;
  const auto place = [&](int32_t owner, int32_t sender, int64_t p) {
    return call.mailboxes[owner] + ((turn + sender) * kMostPackets + p) * kPacketBytes;
  };
  const bool has_stopped = was_stopped(call);
  for (int64_t p = int64_t(blockIdx.x) * kThreads + threadIdx.x; p * items < call.count;
       p += int64_t(gridDim.x) * kThreads) {
    const int64_t left = call.count - p * items;
    const Own<T> own = load_packet(static_cast<const T*>(call.in) + p * items, left, aligned);
    if (has_stopped) return;
    for (int32_t step = 1; step < size; step++) {
      const int32_t other = rank + step < size ? rank + step : rank + step - size;
      send(place(other, rank, p), own.words, call.number);
    }
    PacketSum<T, kPacketData> sum;
    for (int32_t r = 0; r < size; r++) {
      Own<T> part = own;
      if (r != rank && !receive(place(rank, r, p), call, &part.words)) return set_stopped(call);
      with_combine<compute_t<T>>(reduce, [&](auto both) { sum.add(both, r == 0, part); });
    }
    store_packet(static_cast<T*>(call.out) + p * items, sum.rounded(reduce, size), left, aligned);
  }
}

template <class T>
cudaError_t launch(const PeerCall& call, Reduce reduce, cudaStream_t stream) {
  const int64_t packets = ceil_div(call.count, Own<T>::kItems);
  const auto blocks = static_cast<unsigned>(ceil_div(packets, kThreads));
  peer_all_reduce_kernel<T>
      <<<blocks, kThreads, 0, stream>>>(call, reduce, is_aligned_to(call, kPacketData));
  return cudaPeekAtLastError();
}

}  // namespace

bool is_for_peers(const CollectiveCall& call, int32_t size) {
  return call.kind == Collective::AllReduce && size > 1 && size <= kMostPeers && call.count > 0 &&
         call.dtype != DType::Int16 && call.count <= kMostPeerBytes / item_size(call.dtype);
}

cudaError_t load_peer_all_reduce() {
  const cudaError_t code = load_summed_types([](auto tag) {
    cudaFuncAttributes ignored;
    return cudaFuncGetAttributes(&ignored, peer_all_reduce_kernel<tag_t<decltype(tag)>>);
  });
  return code == cudaSuccess ? load_peer_all_reduce_lines() : code;
}

cudaError_t peer_all_reduce(const PeerCall& call, cudaStream_t stream) {
  if (needs_lines(call.count, call.dtype)) return peer_all_reduce_lines(call, stream);
  return with_summed_type(call, [&](auto tag, Reduce reduce) {
    return launch<tag_t<decltype(tag)>>(call, reduce, stream);
  });
}

}  // namespace shardwise::cuda
