// Decodes commands: words in, a kernel call out. native/README.md has the layout of the words.
// Whatever the words contain, only live storages are accessed.
#include "../include/text.h"
#include "borrowed.h"
#include "contracts.h"

namespace shardwise {

namespace {

constexpr int64_t kHeaderWords = 7;
constexpr int64_t kMakeTokens = 1, kMayShare = 2;  // flags
constexpr int64_t kInlineCost = 16384;
// as in lib/core/shape.ts; keeps products of sizes exact
constexpr int64_t kMaxElements = int64_t{1} << 48;

}  // namespace

int64_t read_layout(WordReader& in, TensorView& view, std::vector<int64_t>& dims) {
  int64_t ndim;
  if (!in.next(&ndim) || ndim < 0 || ndim > kMaxDims) return -1;
  view.ndim = static_cast<int32_t>(ndim);
  view.numel = 1;
  const size_t base = dims.size();
  double numel = 1, extent = 1;
  for (int64_t i = 0; i < 2 * ndim; i++) {
    int64_t v;
    if (!in.next(&v) || v < 0) return -1;
    dims.push_back(v);
  }
  for (int64_t d = 0; d < ndim; d++) {
    const int64_t size = dims[base + d];
    if (size > kMaxElements) return -1;
    numel *= static_cast<double>(size);
    if (size > 0)
      extent += static_cast<double>(size - 1) * static_cast<double>(dims[base + ndim + d]);
  }
  if (numel > static_cast<double>(kMaxElements) || extent > 4e18) return -1;
  view.numel = static_cast<int64_t>(numel);
  return view.numel == 0 ? 0 : static_cast<int64_t>(extent);
}

bool runs_inline(const Stream& stream, int64_t cost) {
  return cost <= kInlineCost && !stream.backend()->asynchronous && stream.idle() &&
         !stream.failed();
}

Status run_inline(Stream& stream, KernelCall& call, ErrorText* error) {
  ErrorText text;
  const Status status = stream.run_now(call, &text);
  if (status.ok()) return status;
  char where[256];
  describe_call(call, *stream.backend(), where, sizeof where);
  Text(*error).add("%s: ", where).add_cause(text);
  return status;
}

namespace {

Status bad(ErrorText* error, const char* what, int64_t operand) {
  return fail(error, Code::Invalid, "malformed command: %s (operand %lld)", what,
              static_cast<long long>(operand));
}

Status read_operand(Environment& state, WordReader& in, Decoded& d, int64_t i, ErrorText* error) {
  TensorView view{};
  const int64_t slot = in.at();
  int64_t kind, dtype;
  double value;
  if (!in.next(&kind) || !in.number(&value) || !in.next(&dtype) || dtype < 0 || dtype >= kNumDTypes)
    return bad(error, "kind or dtype", i);
  view.dtype = static_cast<DType>(dtype);
  int64_t handle = 0;
  StorageEntry* entry = nullptr;
  if (kind == kImmediate || kind == kIndexView) {
    view.is_immediate = true;
    view.scalar = value;
    view.numel = 1;
    if (kind == kIndexView && read_layout(in, view, d.dims) < 0) return bad(error, "layout", i);
  } else {
    const int64_t extent = read_layout(in, view, d.dims);
    const int64_t offset = to_integer(value);
    if (extent < 0 || offset < 0) return bad(error, "layout", i);
    const double needed =
        static_cast<double>(kind == kAllocate ? extent : extent + offset) * item_size(view.dtype);
    if (kind == kAllocate) {
      // `offset` has the number of bytes to allocate.
      if (i < d.call.num_inputs || needed > static_cast<double>(offset))
        return bad(error, "allocation is too small", i);
      d.slots.push_back({slot, i});
    } else {
      entry = state.storages.find(kind);
      if (!entry)
        return fail(error, Code::Closed, "operand %lld uses a storage that was freed",
                    static_cast<long long>(i));
      if (extent > 0 && needed > static_cast<double>(entry->bytes))
        return fail(error, Code::Invalid, "operand %lld reaches %.0f bytes into a storage of %lld",
                    static_cast<long long>(i), needed, static_cast<long long>(entry->bytes));
      if (entry->adopted) {
        const Status status = check_adopted(state.env, *entry, error);
        if (!status.ok()) return status;
        d.borrowed = true;
      }
      if (entry->no_value && (i < d.call.num_inputs || !overwrites_outputs(d.call.kernel)))
        return check_value(*entry, error);
      if (entry->device != d.stream->device_code())
        return fail(error, Code::Device, "operand %lld is on another device than the stream",
                    static_cast<long long>(i));
      handle = kind;
      view.data = extent > 0 ? entry->data + offset * item_size(view.dtype) : entry->data;
    }
    // Overlapping elements: the result would depend on the order of writes, and sizes would not be
    // bounded by memory.
    if (i >= d.call.num_inputs && view.numel > extent)
      return bad(error, "an output that overlaps itself", i);
  }
  d.views.push_back(view);
  d.operands.push_back({handle, entry});
  return kOk;
}

Status decode(Environment& state, int64_t count, Decoded& d, ErrorText* error) {
  WordReader in(state.words, count);
  int64_t header[kHeaderWords];
  for (int64_t i = 0; i < kHeaderWords - 1; i++)
    if (!in.next(&header[i]) || header[i] < 0) return bad(error, "header", i);
  double cost;
  if (!in.number(&cost)) return bad(error, "header", 6);
  d.cost = stated_cost(cost);
  d.stream = state.streams.find(header[1]);
  if (!d.stream)
    return fail(error, Code::Closed, "there is no stream %lld", static_cast<long long>(header[1]));
  if (header[0] >= d.stream->backend()->num_kernels) return bad(error, "kernel id", header[0]);
  if (header[2] + header[3] > kMaxOperands || header[4] > count)
    return bad(error, "counts", header[2] + header[3]);
  d.flags = header[5];
  d.call.kernel = static_cast<int32_t>(header[0]);
  d.call.num_inputs = static_cast<int32_t>(header[2]);
  d.call.num_outputs = static_cast<int32_t>(header[3]);
  d.call.num_params = static_cast<int32_t>(header[4]);
  d.call.device = d.stream->device();
  for (int64_t i = 0; i < header[2] + header[3]; i++) {
    Status status = read_operand(state, in, d, i, error);
    if (!status.ok()) return status;
  }
  d.params.assign(static_cast<size_t>(header[4] > kMinParams ? header[4] : kMinParams), 0.0);
  for (int64_t i = 0; i < header[4]; i++)
    if (!in.number(&d.params[static_cast<size_t>(i)])) return bad(error, "parameters", i);
  if (in.at() != count) return bad(error, "words left over", count - in.at());
  int64_t at = 0, total = 0;
  for (TensorView& view : d.views) {
    view.sizes = d.dims.data() + at;
    view.strides = d.dims.data() + at + view.ndim;
    at += 2 * view.ndim;
    total += view.numel;
  }
  if (d.cost == 0) d.cost = total;
  d.call.tensors = d.views.data();
  d.call.params = d.params.data();
  return check_contract(d.call, d.stream->backend()->kernels, error);
}

Status allocate_outputs(Environment& state, Decoded& d, ErrorText* error) {
  for (size_t k = 0; k < d.slots.size(); k++) {
    const int64_t bytes = to_integer(state.words[d.slots[k].word + 1]);
    int64_t handle;
    Status status = state.storages.allocate(*d.stream, bytes, &handle, error);
    if (!status.ok()) {
      for (size_t j = 0; j < k; j++) state.storages.release(d.operands[d.slots[j].operand].handle);
      return status;
    }
    StorageEntry* entry = state.storages.find(handle);
    d.operands[d.slots[k].operand] = {handle, entry};
    d.views[d.slots[k].operand].data = entry->data;
  }
  return kOk;
}

// A command without outputs changes its inputs.
size_t first_written(const Decoded& d) {
  return d.call.num_outputs > 0 ? static_cast<size_t>(d.call.num_inputs) : 0;
}

void record_writes(Environment& state, Decoded& d) {
  for (size_t i = first_written(d); i < d.operands.size(); i++) {
    StorageEntry* entry = d.operands[i].entry;
    if (entry)
      state.storages.write(*entry, *d.stream,
                           d.views[i].numel * item_size(d.views[i].dtype) == entry->bytes);
  }
}

// How a command uses ArrayBuffers; determined before it is ordered after other streams.
struct BorrowedUse {
  std::vector<size_t> operands;
  int64_t bytes = 0;
  bool writes = false, alone = true;
};

BorrowedUse borrowed_use(const Decoded& d) {
  BorrowedUse use;
  for (size_t i = 0; i < d.operands.size(); i++) {
    const StorageEntry* entry = d.operands[i].entry;
    if (!entry) continue;
    use.alone = use.alone && runs_alone(*d.stream, *entry);
    if (!entry->adopted) continue;
    use.operands.push_back(i);
    use.bytes += d.views[i].reach();
    use.writes = use.writes || i >= first_written(d);
  }
  return use;
}

// Enqueues the command with copies of the ArrayBuffers that it reads, or waits for it.
Status enqueue_borrowed(Decoded& d, const BorrowedUse& use, ErrorText* error) {
  Stream& stream = *d.stream;
  const bool waits =
      use.writes || (use.bytes > kMostBorrowedCopy && (use.alone || !stream.unbounded()));
  std::vector<BorrowedCopy> copies(waits ? 0 : use.operands.size());
  for (size_t k = 0; k < copies.size(); k++) {
    TensorView& view = d.views[use.operands[k]];
    const Status status = copy_borrowed(view.data, view.reach(), &copies[k], error);
    if (!status.ok()) return status;
    view.data = copies[k].get();
  }
  const Status status = stream.enqueue_kernel(d.call, error);
  if (!status.ok()) return status;
  if (waits)
    stream.wait(stream.submitted());
  else
    stream.enqueue([copies](Stream&) {});  // keeps the copies until the command is done
  return kOk;
}

Status run(Environment& state, Decoded& d, ErrorText* error) {
  Stream& stream = *d.stream;
  const BorrowedUse borrowed = d.borrowed ? borrowed_use(d) : BorrowedUse{};
  if (borrowed.writes) {
    const Status refused = may_wait(
        stream, [&d] { return borrowed_use(d).alone; }, error);
    if (!refused.ok()) return refused;
  }
  for (const Decoded::Operand& operand : d.operands)
    if (operand.entry) state.storages.touch(*operand.entry, stream);
  Status status = kOk;
  if (runs_inline(stream, d.cost)) {
    status = run_inline(stream, d.call, error);
  } else {
    status =
        d.borrowed ? enqueue_borrowed(d, borrowed, error) : stream.enqueue_kernel(d.call, error);
    const uint64_t sequence = stream.submitted();
    for (const Decoded::Operand& operand : d.operands)
      if (operand.entry) operand.entry->last_sequence = sequence;
  }
  if (!status.ok()) return status;
  record_writes(state, d);
  return state.blocking ? state.streams.synchronize(stream, error) : kOk;
}

}  // namespace

Napi::Value Commands::tokens() {
  const Decoded& d = command_;
  if (!(d.flags & kMakeTokens) || d.slots.empty()) return {};
  Tokens& tokens = state_.tokens;
  const auto operand = [&](size_t k) { return d.operands[d.slots[k].operand]; };
  if (!(d.flags & kMayShare)) tokens.share_no_more();
  if (d.slots.size() == 1) {
    const auto [handle, entry] = operand(0);
    if (entry->bytes <= kMostSharedBytes) return tokens.share(handle, *entry);
    tokens.share_no_more();
    return tokens.make(handle, *entry);
  }
  return list_of(state_.env, d.slots.size(), [&](size_t k) {
    const auto [handle, entry] = operand(k);
    return tokens.make(handle, *entry);
  });
}

Status Commands::submit(double given, Napi::Value* tokens_made, ErrorText* error) {
  const int64_t words = to_integer(given);
  if (words < kHeaderWords || words > kMostWords)
    return fail(error, Code::Invalid, "malformed command: bad length");
  state_.tokens.settle();
  Decoded& d = command_;
  d.clear();
  Status status = decode(state_, words, d, error);
  if (status.ok()) status = allocate_outputs(state_, d, error);
  if (!status.ok()) return status;
  status = run(state_, d, error);
  if (!status.ok()) {
    for (const Decoded::Slot& slot : d.slots)
      state_.storages.release(d.operands[slot.operand].handle);
    return status;
  }
  for (const Decoded::Slot& slot : d.slots)
    state_.words[slot.word] = static_cast<double>(d.operands[slot.operand].handle);
  *tokens_made = tokens();
  return kOk;
}

}  // namespace shardwise
