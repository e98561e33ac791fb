#include "nccl_peers.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "nccl_member.h"

namespace shardwise::cuda::nccl {
namespace {

// What every rank can send to every other.
enum Reach : int32_t { kNothing = 0, kPackets = 1, kLines = 2 };

bool is_wanted() {
  const char *refused = getenv("NCCL_P2P_DISABLE"), *asked = getenv("SHARDWISE_PEER_MEMORY");
  return (!refused || atoi(refused) == 0) && (!asked || strcmp(asked, "0") != 0);
}

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

// Identifies the machine as NCCL does: by NCCL_HOSTID, or by host name and boot id.
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

// Random, because process ids repeat in other containers.
uint64_t this_process() {
  static const uint64_t drawn = [] {
    uint64_t value = 0;
    return getrandom(&value, sizeof value, 0) == sizeof value ? value
                                                              : static_cast<uint64_t>(getpid());
  }();
  return drawn;
}

// Whether lines arrive in order: they do over NVLink, as NCCL also assumes; no other link between
// GPUs supports all atomics. False if this process does not see the other GPU.
bool has_nvlink(int32_t device, const char* other) {
  int32_t peer = -1, has_atomics = 0;
  cudaError_t code = cudaDeviceGetByPCIBusId(&peer, other);
  if (code == cudaSuccess)
    code =
        cudaDeviceGetP2PAttribute(&has_atomics, cudaDevP2PAttrNativeAtomicSupported, device, peer);
  cudaGetLastError();
  return code == cudaSuccess && has_atomics != 0;
}

// Waits for the work on the stream, unless the group fails first.
cudaError_t wait_for(Member& member, cudaStream_t stream) {
  cudaEvent_t done = nullptr;
  cudaError_t code = cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
  if (code != cudaSuccess) return code;
  code = cudaEventRecord(done, stream);
  for (Backoff backoff; code == cudaSuccess; backoff.rest()) {
    code = cudaEventQuery(done);
    if (code != cudaErrorNotReady) break;
    code = member.failed.load() ? cudaErrorNotReady : cudaSuccess;
  }
  cudaEventDestroy(done);
  return code;
}

}  // namespace

// The memory of a rank, as the others need it to open the mailbox.
struct Peers::MailboxInfo {
  uint64_t host, process;
  char* mailbox;  // address in its process
  int32_t device;
  int32_t is_good;
  char bus[24];  // PCI address of its GPU
  cudaIpcMemHandle_t handle;
};

struct Peers::DeviceWords {
  MailboxInfo infos[kMostPeers];
  int32_t agreed;   // a Reach; not 0 after the rendezvous
  int32_t stopped;  // on the device: see PeerCall
};

struct Peers::HostPage {
  int32_t stop;
  DeviceWords words;
  int32_t left[kMostPeers];
};

// ---- memory ------------------------------------------------------------------------------------

namespace {

std::mutex memory_mutex;

// Lists that live as long as the process.
template <class T>
std::vector<T>& kept() {
  static auto* created = new std::vector<T>;
  return *created;
}

}  // namespace

Peers::Memory Peers::spare(int32_t device, int32_t size) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  auto& spares = kept<Memory>();
  const auto found = std::find_if(spares.begin(), spares.end(), [&](const Memory& m) {
    return m.device == device && m.size == size;
  });
  if (found == spares.end()) return {device, size};
  const Memory memory = *found;
  spares.erase(found);
  return memory;
}

void Peers::give_back(const Memory& memory) {
  std::lock_guard<std::mutex> lock(memory_mutex);
  if (memory.mailbox) kept<Memory>().push_back(memory);
}

cudaError_t Peers::allocate(Memory* memory) {
  cudaError_t code = cudaHostAlloc(reinterpret_cast<void**>(&memory->page), sizeof(HostPage),
                                   cudaHostAllocPortable | cudaHostAllocMapped);
  if (code == cudaSuccess)
    code = cudaMalloc(reinterpret_cast<void**>(&memory->words), sizeof(DeviceWords));
  if (code == cudaSuccess) code = load_peer_all_reduce();
  if (code == cudaSuccess &&
      cudaMalloc(reinterpret_cast<void**>(&memory->mailbox),
                 static_cast<size_t>(mailbox_bytes(memory->size))) != cudaSuccess)
    // the others are already in the rendezvous, which reports it to them
    memory->mailbox = nullptr;
  cudaGetLastError();
  return code;
}

// ---- the rendezvous ---------------------------------------------------------------------------

Peers::Rendezvous Peers::rendezvous(Member& member, cudaStream_t stream) {
  Rendezvous outcome;
  std::unique_ptr<Peers> peers(new Peers(member.rank, member.size));
  outcome.cuda = peers->prepare(stream);
  if (outcome.cuda != cudaSuccess) return outcome;
  DeviceWords &page = peers->own_.page->words, &words = *peers->own_.words;
  // One call of NCCL between a copy to the device and a copy back; waits for the result.
  const auto exchange = [&](void* in, const void* from, size_t own, void* out, const void* result,
                            size_t whole, auto call) {
    outcome.cuda = cudaMemcpyAsync(in, from, own, cudaMemcpyHostToDevice, stream);
    if (outcome.cuda != cudaSuccess) return false;
    {
      Turn turn(member);
      if (!turn.comm) return false;
      outcome.result = call(turn.comm);
    }
    outcome.result = settle(member, outcome.result, 0);
    if (outcome.result != kSuccess) return false;
    outcome.cuda = cudaMemcpyAsync(out, result, whole, cudaMemcpyDeviceToHost, stream);
    if (outcome.cuda == cudaSuccess) outcome.cuda = wait_for(member, stream);
    return outcome.cuda == cudaSuccess;
  };
  peers->write_mailbox_info();
  MailboxInfo* own = words.infos + member.rank;
  const size_t all = sizeof(MailboxInfo) * static_cast<size_t>(member.size),
               one = sizeof page.agreed;
  const bool met = exchange(own, page.infos + member.rank, sizeof(MailboxInfo), page.infos,
                            words.infos, all, [&](Comm comm) {
                              return member.api.all_gather(own, words.infos, sizeof(MailboxInfo),
                                                           kInt8, comm, stream);
                            });
  if (!met) return outcome;
  page.agreed = peers->open();
  // Ordered after the mailboxes are zeroed: a rank with the result may write into all of them.
  const bool decided =
      exchange(&words.agreed, &page.agreed, one, &page.agreed, &words.agreed, one, [&](Comm comm) {
        return member.api.all_reduce(&words.agreed, &words.agreed, 1, kInt32, kMin, comm, stream);
      });
  peers->has_lines_ = page.agreed == kLines;
  if (decided && page.agreed != kNothing)
    outcome.peers = std::move(peers);
  else if (decided)
    give_back(peers->own_);  // no rank writes into it
  return outcome;
}

cudaError_t Peers::prepare(cudaStream_t stream) {
  int32_t device = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) own_ = spare(device, size_);
  if (code == cudaSuccess && !own_.mailbox) code = allocate(&own_);
  if (code != cudaSuccess) return code;
  *own_.page = {};
  mailboxes_[rank_] = own_.mailbox;
  code = cudaMemsetAsync(own_.words, 0, sizeof(DeviceWords), stream);
  if (code == cudaSuccess && own_.mailbox)
    code = cudaMemsetAsync(own_.mailbox, 0, static_cast<size_t>(mailbox_bytes(size_)), stream);
  return code;
}

void Peers::write_mailbox_info() {
  MailboxInfo& card = own_.page->words.infos[rank_];
  card.host = this_host();
  card.process = this_process();
  card.mailbox = own_.mailbox;
  card.device = own_.device;
  cudaDeviceGetPCIBusId(card.bus, sizeof card.bus, own_.device);
  card.is_good =
      card.mailbox && is_wanted() && cudaIpcGetMemHandle(&card.handle, card.mailbox) == cudaSuccess;
  cudaGetLastError();
}

bool Peers::can_open() const {
  const MailboxInfo* infos = own_.page->words.infos;
  for (int32_t r = 0; r < size_; r++)
    if (!infos[r].is_good || infos[r].host != infos[rank_].host) return false;
  return true;
}

int32_t Peers::open() {
  if (!can_open()) return kNothing;
  Reach reach = kLines;
  for (int32_t r = 0; r < size_; r++) {
    if (r == rank_) continue;
    if (open_one(r) != cudaSuccess) {
      cudaGetLastError();
      return kNothing;
    }
    if (!has_nvlink(own_.device, own_.page->words.infos[r].bus)) reach = kPackets;
  }
  return reach;
}

// CUDA returns the existing mapping if memory of an earlier group of that process is still open
// here.
cudaError_t Peers::open_one(int32_t rank) {
  const MailboxInfo& card = own_.page->words.infos[rank];
  if (card.process != this_process())
    return cudaIpcOpenMemHandle(reinterpret_cast<void**>(&mailboxes_[rank]), card.handle,
                                cudaIpcMemLazyEnablePeerAccess);
  const cudaError_t code = cudaDeviceEnablePeerAccess(card.device, 0);
  cudaGetLastError();
  mailboxes_[rank] = card.mailbox;
  return code == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : code;
}

// ---- calls, and the end -----------------------------------------------------------------------

cudaError_t Peers::all_reduce(const CollectiveCall& call, cudaStream_t stream) {
  PeerCall all = {};
  memcpy(all.mailboxes, mailboxes_, sizeof all.mailboxes);
  all.stop = &own_.page->stop;
  all.stopped = &own_.words->stopped;
  all.rank = rank_;
  all.size = size_;
  all.number = ++calls_;
  all.in = call.in;
  all.out = call.out;
  all.count = call.count;
  all.dtype = call.dtype;
  all.reduce = call.reduce;
  return peer_all_reduce(all, stream);
}

void Peers::stop() { __atomic_store_n(&own_.page->stop, 1, __ATOMIC_RELEASE); }

// Also checks the earlier leavers of this process: no thread waits for the last rank to leave.
void Peers::leave(std::unique_ptr<Peers> own) {
  const int32_t device = own->own_.device;
  cudaStream_t stream = nullptr;
  if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
    return (void)cudaGetLastError();
  const bool has_signalled = own->signal_left(stream) == cudaSuccess;
  std::vector<Memory> free;
  {
    std::lock_guard<std::mutex> lock(memory_mutex);
    auto& behind = kept<std::unique_ptr<Peers>>();
    if (has_signalled) behind.push_back(std::move(own));
    for (auto& each : behind) {
      if (each->own_.device != device || !each->all_have_left(stream)) continue;
      free.push_back(each->own_);
      each.reset();
    }
    behind.erase(std::remove(behind.begin(), behind.end(), nullptr), behind.end());
  }
  for (const Memory& memory : free) give_back(memory);
  cudaStreamDestroy(stream);
  cudaGetLastError();
}

cudaError_t Peers::signal_left(cudaStream_t stream) {
  cudaError_t code = cudaSuccess;
  for (int32_t r = 0; r < size_ && code == cudaSuccess; r++)
    code = cudaMemcpyAsync(mailboxes_[r] + mail_bytes(size_) + 4 * rank_, &own_.words->agreed, 4,
                           cudaMemcpyDeviceToDevice, stream);
  return code == cudaSuccess ? cudaStreamSynchronize(stream) : code;
}

bool Peers::all_have_left(cudaStream_t stream) {
  int32_t* left = own_.page->left;
  if (cudaMemcpyAsync(left, own_.mailbox + mail_bytes(size_), sizeof own_.page->left,
                      cudaMemcpyDeviceToHost, stream) != cudaSuccess)
    return false;
  return cudaStreamSynchronize(stream) == cudaSuccess && std::count(left, left + size_, 0) == 0;
}

}  // namespace shardwise::cuda::nccl
