#include "collectives.h"

#include <algorithm>
#include <vector>

#include "borrowed.h"
#include "environment.h"

namespace shardwise {

namespace {

constexpr int64_t kCallWords = 17, kPartWords = 5;

// A call with the data that it points to.
struct OwnedCall {
  SharedMember member;
  PartsCall call{};
  std::vector<int64_t> counts;  // then the send counts
  std::vector<CollectivePart> parts;
  ShownCall shown;
  int64_t timeout_ms = 0;
  std::vector<BorrowedCopy> borrowed;  // inputs in ArrayBuffers
};

const double* read_shape(const double* words, int64_t count, ShownShape& shape) {
  shape.count = static_cast<int32_t>(count);
  for (int32_t i = 0; i < shape.count; i++) shape.sizes[i] = to_integer(*words++);
  return words;
}

// Words: member, kind, reduction, dtype, root, count, input handle, its first byte, output handle,
// its first byte, number of counts, the numbers of name, where and about, how long to wait in ms (0:
// as the group does), numbers of dims of input and output (-1 without one); then the counts. Of a call
// of parts, the root is their number, and for each follow input handle, its first byte, output handle,
// its first byte, and the count of a rank. At last the sizes of input and output.
Status read_call(Environment& state, const TextTable& texts, int64_t words, OwnedCall& owned,
                 ErrorText* error) {
  int64_t w[kCallWords];
  for (int64_t i = 0; i < kCallWords; i++) {
    w[i] = i < words ? to_integer(state.words[i]) : INT64_MIN;
    if (w[i] == INT64_MIN)
      return fail(error, Code::Invalid, "malformed collective: word %lld",
                  static_cast<long long>(i));
  }
  owned.member = state.groups.find(w[0]);
  if (!owned.member) return fail(error, Code::Closed, "this rank has left the group");
  const Member& group = *owned.member;
  if (w[1] < 0 || w[1] >= kNumCollectives || w[2] < 0 || w[2] >= kNumReduces || w[3] < 0 ||
      w[3] >= kNumDTypes || w[5] < 0 || w[5] > int64_t{1} << 48 || w[14] < 0)
    return fail(error, Code::Invalid, "malformed collective");
  CollectiveCall& call = owned.call;
  call.kind = static_cast<Collective>(w[1]);
  call.reduce = static_cast<Reduce>(w[2]);
  call.dtype = static_cast<DType>(w[3]);
  call.root = static_cast<int32_t>(w[4]);
  call.count = w[5];
  owned.timeout_ms = w[14];
  if ((has_root(call.kind) || is_message(call.kind)) && (w[4] < 0 || w[4] >= group.size))
    return fail(error, Code::Invalid, "root %lld is not of a group of %d",
                static_cast<long long>(w[4]), group.size);
  ShownCall& shown = owned.shown;
  shown.name = texts.find(w[11]);
  shown.where = texts.find(w[12]);
  shown.about = texts.find(w[13]);
  if (!shown.name || !shown.where || !shown.about)
    return fail(error, Code::Invalid, "malformed collective: a text");
  const int64_t expected = !has_counts(call.kind)              ? 0
                           : call.kind == Collective::AllToAll ? 2 * group.size
                                                               : group.size;
  const int64_t parts = takes_parts(call.kind) ? std::max<int64_t>(w[4], 0) : 0;
  if (w[15] < -1 || w[15] > kShownDims || w[16] < -1 || w[16] > kShownDims)
    return fail(error, Code::Invalid, "malformed collective: a shape");
  const int64_t sizes = std::max<int64_t>(w[15], 0) + std::max<int64_t>(w[16], 0);
  if (w[10] != expected || parts > kMostWords ||
      words != kCallWords + expected + parts * kPartWords + sizes)
    return fail(error, Code::Invalid, "malformed collective: counts");
  const double* next = read_shape(state.words + words - sizes, w[15], shown.in);
  read_shape(next, w[16], shown.out);
  owned.parts.resize(parts);
  owned.counts.reserve(expected);
  for (int64_t i = 0; i < expected; i++) {
    const int64_t count = to_integer(state.words[kCallWords + i]);
    if (count < 0 || count > int64_t{1} << 44)
      return fail(error, Code::Invalid, "malformed collective: a count");
    owned.counts.push_back(count);
  }
  call.counts = owned.counts.data();
  call.send_counts = owned.counts.data() + group.size;
  owned.call.parts = owned.parts.data();
  return kOk;
}

// The memory of an operand, after a check of its bounds. `elements` 0 may have no memory.
Status operand(Environment& state, const Member& member, const CollectiveCall& call,
               const double* words, int64_t elements, StorageEntry** entry, char** data,
               ErrorText* error) {
  *entry = nullptr;
  *data = nullptr;
  const int64_t handle = to_integer(words[0]), offset = to_integer(words[1]),
                bytes = elements * item_size(call.dtype);
  if (handle == 0 && elements == 0) return kOk;
  StorageEntry* found = state.storages.find(handle);
  if (!found) return fail(error, Code::Closed, "the storage was freed");
  if (found->device != member.stream->device_code())
    return fail(error, Code::Device, "the tensor is on another device than the group");
  if (offset < 0 || offset + bytes > found->bytes)
    return fail(error, Code::Invalid, "bytes %lld to %lld are outside a storage of %lld",
                static_cast<long long>(offset), static_cast<long long>(offset + bytes),
                static_cast<long long>(found->bytes));
  const Status status = check_adopted(state.env, *found, error);
  if (!status.ok()) return status;
  *entry = found;
  *data = found->data + offset;
  return kOk;
}

// An input and an output of a call, with the elements of both on this rank.
struct Operands {
  StorageEntry *in = nullptr, *out = nullptr;
  const void* from = nullptr;
  void* to = nullptr;
};

// Finds and checks the operands whose handles and offsets are in `words`.
Status read_operands(Environment& state, OwnedCall& owned, const double* words,
                     const CollectiveExtent& extent, Operands* found, ErrorText* error) {
  const Member& group = *owned.member;
  char *from = nullptr, *to = nullptr;
  Status status = operand(state, group, owned.call, words, extent.in, &found->in, &from, error);
  if (status.ok())
    status = operand(state, group, owned.call, words + 2, extent.out, &found->out, &to, error);
  if (status.ok() && found->in) status = check_value(*found->in, error);
  if (status.ok() && found->out && found->out->adopted)
    status = fail(error, Code::Unsupported,
                  "the result would lie in the memory of an ArrayBuffer, which may go while "
                  "other ranks are waited for. Use a copy: clone()");
  if (status.ok() && found->in && found->in->adopted) {
    BorrowedCopy copy;
    status = copy_borrowed(from, extent.in * item_size(owned.call.dtype), &copy, error);
    from = copy.get();
    owned.borrowed.push_back(std::move(copy));
  }
  found->from = from;
  found->to = to;
  return status;
}

// Reads the operands of each part, or of a call without parts.
Status read_all_operands(Environment& state, OwnedCall& owned, std::vector<Operands>* all,
                         ErrorText* error) {
  const Member& group = *owned.member;
  if (owned.parts.empty()) {
    const CollectiveExtent extent = extent_of(owned.call, group.rank, group.size);
    const Status status =
        read_operands(state, owned, state.words + 6, extent, &all->emplace_back(), error);
    owned.call.in = all->back().from;
    owned.call.out = all->back().to;
    return status;
  }
  const double* words = state.words + kCallWords + owned.counts.size();
  int64_t total = 0;
  for (CollectivePart& part : owned.parts) {
    part.count = to_integer(words[4]);
    if (part.count < 0 || part.count > int64_t{1} << 44)
      return fail(error, Code::Invalid, "malformed collective: a part");
    total += part.count;
    const int64_t whole = part.count * group.size;
    const CollectiveExtent extent = owned.call.kind == Collective::AllGather
                                        ? CollectiveExtent{part.count, whole}
                                        : CollectiveExtent{whole, part.count};
    Operands& found = all->emplace_back();
    const Status status = read_operands(state, owned, words, extent, &found, error);
    if (!status.ok()) return status;
    part.in = found.from;
    part.out = found.to;
    words += kPartWords;
  }
  for (const int64_t count : owned.counts)
    if (count != total) return fail(error, Code::Invalid, "malformed collective: parts");
  return kOk;
}

void run_call(Stream& s, OwnedCall& owned) {
  Member& member = *owned.member;
  Failed why;
  if (s.skips(&why)) {
    // The input was not computed: the other ranks must not wait for it.
    ErrorText reason;
    Text(reason).add("a rank failed before %s: ", owned.shown.name->c_str()).add_cause(why.text);
    member.abort(reason);
    return;
  }
  ErrorText text;
  owned.call.error = &text;
  owned.call.stream = s.native();
  owned.call.name = owned.shown.name->c_str();
  owned.call.where = owned.shown.where->c_str();
  owned.call.about = owned.shown.about->c_str();
  const Status status = member.run(owned.call, owned.timeout_ms, &owned.shown);
  if (status.ok()) return;
  const bool is_own = status.code == Code::Unsupported || status.code == Code::OutOfMemory;
  if (!is_own) flight::write(text);
  s.set_error(is_own ? status.code : Code::Peer, text);
}

}  // namespace

Status Collectives::set_text(int64_t number, Napi::Value text, ErrorText* error) {
  if (text.IsString() && texts_.set(number, text_of(text))) return kOk;
  return fail(error, Code::Invalid, "malformed text");
}

Status Collectives::call(int64_t words, ErrorText* error) {
  if (words > kMostWords) return fail(error, Code::Invalid, "malformed collective: bad length");
  auto owned = std::make_unique<OwnedCall>();
  Status status = read_call(state_, texts_, words, *owned, error);
  thread_local std::vector<Operands> all;  // keeps its memory
  all.clear();
  if (status.ok()) status = read_all_operands(state_, *owned, &all, error);
  if (!status.ok()) return status;
  Stream& stream = *owned->member->stream;
  for (const Operands& each : all) {
    if (each.in) state_.storages.touch(*each.in, stream);
    if (each.out) state_.storages.touch(*each.out, stream);
  }
  // A plain pointer needs no allocation in the function, which runs once.
  stream.enqueue(
      [call = owned.release()](Stream& s) { run_call(s, *std::unique_ptr<OwnedCall>(call)); },
      "collective");
  for (const Operands& each : all) {
    if (each.in) each.in->last_sequence = stream.submitted();
    if (!each.out) continue;
    each.out->last_sequence = stream.submitted();
    state_.storages.write(*each.out, stream, false);
  }
  return kOk;
}

}  // namespace shardwise
