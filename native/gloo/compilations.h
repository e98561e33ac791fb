// The ranks of a world that compile, as comm::Compilations knows them in shared memory. A rank
// sends a notice to all others when it begins and when it is done.
#pragma once
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "../comm/layout.h"
#include "../include/text.h"
#include "connections.h"

namespace shardwise::gloo_engine {

class Compilations {
 public:
  // Uses the connections of the world, which stay open until `close`. Throws.
  explicit Compilations(Connections* world);
  void close();

  // This rank compiles from now on; null: it is done. On the thread of JavaScript.
  void send(const comm::Compilation* begun);
  // Takes the notices that have arrived.
  void observe();
  // Whether a rank of the world compiles, or has compiled until a moment ago.
  bool compiles(int32_t rank);
  // False if it does not compile.
  bool describe(int32_t rank, Text& has);

 private:
  struct Notice {
    comm::Compilation compilation;
    uint32_t reserved;
    uint32_t number;  // not 0; must be last
  };
  // A notice in flight: it keeps its memory until it is sent, because a rank that waits for nothing
  // reads none.
  struct Sent {
    std::unique_ptr<Notice> notice;
    std::unique_ptr<Buffer> buffer;
  };
  struct Peer {
    Notice in = {};
    comm::Compilation last = {};
    std::unique_ptr<Buffer> incoming;
    std::deque<Sent> sent;
    int64_t observed_ns = 0;
    bool is_gone = false;
    bool is_informed = false;  // that this rank compiles
  };

  template <class Work>
  void with(Peer& peer, Work work);
  void expect(int32_t rank);
  void observe(int32_t rank);
  void send(int32_t rank, const comm::Compilation& compilation);

  std::mutex mutex_;
  Connections* world_;
  const int32_t rank_;
  std::vector<Peer> peers_;
};

}  // namespace shardwise::gloo_engine
