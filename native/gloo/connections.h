// One TCP connection to every other rank of a group. It is made here and proven by a token, then
// gloo has it for sends and receives.
#pragma once
#include <gloo/transport/tcp/context.h>

#include <memory>

#include "../comm/group_info.h"
#include "full_mesh.h"
#include "waiting.h"

namespace shardwise::across {

class Connections {
 public:
  // Listens at that address of this machine: others may connect from now on. Throws.
  Connections(const char* host, int32_t rank, int32_t size);
  Connections(const Connections&) = delete;

  int32_t rank() const { return context_->rank; }
  int32_t size() const { return context_->size; }

  // `size` of kGlooAddressBytes: where rank i finds this one. Before they are connected.
  void addresses(char* out) const { mesh_->addresses(out); }
  // Where rank i waits for this one. Waits until all are connected, or all know which of them is
  // not. `hint`: what a timeout may come from.
  Status connect(const char* addresses, int64_t timeout_ms, const comm::Roster& group,
                 const char* hint, ErrorText* error);

  // Throws.
  std::unique_ptr<Buffer> buffer(void* data, int64_t bytes) {
    return context_->createUnboundBuffer(data, static_cast<size_t>(bytes));
  }
  // Whether what one of them sends has gone. Does not wait.
  static bool is_sent(Buffer& buffer);

 private:
  std::unique_ptr<FullMesh> mesh_;  // until they are connected
  std::shared_ptr<::gloo::transport::tcp::Context> context_;
};

}  // namespace shardwise::across
