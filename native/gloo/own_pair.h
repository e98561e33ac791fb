// A pair of gloo on an existing connection. Gloo's own pairs listen, accept the first connection as
// their peer, and end the process if that one closes (`GLOO_ENFORCE` on a thread without a
// handler).
#pragma once
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>

#include <memory>

#include "socket.h"

namespace shardwise::gloo_engine {

class OwnPair final : public ::gloo::transport::tcp::Pair {
 public:
  // Runs on the device's thread.
  OwnPair(::gloo::transport::tcp::Context* context, ::gloo::transport::tcp::Device* device,
          int32_t rank);
  void adopt(Socket socket, const Endpoint& peer);
};

class OwnBuffer final : public ::gloo::transport::tcp::UnboundBuffer {
 public:
  using UnboundBuffer::UnboundBuffer;
  // True if a wait for the last send would return at once.
  bool is_sent();
};

class OwnContext final : public ::gloo::transport::tcp::Context {
 public:
  // Creates a context with a pair for each other rank. Throws.
  static std::shared_ptr<OwnContext> make(int32_t rank, int32_t size);

  using Context::Context;
  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        size_t bytes) override;
  OwnPair& pair(int32_t rank) { return static_cast<OwnPair&>(*getPair(rank)); }
};

}  // namespace shardwise::gloo_engine
