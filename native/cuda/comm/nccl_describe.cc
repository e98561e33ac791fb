#include "nccl_describe.h"

#include <cstring>

namespace shardwise::cuda::nccl {
namespace {

void copy_text(const char* from, char* to, size_t size) {
  const size_t length = from == nullptr ? 0 : strnlen(from, size - 1);
  if (length > 0) memcpy(to, from, length);
  to[length] = 0;
}

int64_t sum_of(const int64_t* counts, int32_t size) {
  int64_t sum = 0;
  for (int32_t i = 0; i < size; i++) sum += counts[i];
  return sum;
}

const char* advice(Result result) {
  switch (result) {
    case kRemoteError:
      return "another rank has ended or cannot be reached: look at its output first";
    case kSystemError:
      return "the system refused something, often shared memory (/dev/shm) or the network "
             "interface; NCCL_DEBUG=WARN says what";
    case kUnhandledCudaError:
      return "a CUDA call failed, perhaps for lack of GPU memory or in an earlier kernel; "
             "NCCL_DEBUG=WARN says which";
    case kInvalidArgument:
    case kInvalidUsage:
      return "NCCL_DEBUG=WARN says which argument; do all ranks make this call alike, each on a "
             "GPU of its own?";
    default:
      return "NCCL_DEBUG=WARN says more";
  }
}

}  // namespace

CommRecord record_of(const CollectiveCall& call, int32_t rank, int32_t size) {
  CommRecord record = {};
  record.kind = call.kind;
  record.reduce = call.reduce;
  record.dtype = call.dtype;
  record.root = has_root(call.kind) || is_message(call.kind) ? call.root : -1;
  record.state = CommState::Launching;
  copy_text(call.name, record.name, sizeof record.name);
  copy_text(call.where, record.where, sizeof record.where);
  switch (call.kind) {
    case Collective::AllGather:
    case Collective::Gather:
    case Collective::ReduceScatter:
    case Collective::Scatter:
      record.count = call.counts[rank];
      record.total = sum_of(call.counts, size);
      break;
    case Collective::AllToAll:
      record.count = sum_of(call.send_counts, size);
      record.total = -1;
      break;
    case Collective::Barrier:
      break;
    default:
      record.count = record.total = call.count;
  }
  return record;
}

void describe(Text& text, const CommRecord& record) {
  text.add("%s", record.name);
  if (!is_message(record.kind))
    text.add(" (call %llu of the group)", static_cast<unsigned long long>(record.sequence));
  if (record.kind != Collective::Barrier)
    text.add(" of %lld %s", static_cast<long long>(record.count), dtype_name(record.dtype));
  if (reduces(record.kind)) text.add(" (%s)", reduce_name(record.reduce));
  if (record.total >= 0 && record.total != record.count)
    text.add(", %lld in all,", static_cast<long long>(record.total));
  if (record.where[0] != 0) text.add(" at %s", record.where);
}

void describe_result(Text& text, const Api& api, Result result) {
  const char* last = api.last_error(nullptr);
  text.add(": NCCL says \"%s\"", api.error_string(result));
  if (last && last[0]) text.add(" (%.120s)", last);
  text.add(": %s", advice(result));
}

}  // namespace shardwise::cuda::nccl
