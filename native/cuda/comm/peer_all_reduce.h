// Sums of small tensors of GPUs that can write to each other's memory, in one kernel on each: of
// the smallest by packets (peer_all_reduce.cu), of larger ones by lines (peer_all_reduce_lines.cu).
#pragma once
#include <cuda_runtime.h>

#include "../../include/collective.h"
#include "../stream.h"

namespace shardwise::cuda {

constexpr int32_t kMostPeers = 8;
// Up to which packets go, half of which is data, and behind which lines do.
constexpr int64_t kMostPacketBytes = 256 << 10;
// Up to which NCCL is not asked.
constexpr int64_t kMostPeerBytes = 4 << 20;

// A mailbox begins with packets: for each of two calls in turn, and each rank, as many as a call
// may have.
constexpr int64_t kPacketBytes = 16, kPacketData = 8;
constexpr int64_t kMostPackets = kMostPacketBytes / kPacketData;
constexpr int64_t packet_mail_bytes(int32_t size) { return 2 * size * kMostPackets * kPacketBytes; }

// Behind them pairs of lines, in two boxes for each other rank: of two ranks one for each of two
// calls in turn, of more one for what is to be added and one for sums.
constexpr int64_t kLineBytes = 128, kPairBytes = 2 * kLineBytes, kPairData = 240;
constexpr bool has_two_shots(int32_t size) { return size > 2; }
constexpr int32_t line_pairs_of_box(int32_t size) {
  return static_cast<int32_t>(
      ceil_div(ceil_div(kMostPeerBytes, kPairData), has_two_shots(size) ? size : 1));
}
constexpr int64_t line_mail_bytes(int32_t size) {
  return int64_t{2} * (size - 1) * line_pairs_of_box(size) * kPairBytes;
}

// And a word of each rank, not 0 once it has left. All in all 10.5 MiB for 2 ranks, 10.4 for 4 and
// 15.5 for 8.
constexpr int64_t mail_bytes(int32_t size) {
  return packet_mail_bytes(size) + line_mail_bytes(size);
}
constexpr int64_t mailbox_bytes(int32_t size) { return mail_bytes(size) + kMostPeers * 4; }

struct PeerCall {
  char* mailboxes[kMostPeers];  // of all ranks, where this GPU sees them
  const int32_t* stop;          // of the host: not 0 once the group has failed
  int32_t* stopped;             // of this GPU: not 0 once a call has ended for that
  int32_t rank, size;
  uint32_t number;  // of the call; never 0, and with each call another one
  const void* in;
  void* out;
  int64_t count;
  DType dtype;
  Reduce reduce;
};

// Whether a kernel can do it; of what all ranks have in common alone.
bool is_for_peers(const CollectiveCall& call, int32_t size);
constexpr bool needs_lines(int64_t count, DType dtype) {
  return count > kMostPacketBytes / item_size(dtype);
}
// Where it needs lines, all GPUs are to be connected so that a line of 128 bytes arrives in order.
cudaError_t peer_all_reduce(const PeerCall& call, cudaStream_t stream);
// The first launch of a kernel may wait for the device, and so for a call of another group that
// waits for this one.
cudaError_t load_peer_all_reduce();

}  // namespace shardwise::cuda
