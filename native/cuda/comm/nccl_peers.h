// Peer memory of a group whose ranks can write to each other's GPUs: mailboxes for all-reduces of
// up to some MiB (peer_all_reduce.h), for which NCCL takes longer.
#pragma once
#include <memory>

#include "nccl_api.h"
#include "peer_all_reduce.h"

namespace shardwise::cuda::nccl {

struct Member;

class Peers {
 public:
  // The result of the rendezvous: `peers` is null if any rank cannot reach the memory of another.
  struct Rendezvous {
    std::unique_ptr<Peers> peers;
    Result result = kSuccess;
    cudaError_t cuda = cudaSuccess;
  };
  // Called by all ranks in one collective call, with its stream.
  static Rendezvous rendezvous(Member& member, cudaStream_t stream);
  // Ends this rank's calls: signals the others, and keeps the mailbox until all have left, because
  // one may still make a call, which writes although it can never complete. Without this, as after
  // a failure, the mailbox is never used again.
  static void leave(std::unique_ptr<Peers> own);

  // Whether the mailboxes can take a call that is_for_peers; the same on all ranks. False if it is
  // larger than the links support, and after 2^32 - 1 calls, when numbers would repeat.
  bool can_do(const CollectiveCall& call) const {
    return calls_ != UINT32_MAX && (has_lines_ || !needs_lines(call.count, call.dtype));
  }
  cudaError_t all_reduce(const CollectiveCall& call, cudaStream_t stream);
  // From any thread: ends running and later calls, with undefined results.
  void stop();

 private:
  struct MailboxInfo;
  struct DeviceWords;
  struct HostPage;
  // The memory of a rank. It returns to a list of the process, not to CUDA: cudaFree waits for all
  // kernels of the device, and blocks a thread whose launch another rank's kernel may wait for.
  struct Memory {
    int32_t device = 0, size = 0;
    HostPage* page = nullptr;      // pinned memory of the host
    DeviceWords* words = nullptr;  // the device's copy of the page's words
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
