// Values out: readSync, readScalar, readAsync, and whenDone, which reads nothing.
#include <cstring>

#include "../runtime/staging.h"
#include "transfer.h"

namespace shardwise {

namespace {

// Waits for the stream and copies, or records the stream's first failure.
bool read_now(napi_env env, StorageEntry& entry, Stream& stream, int64_t offset, void* to,
              int64_t bytes) {
  Environment& state = state_of(env);
  state.touch(entry, stream);
  ErrorText error;
  Status status = state.synchronize(stream, &error);
  if (status.ok()) status = check_value(entry, &error);
  if (status.ok() && bytes > 0) {
    const char* from = entry.data + offset;
    if (stream.backend()->asynchronous) {
      stream.enqueue(
          [to, from, bytes](Stream& s) { copy_now(s, to, from, bytes, CopyKind::DeviceToHost); },
          copy_name(CopyKind::DeviceToHost));
      status = state.synchronize(stream, &error);
    } else {
      std::memcpy(to, from, bytes);
    }
  }
  if (!status.ok()) fail_call(env, status.code, error);
  return status.ok();
}

napi_value read_sync(napi_env env, napi_callback_info info) {
  int64_t args[4];
  napi_value raw[4] = {};
  ArrayView destination;
  if (!read_integers(env, info, 4, args, raw, 1 << 2) || !view_of(env, raw[2], &destination))
    return nullptr;
  Stream* stream = state_of(env).stream(args[3]);
  StorageEntry* entry = range_of(env, args[0], args[1], destination.bytes, stream);
  if (entry) read_now(env, *entry, *stream, args[1], destination.data, destination.bytes);
  return nullptr;
}

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

napi_value read_scalar(napi_env env, napi_callback_info info) {
  int64_t args[4];
  if (!read_integers(env, info, 4, args)) return nullptr;
  if (args[2] < 0 || args[2] >= kNumDTypes)
    return fail_call(env, Code::Invalid, "readScalar: bad dtype");
  const auto dtype = static_cast<DType>(args[2]);
  Stream* stream = state_of(env).stream(args[3]);
  StorageEntry* entry = range_of(env, args[0], args[1], item_size(dtype), stream);
  char data[8];
  if (!entry || !read_now(env, *entry, *stream, args[1], data, item_size(dtype))) return nullptr;
  napi_value result = nullptr;
  if (dtype == DType::Int64) {
    int64_t value;
    std::memcpy(&value, data, 8);
    napi_create_bigint_int64(env, value, &result);
  } else {
    napi_create_double(env,
                       is_floating(dtype) ? decode_float(dtype, data)
                                          : static_cast<double>(decode_int(dtype, data)),
                       &result);
  }
  return result;
}

struct Posting {
  std::shared_ptr<Gate> gate;
  Completion* completion;
};

// Posts when the device has finished all work of the stream so far.
void post_when_done(Stream& s, std::shared_ptr<Gate> gate, Completion* completion) {
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

// A completion for the next command of the stream.
Completion* new_completion(napi_env env, const Stream& stream, napi_value callback) {
  auto* completion = new Completion;
  completion->stream = stream.id();
  completion->sequence = stream.submitted() + 1;
  napi_create_reference(env, callback, 1, &completion->callback);
  state_of(env).expect_completion();
  return completion;
}

void fail_if_failed(Stream& s, Completion* completion) {
  Failed failed;
  if (s.skips(&failed)) completion->fail(failed);
}

napi_value read_async(napi_env env, napi_callback_info info) {
  int64_t args[5];
  napi_value raw[5] = {};
  ArrayView destination;
  if (!read_integers(env, info, 5, args, raw, 1 << 2 | 1 << 4) ||
      !view_of(env, raw[2], &destination))
    return nullptr;
  if (!is_function(env, raw[4]))
    return fail_call(env, Code::Invalid, "readAsync: expected a function");
  Environment& state = state_of(env);
  Stream* stream = state.stream(args[3]);
  StorageEntry* entry = range_of(env, args[0], args[1], destination.bytes, stream);
  if (!entry) return nullptr;
  state.touch(*entry, *stream);
  const char* from = entry->data + (destination.bytes > 0 ? args[1] : 0);
  const int64_t bytes = destination.bytes;
  const Backend* backend = stream->backend();
  ErrorText error;
  const Status known = check_value(*entry, &error);
  if (!known.ok()) return fail_call(env, known.code, error);
  void* staging = nullptr;
  if (backend->asynchronous && bytes <= kSmallStaging) {
    const Status status = take_staging(backend, bytes, &staging, &error);
    if (!status.ok()) return fail_call(env, status.code, error);
  }
  Completion* completion = new_completion(env, *stream, raw[4]);
  napi_create_reference(env, destination.buffer, 1, &completion->keep_alive);
  completion->destination = destination.data;
  completion->bytes = bytes;
  completion->staging = staging;
  auto gate = state.gate;
  // No command in flight writes to the memory of an ArrayBuffer: the bytes are valid.
  const bool borrowed = entry->adopted != nullptr;
  if (borrowed && bytes > 0) std::memcpy(destination.data, from, bytes);
  const auto read = [gate, completion, from, bytes, borrowed](Stream& s) {
    fail_if_failed(s, completion);
    if (completion->code == Code::Ok && bytes > 0 && !borrowed) {
      if (completion->staging)
        copy_now(s, completion->staging, from, bytes, CopyKind::DeviceToHost);
      else if (s.backend()->asynchronous)
        copy_in_chunks(s, const_cast<char*>(from), static_cast<char*>(completion->destination),
                       bytes, CopyKind::DeviceToHost);
      else
        std::memcpy(completion->destination, from, bytes);
      fail_if_failed(s, completion);
    }
    post_when_done(s, gate, completion);
  };
  stream->enqueue(read,
                  copy_name(backend->asynchronous ? CopyKind::DeviceToHost : CopyKind::HostToHost));
  entry->last_sequence = stream->submitted();
  return nullptr;
}

napi_value when_done(napi_env env, napi_callback_info info) {
  int64_t args[2];
  napi_value raw[2] = {};
  if (!read_integers(env, info, 2, args, raw, 1 << 1)) return nullptr;
  if (!is_function(env, raw[1]))
    return fail_call(env, Code::Invalid, "whenDone: expected a function");
  Environment& state = state_of(env);
  Stream* stream = state.stream(args[0]);
  if (!stream) return fail_call(env, Code::Closed, "the stream is gone");
  Completion* completion = new_completion(env, *stream, raw[1]);
  auto gate = state.gate;
  stream->enqueue([gate, completion](Stream& s) {
    fail_if_failed(s, completion);
    post_when_done(s, gate, completion);
  });
  return nullptr;
}

}  // namespace

void export_reads(napi_env env, napi_value exports) {
  export_function<read_sync>(env, exports, "readSync");
  export_function<read_scalar>(env, exports, "readScalar");
  export_function<read_async>(env, exports, "readAsync");
  export_function<when_done>(env, exports, "whenDone");
}

}  // namespace shardwise
