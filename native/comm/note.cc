#include "note.h"

#include <cstring>

namespace shardwise::comm {
namespace {

// FNV-1a
uint64_t hash(const void* data, size_t bytes) {
  uint64_t value = 14695981039346656037u;
  for (size_t i = 0; i < bytes; i++) value = (value ^ static_cast<const uint8_t*>(data)[i]) * 1099511628211u;
  return value;
}

void copy_text(const char* from, char* to, size_t size) {
  const size_t length = from == nullptr ? 0 : strnlen(from, size - 1);
  if (length > 0) memcpy(to, from, length);
  to[length] = 0;
}

Site site_of(const CallSite& call) {
  Site site;
  copy_text(call.name, site.name, sizeof site.name);
  copy_text(call.where, site.where, sizeof site.where);
  return site;
}

bool has_root(Kind kind) {
  return kind == Kind::Broadcast || kind == Kind::Reduce || kind == Kind::Gather || kind == Kind::Scatter;
}

}  // namespace

Status note_collective(const Call& call, const CallSite& site, int32_t size, uint64_t number, Note* out, ErrorText* error) {
  Note note = {};
  note.site = site_of(site);
  note.print = {call.kind, call.dtype, call.reduce, call.root, call.amount, 0, 0, number};
  note.print.name = hash(note.site.name, strlen(note.site.name));
  note.peer = -1;
  note.amount = call.amount;
  const int32_t lowest_root = has_root(call.kind) ? 0 : -1;
  if (call.root < lowest_root || call.root >= size) {
    return fail(error, Code::Invalid, "%s: there is no rank %d", note.site.name, call.root);
  }
  if (call.amount < 0) return fail(error, Code::Invalid, "%s: a negative size", note.site.name);
  if (call.sizes != nullptr) {
    for (int32_t r = 0; r < size; r++) {
      if (call.sizes[r] < 0) return fail(error, Code::Invalid, "%s: a negative size for rank %d", note.site.name, r);
      note.amount += call.sizes[r];
    }
    if (call.kind != Kind::AllToAll) {  // there each rank has its own
      note.print.amount = note.amount;
      note.print.sizes = hash(call.sizes, static_cast<size_t>(size) * sizeof(int64_t));
    }
  }
  *out = note;
  return kOk;
}

Status note_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site, int32_t rank, int32_t size, Note* out,
                    ErrorText* error) {
  Note note = {};
  note.site = site_of(site);
  note.print = {kind, -1, -1, -1, bytes, 0, 0, 0};
  note.amount = bytes;
  note.peer = peer;
  if (peer < 0 || peer >= size || peer == rank || bytes < 0) {
    return fail(error, Code::Invalid, "%s: rank %d of %d cannot exchange %lld bytes with rank %d", note.site.name, rank, size,
                static_cast<long long>(bytes), peer);
  }
  *out = note;
  return kOk;
}

}  // namespace shardwise::comm
