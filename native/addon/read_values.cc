// Values out: readSync, readScalar, readAsync, and whenDone, which reads nothing.
#include <cstring>

#include "../runtime/staging.h"
#include "environment.h"
#include "transfer.h"

namespace shardwise {

namespace {

// Waits for the stream and copies, or returns the stream's first failure.
Status read_now(Environment& state, StorageEntry& entry, Stream& stream, int64_t offset, void* to,
                int64_t bytes, ErrorText* error) {
  state.storages.touch(entry, stream);
  Status status = state.streams.synchronize(stream, error);
  if (status.ok()) status = check_value(entry, error);
  if (!status.ok() || bytes == 0) return status;
  const char* from = entry.data + offset;
  if (!stream.backend()->asynchronous) {
    std::memcpy(to, from, bytes);
    return kOk;
  }
  stream.enqueue(
      [to, from, bytes](Stream& s) { copy_now(s, to, from, bytes, CopyKind::DeviceToHost); },
      copy_name(CopyKind::DeviceToHost));
  return state.streams.synchronize(stream, error);
}

}  // namespace

Status read_sync(Environment& state, int64_t handle, int64_t offset, ArrayView destination,
                 int64_t stream_id, ErrorText* error) {
  Stream* stream = state.streams.find(stream_id);
  StorageEntry* entry = nullptr;
  const Status status =
      find_range(state, {handle, offset, destination.bytes}, stream, &entry, error);
  if (!status.ok()) return status;
  return read_now(state, *entry, *stream, offset, destination.data, destination.bytes, error);
}

namespace {

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  float out;
  if (exponent == 0) {
    out = static_cast<float>(fraction) * 5.9604644775390625e-8f;
    return sign ? -out : out;
  }
  const uint32_t bits =
      sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | (fraction << 13);
  std::memcpy(&out, &bits, 4);
  return out;
}

double decode_float(DType dtype, const char* data) {
  uint16_t half;
  float single;
  double wide;
  switch (dtype) {
    case DType::Float64:
      std::memcpy(&wide, data, 8);
      return wide;
    case DType::Float16:
      std::memcpy(&half, data, 2);
      return half_to_float(half);
    case DType::BFloat16: {
      std::memcpy(&half, data, 2);
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      std::memcpy(&single, &bits, 4);
      return single;
    }
    default:
      std::memcpy(&single, data, 4);
      return single;
  }
}

int64_t decode_int(DType dtype, const char* data) {
  switch (dtype) {
    case DType::Int32: {
      int32_t v;
      std::memcpy(&v, data, 4);
      return v;
    }
    case DType::Int16: {
      int16_t v;
      std::memcpy(&v, data, 2);
      return v;
    }
    case DType::Int8:
      return static_cast<int8_t>(*data);
    default:
      return static_cast<uint8_t>(*data);
  }
}

Napi::Value decode(Napi::Env env, DType dtype, const char* data) {
  if (is_floating(dtype)) return to_value(env, decode_float(dtype, data));
  if (dtype != DType::Int64) return to_value(env, decode_int(dtype, data));
  int64_t value;
  std::memcpy(&value, data, 8);
  return Napi::BigInt::New(env, value);
}

}  // namespace

Status read_scalar(Environment& state, int64_t handle, int64_t offset, int64_t dtype_code,
                   int64_t stream_id, Napi::Value* element, ErrorText* error) {
  if (dtype_code < 0 || dtype_code >= kNumDTypes)
    return fail(error, Code::Invalid, "readScalar: bad dtype");
  const auto dtype = static_cast<DType>(dtype_code);
  Stream* stream = state.streams.find(stream_id);
  StorageEntry* entry = nullptr;
  char data[8];
  Status status = find_range(state, {handle, offset, item_size(dtype)}, stream, &entry, error);
  if (status.ok()) status = read_now(state, *entry, *stream, offset, data, item_size(dtype), error);
  if (status.ok()) *element = decode(state.env, dtype, data);
  return status;
}

namespace {

struct Posting {
  SharedGate gate;
  Completion* completion;
};

// Posts when the device has finished all work of the stream so far.
void post_when_done(Stream& s, SharedGate gate, Completion* completion) {
  auto* posting = new Posting{std::move(gate), completion};
  auto done = [](void* context, const Failed* failed) {
    auto* p = static_cast<Posting*>(context);
    if (failed) p->completion->fail(*failed);
    p->gate->post(p->completion);
    delete p;
  };
  Failed failed;
  failed.status = s.backend()->stream_on_complete(s.native(), done, posting, &failed.text);
  if (!failed.status.ok()) done(posting, &failed);
}

void fail_if_failed(Stream& s, Completion* completion) {
  Failed failed;
  if (s.skips(&failed)) completion->fail(failed);
}

// Reads into the staging memory of the completion, or its destination.
void read_later(Stream& s, Completion* completion, const char* from, int64_t bytes) {
  char* destination = static_cast<char*>(completion->destination);
  if (completion->staging)
    copy_now(s, completion->staging, from, bytes, CopyKind::DeviceToHost);
  else if (s.backend()->asynchronous)
    copy_in_chunks(s, const_cast<char*>(from), destination, bytes, CopyKind::DeviceToHost);
  else
    std::memcpy(destination, from, bytes);
}

}  // namespace

Status read_async(Environment& state, int64_t handle, int64_t offset, ArrayView destination,
                  int64_t stream_id, Napi::Value callback, ErrorText* error) {
  if (!callback.IsFunction()) return fail(error, Code::Invalid, "readAsync: expected a function");
  Stream* stream = state.streams.find(stream_id);
  StorageEntry* entry = nullptr;
  const int64_t bytes = destination.bytes;
  Status status = find_range(state, {handle, offset, bytes}, stream, &entry, error);
  if (!status.ok()) return status;
  state.storages.touch(*entry, *stream);
  const char* from = entry->data + (bytes > 0 ? offset : 0);
  const bool is_asynchronous = stream->backend()->asynchronous;
  status = check_value(*entry, error);
  void* staging = nullptr;
  if (status.ok() && is_asynchronous && bytes <= kSmallStaging)
    status = take_staging(stream->backend(), bytes, &staging, error);
  if (!status.ok()) return status;
  Completion* completion = state.completions.create(*stream, callback.As<Napi::Function>());
  completion->keep_alive =
      Napi::Reference<Napi::ArrayBuffer>::New(Napi::ArrayBuffer(state.env, destination.buffer), 1);
  completion->keep_alive.SuppressDestruct();
  completion->destination = destination.data;
  completion->bytes = bytes;
  completion->staging = staging;
  // No command in flight writes to the memory of an ArrayBuffer: the bytes are valid.
  const bool borrowed = entry->adopted != nullptr;
  if (borrowed && bytes > 0) std::memcpy(destination.data, from, bytes);
  const auto read = [gate = state.completions.gate(), completion, from, bytes,
                     borrowed](Stream& s) {
    fail_if_failed(s, completion);
    if (completion->code == Code::Ok && bytes > 0 && !borrowed) {
      read_later(s, completion, from, bytes);
      fail_if_failed(s, completion);
    }
    post_when_done(s, gate, completion);
  };
  stream->enqueue(read, copy_name(is_asynchronous ? CopyKind::DeviceToHost : CopyKind::HostToHost));
  entry->last_sequence = stream->submitted();
  return kOk;
}

Status when_done(Environment& state, int64_t stream_id, Napi::Value callback, ErrorText* error) {
  if (!callback.IsFunction()) return fail(error, Code::Invalid, "whenDone: expected a function");
  Stream* stream = state.streams.find(stream_id);
  if (!stream) return fail(error, Code::Closed, "the stream is gone");
  Completion* completion = state.completions.create(*stream, callback.As<Napi::Function>());
  stream->enqueue([gate = state.completions.gate(), completion](Stream& s) {
    fail_if_failed(s, completion);
    post_when_done(s, gate, completion);
  });
  return kOk;
}

}  // namespace shardwise
