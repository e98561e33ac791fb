#include "compilations.h"

#include "../comm/compilation.h"
#include "slots.h"

namespace shardwise::gloo_engine {
namespace {

// A rank that has not read so many notices of a peer gets no more until it reads them.
constexpr size_t kMostUnread = 64;
// Notices are read every 50 ms. Several compilations in between count as one.
constexpr int64_t kMomentMs = 100;

}  // namespace

Compilations::Compilations(Connections* world)
    : world_(world), rank_(world->rank()), peers_(static_cast<size_t>(world->size())) {
  for (int32_t rank = 0; rank < world->size(); rank++) {
    if (rank == rank_) continue;
    Peer& peer = peers_[static_cast<size_t>(rank)];
    peer.incoming = world->buffer(&peer.in, sizeof(Notice));
    expect(rank);
  }
}

void Compilations::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  world_ = nullptr;
  for (Peer& peer : peers_) {
    peer.incoming.reset();
    peer.sent.clear();
  }
}

// Skips peers whose connection is closed.
template <class Work>
void Compilations::with(Peer& peer, Work work) {
  if (peer.is_gone) return;
  try {
    work();
  } catch (const std::exception&) {
    peer.is_gone = true;
  }
}

void Compilations::expect(int32_t rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  with(peer, [&] {
    peer.in.number = 0;
    peer.incoming->recv(rank, kCompilationSlot);
  });
}

void Compilations::send(const comm::Compilation* begun) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (world_ == nullptr) return;
  const comm::Compilation none = {};
  for (int32_t rank = 0; rank < world_->size(); rank++)
    if (rank != rank_) send(rank, begun != nullptr ? *begun : none);
}

void Compilations::send(int32_t rank, const comm::Compilation& compilation) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  const bool begins = compilation.since_ns != 0;
  if (!begins && !peer.is_informed) return;
  with(peer, [&] {
    std::string why;
    while (!peer.sent.empty() && Connections::is_sent(*peer.sent.front().buffer) &&
           wait_a_moment(*peer.sent.front().buffer, Direction::Send, &why) == Waited::Done)
      peer.sent.pop_front();
    if (begins && peer.sent.size() >= kMostUnread) return;
    Sent& sent = peer.sent.emplace_back();
    sent.notice = std::make_unique<Notice>();
    sent.notice->compilation = compilation;
    sent.notice->number = 1;
    sent.buffer = world_->buffer(sent.notice.get(), sizeof(Notice));
    sent.buffer->send(rank, kCompilationSlot);
    peer.is_informed = begins;
  });
}

void Compilations::observe() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (world_ == nullptr) return;
  for (int32_t rank = 0; rank < world_->size(); rank++)
    if (rank != rank_) observe(rank);
}

void Compilations::observe(int32_t rank) {
  Peer& peer = peers_[static_cast<size_t>(rank)];
  std::string why;
  // Gloo's thread writes `number`; a value here only means that the rest will soon arrive.
  while (!peer.is_gone && *static_cast<volatile uint32_t*>(&peer.in.number) != 0) {
    Waited waited = Waited::Interrupted;
    while (waited == Waited::Interrupted)
      waited = wait_a_moment(*peer.incoming, Direction::Receive, &why);
    peer.is_gone = waited == Waited::Broken;
    peer.last = peer.in.compilation;
    peer.observed_ns = comm::now_ns();
    expect(rank);
  }
}

bool Compilations::compiles(int32_t rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (rank < 0 || rank >= static_cast<int32_t>(peers_.size())) return false;
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.is_gone || peer.observed_ns == 0) return false;
  // Machines have different clocks: the limit begins when the notice was read.
  const int64_t known_ms = (comm::now_ns() - peer.observed_ns) / 1'000'000;
  return known_ms < (peer.last.since_ns != 0 ? peer.last.limit_ms : kMomentMs);
}

bool Compilations::describe(int32_t rank, Text& has) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (rank < 0 || rank >= static_cast<int32_t>(peers_.size())) return false;
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  if (peer.last.since_ns == 0) return false;
  comm::describe_compilation(has, peer.last, (comm::now_ns() - peer.observed_ns) / 1'000'000);
  return true;
}

}  // namespace shardwise::gloo_engine
