#include "storages.h"

#include <algorithm>

#include "environment.h"
#include "transfer.h"

namespace shardwise {

namespace {

// Orders `stream` behind a command of `other`. If `writer` has failed by the command `written`,
// `stream` takes over the failure.
void order_behind(Stream& stream, Stream& other, uint64_t sequence, Stream* writer,
                  uint64_t written) {
  std::function<void(Stream&)> inherit;
  if (writer) inherit = [writer, written](Stream& s) { s.inherit_failure(*writer, written); };
  if (other.backend()->asynchronous) {
    stream.wait_for(other, sequence, std::move(inherit));
  } else if (other.completed() < sequence) {
    const auto wait = [&other, sequence, inherit = std::move(inherit)](Stream& s) {
      other.wait(sequence);
      if (inherit) inherit(s);
    };
    stream.enqueue(wait, "wait for a stream");
    stream.remember_wait(other, sequence);
  } else if (writer && writer->failed()) {
    stream.enqueue(std::move(inherit));
  }
}

void add_user(StorageEntry& entry, Stream& stream) {
  if (entry.owner == &stream) return;
  for (const Stream* each : entry.other_streams)
    if (each == &stream) return;
  entry.other_streams.push_back(&stream);
}

}  // namespace

void Storages::touch(StorageEntry& entry, Stream& stream) {
  state_.streams.activate(stream);
  // Before its first use, memory may still be in use by earlier commands of its owner stream: those
  // of the previous owner of the block.
  const Block* inherited =
      !entry.last_stream && entry.block && entry.block->progress ? entry.block : nullptr;
  Stream* before = inherited ? entry.owner : entry.last_stream;
  if (before != &stream && before) {
    Stream* writer = inherited || entry.writer == &stream ? nullptr : entry.writer;
    order_behind(stream, *before, inherited ? inherited->sequence : entry.last_sequence, writer,
                 entry.written);
  }
  add_user(entry, stream);
  entry.last_stream = &stream;
  // not a number of the previous stream, which this one may never reach
  entry.last_sequence = stream.claimed();
}

void Storages::lose_results(Stream& stream, const Failure& failure) {
  const auto cause = std::make_shared<const std::string>(failure.text.text);
  std::vector<Stream*> readers;
  table_.for_each([&](int64_t, StorageEntry& entry) {
    if (entry.writer != &stream || entry.written < failure.first) return;
    entry.no_value = cause;
    readers.insert(readers.end(), entry.other_streams.begin(), entry.other_streams.end());
    readers.push_back(entry.owner);
  });
  // Other streams continued with invalid inputs: everything that they wrote since they were last
  // verified is invalid.
  table_.for_each([&](int64_t, StorageEntry& entry) {
    for (const Stream* reader : readers)
      if (reader != &stream && entry.writer == reader && entry.written > reader->verified())
        entry.no_value = cause;
  });
}

Status check_value(const StorageEntry& entry, ErrorText* error) {
  if (!entry.no_value) return kOk;
  return fail(error, Code::NoValue,
              "the tensor has no value: what should have computed it was skipped after an earlier "
              "failure: %.300s",
              entry.no_value->c_str());
}

uint32_t Storages::pinned_pool() {
  if (pinned_pool_ < 0) pinned_pool_ = Devices::get().pinned_allocator()->open_pool();
  return static_cast<uint32_t>(pinned_pool_);
}

// Pinned memory belongs to the CPU's stream.
Status Storages::allocate_bytes(StorageEntry& entry, Stream& stream, int64_t bytes, bool pinned,
                                ErrorText* error) {
  entry.bytes = bytes;
  entry.device = stream.device_code();
  entry.owner = &stream;
  entry.pinned = pinned;
  if (bytes == 0) return kOk;
  entry.allocator = pinned ? Devices::get().pinned_allocator() : stream.allocator();
  const uint32_t pool = pinned ? pinned_pool() : stream.pool();
  Status status = entry.allocator->allocate(bytes, pool, &entry.block, error);
  if (status.code == Code::OutOfMemory && !stream.idle()) {
    stream.flush_waits();
    // Freed blocks in use by commands in flight can be returned when those finish.
    stream.wait(stream.submitted());
    status = entry.allocator->allocate(bytes, pool, &entry.block, error);
  }
  if (status.ok()) entry.data = entry.block->data;
  if (status.ok() && state_.profile.log.is_open()) remember(entry, entry.block->bytes);
  return status;
}

Status Storages::allocate(Stream& stream, int64_t bytes, int64_t* handle, ErrorText* error,
                          bool pinned) {
  StorageEntry* entry;
  *handle = table_.add(&entry);
  if (!*handle)
    return fail(error, Code::OutOfMemory, "more than %d tensors are alive",
                1 << StorageTable::kIndexBits);
  const Status status = allocate_bytes(*entry, stream, bytes, pinned, error);
  if (!status.ok()) table_.remove(*handle);
  return status;
}

// Writes the handle to the words, and creates the token if one is wanted.
Status Storages::give(Stream& stream, int64_t bytes, bool with_token, bool pinned,
                      Napi::Value* token, ErrorText* error) {
  int64_t handle;
  const Status status = allocate(stream, bytes, &handle, error, pinned);
  if (!status.ok()) return status;
  state_.words[0] = static_cast<double>(handle);
  if (with_token) *token = state_.tokens.make(handle, *find(handle));
  return kOk;
}

Status Storages::allocate_with_token(int64_t stream_id, int64_t bytes, bool with_token,
                                     Napi::Value* token, ErrorText* error) {
  state_.tokens.settle();
  Stream* stream = state_.streams.find(stream_id);
  if (!stream || bytes < 0) return fail(error, Code::Invalid, "allocate: bad stream or size");
  return give(*stream, bytes, with_token, false, token, error);
}

Status Storages::allocate_pinned(int64_t bytes, bool with_token, Napi::Value* token,
                                 ErrorText* error) {
  if (!Devices::get().cuda)
    return fail(error, Code::Device, "allocatePinned: pinned memory needs CUDA");
  state_.tokens.settle();
  Stream* stream = state_.streams.default_of(0, error);
  if (!stream) return Status{Code::Device};
  if (bytes < 0) return fail(error, Code::Invalid, "allocatePinned: sizes must not be negative");
  return give(*stream, bytes, with_token, true, token, error);
}

// Reads the memory of an ArrayBuffer that `adopt` is given.
static Status read_buffer(Napi::Value given, int64_t first_byte, int64_t bytes, char** data,
                          ErrorText* error) {
  if (!given.IsArrayBuffer())
    return fail(error, Code::Invalid,
                "expected an array over an ArrayBuffer, got one over other memory (a "
                "SharedArrayBuffer?); copy it with tensor()");
  auto buffer = given.As<Napi::ArrayBuffer>();
  if (buffer.IsDetached())
    return fail(error, Code::Invalid,
                "the ArrayBuffer is detached: its memory was transferred away");
  if (first_byte < 0 || bytes < 0 || static_cast<size_t>(first_byte + bytes) > buffer.ByteLength())
    return fail(error, Code::Invalid, "the range is outside the buffer");
  *data = static_cast<char*>(buffer.Data()) + first_byte;
  return kOk;
}

Status Storages::adopt(Napi::Value buffer, int64_t first_byte, int64_t bytes, bool with_token,
                       Napi::Value* token, ErrorText* error) {
  char* data = nullptr;
  const Status status = read_buffer(buffer, first_byte, bytes, &data, error);
  if (!status.ok()) return status;
  state_.tokens.settle();
  Stream* stream = state_.streams.default_of(0, error);
  if (!stream) return Status{Code::Device};
  StorageEntry* entry;
  const int64_t handle = table_.add(&entry);
  if (!handle) return fail(error, Code::OutOfMemory, "too many tensors are alive");
  entry->data = data;
  entry->bytes = bytes;
  entry->owner = stream;
  napi_ref reference = nullptr;
  napi_create_reference(state_.env, buffer, 1, &reference);
  entry->adopted = reference;
  state_.words[0] = static_cast<double>(handle);
  if (with_token) *token = state_.tokens.make(handle, *entry);
  return kOk;
}

void Storages::release(int64_t handle) {
  if (StorageEntry* entry = find(handle)) free(*entry, handle, false);
}

Status Storages::release_many(int64_t count, ErrorText* error) {
  if (count > kMostWords) return fail(error, Code::Invalid, "releaseMany: too many handles");
  for (int64_t i = 0; i < count; i++) release(to_integer(state_.words[i]));
  return kOk;
}

// Copies what both have of the memory of a storage that is resized.
static void copy_kept(Stream& stream, char* to, const char* from, int64_t bytes) {
  if (bytes == 0) return;
  const CopyKind kind =
      stream.backend()->asynchronous ? CopyKind::DeviceToDevice : CopyKind::HostToHost;
  const auto copy = [to, from, bytes, kind](Stream& s) { copy_now(s, to, from, bytes, kind); };
  stream.enqueue(copy, copy_name(kind));
}

Status Storages::resize(int64_t handle, int64_t bytes, int64_t stream_id, ErrorText* error) {
  StorageEntry* entry = find(handle);
  Stream* stream = state_.streams.find(stream_id);
  if (!entry || !stream) return fail(error, Code::Closed, "resize_: the storage was freed");
  if (entry->device != stream->device_code())
    return fail(error, Code::Device, "resize_: the stream is of another device");
  if (entry->adopted)
    return fail(error, Code::Invalid,
                "resize_: this storage shows memory of an ArrayBuffer and cannot be resized");
  if (bytes < 0) return fail(error, Code::Invalid, "resize_: sizes must not be negative");
  // the pool of pinned memory follows one stream
  if (entry->pinned) stream = entry->owner;
  touch(*entry, *stream);
  StorageEntry fresh;
  const Status status = allocate_bytes(fresh, *stream, bytes, entry->pinned, error);
  if (!status.ok()) return status;
  copy_kept(*stream, fresh.data, entry->data, std::min(bytes, entry->bytes));
  state_.tokens.resized(*entry, bytes);
  entry->last_sequence = stream->claimed();
  release_block(*entry, bytes == 0);
  entry->block = fresh.block;
  entry->allocator = fresh.allocator;
  entry->data = fresh.data;
  entry->bytes = bytes;
  // The new block belongs to this stream, and no other has used it.
  entry->owner = stream;
  entry->other_streams.clear();
  entry->recorded = false;
  entry->last_sequence = stream->claimed();
  return kOk;
}

Status Storages::record_stream(int64_t handle, int64_t stream_id, ErrorText* error) {
  StorageEntry* entry = find(handle);
  Stream* stream = state_.streams.find(stream_id);
  if (!entry || !stream)
    return fail(error, Code::Closed, "recordStream: the storage or stream is gone");
  add_user(*entry, *stream);
  entry->recorded = true;
  return kOk;
}

Status Storages::is_pinned(int64_t handle, bool* pinned, ErrorText* error) {
  const StorageEntry* entry = find(handle);
  if (!entry) return fail(error, Code::Closed, "isPinned: the storage was freed");
  *pinned = entry->pinned;
  return kOk;
}

Napi::Value Storages::live() {
  std::vector<double> numbers;
  for_each([&](int64_t handle, StorageEntry& entry) {
    const double origin = entry.adopted ? 1 : entry.pinned ? 2 : 0;
    numbers.insert(numbers.end(), {static_cast<double>(handle), static_cast<double>(entry.bytes),
                                   static_cast<double>(entry.device), origin});
  });
  return buffer_of(state_.env, numbers);
}

}  // namespace shardwise
