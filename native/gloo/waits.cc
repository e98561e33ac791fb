#include "waits.h"

#include <algorithm>

#include "../comm/messages.h"
#include "../comm/wait.h"
#include "slots.h"

namespace shardwise::gloo_engine {
namespace {

constexpr int64_t kMs = 1'000'000;

}  // namespace

Waits::Waits(Connections* world)
    : world_(world),
      compilations_(world),
      rank_(world->rank()),
      peers_(static_cast<size_t>(world->size())) {
  for (int32_t rank = 0; rank < world->size(); rank++) {
    if (rank == rank_) continue;
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.incoming = world->buffer(&peer.in, sizeof(Notice));
    peer.outgoing = world->buffer(&peer.out, sizeof(Notice));
    expect(rank);
  }
}

void Waits::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  world_ = nullptr;
  for (Peer& peer : peers_) peer.incoming.reset(), peer.outgoing.reset();
  compilations_.close();
}

// Skips peers whose connection is closed.
template <class Work>
void Waits::with(Peer& peer, Work work) {
  if (peer.is_gone) return;
  try {
    work(peer);
  } catch (const std::exception&) {
    peer.is_gone = true;
  }
}

void Waits::expect(int32_t rank) {
  with(peers_[static_cast<size_t>(rank)], [&](Peer& peer) {
    peer.in.number = 0;
    peer.incoming->recv(rank, kWaitsSlot);
  });
}

void Waits::observe_peers(int32_t rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  std::string why;
  // Gloo's thread writes `number`; a value here only means that the rest will soon arrive.
  while (!peer.is_gone && *static_cast<volatile uint32_t*>(&peer.in.number) != 0) {
    Waited waited = Waited::Interrupted;
    while (waited == Waited::Interrupted)
      waited = wait_a_moment(*peer.incoming, Direction::Receive, &why);
    peer.is_gone = waited == Waited::Broken;
    peer.last = peer.in;
    peer.observed_ns = comm::now_ns();
    expect(rank);
  }
}

void Waits::send(int32_t rank, const Notice& notice) {
  with(peers_[static_cast<size_t>(rank)], [&](Peer& peer) {
    std::string why;
    // A rank that does not wait itself reads nothing and needs no more updates.
    if (peer.is_sending && (!Connections::is_sent(*peer.outgoing) ||
                            wait_a_moment(*peer.outgoing, Direction::Send, &why) != Waited::Done))
      return;
    peer.out = notice;
    peer.outgoing->send(rank, kWaitsSlot);
    peer.is_sending = true;
  });
}

void Waits::publish(const std::vector<int32_t>& awaited, int64_t waited_ms, int64_t timeout_ms,
                    bool always) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (world_ == nullptr || (waited_ms < timeout_ms / 8 && !always)) return;
  const auto size = static_cast<int32_t>(peers_.size());
  for (int32_t rank = 0; rank < size; rank++) observe_peers(rank);
  const int64_t now = comm::now_ns();
  if (now - published_ns_ < timeout_ms * kMs / 8) return;
  published_ns_ = now;
  Notice notice = {};
  notice.count = static_cast<int32_t>(std::min(awaited.size(), std::size(notice.awaited)));
  std::copy_n(awaited.begin(), notice.count, notice.awaited);
  notice.number = ++number_ == 0 ? ++number_ : number_;
  for (int32_t rank = 0; rank < size; rank++)
    if (rank != rank_) send(rank, notice);
}

const Waits::Notice* Waits::lately(int32_t rank, int64_t timeout_ms) const {
  if (rank < 0 || rank >= static_cast<int32_t>(peers_.size())) return nullptr;
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const bool is_recent =
      peer.observed_ns != 0 && comm::now_ns() - peer.observed_ns < timeout_ms * kMs / 4;
  return is_recent && !peer.is_gone && peer.last.count > 0 ? &peer.last : nullptr;
}

std::vector<int32_t> Waits::awaited_by(int32_t rank, int64_t timeout_ms) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Notice* notice = lately(rank, timeout_ms);
  if (notice == nullptr) return {};
  return {notice->awaited,
          notice->awaited + std::clamp<int32_t>(notice->count, 0,
                                                static_cast<int32_t>(std::size(notice->awaited)))};
}

std::vector<int32_t> Waits::reached_from(std::vector<int32_t> open, int64_t timeout_ms) {
  std::vector<int32_t> seen;
  while (!open.empty()) {
    const int32_t rank = open.back();
    open.pop_back();
    if (rank == rank_ || std::find(seen.begin(), seen.end(), rank) != seen.end()) continue;
    seen.push_back(rank);
    const std::vector<int32_t> awaited = awaited_by(rank, timeout_ms);
    open.insert(open.end(), awaited.begin(), awaited.end());
  }
  return seen;
}

// Ranks that wait for each other, or for this one, are the culprits themselves.
std::vector<int32_t> Waits::culprits(const std::vector<int32_t>& missing, int64_t timeout_ms) {
  std::vector<int32_t> found;
  for (const int32_t rank : reached_from(missing, timeout_ms))
    if (awaited_by(rank, timeout_ms).empty()) found.push_back(rank);
  std::sort(found.begin(), found.end());
  return found.empty() ? missing : found;
}

bool Waits::is_delayed(const std::vector<int32_t>& awaited, int64_t timeout_ms) {
  compilations_.observe();
  const std::vector<int32_t> ranks = reached_from(awaited, timeout_ms);
  return std::any_of(ranks.begin(), ranks.end(),
                     [this](int32_t rank) { return compilations_.compiles(rank); });
}

std::string Waits::describe_absence(const char* has, int32_t rank, int64_t timeout_ms) {
  char text[256];
  Text compiles(text, sizeof text);
  if (compilations_.describe(rank, compiles)) return text;
  const std::vector<int32_t> awaited = awaited_by(rank, timeout_ms);
  return awaited.empty()
             ? has
             : std::string(has) + ", as it waits for " + comm::format_ranks(awaited) + " itself";
}

}  // namespace shardwise::gloo_engine
