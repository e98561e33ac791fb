// Records which rank waits for which. A rank that has waited long publishes it to its world,
// repeatedly. So a rank that times out on a peer, which itself waits in another group, can name the
// rank that all of them wait for.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "compilations.h"

namespace shardwise::gloo_engine {

class Waits {
 public:
  // Uses the connections of the world, which stay open until `close`. Throws.
  explicit Waits(Connections* world);

  // Called by a rank that waits for `awaited`, ranks of the world: publishes it from an eighth of
  // the timeout on, every eighth, and receives what others publish.
  // `always`: also before that.
  void publish(const std::vector<int32_t>& awaited, int64_t waited_ms, int64_t timeout_ms,
               bool always = false);
  // Whether one of these ranks of the world, or a rank for which it waits, compiles or has compiled
  // until a moment ago.
  bool is_delayed(const std::vector<int32_t>& awaited, int64_t timeout_ms);
  // `has not come`, and why if that is known.
  std::string describe_absence(const char* has, int32_t rank, int64_t timeout_ms);
  void compiles(const comm::Compilation* begun) { compilations_.send(begun); }
  // The ranks that this rank waits for; empty if it has not published any lately.
  std::vector<int32_t> awaited_by(int32_t rank, int64_t timeout_ms);
  // For ranks that have not come: the ranks that all of them wait for in the end.
  std::vector<int32_t> culprits(const std::vector<int32_t>& missing, int64_t timeout_ms);
  void close();

 private:
  struct Notice {
    int32_t count;
    int32_t awaited[14];
    uint32_t number;  // not 0; must be last
  };
  struct Peer {
    Notice in = {}, out = {}, last = {};
    std::unique_ptr<Buffer> incoming, outgoing;
    int64_t observed_ns = 0;
    bool is_sending = false, is_gone = false;
  };

  template <class Work>
  void with(Peer& peer, Work work);
  void expect(int32_t rank);
  void observe_peers(int32_t rank);
  void send(int32_t rank, const Notice& notice);
  const Notice* lately(int32_t rank, int64_t timeout_ms) const;
  // All ranks that these wait for, directly or not, and these themselves.
  std::vector<int32_t> reached_from(std::vector<int32_t> ranks, int64_t timeout_ms);

  std::mutex mutex_;
  Connections* world_;
  Compilations compilations_;
  const int32_t rank_;
  std::vector<Peer> peers_;
  uint32_t number_ = 0;
  int64_t published_ns_ = 0;
};

}  // namespace shardwise::gloo_engine
