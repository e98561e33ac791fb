// Values in, and copies between storages: write, copyBytes.
#include <cstring>

#include "../runtime/staging.h"
#include "environment.h"
#include "transfer.h"

namespace shardwise {

namespace {

// The caller may reuse its array at once, so both functions copy the bytes now.
Status write_staged(Stream& stream, char* to, const ArrayView& source, ErrorText* error) {
  void* staging = nullptr;
  const int64_t bytes = source.bytes;
  const Status status = take_staging(stream.backend(), bytes, &staging, error);
  if (!status.ok()) return status;
  std::memcpy(staging, source.data, bytes);
  const auto copy = [to, staging, bytes](Stream& s) {
    copy_now(s, to, staging, bytes, CopyKind::HostToDevice);
    ErrorText ignored;
    const auto give = [](void* buffer, const Failed*) { give_staging(buffer, 0); };
    if (!s.backend()->stream_on_complete(s.native(), give, staging, &ignored).ok())
      give(staging, nullptr);
  };
  stream.enqueue(copy, copy_name(CopyKind::HostToDevice));
  return kOk;
}

Status write_copied(Stream& stream, char* to, const ArrayView& source, ErrorText* error) {
  BorrowedCopy copy;
  const int64_t bytes = source.bytes;
  const Status status = copy_borrowed(source.data, bytes, &copy, error);
  if (!status.ok()) return status;
  const CopyKind kind =
      stream.backend()->asynchronous ? CopyKind::HostToDevice : CopyKind::HostToHost;
  const auto write = [to, copy, bytes, kind](Stream& s) {
    if (s.backend()->asynchronous)
      copy_in_chunks(s, to, copy.get(), bytes, kind);
    else
      copy_now(s, to, copy.get(), bytes, kind);
  };
  stream.enqueue(write, copy_name(kind));
  return kOk;
}

// Writes to memory of the stream's device.
Status write_later(Stream& stream, char* to, const ArrayView& source, ErrorText* error) {
  const bool staged = stream.backend()->asynchronous && source.bytes <= kSmallStaging;
  return staged ? write_staged(stream, to, source, error) : write_copied(stream, to, source, error);
}

}  // namespace

Status write(Environment& state, int64_t handle, int64_t offset, ArrayView source,
             int64_t stream_id, ErrorText* error) {
  Stream* stream = state.streams.find(stream_id);
  StorageEntry* entry = nullptr;
  Status status = find_range(state, {handle, offset, source.bytes}, stream, &entry, error);
  if (!status.ok() || source.bytes == 0) return status;
  const bool borrowed = entry->adopted != nullptr;
  const auto alone = [=] { return runs_alone(*stream, *entry); };
  if (borrowed) status = may_wait(*stream, alone, error);
  if (!status.ok()) return status;
  state.storages.touch(*entry, *stream);
  char* to = entry->data + offset;
  const bool whole = source.bytes == entry->bytes;
  if (!stream->backend()->asynchronous && stream->idle()) {
    std::memcpy(to, source.data, source.bytes);
    state.storages.write(*entry, *stream, whole);
    return kOk;
  }
  status = write_later(*stream, to, source, error);
  if (!status.ok()) return status;
  if (borrowed) stream->wait(stream->submitted());
  entry->last_sequence = stream->submitted();
  state.storages.write(*entry, *stream, whole);
  return kOk;
}

namespace {

CopyKind kind_of_copy(const StorageEntry& to, const StorageEntry& from) {
  if (to.device == 0) return from.device == 0 ? CopyKind::HostToHost : CopyKind::DeviceToHost;
  return from.device == 0 ? CopyKind::HostToDevice : CopyKind::DeviceToDevice;
}

}  // namespace

Status copy_bytes(Environment& state, int64_t to_handle, int64_t to_offset, int64_t from_handle,
                  int64_t from_offset, int64_t bytes, int64_t stream_id, ErrorText* error) {
  Stream* stream = state.streams.find(stream_id);
  StorageEntry *to = nullptr, *from = nullptr;
  Status status = find_range(state, {to_handle, to_offset, bytes}, stream, &to, error, true);
  if (status.ok())
    status = find_range(state, {from_handle, from_offset, bytes}, stream, &from, error, true);
  if (!status.ok() || bytes == 0) return status;
  const auto alone = [=] { return runs_alone(*stream, *to) && runs_alone(*stream, *from); };
  status = check_value(*from, error);
  if (status.ok() && to->adopted) status = may_wait(*stream, alone, error);
  if (!status.ok()) return status;
  const bool large = bytes > kMostBorrowedCopy && (!stream->unbounded() || alone());
  const bool waits =
      to->adopted || (from->adopted && (large || to->device != stream->device_code()));
  state.storages.touch(*to, *stream);
  state.storages.touch(*from, *stream);
  char *destination = to->data + to_offset, *source = from->data + from_offset;
  if (from->adopted && !waits) {
    status = write_later(*stream, destination, {source, bytes}, error);
    if (!status.ok()) return status;
  } else {
    const CopyKind kind = kind_of_copy(*to, *from);
    const auto copy = [destination, source, bytes, kind, waits](Stream& s) {
      copy_now(s, destination, source, bytes, kind);
      if (waits) wait_for_device(s);
    };
    stream->enqueue(copy, copy_name(kind));
    if (waits) stream->wait(stream->submitted());
  }
  to->last_sequence = from->last_sequence = stream->submitted();
  state.storages.write(*to, *stream, bytes == to->bytes);
  return kOk;
}

}  // namespace shardwise
