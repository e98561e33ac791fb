#include "full_mesh.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace shardwise::across {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int kTickMs = 20;
// A stranger has so long to show a token, and beside all peers so many may be about it: then the
// oldest goes, and if that was a peer it comes again.
constexpr int64_t kGreetingNs = 2'000 * kMs;
constexpr size_t kMostStrangers = 64;
// Before a peer is taken for dead: another may have told why it is gone.
constexpr int64_t kHearsayNs = 200 * kMs;
// Of a rank that has given up, for those that come late to hear it.
constexpr int64_t kLingerNs = 2'000 * kMs;
// Beyond the timeout, for the verdict of a rank whose timeout began later.
constexpr int64_t kVerdictNs = 1'000 * kMs;

template <class Token>
bool is_same(const Token& a, const Token& b) {
  unsigned char difference = 0;  // all bytes are looked at: how long it takes says nothing
  for (size_t i = 0; i < a.size(); i++)
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace

FullMesh::FullMesh(const char* host, int32_t rank, int32_t size)
    : rank_(rank), size_(size), peers_(static_cast<size_t>(size)) {
  for_peers([](int32_t, Peer& other) {
    const auto bytes = static_cast<ssize_t>(other.given.size());
    if (getrandom(other.given.data(), other.given.size(), 0) != bytes)
      throw std::runtime_error("the system gives no random bytes");
  });
  listener_ = listen_at(host, &where_);
}

void FullMesh::addresses(char* out) const {
  memset(out, 0, static_cast<size_t>(size_) * kGlooAddressBytes);
  for (int32_t rank = 0; rank < size_; rank++, out += kGlooAddressBytes) {
    const Address address{sizeof(Address), peers_[static_cast<size_t>(rank)].given, where_};
    if (rank != rank_) memcpy(out, &address, sizeof address);
  }
}

bool FullMesh::connect(const char* addresses, int64_t timeout_ms, Failure* failure) {
  for_peers([&](int32_t rank, Peer& other) {
    memcpy(&other.address, addresses + int64_t{rank} * kGlooAddressBytes, sizeof other.address);
    if (other.address.length != sizeof(Address))
      throw std::runtime_error("rank " + std::to_string(rank) + " has sent no address");
  });
  comm::Patience patience(timeout_ms);
  while (!is_decided(patience)) step();
  listener_ = {};
  strangers_.clear();
  *failure = failure_;
  return failure_.what.empty();
}

// --- connecting
// ---------------------------------------------------------------------------------------------------------------------

void FullMesh::step() {
  for_peers([&](int32_t rank, Peer& other) {
    if (rank < rank_ && other.state == State::Idle && comm::now_ns() >= other.retry_ns)
      begin_connecting(other);
  });
  wait_for_events();
  hear_strangers();
  for_peers([&](int32_t rank, Peer& other) { go_on(rank, other); });
}

void FullMesh::wait_for_events() {
  std::vector<pollfd> all{{listener_.fd(), POLLIN, 0}};
  for (const Stranger& stranger : strangers_) all.push_back({stranger.socket.fd(), POLLIN, 0});
  for_peers([&](int32_t, Peer& other) {
    const bool is_quiet = !other.socket.is_open() || other.verdict.is_whole() ||
                          (other.state == State::Proven && !other.lost.empty());
    if (!is_quiet)
      all.push_back({other.socket.fd(),
                     static_cast<int16_t>(other.state == State::Connecting ? POLLOUT : POLLIN), 0});
  });
  poll(all.data(), all.size(), kTickMs);
}

void FullMesh::begin_connecting(Peer& other) {
  std::string why;
  other.greeting = {};
  other.socket = across::begin_connecting(other.address.where, &why);
  if (other.socket.is_open())
    other.state = State::Connecting;
  else
    lose(other, why);
}

void FullMesh::go_on(int32_t rank, Peer& other) {
  std::string why;
  if (other.state == State::Connecting) {
    pollfd writable{other.socket.fd(), POLLOUT, 0};
    if (poll(&writable, 1, 0) <= 0) return;
    why = connecting_error(other.socket);
    const Greeting greeting{rank_, other.address.token};
    if (!why.empty() || !send_at_once(other.socket, &greeting, sizeof greeting))
      return lose(other, why.empty() ? "connection closed" : why);
    other.state = State::Greeting;
    other.lost.clear();  // it listens
  }
  if (other.state == State::Greeting) {
    if (!read_some(other.socket, other.greeting, &why)) return lose(other, why);
    if (!other.greeting.is_whole()) return;
    const Greeting& said = other.greeting.message;
    if (said.rank != rank || !is_same(said.token, other.given))
      return lose(other, "another program answers in its place");
    prove(other);
  }
  if (other.state == State::Proven && other.lost.empty() &&
      !read_some(other.socket, other.verdict, &why))
    lose(other, why);
}

void FullMesh::hear_strangers() {
  for (Socket socket = accept_one(listener_); socket.is_open(); socket = accept_one(listener_)) {
    if (strangers_.size() == kMostStrangers + peers_.size()) strangers_.pop_front();
    strangers_.push_back({std::move(socket), comm::now_ns(), {}});
  }
  std::string why;
  strangers_.remove_if([&](Stranger& stranger) {
    if (!read_some(stranger.socket, stranger.greeting, &why)) return true;
    if (stranger.greeting.is_whole()) admit(stranger);
    return stranger.greeting.is_whole() || comm::now_ns() - stranger.since_ns > kGreetingNs;
  });
}

void FullMesh::admit(Stranger& stranger) {
  const Greeting& said = stranger.greeting.message;
  if (said.rank <= rank_ || said.rank >= size_) return;
  Peer& other = peer(said.rank);
  if (other.state == State::Proven || !is_same(said.token, other.given)) return;
  const Greeting answer{rank_, other.address.token};
  if (!send_at_once(stranger.socket, &answer, sizeof answer)) return;
  other.socket = std::move(stranger.socket);
  prove(other);
}

void FullMesh::prove(Peer& other) {
  other.state = State::Proven;
  other.lost.clear();
  if (own_.stand != Stand::None) tell(other);
}

// A connection that was none yet is tried again: the peer may have had too many strangers.
void FullMesh::lose(Peer& other, const std::string& why) {
  const int64_t now = comm::now_ns();
  if (other.lost.empty()) other.lost_ns = now;
  other.lost = why;
  if (other.state == State::Proven) return;
  other.socket = {};
  other.state = State::Idle;
  other.retry_ns = now + kTickMs * kMs;
}

// --- what the ranks tell each other
// ----------------------------------------------------------------------------------------------------

bool FullMesh::is_decided(comm::Patience& patience) {
  if (own_.stand != Stand::Failed) adopt_failure_of_others();
  if (own_.stand == Stand::None) decide(patience);
  return own_.stand != Stand::None && is_over(patience);
}

void FullMesh::decide(comm::Patience& patience) {
  std::vector<int32_t> unproven, gone;
  std::string why;
  const int64_t now = comm::now_ns();
  bool is_known_long = false;
  for_peers([&](int32_t rank, const Peer& other) {
    if (other.state != State::Proven) unproven.push_back(rank);
    if (other.lost.empty() || other.verdict.is_whole()) return;
    gone.push_back(rank);
    is_known_long = is_known_long || now - other.lost_ns > kHearsayNs;
    if (why.empty()) why = other.lost;
  });
  if (unproven.empty() && gone.empty())
    say(Stand::Connected);
  else if (is_known_long)
    give_up(gone, "has ended or cannot be reached (" + why + ")", false);
  else if (patience.left() <= 0)
    give_up(unproven.empty() ? gone : unproven,
            "has not connected (timeout after " + std::to_string(patience.waited_ms()) + " ms)",
            true);
}

// Who has said that it is connected goes on whatever becomes of the others: from then on the group
// itself tells of those that end.
bool FullMesh::is_over(comm::Patience& patience) {
  bool are_told = true;
  std::vector<int32_t> silent;
  for_peers([&](int32_t rank, const Peer& other) {
    const bool is_culprit = std::find(failure_.culprits.begin(), failure_.culprits.end(), rank) !=
                            failure_.culprits.end();
    are_told = are_told && (other.is_told || is_culprit || !other.lost.empty());
    if (!other.verdict.is_whole() && other.lost.empty()) silent.push_back(rank);
  });
  if (own_.stand == Stand::Failed) return are_told || comm::now_ns() - said_ns_ > kLingerNs;
  if (silent.empty() || !failure_.what.empty()) return true;
  if (patience.left() > -kVerdictNs) return false;
  // One alone has stopped. Several may wait for one of them.
  const std::string limit = "(timeout after " + std::to_string(patience.waited_ms()) + " ms)";
  if (silent.size() == 1)
    failure_ = {silent, "has not said that it is connected " + limit, true};
  else
    failure_ = {
        {},
        std::to_string(silent.size()) + " ranks have not said that they are connected " + limit,
        true};
  return true;
}

void FullMesh::adopt_failure_of_others() {
  for_peers([&](int32_t, const Peer& other) {
    const Verdict& said = other.verdict.message;
    if (!other.verdict.is_whole() || said.stand != Stand::Failed || !failure_.what.empty()) return;
    const int32_t count =
        std::clamp<int32_t>(said.culprit_count, 0, static_cast<int32_t>(std::size(said.culprits)));
    std::vector<int32_t> culprits(said.culprits, said.culprits + count);
    const std::string what(said.what, strnlen(said.what, sizeof said.what));
    if (own_.stand == Stand::None)
      give_up(std::move(culprits), what, said.is_timeout != 0);
    else
      failure_ = {std::move(culprits), what, said.is_timeout != 0};
  });
}

void FullMesh::give_up(std::vector<int32_t> culprits, const std::string& what, bool is_timeout) {
  culprits.erase(std::remove_if(culprits.begin(), culprits.end(),
                                [this](int32_t rank) { return rank < 0 || rank >= size_; }),
                 culprits.end());
  failure_ = {std::move(culprits), what, is_timeout};
  own_.culprit_count =
      static_cast<int32_t>(std::min(failure_.culprits.size(), std::size(own_.culprits)));
  std::copy_n(failure_.culprits.begin(), own_.culprit_count, own_.culprits);
  own_.is_timeout = is_timeout ? 1 : 0;
  memcpy(own_.what, what.c_str(), std::min(what.size(), sizeof own_.what - 1));
  say(Stand::Failed);
}

void FullMesh::say(Stand stand) {
  own_.stand = stand;
  said_ns_ = comm::now_ns();
  for_peers([this](int32_t, Peer& other) {
    if (other.state == State::Proven) tell(other);
  });
}

void FullMesh::tell(Peer& other) {
  send_at_once(other.socket, &own_, sizeof own_);
  other.is_told = true;
}

}  // namespace shardwise::across
