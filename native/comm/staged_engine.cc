#include "staged_engine.h"

namespace shardwise::comm {

namespace {

// Pinned memory that grows on demand.
class Buffer {
 public:
  explicit Buffer(const Backend* backend) : backend_(backend) {}
  ~Buffer() { reset(); }
  Status reserve(int64_t bytes, ErrorText* error) {
    if (bytes <= bytes_) return kOk;
    reset();
    const Status status = backend_->host_allocate(bytes, &data_, error);
    if (status.ok()) bytes_ = bytes;
    return status;
  }
  void* data() const { return data_; }

 private:
  void reset() {
    if (data_) backend_->host_release(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }
  const Backend* backend_;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

struct Staged {
  const CommEngine* host;
  void* member;
  int32_t rank, size;
  const Backend* backend;
  Buffer in, out;
  void* stream = nullptr;

  Staged(const CommEngine* engine, void* joined, int32_t own, int32_t ranks, const Backend* b)
      : host(engine), member(joined), rank(own), size(ranks), backend(b), in(b), out(b) {}

  // The last copy may still read the buffer.
  ~Staged() {
    ErrorText ignored;
    if (stream) backend->stream_synchronize(stream, &ignored);
    host->destroy(member);
  }

  Status run(const CollectiveCall& call) {
    stream = call.stream;
    const CollectiveExtent extent = extent_of(call, rank, size);
    const int64_t item = item_size(call.dtype), in_bytes = extent.in * item,
                  out_bytes = extent.out * item;
    Status status = in.reserve(in_bytes, call.error);
    if (status.ok()) status = out.reserve(out_bytes, call.error);
    if (status.ok() && in_bytes > 0)
      status = backend->copy(call.stream, in.data(), call.in, in_bytes, CopyKind::DeviceToHost,
                             call.error);
    // Also waits for the copy that the previous call began.
    if (status.ok()) status = backend->stream_synchronize(call.stream, call.error);
    if (!status.ok()) return status;
    CollectiveCall staged = call;
    staged.in = in.data();
    staged.out = out.data();
    staged.stream = nullptr;
    status = host->run(member, staged);
    if (status.ok() && out_bytes > 0)
      status = backend->copy(call.stream, call.out, out.data(), out_bytes, CopyKind::HostToDevice,
                             call.error);
    return status;
  }
};

Staged& staged_of(void* member) { return *static_cast<Staged*>(member); }

}  // namespace

const CommEngine kStagedEngine = {
    "staged",
    [](void* member, const CollectiveCall& call) { return staged_of(member).run(call); },
    [](void* member, const ErrorText& reason) {
      staged_of(member).host->abort(staged_of(member).member, reason);
    },
    [](void* member, ErrorText* error) {
      return staged_of(member).host->failure(staged_of(member).member, error);
    },
    [](void* member, int64_t milliseconds) {
      staged_of(member).host->set_timeout(staged_of(member).member, milliseconds);
    },
    [](void* member) { delete static_cast<Staged*>(member); },
    nullptr,
};

void* staged_member(const CommEngine* host, void* member, int32_t rank, int32_t size,
                    const Backend* backend) {
  return new Staged(host, member, rank, size, backend);
}

}  // namespace shardwise::comm
