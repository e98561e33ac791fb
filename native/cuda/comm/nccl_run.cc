// Translates one collective call into NCCL calls. Collectives that NCCL lacks (uneven counts,
// gather, scatter, all to all) become groups of calls that it has; copies work on bytes, so every
// dtype is supported.
#include "../../include/collective_parts.h"
#include "nccl_describe.h"
#include "nccl_member.h"

namespace shardwise::cuda::nccl {
namespace {

// The buffer that Barrier reduces: one byte of each device. Concurrent barriers may share it, since
// all write the same value.
char* barrier_bytes[kMaxDevices];
std::mutex barrier_mutex;

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::Float32:
      return kFloat32;
    case DType::Float64:
      return kFloat64;
    case DType::Float16:
      return kFloat16;
    case DType::BFloat16:
      return kBfloat16;
    case DType::Int64:
      return kInt64;
    case DType::Int32:
      return kInt32;
    case DType::Int8:
      return kInt8;
    default:
      return kUint8;  // bool is 0 or 1
  }
}

// Bools are summed by "or" and multiplied by "and", as on the CPU.
Op op_of(Reduce reduce, DType dtype) {
  switch (reduce) {
    case Reduce::Sum:
      return dtype == DType::Bool ? kMax : kSum;
    case Reduce::Product:
      return dtype == DType::Bool ? kMin : kProduct;
    case Reduce::Avg:
      return kAvg;
    case Reduce::Min:
      return kMin;
    default:
      return kMax;
  }
}

Status check(const CollectiveCall& call) {
  if (!reduces(call.kind)) return kOk;
  if (call.dtype == DType::Int16)
    return fail(call.error, Code::Unsupported,
                "%s: GPUs do not reduce int16 between ranks: convert to int32 before, and back",
                call.name);
  if (call.reduce == Reduce::Avg && !is_floating(call.dtype))
    return fail(
        call.error, Code::Unsupported,
        "%s: GPUs average floats between ranks, not %s: use sum and divide, or convert to float32",
        call.name, dtype_name(call.dtype));
  return kOk;
}

// Enqueues NCCL's calls of one collective on the stream.
class Launch {
 public:
  Launch(const Member& member, Comm comm, const CollectiveCall& call, cudaStream_t stream)
      : api_(member.api),
        rank_(member.rank),
        size_(member.size),
        device_(member.device),
        comm_(comm),
        call_(call),
        stream_(stream),
        item_(item_size(call.dtype)),
        in_(static_cast<const char*>(call.in)),
        out_(static_cast<char*>(call.out)) {}

  Result start();
  cudaError_t cuda = cudaSuccess;  // of a copy of the rank's own chunk

 private:
  Result all_gather();
  Result reduce_scatter();
  Result each_part();
  Result gather();
  Result scatter();
  Result all_to_all();
  Result barrier() {
    return api_.all_reduce(barrier_bytes[device_], barrier_bytes[device_], 1, kUint8, kMax, comm_,
                           stream_);
  }
  Result all_reduce() {
    return api_.all_reduce(in_, out_, elements(call_.count), type(), op(), comm_, stream_);
  }
  Result reduce() {
    return api_.reduce(in_, out_, elements(call_.count), type(), op(), call_.root, comm_, stream_);
  }
  Result broadcast(const char* in, char* out, int64_t count, int32_t root) {
    return api_.broadcast(rank_ == root ? in : out, out, bytes(count), kInt8, root, comm_, stream_);
  }
  Result send(const char* in, int64_t count, int32_t to) {
    return count == 0 ? kSuccess : api_.send(in, bytes(count), kInt8, to, comm_, stream_);
  }
  Result receive(char* out, int64_t count, int32_t from) {
    return count == 0 ? kSuccess : api_.receive(out, bytes(count), kInt8, from, comm_, stream_);
  }

  // Copies the rank's own chunk on its device, without NCCL.
  void copy(const char* from, char* to, int64_t count) {
    if (from == to || count == 0) return;
    const cudaError_t code =
        cudaMemcpyAsync(to, from, bytes(count), cudaMemcpyDeviceToDevice, stream_);
    if (cuda == cudaSuccess) cuda = code;
  }

  // Calls each(rank) for all ranks, as one group of NCCL's calls.
  template <class Each>
  Result group(Each each) {
    return group(size_, each);
  }
  template <class Each>
  Result group(int32_t count, Each each) {
    Result first = api_.group_start();
    if (first != kSuccess) return first;
    for (int32_t i = 0; i < count; i++) {
      const Result result = each(i);
      if (first == kSuccess && result != kInProgress) first = result;
    }
    const Result end = api_.group_end();
    return first == kSuccess ? end : first;
  }

  bool equal_counts() const {
    for (int32_t r = 1; r < size_; r++)
      if (call_.counts[r] != call_.counts[0]) return false;
    return true;
  }
  // The number of elements before a rank's chunk.
  int64_t before(const int64_t* counts, int32_t rank) const {
    int64_t sum = 0;
    for (int32_t r = 0; r < rank; r++) sum += counts[r];
    return sum * item_;
  }
  size_t bytes(int64_t count) const { return static_cast<size_t>(count * item_); }
  static size_t elements(int64_t count) { return static_cast<size_t>(count); }
  Type type() const { return type_of(call_.dtype); }
  Op op() const { return op_of(call_.reduce, call_.dtype); }

  const Api& api_;
  const int32_t rank_, size_, device_;
  Comm comm_;
  const CollectiveCall& call_;
  cudaStream_t stream_;
  const int64_t item_;
  const char* in_;
  char* out_;
};

Result Launch::start() {
  if (count_parts(call_) > 0) return each_part();
  switch (call_.kind) {
    case Collective::AllGather:
      return all_gather();
    case Collective::ReduceScatter:
      return reduce_scatter();
    case Collective::AllToAll:
      return all_to_all();
    case Collective::Gather:
      return gather();
    case Collective::Scatter:
      return scatter();
    case Collective::Barrier:
      return barrier();
    default:
      break;
  }
  if (call_.count == 0) return kSuccess;
  switch (call_.kind) {
    case Collective::AllReduce:
      return all_reduce();
    case Collective::Reduce:
      return reduce();
    case Collective::Broadcast:
      return broadcast(in_, out_, call_.count, call_.root);
    case Collective::Send:
      return send(in_, call_.count, call_.root);
    default:
      return receive(out_, call_.count, call_.root);
  }
}

Result Launch::all_gather() {
  const int64_t* counts = call_.counts;
  if (equal_counts())
    return counts[0] == 0 ? kSuccess
                          : api_.all_gather(in_, out_, bytes(counts[0]), kInt8, comm_, stream_);
  return group([&](int32_t r) {
    return counts[r] == 0 ? kSuccess : broadcast(in_, out_ + before(counts, r), counts[r], r);
  });
}

Result Launch::reduce_scatter() {
  const int64_t* counts = call_.counts;
  if (equal_counts())
    return counts[0] == 0
               ? kSuccess
               : api_.reduce_scatter(in_, out_, elements(counts[0]), type(), op(), comm_, stream_);
  return group([&](int32_t r) {
    return counts[r] == 0 ? kSuccess
                          : api_.reduce(in_ + before(counts, r), out_, elements(counts[r]), type(),
                                        op(), r, comm_, stream_);
  });
}

// NCCL launches the calls of a group together, and shares its channels among them by their sizes.
Result Launch::each_part() {
  return group(count_parts(call_), [&](int32_t i) {
    const CollectivePart& part = parts_of(call_)[i];
    if (part.count == 0) return kSuccess;
    return call_.kind == Collective::AllGather
               ? api_.all_gather(part.in, part.out, bytes(part.count), kInt8, comm_, stream_)
               : api_.reduce_scatter(part.in, part.out, elements(part.count), type(), op(), comm_,
                                     stream_);
  });
}

Result Launch::gather() {
  const int64_t* counts = call_.counts;
  if (rank_ != call_.root) return send(in_, counts[rank_], call_.root);
  copy(in_, out_ + before(counts, rank_), counts[rank_]);
  return group([&](int32_t r) {
    return r == rank_ ? kSuccess : receive(out_ + before(counts, r), counts[r], r);
  });
}

Result Launch::scatter() {
  const int64_t* counts = call_.counts;
  if (rank_ != call_.root) return receive(out_, counts[rank_], call_.root);
  copy(in_ + before(counts, rank_), out_, counts[rank_]);
  return group([&](int32_t r) {
    return r == rank_ ? kSuccess : send(in_ + before(counts, r), counts[r], r);
  });
}

Result Launch::all_to_all() {
  const int64_t *sends = call_.send_counts, *receives = call_.counts;
  copy(in_ + before(sends, rank_), out_ + before(receives, rank_), sends[rank_]);
  return group([&](int32_t r) {
    if (r == rank_) return kSuccess;
    const Result sent = send(in_ + before(sends, r), sends[r], r);
    const Result received = receive(out_ + before(receives, r), receives[r], r);
    return sent == kSuccess || sent == kInProgress ? received : sent;
  });
}

Status not_launched(Member& member, Result result, cudaError_t cuda, ErrorText* error) {
  ErrorText text;
  Text message(text);
  std::unique_lock<std::mutex> lock(member.mutex);
  describe(message, member.flights.back().record);
  message.add(" on cuda:%d", member.device);
  if (result != kSuccess)
    describe_result(message, member.api, result);
  else
    message.add(": it was not launched: %s (CUDA error %d)", cudaGetErrorString(cuda),
                static_cast<int>(cuda));
  member.fail_group(lock, Code::Device, text);
  return fail_with(error, Code::Device, text);
}

}  // namespace

Status prepare_barriers(int32_t device, ErrorText* error) {
  std::lock_guard<std::mutex> lock(barrier_mutex);
  char*& byte = barrier_bytes[device];
  if (byte) return kOk;
  char* made = nullptr;
  SW_TRY(error, cudaMalloc(reinterpret_cast<void**>(&made), 1));
  SW_TRY(error, cudaMemset(made, 0, 1));
  byte = made;
  return kOk;
}

// Null if the ranks have no peer access, or on failure.
Peers* Member::find_peers(cudaStream_t stream, Result* result, cudaError_t* cuda) {
  if (has_looked_for_peers) {
    std::lock_guard<std::mutex> lock(mutex);
    return peers.get();
  }
  Peers::Rendezvous met = Peers::rendezvous(*this, stream);
  *result = met.result;
  *cuda = met.cuda;
  std::lock_guard<std::mutex> lock(mutex);
  has_looked_for_peers = met.result == kSuccess && met.cuda == cudaSuccess;
  if (!failed.load()) peers = std::move(met.peers);
  return peers.get();
}

Status Member::run(const CollectiveCall& call) {
  const cudaStream_t stream = static_cast<Stream*>(call.stream)->handle;
  Status status = use_device(device, call.error);
  if (!status.ok()) return status;
  status = check(call);
  if (!status.ok()) {
    sequence++;  // as on all ranks, in the numbering of the checks that compare the ranks' calls
    return status;
  }
  status = begin(call, stream);
  if (!status.ok()) return status;
  Result result = kSuccess;
  cudaError_t cuda = cudaSuccess;
  Peers* near = is_for_peers(call, size) ? find_peers(stream, &result, &cuda) : nullptr;
  if (near && near->can_do(call)) {
    cuda = near->all_reduce(call, stream);
  } else if (result == kSuccess && cuda == cudaSuccess) {
    Turn turn(*this);
    if (!turn.comm) return failure(call.error);
    Launch launch(*this, turn.comm, call, stream);
    result = launch.start();
    cuda = launch.cuda;
  }
  result = settle(*this, result, 0);
  if (failed.load()) return failure(call.error);
  if (result != kSuccess || cuda != cudaSuccess)
    return not_launched(*this, result, cuda, call.error);
  return finish(stream, call.error);
}

}  // namespace shardwise::cuda::nccl
