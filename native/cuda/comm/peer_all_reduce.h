// All-reduce of small tensors between GPUs that can write to each other's memory, in one kernel on
// each: the smallest by packets (peer_all_reduce.cu), larger ones by lines
// (peer_all_reduce_lines.cu).
#pragma once
#include <cuda_runtime.h>

#include "../../include/collective.h"
#include "../stream.h"

namespace shardwise::cuda {

constexpr int32_t kMostPeers = 8;
// Largest tensor that is sent by packets, half of which is data; larger ones go by lines.
constexpr int64_t kMostPacketBytes = 256 << 10;
// Largest tensor that is not left to NCCL.
constexpr int64_t kMostPeerBytes = 4 << 20;

// A mailbox begins with packets: for each of two alternating calls, and each rank, the most that a
// call may have.
constexpr int64_t kPacketBytes = 16, kPacketData = 8;
constexpr int64_t kMostPackets = kMostPacketBytes / kPacketData;
constexpr int64_t packet_mail_bytes(int32_t size) { return 2 * size * kMostPackets * kPacketBytes; }

// Then pairs of lines, in two boxes for each other rank: between two ranks one for each of two
// alternating calls, else one for addends and one for sums.
constexpr int64_t kLineBytes = 128, kPairBytes = 2 * kLineBytes, kPairData = 240;
constexpr bool has_two_shots(int32_t size) { return size > 2; }
constexpr int32_t line_pairs_of_box(int32_t size) {
  return static_cast<int32_t>(
      ceil_div(ceil_div(kMostPeerBytes, kPairData), has_two_shots(size) ? size : 1));
}
constexpr int64_t line_mail_bytes(int32_t size) {
  return int64_t{2} * (size - 1) * line_pairs_of_box(size) * kPairBytes;
}

// Then a word of each rank, not 0 once it has left. In all 10.5 MiB for 2 ranks, 10.4 for 4 and
// 15.5 for 8.
constexpr int64_t mail_bytes(int32_t size) {
  return packet_mail_bytes(size) + line_mail_bytes(size);
}
constexpr int64_t mailbox_bytes(int32_t size) { return mail_bytes(size) + kMostPeers * 4; }

struct PeerCall {
  char* mailboxes[kMostPeers];  // of all ranks, as this GPU addresses them
  const int32_t* stop;          // in host memory: not 0 once the group has failed
  int32_t* stopped;             // in this GPU's memory: not 0 once a call has ended for that
  int32_t rank, size;
  uint32_t number;  // of the call; never 0, and different for each call
  const void* in;
  void* out;
  int64_t count;
  DType dtype;
  Reduce reduce;
};

// Whether a kernel can take the call; depends only on values that all ranks share.
bool is_for_peers(const CollectiveCall& call, int32_t size);
constexpr bool needs_lines(int64_t count, DType dtype) {
  return count > kMostPacketBytes / item_size(dtype);
}
// A call that needs lines requires GPUs connected so that a line of 128 bytes arrives in order.
cudaError_t peer_all_reduce(const PeerCall& call, cudaStream_t stream);
// Loads the kernels: their first launch could wait for the device, and so for a call of another
// group that waits for this one.
cudaError_t load_peer_all_reduce();

}  // namespace shardwise::cuda
