#include "nccl_peers.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "nccl_member.h"

namespace shardwise::cuda::nccl {
namespace {

bool is_wanted() {
  const char *refused = getenv("NCCL_P2P_DISABLE"), *asked = getenv("SHARDWISE_PEER_MEMORY");
  return (!refused || atoi(refused) == 0) && (!asked || strcmp(asked, "0") != 0);
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// As NCCL tells machines apart: what it is told, or the name and the boot.
uint64_t this_host() {
  if (const char* named = getenv("NCCL_HOSTID")) return hash_of(named);
  char text[256] = {};
  gethostname(text, sizeof text - 1);
  std::string whole = text;
  if (FILE* file = fopen("/proc/sys/kernel/random/boot_id", "r")) {
    if (fgets(text, sizeof text, file)) whole += text;
    fclose(file);
  }
  return hash_of(whole);
}

// A number of the process may come again in another container.
uint64_t this_process() {
  static const uint64_t drawn = [] {
    uint64_t value = 0;
    return getrandom(&value, sizeof value, 0) == sizeof value ? value : static_cast<uint64_t>(getpid());
  }();
  return drawn;
}

// Of what the stream was given, unless the group fails before.
cudaError_t wait_for(Member& member, cudaStream_t stream) {
  cudaEvent_t done = nullptr;
  cudaError_t code = cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  if (code != cudaSuccess) return code;
  code = cudaEventRecord(done, stream);
  for (Patience patience; code == cudaSuccess; patience.rest()) {
    code = cudaEventQuery(done);
    if (code != cudaErrorNotReady) break;
    code = member.failed.load() ? cudaErrorNotReady : cudaSuccess;
  }
  cudaEventDestroy(done);
  return code;
}

}  // namespace

// What a rank tells the others of its memory.
struct Peers::Card {
  uint64_t host, process;
  char* mailbox;  // in its process
  int32_t device;
  int32_t is_good;
  cudaIpcMemHandle_t handle;
};

struct Peers::Board {
  int32_t stop;
  int32_t agreed;
  Card cards[kMostPeers];
};

Peers::Meeting Peers::meet(Member& member, cudaStream_t stream) {
  Meeting meeting;
  std::unique_ptr<Peers> peers(new Peers(member.rank, member.size));
  meeting.cuda = peers->prepare(stream);
  if (meeting.cuda != cudaSuccess) return meeting;
  Board& board = *peers->board_;
  const size_t bytes = sizeof(Card) * static_cast<size_t>(member.size);
  char* agreed = peers->cards_ + sizeof board.cards;
  // One call of NCCL, with what goes before it and behind it; then what it brought is there.
  const auto exchange = [&](void* in, const void* from, size_t own, void* out, const void* result, size_t whole, auto call) {
    meeting.cuda = cudaMemcpyAsync(in, from, own, cudaMemcpyHostToDevice, stream);
    if (meeting.cuda != cudaSuccess) return false;
    {
      Turn turn(member);
      if (!turn.comm) return false;
      meeting.result = call(turn.comm);
    }
    meeting.result = settle(member, meeting.result, 0);
    if (meeting.result != kSuccess) return false;
    meeting.cuda = cudaMemcpyAsync(out, result, whole, cudaMemcpyDeviceToHost, stream);
    if (meeting.cuda == cudaSuccess) meeting.cuda = wait_for(member, stream);
    return meeting.cuda == cudaSuccess;
  };
  peers->write_card();
  char* own = peers->cards_ + sizeof(Card) * static_cast<size_t>(member.rank);
  const bool met = exchange(own, board.cards + member.rank, sizeof(Card), board.cards, peers->cards_, bytes, [&](Comm comm) {
    return member.api.all_gather(own, peers->cards_, sizeof(Card), kInt8, comm, stream);
  });
  if (!met) {
    peers.release();  // see ~Peers
    return meeting;
  }
  board.agreed = peers->open() ? 1 : 0;
  // Behind the mailboxes' zeros: who has the answer may write into those of all.
  const bool decided = exchange(agreed, &board.agreed, sizeof board.agreed, &board.agreed, agreed, sizeof board.agreed, [&](Comm comm) {
    return member.api.all_reduce(agreed, agreed, 1, kInt32, kMin, comm, stream);
  });
  if (!decided) peers.release();
  else if (board.agreed != 0) meeting.peers = std::move(peers);
  return meeting;
}

// A rank without memory for a mailbox says so: the others are on their way to the meeting.
cudaError_t Peers::prepare(cudaStream_t stream) {
  cudaError_t code = cudaHostAlloc(reinterpret_cast<void**>(&board_), sizeof(Board), cudaHostAllocPortable | cudaHostAllocMapped);
  if (code == cudaSuccess) code = cudaMalloc(reinterpret_cast<void**>(&cards_), sizeof board_->cards + sizeof board_->agreed);
  if (code != cudaSuccess) return code;
  *board_ = {};
  char*& mailbox = mailboxes_[rank_];
  const auto bytes = static_cast<size_t>(mailbox_bytes(size_));
  if (cudaMalloc(reinterpret_cast<void**>(&mailbox), bytes) != cudaSuccess) {
    cudaGetLastError();
    mailbox = nullptr;
    return cudaSuccess;
  }
  return cudaMemsetAsync(mailbox, 0, bytes, stream);
}

void Peers::write_card() {
  Card& card = board_->cards[rank_];
  card.host = this_host();
  card.process = this_process();
  card.mailbox = mailboxes_[rank_];
  cudaGetDevice(&card.device);
  card.is_good = card.mailbox && is_wanted() && cudaIpcGetMemHandle(&card.handle, card.mailbox) == cudaSuccess;
  cudaGetLastError();
}

bool Peers::can_open() const {
  for (int32_t r = 0; r < size_; r++)
    if (!board_->cards[r].is_good || board_->cards[r].host != board_->cards[rank_].host) return false;
  return true;
}

bool Peers::open() {
  if (!can_open()) return false;
  for (int32_t r = 0; r < size_; r++) {
    if (r == rank_ || open_one(r) == cudaSuccess) continue;
    cudaGetLastError();
    return false;
  }
  return true;
}

cudaError_t Peers::open_one(int32_t rank) {
  const Card& card = board_->cards[rank];
  is_foreign_[rank] = card.process != this_process();
  if (is_foreign_[rank])
    return cudaIpcOpenMemHandle(reinterpret_cast<void**>(&mailboxes_[rank]), card.handle, cudaIpcMemLazyEnablePeerAccess);
  const cudaError_t code = cudaDeviceEnablePeerAccess(card.device, 0);
  cudaGetLastError();
  mailboxes_[rank] = card.mailbox;
  return code == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : code;
}

Peers::~Peers() {
  for (int32_t r = 0; r < size_; r++)
    if (is_foreign_[r] && mailboxes_[r]) cudaIpcCloseMemHandle(mailboxes_[r]);
  cudaFree(mailboxes_[rank_]);
  cudaFree(cards_);
  if (board_) cudaFreeHost(board_);
  cudaGetLastError();
}

cudaError_t Peers::all_reduce(const CollectiveCall& call, cudaStream_t stream) {
  if (++calls_ == 0) calls_ = 2;  // 0 is what an empty mailbox has; the turns go on
  PeerCall all = {};
  memcpy(all.mailboxes, mailboxes_, sizeof all.mailboxes);
  all.stop = &board_->stop;
  all.rank = rank_;
  all.size = size_;
  all.number = calls_;
  all.in = call.in;
  all.out = call.out;
  all.count = call.count;
  all.dtype = call.dtype;
  all.reduce = call.reduce;
  return peer_all_reduce(all, stream);
}

void Peers::stop() { __atomic_store_n(&board_->stop, 1, __ATOMIC_RELEASE); }

}  // namespace shardwise::cuda::nccl
