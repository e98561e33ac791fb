// One TCP connection of gloo's to every other rank of a group.
#pragma once
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <memory>

#include "../include/gloo_engine.h"
#include "waiting.h"

namespace shardwise::across {

using Device = std::shared_ptr<::gloo::transport::Device>;

// The address of this machine that connections go through; one for all of the process that ask for it, because each has a thread of
// its own. Throws.
Device device_of(const char* host);

// All functions throw.
class Connections {
 public:
  // Listens: others may connect from now on.
  Connections(const Device& device, int32_t rank, int32_t size, int64_t timeout_ms);
  Connections(const Connections&) = delete;

  int32_t rank() const { return context_->rank; }
  int32_t size() const { return context_->size; }

  // `size` of kGlooAddressBytes: where rank i finds this one.
  void addresses(char* out) const;
  // Where rank i waits for this one. Waits until they are connected.
  void connect(int32_t rank, const char* address);

  std::unique_ptr<Buffer> buffer(void* data, int64_t bytes) { return context_->createUnboundBuffer(data, static_cast<size_t>(bytes)); }

 private:
  std::shared_ptr<::gloo::transport::Context> context_;
};

}  // namespace shardwise::across
