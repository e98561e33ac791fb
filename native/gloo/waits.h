// Who waits for whom: a rank that has waited long says so to all of its world, and goes on saying
// it. So one that times out on a rank that waits itself, in another group, knows for whom in the
// end.
#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "connections.h"

namespace shardwise::across {

class Waits {
 public:
  // On the connections of the world, which are there until `close`. Throws.
  explicit Waits(Connections* world);

  // By a rank that has waited for those ranks of the world: from an eighth of its timeout on, each
  // eighth. Takes what others say.
  void tell(const std::vector<int32_t>& awaited, int64_t waited_ms, int64_t timeout_ms);
  // Whom that rank waits for; nobody, if it has not said so lately.
  std::vector<int32_t> awaited_by(int32_t rank, int64_t timeout_ms);
  // Of ranks that have not come: those whom in the end all wait for.
  std::vector<int32_t> culprits(const std::vector<int32_t>& missing, int64_t timeout_ms);
  void close();

 private:
  struct Notice {
    int32_t count;
    int32_t awaited[14];
    uint32_t number;  // not 0; comes last
  };
  struct Peer {
    Notice in = {}, out = {}, last = {};
    std::unique_ptr<Buffer> incoming, outgoing;
    int64_t heard_ns = 0;
    bool is_sending = false, is_gone = false;
  };

  template <class Work>
  void with(Peer& peer, Work work);
  void expect(int32_t rank);
  void hear(int32_t rank);
  void send(int32_t rank, const Notice& notice);
  const Notice* lately(int32_t rank, int64_t timeout_ms) const;

  std::mutex mutex_;
  Connections* world_;
  const int32_t rank_;
  std::vector<Peer> peers_;
  uint32_t number_ = 0;
  int64_t told_ns_ = 0;
};

// `has not come`, and for whom that rank waits itself.
std::string waiting_words(const std::string& has, const std::vector<int32_t>& awaited);

}  // namespace shardwise::across
