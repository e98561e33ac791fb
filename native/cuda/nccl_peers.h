// The GPUs of a group whose ranks can write to each other's memory: mailboxes for small all-reduces (kernels/peer_all_reduce.cu), which
// NCCL takes several times as long for.
#pragma once
#include <memory>

#include "kernels/peer_all_reduce.h"
#include "nccl_api.h"

namespace shardwise::cuda::nccl {

struct Member;

class Peers {
 public:
  // What came of a meeting: `peers` is null where any of the ranks cannot reach another one's memory.
  struct Meeting {
    std::unique_ptr<Peers> peers;
    Result result = kSuccess;
    cudaError_t cuda = cudaSuccess;
  };
  // In one call of all ranks, whose stream it is.
  static Meeting meet(Member& member, cudaStream_t stream);
  // Once no rank uses them any more. Those of a group that has failed are never given back: another rank may still write to them.
  ~Peers();

  cudaError_t all_reduce(const CollectiveCall& call, cudaStream_t stream);
  // From any thread: calls under way end as they stand, and later ones.
  void stop();

 private:
  struct Card;
  struct Board;
  Peers(int32_t rank, int32_t size) : rank_(rank), size_(size) {}
  cudaError_t prepare(cudaStream_t stream);
  void write_card();
  bool can_open() const;
  bool open();
  cudaError_t open_one(int32_t rank);

  const int32_t rank_, size_;
  uint32_t calls_ = 0;
  Board* board_ = nullptr;          // pinned memory of the host
  char* cards_ = nullptr;           // the board's, on the device
  char* mailboxes_[kMostPeers] = {};
  bool is_foreign_[kMostPeers] = {};  // of another process
};

}  // namespace shardwise::cuda::nccl
