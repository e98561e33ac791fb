// One TCP connection to every other rank of a group. This class opens each connection and
// authenticates it by a token, then gloo uses it for sends and receives.
#pragma once
#include <gloo/transport/tcp/context.h>

#include <memory>

#include "../comm/group_info.h"
#include "full_mesh.h"
#include "waiting.h"

namespace shardwise::gloo_engine {

class Connections {
 public:
  // Listens at this address of the machine: others may connect from now on. Throws.
  Connections(const char* host, int32_t rank, int32_t size);
  Connections(const Connections&) = delete;

  int32_t rank() const { return context_->rank; }
  int32_t size() const { return context_->size; }

  // Writes `size` addresses of kGlooAddressBytes: rank i connects to the i-th. Only before
  // `connect`.
  void addresses(char* out) const { mesh_->addresses(out); }
  // Rank i listens at the i-th of `addresses`. Waits until all ranks are connected, or all know
  // which one is not. `hint`: a likely cause of a timeout.
  Status connect(const char* addresses, int64_t timeout_ms, const comm::GroupInfo& group,
                 const char* hint, ErrorText* error);

  // Throws.
  std::unique_ptr<Buffer> buffer(void* data, int64_t bytes) {
    return context_->createUnboundBuffer(data, static_cast<size_t>(bytes));
  }
  // True if the buffer's last send is complete. Does not wait.
  static bool is_sent(Buffer& buffer);

 private:
  std::unique_ptr<FullMesh> mesh_;  // until all ranks are connected
  std::shared_ptr<::gloo::transport::tcp::Context> context_;
};

}  // namespace shardwise::gloo_engine
