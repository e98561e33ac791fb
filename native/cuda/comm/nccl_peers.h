// The GPUs of a group whose ranks can write to each other's memory: mailboxes for all-reduces of up
// to some MiB (comm/peer_all_reduce.h), which NCCL takes longer for.
#pragma once
#include <memory>

#include "nccl_api.h"
#include "peer_all_reduce.h"

namespace shardwise::cuda::nccl {

struct Member;

class Peers {
 public:
  // What came of a outcome: `peers` is null where any of the ranks cannot reach another one's
  // memory.
  struct Rendezvous {
    std::unique_ptr<Peers> peers;
    Result result = kSuccess;
    cudaError_t cuda = cudaSuccess;
  };
  // In one call of all ranks, whose stream it is.
  static Rendezvous rendezvous(Member& member, cudaStream_t stream);
  // This rank's calls are done. It tells the others, and keeps its mailbox until all have left: one
  // may still make a call, which waits in vain but writes. Without this, as where a group has
  // failed, the mailbox is never used again.
  static void leave(std::unique_ptr<Peers> own);

  // Of a call that is_for_peers; as on all ranks. False where it is larger than what the links are
  // good for, and after so many calls that numbers would come again.
  bool can_do(const CollectiveCall& call) const {
    return calls_ != UINT32_MAX && (has_lines_ || !needs_lines(call.count, call.dtype));
  }
  cudaError_t all_reduce(const CollectiveCall& call, cudaStream_t stream);
  // From any thread: calls under way end as they stand, and later ones.
  void stop();

 private:
  struct MailboxInfo;
  struct DeviceWords;
  struct HostPage;
  // What a rank needs of its own. Given back to the process and not to CUDA, which would wait for
  // all kernels of the device, and with it who launches: a kernel may wait for that very launch on
  // another rank.
  struct Memory {
    int32_t device = 0, size = 0;
    HostPage* page = nullptr;      // pinned memory of the host
    DeviceWords* words = nullptr;  // the page's on the device
    char* mailbox = nullptr;
  };
  static Memory spare(int32_t device, int32_t size);
  static void give_back(const Memory& memory);
  static cudaError_t allocate(Memory* memory);

  Peers(int32_t rank, int32_t size) : rank_(rank), size_(size) {}
  cudaError_t prepare(cudaStream_t stream);
  void write_mailbox_info();
  bool can_open() const;
  int32_t open();
  cudaError_t open_one(int32_t rank);
  cudaError_t signal_left(cudaStream_t stream);
  bool all_have_left(cudaStream_t stream);

  const int32_t rank_, size_;
  uint32_t calls_ = 0;
  bool has_lines_ = false;
  Memory own_;
  char* mailboxes_[kMostPeers] = {};
};

}  // namespace shardwise::cuda::nccl
