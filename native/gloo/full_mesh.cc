#include "full_mesh.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace shardwise::gloo_engine {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int kTickMs = 20;
// An unknown connection has this long to show a token. Besides the peers, so many may be pending:
// then the oldest is closed; a peer would connect again.
constexpr int64_t kGreetingNs = 2'000 * kMs;
constexpr size_t kMostStrangers = 64;
// Time before a peer counts as dead: another rank may have reported why it is gone.
constexpr int64_t kHearsayNs = 200 * kMs;
// Time that a rank that gave up stays, so that late ranks get its verdict.
constexpr int64_t kLingerNs = 2'000 * kMs;
// Time beyond the timeout, for the verdict of a rank whose timeout began later.
constexpr int64_t kVerdictNs = 1'000 * kMs;

template <class Token>
bool is_same(const Token& a, const Token& b) {
  unsigned char difference = 0;  // compares all bytes, so that the duration reveals nothing
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
  comm::Deadline deadline(timeout_ms);
  while (!is_decided(deadline)) step();
  listener_ = {};
  strangers_.clear();
  *failure = failure_;
  return failure_.what.empty();
}

// --- connecting

void FullMesh::step() {
  for_peers([&](int32_t rank, Peer& other) {
    if (rank < rank_ && other.state == State::Idle && comm::now_ns() >= other.retry_ns)
      begin_connecting(other);
  });
  wait_for_events();
  accept_strangers();
  for_peers([&](int32_t rank, Peer& other) { go_on(rank, other); });
}

void FullMesh::wait_for_events() {
  std::vector<pollfd> all{{listener_.fd(), POLLIN, 0}};
  for (const Stranger& stranger : strangers_) all.push_back({stranger.socket.fd(), POLLIN, 0});
  for_peers([&](int32_t, Peer& other) {
    const bool is_quiet = !other.socket.is_open() || other.verdict.is_whole() ||
                          (other.state == State::Proven && !other.failure.empty());
    if (!is_quiet)
      all.push_back({other.socket.fd(),
                     static_cast<int16_t>(other.state == State::Connecting ? POLLOUT : POLLIN), 0});
  });
  poll(all.data(), all.size(), kTickMs);
}

void FullMesh::begin_connecting(Peer& other) {
  std::string why;
  other.greeting = {};
  other.socket = gloo_engine::begin_connecting(other.address.where, &why);
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
    other.failure.clear();  // the peer listens
  }
  if (other.state == State::Greeting) {
    if (!read_some(other.socket, other.greeting, &why)) return lose(other, why);
    if (!other.greeting.is_whole()) return;
    const Greeting& said = other.greeting.message;
    if (said.rank != rank || !is_same(said.token, other.given))
      return lose(other, "another program answers in its place");
    prove(other);
  }
  if (other.state == State::Proven && other.failure.empty() &&
      !read_some(other.socket, other.verdict, &why))
    lose(other, why);
}

void FullMesh::accept_strangers() {
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
  other.failure.clear();
  if (own_.stand != Stand::None) publish(other);
}

// Retries a connection that failed before it was proven: the peer may have had too many unknown
// connections.
void FullMesh::lose(Peer& other, const std::string& why) {
  const int64_t now = comm::now_ns();
  if (other.failure.empty()) other.failure_ns = now;
  other.failure = why;
  if (other.state == State::Proven) return;
  other.socket = {};
  other.state = State::Idle;
  other.retry_ns = now + kTickMs * kMs;
}

// --- verdicts

bool FullMesh::is_decided(comm::Deadline& deadline) {
  if (own_.stand != Stand::Failed) adopt_failure_of_others();
  if (own_.stand == Stand::None) decide(deadline);
  return own_.stand != Stand::None && is_over(deadline);
}

void FullMesh::decide(comm::Deadline& deadline) {
  std::vector<int32_t> unproven, gone;
  std::string why;
  const int64_t now = comm::now_ns();
  bool is_known_long = false;
  for_peers([&](int32_t rank, const Peer& other) {
    if (other.state != State::Proven) unproven.push_back(rank);
    if (other.failure.empty() || other.verdict.is_whole()) return;
    gone.push_back(rank);
    is_known_long = is_known_long || now - other.failure_ns > kHearsayNs;
    if (why.empty()) why = other.failure;
  });
  if (unproven.empty() && gone.empty())
    say(Stand::Connected);
  else if (is_known_long)
    give_up(gone, "has ended or cannot be reached (" + why + ")", false);
  else if (deadline.left() <= 0)
    give_up(unproven.empty() ? gone : unproven,
            "has not connected (timeout after " + std::to_string(deadline.waited_ms()) + " ms)",
            true);
}

// A rank that reported that it is connected continues, whatever happens to the others: from then on
// the group itself reports ranks that end.
bool FullMesh::is_over(comm::Deadline& deadline) {
  bool are_informed = true;
  std::vector<int32_t> silent;
  for_peers([&](int32_t rank, const Peer& other) {
    const bool is_culprit = std::find(failure_.culprits.begin(), failure_.culprits.end(), rank) !=
                            failure_.culprits.end();
    are_informed = are_informed && (other.is_informed || is_culprit || !other.failure.empty());
    if (!other.verdict.is_whole() && other.failure.empty()) silent.push_back(rank);
  });
  if (own_.stand == Stand::Failed) return are_informed || comm::now_ns() - said_ns_ > kLingerNs;
  if (silent.empty() || !failure_.what.empty()) return true;
  if (deadline.left() > -kVerdictNs) return false;
  // A single silent rank has stopped. Several may wait for one of them.
  const std::string limit = "(timeout after " + std::to_string(deadline.waited_ms()) + " ms)";
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
    if (other.state == State::Proven) publish(other);
  });
}

void FullMesh::publish(Peer& other) {
  send_at_once(other.socket, &own_, sizeof own_);
  other.is_informed = true;
}

}  // namespace shardwise::gloo_engine
