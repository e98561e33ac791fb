// All-reduce of tensors of up to some MiB between GPUs that can write to each other's memory, in
// two shots: each rank owns a shard of the tensor, to which all ranks send theirs. It adds them in
// the order of the ranks, so that all get the same bits, and sends the sum to all. Two ranks use
// one shot of the whole tensor: as many bytes, and one trip over the wire less.
//
// Layout: ranks send lines of 128 bytes: 120 bytes of data and 8 with the number of the call. Eight
// neighbouring lanes write a line at once, and it arrives in order: a reader that sees the number,
// and then reads the line, reads the data, without fences. Two lines are a pair with 240 bytes of
// the tensor, so that lanes load and store 16 bytes of it. Seven lanes of a group have 16 bytes of
// each line; the last one has 16 bytes of which each line gets half, in front of the number.
// A mailbox has two boxes of pairs for each other rank. In two shots one box is for addends: when a
// rank writes into it again, its previous call is complete, so it has received the sums of all it
// sent then, and the owner had read them. The other box is for sums: they go to ranks whose lines
// of this call have arrived, which have ended their previous call with all its reads. In one shot
// the boxes alternate by the number of the call, as in the kernel of packets: the call in between,
// of either kernel, implies that all ranks have ended the one before. So the kernels of a stream
// must not overlap. The warp of a pair is the same on all ranks, and waits only for the warps of
// the same index, which have sent before they wait, in blocks that start in order: blocks that are
// not scheduled yet stop no other.
// Grid: blocks of 4 to 16 warps, at most 128 of them; a warp has four pairs at a time (960 bytes of
// the tensor), and takes several rounds.
// Operations: n - 1 additions an element of the rank's shard, or, between two ranks, of the whole
// tensor.
// Bytes: 2 (n - 1) / n of the tensor's * 128 / 120 out and as many in, at each rank. Numerics:
// float32 sums of float16 and bfloat16, rounded once, as on the CPU. A failed group ends the call
// as in the kernel of packets (peer_all_reduce.cu).
// Source: the protocol LL128 of NCCL (arXiv:2507.04786), two-shot all-reduce of TensorRT-LLM and
// PyTorch's symmetric memory. On two H200s, float32, calls one after another, us (NCCL, and two
// shots by PyTorch's symmetric memory): 512 KiB 7.4, 1 MiB 7.6 (13.0, 10.0), 2 MiB 11.6, 4 MiB 17.9
// (31.6, 19.7); NCCL takes 44.5 for 8 MiB. No other version was timed.
#include <algorithm>

#include "peer_sums.cuh"

namespace shardwise::cuda {
namespace {

constexpr int32_t kMostBlocks = 128, kMostWarps = 16, kFewestWarps = 4;  // warps of a block
constexpr int32_t kLanesOfLine = 8, kPairsOfWarp = 32 / kLanesOfLine;
constexpr int32_t kChunkBytes = 16, kNumberAt = kLineBytes - 4;
constexpr int32_t kSums = 1;  // index of the box for sums
constexpr unsigned kFullMask = 0xffffffff;
static_assert(kMostPeers <= kLanesOfLine, "a lane looks for the lines of a rank");
static_assert(kMostPacketBytes >= kPairData * kMostPeers * kMostPeers,
              "every rank owns some pairs, and so sends to all");
static_assert(kMostPeerBytes <= 1 << 30, "elements are counted in 32 bits");

// The layout of a tensor in pairs.
struct PairLayout {
  int32_t all, of_shard, of_box;
  bool is_aligned, is_smooth;  // smooth: aligned, and the end is a whole chunk
};

// ---- chunks: the words of a lane in a line ----------------------------------------------------

// Without branches, so that many loads are in flight at once. `chunk` keeps its contents unless
// `is_wanted`.
__device__ __forceinline__ void load_chunk(uint4& chunk, const void* from, bool is_wanted) {
  asm volatile(
      "{\n"
      ".reg .pred wanted;\n"
      "setp.ne.u32 wanted, %5, 0;\n"
      "@wanted ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];\n"
      "}"
      : "+r"(chunk.x), "+r"(chunk.y), "+r"(chunk.z), "+r"(chunk.w)
      : "l"(from), "r"(static_cast<uint32_t>(is_wanted))
      : "memory");
}

__device__ __forceinline__ void store_chunk(char* to, uint4 chunk) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(chunk.x),
               "r"(chunk.y), "r"(chunk.z), "r"(chunk.w)
               : "memory");
}

__device__ __forceinline__ uint32_t load_number(const char* line) {
  uint32_t number;
  asm volatile("ld.volatile.global.u32 %0, [%1];"
               : "=r"(number)
               : "l"(line + kNumberAt)
               : "memory");
  return number;
}

// Not inlined: they would take registers from the path of aligned tensors.
template <class T>
__device__ __noinline__ Packet<T, kChunkBytes> load_slowly(const T* from, int32_t left) {
  return load_elements<T, kChunkBytes>(from, left);
}
template <class T>
__device__ __noinline__ void store_slowly(T* to, Packet<T, kChunkBytes> chunk, int32_t left) {
  store_elements(to, chunk, left);
}

// ---- one call ---------------------------------------------------------------------------------

// One lane's view of a call between at most kRanks ranks. Whole warps call the methods, for four
// pairs from `base` on.
template <class T, int32_t kRanks>
class Lines {
 public:
  static constexpr bool kTwoShots = has_two_shots(kRanks);

  __device__ __forceinline__ Lines(const PeerCall& call, Reduce reduce, const PairLayout& layout)
      : call_(call),
        layout_(layout),
        reduce_(reduce),
        rank_(call.rank),
        size_(kTwoShots ? call.size : 2),
        lane_(threadIdx.x % kLanesOfLine) {}

  // Sends this rank's elements of each other rank's shard to its owner.
  __device__ __forceinline__ void send_shards(int32_t base, bool has_stopped) const {
    const int32_t p = pair_of(base);
    Pair own[kRanks];
#pragma unroll
    for (int step = 1; step < kRanks; step++) load(own[step], peer_after(step), p, step < size_);
    if (has_stopped) return;
#pragma unroll
    for (int step = 1; step < kRanks; step++) {
      if (step >= size_) continue;
      if (!layout_.is_smooth) load_tail(own[step], peer_after(step), p);
      pack(own[step]);
      send(shards_box(), peer_after(step), peer_after(step), p, own[step]);
    }
  }

  // Adds up this rank's shard and sends the sum to all others. Returns false if the group has
  // failed.
  __device__ __forceinline__ bool reduce_shard(int32_t base) const {
    const int32_t p = pair_of(base);
    Pair own, shards[kRanks];
    load(own, rank_, p, true);
    if (!wait(shards_box(), rank_, p)) return false;
    if (!layout_.is_smooth) load_tail(own, rank_, p);
    pack(own);
#pragma unroll
    for (int r = 0; r < kRanks; r++) {
      shards[r] = own;
      receive(shards[r], shards_box(), r, p, (r < size_) & (r != rank_) & is_there(rank_, p));
    }
    const Pair sum = sum_of(shards);
    if constexpr (kTwoShots) {
      Pair packed = sum;
      pack(packed);
#pragma unroll
      for (int step = 1; step < kRanks; step++)
        if (step < size_) send(kSums, peer_after(step), rank_, p, packed);
    }
    store(sum, rank_, p);
    return true;
  }

  // Receives the sums of the other ranks' shards. Returns false if the group has failed.
  __device__ __forceinline__ bool gather_sums(int32_t base) const {
    const int32_t p = pair_of(base);
    if (!wait(kSums, lane_, p)) return false;
    Pair sums[kRanks];
#pragma unroll
    for (int step = 1; step < kRanks; step++)
      receive(sums[step], kSums, peer_after(step), p,
              (step < size_) & is_there(peer_after(step), p));
#pragma unroll
    for (int step = 1; step < kRanks; step++) {
      if (step >= size_) continue;
      unpack(sums[step]);
      store(sums[step], peer_after(step), p);
    }
    return true;
  }

 private:
  static constexpr int32_t kItems = kChunkBytes / sizeof(T), kItemsOfLine = kLanesOfLine * kItems,
                           kItemsOfPair = kPairData / sizeof(T);

  struct Pair {
    Packet<T, kChunkBytes> chunks[2];
  };

  __device__ __forceinline__ int32_t shards_box() const { return kTwoShots ? 0 : call_.number & 1; }
  __device__ __forceinline__ int32_t peer_after(int32_t step) const {
    return rank_ + step < size_ ? rank_ + step : rank_ + step - size_;
  }
  __device__ __forceinline__ bool is_last() const { return lane_ == kLanesOfLine - 1; }

  __device__ __forceinline__ int32_t pair_of(int32_t base) const {
    return base + threadIdx.x % 32 / kLanesOfLine;
  }
  __device__ __forceinline__ int32_t begin(int32_t shard) const {
    return kTwoShots ? shard * layout_.of_shard : 0;
  }
  __device__ __forceinline__ bool is_there(int32_t shard, int32_t p) const {
    return (p < layout_.of_shard) & (begin(shard) + p < layout_.all);
  }

  __device__ __forceinline__ char* slot(int32_t box, int32_t owner, int32_t sender,
                                        int32_t p) const {
    const int32_t before = (box * (size_ - 1) + sender - (sender > owner ? 1 : 0)) * layout_.of_box;
    return call_.mailboxes[owner] + packet_mail_bytes(size_) + int64_t{before + p} * kPairBytes;
  }

  // The index of a lane's chunk of a pair in the tensor, and the number of elements of the tensor
  // from there on (0 if the chunk is not this lane's; may exceed the chunk).
  __device__ __forceinline__ int32_t at(int32_t shard, int32_t p, int32_t i) const {
    return (begin(shard) + p) * kItemsOfPair + i * kItemsOfLine + lane_ * kItems;
  }
  __device__ __forceinline__ int32_t left(int32_t shard, int32_t p, int32_t i) const {
    return is_there(shard, p) & (i == 0 || !is_last())
               ? static_cast<int32_t>(call_.count) - at(shard, p, i)
               : 0;
  }

  // Loads whole aligned chunks; `load_tail` loads the others.
  __device__ __forceinline__ void load(Pair& pair, int32_t shard, int32_t p, bool is_wanted) const {
    const T* in = static_cast<const T*>(call_.in);
#pragma unroll
    for (int i = 0; i < 2; i++)
      load_chunk(pair.chunks[i].words, in + at(shard, p, i),
                 is_wanted & layout_.is_aligned & (left(shard, p, i) >= kItems));
  }

  __device__ __forceinline__ void load_tail(Pair& pair, int32_t shard, int32_t p) const {
    const T* in = static_cast<const T*>(call_.in);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int32_t there = left(shard, p, i);
      if (there > 0 && (!layout_.is_aligned || there < kItems))
        pair.chunks[i] = load_slowly(in + at(shard, p, i), there);
    }
  }

  __device__ __forceinline__ void store(const Pair& pair, int32_t shard, int32_t p) const {
    T* out = static_cast<T*>(call_.out);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int32_t there = left(shard, p, i);
      if (layout_.is_aligned && there >= kItems)
        *reinterpret_cast<uint4*>(out + at(shard, p, i)) = pair.chunks[i].words;
      else if (there > 0)
        store_slowly(out + at(shard, p, i), pair.chunks[i], there);
    }
  }

  __device__ __forceinline__ Pair sum_of(Pair (&shards)[kRanks]) const {
    PacketSum<T, kChunkBytes> sums[2];
#pragma unroll
    for (int r = 0; r < kRanks; r++) unpack(shards[r]);
    with_combine<compute_t<T>>(reduce_, [&](auto both) {
#pragma unroll
      for (int r = 0; r < kRanks; r++) {
        if (r >= size_) continue;
        sums[0].add(both, r == 0, shards[r].chunks[0]);
        sums[1].add(both, r == 0, shards[r].chunks[1]);
      }
    });
    return {sums[0].rounded(reduce_, size_), sums[1].rounded(reduce_, size_)};
  }

  // Converts between elements of the tensor and words of a line. unpack leaves the last lane's
  // second chunk.
  __device__ __forceinline__ void pack(Pair& pair) const {
    uint4 &first = pair.chunks[0].words, &second = pair.chunks[1].words;
    if (!is_last()) return;
    second = {first.z, first.w, call_.number, call_.number};
    first.z = first.w = call_.number;
  }
  __device__ __forceinline__ void unpack(Pair& pair) const {
    uint4 &first = pair.chunks[0].words, &second = pair.chunks[1].words;
    if (!is_last()) return;
    first.z = second.x;
    first.w = second.y;
  }

  // All lanes of a line send at once.
  __device__ __forceinline__ void send(int32_t box, int32_t owner, int32_t shard, int32_t p,
                                       const Pair& packed) const {
    char* to = slot(box, owner, rank_, p) + lane_ * kChunkBytes;
    __syncwarp();
    if (!is_there(shard, p)) return;
    store_chunk(to, packed.chunks[0].words);
    store_chunk(to + kLineBytes, packed.chunks[1].words);
  }

  // Waits for the other ranks' pairs of a shard: each lane of a group polls for one rank. Returns
  // false if the group has failed.
  __device__ __forceinline__ bool wait(int32_t box, int32_t shard, int32_t p) const {
    const bool looks = (lane_ < size_) & (lane_ != rank_) & is_there(shard, p);
    const char* from = looks ? slot(box, rank_, lane_, p) : nullptr;
    for (uint32_t spins = 1;; spins++) {
      uint32_t first = call_.number, second = first;
      if (looks) first = load_number(from), second = load_number(from + kLineBytes);
      if (__all_sync(kFullMask, first == call_.number && second == call_.number)) break;
      if (spins % kSpinsToLook != 0 || !__any_sync(kFullMask, has_failed(call_))) continue;
      set_stopped(call_);
      return false;
    }
    __syncwarp();
    return true;
  }

  // Reads a pair as it was sent.
  __device__ __forceinline__ void receive(Pair& packed, int32_t box, int32_t sender, int32_t p,
                                          bool is_wanted) const {
    const char* from = slot(box, rank_, sender, p) + lane_ * kChunkBytes;
    load_chunk(packed.chunks[0].words, from, is_wanted);
    load_chunk(packed.chunks[1].words, from + kLineBytes, is_wanted);
  }

  const PeerCall& call_;
  const PairLayout& layout_;
  const Reduce reduce_;
  const int32_t rank_, size_, lane_;
};

// Addends are sent one round ahead of the sums.
template <class T, int32_t kRanks>
__global__ void __launch_bounds__(32 * kMostWarps)
    peer_all_reduce_lines_kernel(const __grid_constant__ PeerCall call, Reduce reduce,
                                 const __grid_constant__ PairLayout layout) {
  const Lines<T, kRanks> lines(call, reduce, layout);
  const int32_t warps = blockDim.x / 32,
                first = (blockIdx.x * warps + threadIdx.x / 32) * kPairsOfWarp,
                all = gridDim.x * warps * kPairsOfWarp;
  const bool has_stopped = was_stopped(call);
  for (int32_t base = first - all; base < layout.of_shard; base += all) {
    lines.send_shards(base + all, has_stopped);
    if (has_stopped || (base >= 0 && !lines.reduce_shard(base))) return;
  }
  if constexpr (lines.kTwoShots)
    for (int32_t base = first; base < layout.of_shard; base += all)
      if (!lines.gather_sums(base)) return;
}

template <class T>
auto kernel_for(int32_t size) {
  if (size == 2) return peer_all_reduce_lines_kernel<T, 2>;
  return size <= 4 ? peer_all_reduce_lines_kernel<T, 4>
                   : peer_all_reduce_lines_kernel<T, kMostPeers>;
}

// Distributes the pairs over many SMs, with the same number of rounds for every warp.
template <class T>
cudaError_t launch(const PeerCall& call, Reduce reduce, cudaStream_t stream) {
  const int64_t pairs = ceil_div(call.count, kPairData / sizeof(T)),
                of_shard = ceil_div(pairs, has_two_shots(call.size) ? call.size : 1);
  const bool is_aligned = is_aligned_to(call, kChunkBytes);
  const PairLayout layout = {static_cast<int32_t>(pairs), static_cast<int32_t>(of_shard),
                             line_pairs_of_box(call.size), is_aligned,
                             is_aligned && call.count % (kChunkBytes / sizeof(T)) == 0};
  const int64_t turns = ceil_div(of_shard, kMostBlocks * kMostWarps * kPairsOfWarp),
                warps = ceil_div(of_shard, turns * kPairsOfWarp);
  const int64_t of_block = std::max<int64_t>(kFewestWarps, ceil_div(warps, kMostBlocks));
  const auto blocks = static_cast<unsigned>(ceil_div(warps, of_block)),
             threads = static_cast<unsigned>(32 * of_block);
  kernel_for<T>(call.size)<<<blocks, threads, 0, stream>>>(call, reduce, layout);
  return cudaPeekAtLastError();
}

}  // namespace

cudaError_t load_peer_all_reduce_lines() {
  return load_summed_types([](auto tag) {
    cudaFuncAttributes ignored;
    cudaError_t code = cudaSuccess;
    for (const int32_t size : {2, 4, kMostPeers})
      if (code == cudaSuccess)
        code = cudaFuncGetAttributes(&ignored, kernel_for<tag_t<decltype(tag)>>(size));
    return code;
  });
}

cudaError_t peer_all_reduce_lines(const PeerCall& call, cudaStream_t stream) {
  return with_summed_type(call, [&](auto tag, Reduce reduce) {
    return launch<tag_t<decltype(tag)>>(call, reduce, stream);
  });
}

}  // namespace shardwise::cuda
