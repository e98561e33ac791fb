// How ranks connect, each with each. A rank listens on a socket of its own; a connection counts
// once both ends have shown the token that the other one gave them beside its address. Whoever else
// connects takes no place, and is let go.
//
// Then each tells all that it is connected, or why it gives up. So all hear the same cause, and
// nobody takes for dead who only left because of another.
#pragma once
#include <array>
#include <list>
#include <string>
#include <vector>

#include "../comm/deadline.h"
#include "../include/gloo_engine.h"
#include "socket.h"

namespace shardwise::across {

class FullMesh {
 public:
  // Listens: others may connect from now on. Throws.
  FullMesh(const char* host, int32_t rank, int32_t size);

  // `size` of kGlooAddressBytes: where rank i finds this one, and by what it is known.
  void addresses(char* out) const;

  struct Failure {
    std::vector<int32_t> culprits;  // may be none
    // of the culprits, beginning with "has"; without any, a sentence
    std::string what;
    bool is_timeout = false;
  };
  // The i-th of `addresses` is where rank i waits for this one. Waits until all are connected and
  // say so.
  bool connect(const char* addresses, int64_t timeout_ms, Failure* failure);

  // After that, once for each: the connection, which nothing is under way on.
  Socket take(int32_t rank) { return std::move(peer(rank).socket); }
  const Endpoint& endpoint(int32_t rank) { return peer(rank).address.where; }

 private:
  using Token = std::array<char, 32>;
  struct Address {
    uint32_t length;  // of itself: it is no address without
    Token token;
    Endpoint where;
  };
  static_assert(sizeof(Address) <= kGlooAddressBytes);
  // First from who connects, then from who was connected to: each shows what the other gave it.
  struct Greeting {
    int32_t rank;
    Token token;
  };
  enum class Stand : int32_t { None, Connected, Failed };
  // The last that is said here. What follows on the connection is gloo's.
  struct Verdict {
    Stand stand = Stand::None;
    int32_t is_timeout = 0, culprit_count = 0;
    int32_t culprits[21] = {};
    char what[160] = {};
  };
  enum class State { Idle, Connecting, Greeting, Proven };
  struct Peer {
    Token given;  // by which it is known here
    Address address = {};
    State state = State::Idle;
    Socket socket;
    Inbox<Greeting> greeting;
    Inbox<Verdict> verdict;
    std::string lost;  // why, since that time
    int64_t lost_ns = 0, retry_ns = 0;
    bool is_told = false;
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
  void hear_strangers();
  void admit(Stranger& stranger);
  void prove(Peer& other);
  void lose(Peer& other, const std::string& why);

  bool is_decided(comm::Patience& patience);
  void decide(comm::Patience& patience);
  bool is_over(comm::Patience& patience);
  void adopt_failure_of_others();
  void give_up(std::vector<int32_t> culprits, const std::string& what, bool is_timeout);
  void say(Stand stand);
  void tell(Peer& other);

  const int32_t rank_, size_;
  Endpoint where_;
  Socket listener_;
  std::vector<Peer> peers_;
  std::list<Stranger> strangers_;
  Verdict own_;
  Failure failure_;
  int64_t said_ns_ = 0;
};

}  // namespace shardwise::across
