#include "call_record.h"

#include <algorithm>
#include <cstring>

namespace shardwise::comm {
namespace {

// FNV-1a
uint64_t hash(const char* text, size_t length) {
  uint64_t value = 14695981039346656037u;
  for (size_t i = 0; i < length; i++)
    value = (value ^ static_cast<uint8_t>(text[i])) * 1099511628211u;
  return value;
}

void copy_text(const char* from, size_t length, char* to, size_t size) {
  length = std::min(length, size - 1);
  if (length > 0) memcpy(to, from, length);
  to[length] = 0;
}

void copy_text(const char* from, char* to, size_t size) {
  copy_text(from, from == nullptr ? 0 : strnlen(from, size - 1), to, size);
}

// Most calls have no text. The hash covers all of it, however much is shown.
void add_about(const char* about, CallRecord& record) {
  if (about == nullptr || about[0] == 0) return;
  const size_t length = strcspn(about, "\n");
  record.print.about = hash(about, length);
  copy_text(about, length, record.about, sizeof record.about);
  if (about[length] != 0) copy_text(about + length + 1, record.advice, sizeof record.advice);
}

CallRecord collective_of(const Call& call, const CallSite& site, int32_t size, uint64_t number) {
  CallRecord record = {};
  record.site = site_of(site);
  record.print = {call.kind,
                  call.dtype < 0 ? site.dtype : call.dtype,
                  call.reduce,
                  call.root,
                  call.amount,
                  0,
                  hash(record.site.name, strlen(record.site.name)),
                  0,
                  number};
  add_about(site.about, record);
  record.peer = -1;
  record.amount = call.amount;
  if (call.sizes == nullptr) return record;
  uint64_t sizes = 0;
  for (int32_t r = 0; r < size; r++) {
    const int64_t amount = call.sizes[r] * call.item;
    record.amount += amount;
    sizes = (sizes ^ static_cast<uint64_t>(amount)) * 0x9e3779b97f4a7c15u;
    sizes ^= sizes >> 32;
  }
  if (call.kind == Kind::AllToAll) return record;  // differs per rank
  record.print.amount = record.amount;
  record.print.sizes = sizes;
  return record;
}

CallRecord message_of(Kind kind, int64_t bytes, int32_t peer, const CallSite& site) {
  CallRecord record = {};
  record.site = site_of(site);
  record.print = {
      kind, site.dtype, -1, -1, bytes, 0, hash(record.site.name, strlen(record.site.name)), 0, 0};
  record.amount = bytes;
  record.peer = peer;
  return record;
}

Collective collective_kind(Kind kind) {
  return static_cast<Collective>(static_cast<int32_t>(kind) - 1);
}
static_assert(static_cast<int32_t>(Kind::AllReduce) ==
                  static_cast<int32_t>(Collective::AllReduce) + 1 &&
              static_cast<int32_t>(Kind::Receive) == static_cast<int32_t>(Collective::Receive) + 1);

}  // namespace

Site site_of(const CallSite& call) {
  Site site;
  copy_text(call.name, site.name, sizeof site.name);
  copy_text(call.where, site.where, sizeof site.where);
  return site;
}

CallSite site_of(const CollectiveCall& call) {
  return {call.name, call.where, call.about,
          call.kind == Collective::Barrier ? -1 : static_cast<int32_t>(call.dtype)};
}

Kind kind_of(Collective kind) { return static_cast<Kind>(static_cast<int32_t>(kind) + 1); }

Status record_collective(const Call& call, const CallSite& site, int32_t size, uint64_t number,
                         CallRecord* out, ErrorText* error) {
  const Site called = site_of(site);
  const int32_t lowest_root = has_root(collective_kind(call.kind)) ? 0 : -1;
  if (call.root < lowest_root || call.root >= size)
    return fail(error, Code::Invalid, "%s: the group has no place %d", called.name, call.root);
  if (call.amount < 0) return fail(error, Code::Invalid, "%s: a negative size", called.name);
  for (int32_t r = 0; call.sizes != nullptr && r < size; r++) {
    if (call.sizes[r] < 0)
      return fail(error, Code::Invalid, "%s: a negative size for place %d of the group",
                  called.name, r);
  }
  *out = collective_of(call, site, size, number);
  return kOk;
}

Status record_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site, int32_t rank,
                      int32_t size, CallRecord* out, ErrorText* error) {
  if (peer < 0 || peer >= size || peer == rank || bytes < 0) {
    return fail(error, Code::Invalid, "%s: place %d of %d cannot exchange %lld bytes with place %d",
                site_of(site).name, rank, size, static_cast<long long>(bytes), peer);
  }
  *out = message_of(kind, bytes, peer, site);
  return kOk;
}

CallRecord record_of(const CollectiveCall& call, int32_t size, uint64_t number) {
  const CallSite site = site_of(call);
  const Kind kind = kind_of(call.kind);
  const int64_t item = reduces(call.kind) ? 1 : item_size(call.dtype);
  if (is_message(call.kind)) return message_of(kind, call.count * item, call.root, site);
  Call described{kind};
  if (has_root(call.kind)) described.root = call.root;
  if (reduces(call.kind)) {
    described.dtype = static_cast<int32_t>(call.dtype);
    described.reduce = static_cast<int32_t>(call.reduce);
  }
  described.item = item;
  if (call.kind == Collective::AllToAll)
    described.sizes = call.send_counts;
  else if (has_counts(call.kind))
    described.sizes = call.counts;
  else if (call.kind != Collective::Barrier)
    described.amount = call.count * item;
  return collective_of(described, site, size, number);
}

}  // namespace shardwise::comm
