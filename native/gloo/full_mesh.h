// Connects each rank with each other rank. A rank listens on its own socket. A connection counts
// once both ends have shown the token that the other end published with its address. Any other
// connection takes no place and is closed.
//
// Then each rank sends all others a verdict: it is connected, or why it gives up. So all ranks
// report the same cause, and a rank that only left because of another one does not count as dead.
#pragma once
#include <array>
#include <list>
#include <string>
#include <vector>

#include "../comm/deadline.h"
#include "../include/gloo_engine.h"
#include "socket.h"

namespace shardwise::gloo_engine {

class FullMesh {
 public:
  // Listens: others may connect from now on. Throws.
  FullMesh(const char* host, int32_t rank, int32_t size);

  // Writes `size` addresses of kGlooAddressBytes: the address and the token for rank i.
  void addresses(char* out) const;

  struct Failure {
    std::vector<int32_t> culprits;  // may be empty
    // a phrase about the culprits that begins with "has"; a sentence if there are none
    std::string what;
    bool is_timeout = false;
  };
  // Rank i listens at the i-th of `addresses`. Waits until all ranks are connected and have
  // confirmed it.
  bool connect(const char* addresses, int64_t timeout_ms, Failure* failure);

  // After `connect`, once per rank: the idle connection.
  Socket take(int32_t rank) { return std::move(peer(rank).socket); }
  const Endpoint& endpoint(int32_t rank) { return peer(rank).address.where; }

 private:
  using Token = std::array<char, 32>;
  struct Address {
    uint32_t length;  // of the address itself; an address without it is invalid
    Token token;
    Endpoint where;
  };
  static_assert(sizeof(Address) <= kGlooAddressBytes);
  // The connecting end sends it first, then the other end: each shows the token that the other gave
  // it.
  struct Greeting {
    int32_t rank;
    Token token;
  };
  enum class Stand : int32_t { None, Connected, Failed };
  // The last message of this class; all that follows on the connection is gloo's.
  struct Verdict {
    Stand stand = Stand::None;
    int32_t is_timeout = 0, culprit_count = 0;
    int32_t culprits[21] = {};
    char what[160] = {};
  };
  enum class State { Idle, Connecting, Greeting, Proven };
  struct Peer {
    Token given;  // the token that this rank gave it
    Address address = {};
    State state = State::Idle;
    Socket socket;
    Inbox<Greeting> greeting;
    Inbox<Verdict> verdict;
    std::string failure;  // why the connection failed, and when
    int64_t failure_ns = 0, retry_ns = 0;
    bool is_informed = false;
  };
  struct Stranger {
    Socket socket;
    int64_t since_ns;
    Inbox<Greeting> greeting;
  };

  Peer& peer(int32_t rank) { return peers_[static_cast<size_t>(rank)]; }
  template <class Visit>
  void for_peers(Visit visit) {
    for (int32_t rank = 0; rank < size_; rank++)
      if (rank != rank_) visit(rank, peer(rank));
  }

  void step();
  void wait_for_events();
  void begin_connecting(Peer& other);
  void go_on(int32_t rank, Peer& other);
  void accept_strangers();
  void admit(Stranger& stranger);
  void prove(Peer& other);
  void lose(Peer& other, const std::string& why);

  bool is_decided(comm::Deadline& deadline);
  void decide(comm::Deadline& deadline);
  bool is_over(comm::Deadline& deadline);
  void adopt_failure_of_others();
  void give_up(std::vector<int32_t> culprits, const std::string& what, bool is_timeout);
  void say(Stand stand);
  void publish(Peer& other);

  const int32_t rank_, size_;
  Endpoint where_;
  Socket listener_;
  std::vector<Peer> peers_;
  std::list<Stranger> strangers_;
  Verdict own_;
  Failure failure_;
  int64_t said_ns_ = 0;
};

}  // namespace shardwise::gloo_engine
