// Values in, and copies between storages: write, copyBytes.
#include <cstring>

#include "../runtime/staging.h"
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

napi_value write(napi_env env, napi_callback_info info) {
  int64_t args[4];
  napi_value raw[4] = {};
  ArrayView source;
  if (!read_integers(env, info, 4, args, raw, 1 << 2) || !view_of(env, raw[2], &source))
    return nullptr;
  Environment& state = state_of(env);
  Stream* stream = state.stream(args[3]);
  StorageEntry* entry = range_of(env, args[0], args[1], source.bytes, stream);
  if (!entry || source.bytes == 0) return nullptr;
  ErrorText error;
  const bool borrowed = entry->adopted != nullptr;
  Status status = borrowed ? may_wait(
                                 *stream, [=] { return runs_alone(*stream, *entry); }, &error)
                           : kOk;
  if (!status.ok()) return fail_call(env, status.code, error);
  state.touch(*entry, *stream);
  char* to = entry->data + args[1];
  const Backend* backend = stream->backend();
  const bool whole = source.bytes == entry->bytes;
  if (!backend->asynchronous && stream->idle()) {
    std::memcpy(to, source.data, source.bytes);
    state.write(*entry, *stream, whole);
    return nullptr;
  }
  status = write_later(*stream, to, source, &error);
  if (!status.ok()) return fail_call(env, status.code, error);
  if (borrowed) stream->wait(stream->submitted());
  entry->last_sequence = stream->submitted();
  state.write(*entry, *stream, whole);
  return nullptr;
}

napi_value copy_bytes(napi_env env, napi_callback_info info) {
  int64_t args[6];
  if (!read_integers(env, info, 6, args)) return nullptr;
  Environment& state = state_of(env);
  Stream* stream = state.stream(args[5]);
  StorageEntry* to = range_of(env, args[0], args[1], args[4], stream, true);
  StorageEntry* from = to ? range_of(env, args[2], args[3], args[4], stream, true) : nullptr;
  if (!from || args[4] == 0) return nullptr;
  const CopyKind kind =
      to->device == 0 ? (from->device == 0 ? CopyKind::HostToHost : CopyKind::DeviceToHost)
                      : (from->device == 0 ? CopyKind::HostToDevice : CopyKind::DeviceToDevice);
  ErrorText error;
  Status status = check_value(*from, &error);
  if (!status.ok()) return fail_call(env, status.code, error);
  const auto alone = [=] { return runs_alone(*stream, *to) && runs_alone(*stream, *from); };
  status = to->adopted ? may_wait(*stream, alone, &error) : kOk;
  if (!status.ok()) return fail_call(env, status.code, error);
  const bool large = args[4] > kMostBorrowedCopy && (!stream->unbounded() || alone());
  const bool waits =
      to->adopted || (from->adopted && (large || to->device != stream->device_code()));
  state.touch(*to, *stream);
  state.touch(*from, *stream);
  char* destination = to->data + args[1];
  const char* source = from->data + args[3];
  const int64_t bytes = args[4];
  if (from->adopted && !waits) {
    status = write_later(*stream, destination, {const_cast<char*>(source), bytes}, &error);
    if (!status.ok()) return fail_call(env, status.code, error);
  } else {
    const auto copy = [destination, source, bytes, kind, waits](Stream& s) {
      copy_now(s, destination, source, bytes, kind);
      if (waits) wait_for_device(s);
    };
    stream->enqueue(copy, copy_name(kind));
    if (waits) stream->wait(stream->submitted());
  }
  to->last_sequence = from->last_sequence = stream->submitted();
  state.write(*to, *stream, bytes == to->bytes);
  return nullptr;
}

}  // namespace

void export_writes(napi_env env, napi_value exports) {
  export_function<write>(env, exports, "write");
  export_function<copy_bytes>(env, exports, "copyBytes");
}

}  // namespace shardwise
