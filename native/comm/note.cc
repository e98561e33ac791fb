#include "note.h"

#include <cstring>

namespace shardwise::comm {
namespace {

void copy_text(const char* from, char* to, size_t size) {
  const size_t length = from == nullptr ? 0 : strnlen(from, size - 1);
  if (length > 0) memcpy(to, from, length);
  to[length] = 0;
}

bool reduces(Collective kind) {
  return kind == Collective::AllReduce || kind == Collective::Reduce || kind == Collective::ReduceScatter;
}

bool has_counts(Collective kind) {
  return kind == Collective::AllGather || kind == Collective::Gather || kind == Collective::ReduceScatter || kind == Collective::Scatter;
}

static_assert(static_cast<int32_t>(Kind::AllReduce) == static_cast<int32_t>(Collective::AllReduce) + 1 &&
              static_cast<int32_t>(Kind::Receive) == static_cast<int32_t>(Collective::Receive) + 1);

}  // namespace

// FNV-1a
uint64_t hash(const void* data, size_t bytes) {
  uint64_t value = 14695981039346656037u;
  for (size_t i = 0; i < bytes; i++) value = (value ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211u;
  return value;
}

Site site_of(const char* name, const char* where) {
  Site site;
  copy_text(name, site.name, sizeof site.name);
  copy_text(where, site.where, sizeof site.where);
  return site;
}

bool has_root(Kind kind) {
  return kind == Kind::Broadcast || kind == Kind::Reduce || kind == Kind::Gather || kind == Kind::Scatter;
}

Note note_of(const CollectiveCall& call, int32_t rank, int32_t size, uint64_t number) {
  Note note = {};
  note.site = site_of(call.name, call.where);
  Fingerprint& print = note.print;
  print.kind = static_cast<Kind>(static_cast<int32_t>(call.kind) + 1);
  print.dtype = reduces(call.kind) ? static_cast<int32_t>(call.dtype) : -1;
  print.reduce = reduces(call.kind) ? static_cast<int32_t>(call.reduce) : -1;
  print.root = has_root(print.kind) ? call.root : -1;
  const bool message = call.kind == Collective::Send || call.kind == Collective::Receive;
  note.peer = message ? call.root : -1;
  if (!message) print.call = number;
  print.name = hash(note.site.name, strlen(note.site.name));
  const int64_t item = reduces(call.kind) ? 1 : item_size(call.dtype);
  if (call.kind == Collective::AllToAll) {  // each rank has its own
    note.amount = extent_of(call, rank, size).in * item;
    return note;
  }
  if (call.kind == Collective::Barrier) return note;
  if (has_counts(call.kind)) {
    uint64_t sizes = 0;
    for (int32_t r = 0; r < size; r++) {
      note.amount += call.counts[r] * item;
      sizes = (sizes ^ static_cast<uint64_t>(call.counts[r] * item)) * 0x9e3779b97f4a7c15u;
      sizes ^= sizes >> 32;
    }
    print.sizes = sizes;
  } else {
    note.amount = call.count * item;
  }
  print.amount = note.amount;
  return note;
}

}  // namespace shardwise::comm
