// What each call publishes of itself, and the comparison with what the other ranks called.
#include <algorithm>
#include <cstring>

#include "describe.h"
#include "host_group.h"
#include "note.h"

namespace shardwise::comm {

Status HostGroup::begin(const Note& note, ErrorText* error) {
  if (failed()) return refuse(note.site, error);
  note_ = note;
  own().note.write(note);
  own().in_call.store(1, std::memory_order_release);
  return kOk;
}

Status HostGroup::begin_collective(const Call& call, const CallSite& site, ErrorText* error) {
  Note note = {};
  note.site = site_of(site.name, site.where);
  note.print = {call.kind, call.dtype, call.reduce, call.root, call.amount, 0, 0, calls_ + 1};
  note.print.name = hash(note.site.name, strlen(note.site.name));
  note.peer = -1;
  note.amount = call.amount;
  const int32_t lowest_root = has_root(call.kind) ? 0 : -1;
  if (call.root < lowest_root || call.root >= size()) {
    return fail(error, Code::Invalid, "%s: there is no rank %d", note.site.name, call.root);
  }
  if (call.amount < 0) return fail(error, Code::Invalid, "%s: a negative size", note.site.name);
  if (call.sizes != nullptr) {
    for (int32_t r = 0; r < size(); r++) {
      if (call.sizes[r] < 0) return fail(error, Code::Invalid, "%s: a negative size for rank %d", note.site.name, r);
      note.amount += call.sizes[r];
    }
    if (call.kind != Kind::AllToAll) {  // there each rank has its own
      note.print.amount = note.amount;
      note.print.sizes = hash(call.sizes, static_cast<size_t>(size()) * sizeof(int64_t));
    }
  }
  const Status begun = begin(note, error);
  if (!begun.ok()) return begun;
  calls_++;
  own().prints[calls_ % 2] = note.print;
  return kOk;
}

Status HostGroup::begin_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site, ErrorText* error) {
  Note note = {};
  note.site = site_of(site.name, site.where);
  note.print = {kind, -1, -1, -1, bytes, 0, 0, 0};
  note.amount = bytes;
  note.peer = peer;
  if (peer < 0 || peer >= size() || peer == rank_ || bytes < 0) {
    return fail(error, Code::Invalid, "%s: rank %d of %d cannot exchange %lld bytes with rank %d", note.site.name, rank_, size(),
                static_cast<long long>(bytes), peer);
  }
  return begin(note, error);
}

// Notes hold still meanwhile: no rank that sees a difference begins another call, and all see it.
Status HostGroup::agree(ErrorText* error) {
  const Fingerprint& mine = own().prints[calls_ % 2];
  for (int32_t rank = 0; rank < size(); rank++) {
    if (memcmp(&region_->rank(rank).prints[calls_ % 2], &mine, sizeof mine) == 0) continue;
    Note other = {};
    region_->rank(rank).note.read(&other);
    ErrorText seen_here, for_all;
    Text here(seen_here), all(for_all);
    const char* group = header().group;
    char number[16];
    snprintf(number, sizeof number, "rank %d", rank_);
    describe_difference(here, group, note_, "this rank", rank, other);
    describe_difference(all, group, note_, number, rank, other);
    return refuse_difference(seen_here, for_all, error);
  }
  return kOk;
}

Status HostGroup::agree_on_exchange(const int64_t* sends, const int64_t* receives, int64_t* longest, ErrorText* error) {
  const size_t bytes = static_cast<size_t>(size()) * sizeof(int64_t);
  memcpy(own().sends, sends, bytes);
  memcpy(own().receives, receives, bytes);
  Status status = meet(error);
  if (status.ok()) status = agree(error);
  if (!status.ok()) return status;
  *longest = 0;
  for (int32_t from = 0; from < size(); from++) {
    for (int32_t to = 0; to < size(); to++) {
      const int64_t sent = region_->rank(from).sends[to], expected = region_->rank(to).receives[from];
      *longest = std::max(*longest, sent);
      if (sent == expected) continue;
      ErrorText message;
      Text text(message);
      describe_title(text, note_, header().group);
      describe_place(text, note_.site);
      text.add(": rank %d sends %lld bytes to rank %d, which expects %lld", from, static_cast<long long>(sent), to,
               static_cast<long long>(expected));
      return refuse_difference(message, message, error);
    }
  }
  return kOk;
}

}  // namespace shardwise::comm
