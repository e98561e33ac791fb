// Events as JavaScript sees them: small integers.
#pragma once
#include <memory>
#include <unordered_map>

#include "../runtime/stream.h"
#include "devices.h"

namespace shardwise {

// Streams may still record or wait for an event that JavaScript has destroyed.
using SharedEvent = std::shared_ptr<Event>;

class Events {
 public:
  explicit Events(Environment& state) : state_(state) {}

  // Null if there is none.
  SharedEvent find(int64_t id) const { return find_in(events_, id); }

  // Called by JavaScript.
  Status create(DeviceCode device, bool timing, uint32_t* id, ErrorText* error);
  void destroy(int64_t id);
  Status record(SharedEvent event, Stream& stream, ErrorText* error);
  void wait(SharedEvent event, Stream& stream);
  // Whether all work before the event is done.
  Status query(SharedEvent event, bool* done, ErrorText* error);
  // Waits for all work before the event. Fails if that failed.
  Status synchronize(SharedEvent event, ErrorText* error);
  Status elapsed_ms(SharedEvent start, SharedEvent end, double* ms, ErrorText* error);

 private:
  Status unobserved_failure(const Event& event, ErrorText* error);

  Environment& state_;
  std::unordered_map<int64_t, SharedEvent> events_;
  uint32_t next_ = 1;
};

Status find_named(Environment& state, int64_t id, SharedEvent* event);
template <>
struct Parameter<SharedEvent> : Named<SharedEvent> {};

}  // namespace shardwise
