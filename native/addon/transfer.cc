// Values in and out: write, readSync, readScalar, readAsync, copyBytes.
#include <cstdlib>
#include <cstring>
#include <string>

#include "../runtime/staging.h"
#include "borrowed.h"
#include "environment.h"

namespace shardwise {

namespace {

struct View {
  char* data = nullptr;
  int64_t bytes = 0;
  napi_value buffer = nullptr;
};

bool view_of(napi_env env, napi_value value, View* out) {
  bool typed = false;
  void* data = nullptr;
  size_t length = 0, offset = 0;
  if (napi_is_typedarray(env, value, &typed) != napi_ok || !typed) {
    fail_call(env, Code::Invalid, "expected a typed array");
    return false;
  }
  // Older versions of Node leave the type unset for unknown arrays (Float16Array).
  constexpr uint32_t unknown = 255;
  auto type = static_cast<napi_typedarray_type>(unknown);
  napi_get_typedarray_info(env, value, &type, &length, &data, &out->buffer, &offset);
  constexpr int sizes[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 2};
  if (static_cast<size_t>(type) >= sizeof sizes / sizeof *sizes) {
    fail_call(env, Code::Invalid, "this kind of typed array is not supported");
    return false;
  }
  out->data = static_cast<char*>(data);
  out->bytes = static_cast<int64_t>(length) * sizes[type];
  return true;
}

// The entry of a handle, after a check of the byte range; null, with a failure recorded, if it does
// not fit.
StorageEntry* range_of(napi_env env, int64_t handle, int64_t offset, int64_t bytes, Stream* stream,
                       bool any_device = false) {
  StorageEntry* entry = state_of(env).storages.find(handle);
  if (!entry || !stream) {
    fail_call(env, Code::Closed, "the storage was freed");
    return nullptr;
  }
  if (!any_device && entry->device != stream->device_code()) {
    fail_call(env, Code::Device, "the storage is on another device than the stream");
    return nullptr;
  }
  ErrorText error;
  const Status status = state_of(env).check_adopted(*entry, &error);
  if (!status.ok()) {
    fail_call(env, status.code, error);
    return nullptr;
  }
  if (offset < 0 || bytes < 0 || offset + bytes > entry->bytes) {
    fail_call(env, Code::Invalid,
              ("bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
               " are outside a storage of " + std::to_string(entry->bytes))
                  .c_str());
    return nullptr;
  }
  return entry;
}

void copy_now(Stream& s, void* to, const void* from, int64_t bytes, CopyKind kind) {
  ErrorText text;
  const Status status = s.backend()->copy(s.native(), to, from, bytes, kind, &text);
  if (!status.ok()) s.set_error(status.code, text);
}

void wait_for_device(Stream& s) {
  ErrorText text;
  const Status status = s.backend()->stream_synchronize(s.native(), &text);
  if (!status.ok()) s.set_error(status.code, text);
}

// Copies through pinned memory in chunks; the native thread waits for each. A large copy would
// block the JavaScript thread for long.
void copy_in_chunks(Stream& s, char* device, char* host, int64_t bytes, CopyKind kind) {
  ErrorText text;
  void* staging = nullptr;
  const Status status = take_staging(s.backend(), kLargeStaging, &staging, &text);
  if (!status.ok()) return s.set_error(status.code, text);
  for (int64_t at = 0; at < bytes && !s.skips(); at += kLargeStaging) {
    const int64_t chunk = bytes - at < kLargeStaging ? bytes - at : kLargeStaging;
    if (kind == CopyKind::HostToDevice) {
      std::memcpy(staging, host + at, chunk);
      copy_now(s, device + at, staging, chunk, kind);
      wait_for_device(s);
    } else {
      copy_now(s, staging, device + at, chunk, kind);
      wait_for_device(s);
      std::memcpy(host + at, staging, chunk);
    }
  }
  give_staging(staging, kLargeStaging);
}

// The caller may reuse its array at once, so both functions copy the bytes now.
Status write_staged(Stream& stream, char* to, const View& source, ErrorText* error) {
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

Status write_copied(Stream& stream, char* to, const View& source, ErrorText* error) {
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
Status write_later(Stream& stream, char* to, const View& source, ErrorText* error) {
  const bool staged = stream.backend()->asynchronous && source.bytes <= kSmallStaging;
  return staged ? write_staged(stream, to, source, error) : write_copied(stream, to, source, error);
}

napi_value write(napi_env env, napi_callback_info info) {
  int64_t args[4];
  napi_value raw[4] = {};
  View source;
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
  View destination;
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
  View destination;
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

void export_transfer(napi_env env, napi_value exports) {
  export_function<write>(env, exports, "write");
  export_function<read_sync>(env, exports, "readSync");
  export_function<read_scalar>(env, exports, "readScalar");
  export_function<read_async>(env, exports, "readAsync");
  export_function<when_done>(env, exports, "whenDone");
  export_function<copy_bytes>(env, exports, "copyBytes");
}

}  // namespace shardwise
