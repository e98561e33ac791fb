// Streams as JavaScript sees them: small integers.
#pragma once
#include <memory>
#include <unordered_map>
#include <vector>

#include "../runtime/stream.h"
#include "devices.h"

namespace shardwise {

class Streams {
 public:
  explicit Streams(Environment& state) : state_(state) {}

  // Null if there is none.
  Stream* find(int64_t id) const {
    return id >= 0 && id < static_cast<int64_t>(streams_.size()) ? streams_[id].get() : nullptr;
  }
  const std::vector<std::unique_ptr<Stream>>& all() const { return streams_; }
  // Null, with an error, if it cannot be created.
  Stream* default_of(int32_t device, ErrorText* error);
  // Waits for all streams, closes their pools, and forgets them.
  void close();
  // The stream of the next command.
  void activate(Stream& stream) {
    if (active_ != &stream) switch_to(stream);
  }
  // Reports a failure once to a rank, whichever of its streams meet it. Does not wait.
  void mark_reported(const Failure& failure, int64_t rank_runtime);
  // An unreported failure of another stream of a GPU, or of a process group.
  Status check_others(const Stream& read, ErrorText* error);

  // Called by JavaScript.
  Status default_stream(DeviceCode device, uint32_t* id, ErrorText* error);
  Status create(DeviceCode device, int64_t priority, int64_t rank_runtime, uint32_t* id,
                ErrorText* error);
  // Does not wait. The id stays valid: storages may still name the stream as their owner.
  void destroy(Stream& stream);
  // Waits for the device. Storages that failed or skipped commands should have written are marked
  // as having no value.
  Status synchronize(Stream& stream, ErrorText* error);
  // Whether it has done all its work.
  Status query(Stream& stream, bool* done, ErrorText* error);

 private:
  Stream* open(int32_t device, int32_t priority, ErrorText* error);
  Stream* reuse(int32_t device, int32_t priority);
  void switch_to(Stream& stream);

  Environment& state_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unordered_map<int32_t, uint32_t> defaults_;  // by device code
  // the asynchronous stream of the last command: it is marked when commands of another one follow
  Stream* active_ = nullptr;
  // Streams that JavaScript destroyed; storages and blocks may still refer to them. Their threads
  // have ended. They are used again: sharing one only orders more than needed.
  std::vector<Stream*> parked_;
};

Status find_named(Environment& state, int64_t id, Stream** stream);
template <>
struct Parameter<Stream&> : Named<Stream*> {
  Stream& get() { return *value; }
};

}  // namespace shardwise
