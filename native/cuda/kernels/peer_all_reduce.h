// Sums of small tensors of GPUs that can write to each other's memory, in one kernel on each (peer_all_reduce.cu).
#pragma once
#include <cuda_runtime.h>

#include "../../include/collective.h"

namespace shardwise::cuda {

constexpr int32_t kMostPeers = 8;
// Where the copies to all ranks begin to take longer than a ring that sums as it goes.
constexpr int64_t kMostPeerBytes = 256 << 10;

// A mailbox: for each of two calls in turn, and each rank, as many packets as a call may have.
constexpr int64_t kPacketBytes = 16, kPacketData = 8;
constexpr int64_t kPeerPackets = kMostPeerBytes / kPacketData;
constexpr int64_t mail_bytes(int32_t size) { return 2 * size * kPeerPackets * kPacketBytes; }
// Behind the mail: a word of each rank, not 0 once it has left.
constexpr int64_t mailbox_bytes(int32_t size) { return mail_bytes(size) + kMostPeers * 4; }

struct PeerCall {
  char* mailboxes[kMostPeers];  // of all ranks, where this GPU sees them
  const int32_t* stop;          // of the host: not 0 once the group has failed
  int32_t* stopped;             // of this GPU: not 0 once a call has ended for that
  int32_t rank, size;
  uint32_t number;              // of the call; never 0, and with each call another one
  const void* in;
  void* out;
  int64_t count;
  DType dtype;
  Reduce reduce;
};

// Whether the kernel can do it; of what all ranks have in common alone.
bool is_for_peers(const CollectiveCall& call, int32_t size);
cudaError_t peer_all_reduce(const PeerCall& call, cudaStream_t stream);
// The first launch of a kernel may wait for the device, and so for a call of another group that waits for this one.
cudaError_t load_peer_all_reduce();

}  // namespace shardwise::cuda
