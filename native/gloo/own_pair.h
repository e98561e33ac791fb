// A pair of gloo's on a connection that is given to it. Gloo's own pairs listen, take whoever comes
// first for their peer, and end the process where that one is gone again (`GLOO_ENFORCE` on a
// thread that nothing catches on).
#pragma once
#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/pair.h>
#include <gloo/transport/tcp/unbound_buffer.h>

#include <memory>

#include "socket.h"

namespace shardwise::across {

class OwnPair final : public ::gloo::transport::tcp::Pair {
 public:
  // On the device's thread.
  OwnPair(::gloo::transport::tcp::Context* context, ::gloo::transport::tcp::Device* device,
          int32_t rank);
  void adopt(Socket socket, const Endpoint& peer);
};

class OwnBuffer final : public ::gloo::transport::tcp::UnboundBuffer {
 public:
  using UnboundBuffer::UnboundBuffer;
  // Whether a wait for what was sent would be none.
  bool is_sent();
};

class OwnContext final : public ::gloo::transport::tcp::Context {
 public:
  // With a pair for each other rank. Throws.
  static std::shared_ptr<OwnContext> make(int32_t rank, int32_t size);

  using Context::Context;
  std::unique_ptr<::gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<::gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                        size_t bytes) override;
  OwnPair& pair(int32_t rank) { return static_cast<OwnPair&>(*getPair(rank)); }
};

}  // namespace shardwise::across
