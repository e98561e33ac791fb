#include "group.h"

#include <stdexcept>

#include "slots.h"

namespace shardwise::gloo_engine {

Status Group::join(World& world, const GlooGroup& plan, std::unique_ptr<Group>* out,
                   ErrorText* error) {
  const int32_t rank = plan.rank, size = plan.size;
  auto connections = std::make_unique<Connections>(world.host(), rank, size);
  const size_t bytes = static_cast<size_t>(size) * kGlooAddressBytes;
  std::vector<char> own(bytes), theirs(bytes);
  connections->addresses(own.data());
  Status status = world.exchange(plan, own.data(), theirs.data(), error);
  if (status.ok())
    status = connections->connect(theirs.data(), plan.timeout_ms, group_info_of(plan), "", error);
  if (!status.ok()) return status;
  std::unique_ptr<Group> group(
      new Group(connections.release(), world.waits(), group_info_of(plan), plan.timeout_ms));
  group->for_peers([&](int32_t other) { group->await_peer(other); });
  *out = std::move(group);
  return kOk;
}

Group::Group(Connections* connections, std::shared_ptr<Waits> waits, comm::GroupInfo group_info,
             int64_t timeout_ms)
    : group_info_(std::move(group_info)),
      rank_(connections->rank()),
      size_(connections->size()),
      timeout_ms_(timeout_ms),
      connections_(connections),
      waits_(std::move(waits)),
      peers_(static_cast<size_t>(size_)) {
  const int64_t bytes = frame_bytes();
  // Prepares all peers before any message is read: a failure from then on reaches all.
  for_peers([&](int32_t rank) {
    Peer& other = peer(rank);
    for (int parity = 0; parity < 2; parity++) {
      other.frames[parity].reset(new char[static_cast<size_t>(bytes)]());
      other.incoming[parity] = connections_->buffer(other.frames[parity].get(), bytes);
    }
    other.own_frame.reset(new char[static_cast<size_t>(bytes)]);
    other.outgoing = connections_->buffer(other.own_frame.get(), bytes);
    other.final_in = connections_->buffer(&other.final_message, sizeof(FinalMessage));
    other.final_out = connections_->buffer(&own_final_, sizeof(FinalMessage));
  });
}

// Posts receives for all that a peer may send at any time, so that it need not ask first.
void Group::await_peer(int32_t rank) {
  try {
    peer(rank).final_in->recv(rank, kFinalSlot);
    peer(rank).incoming[1]->recv(rank, kFrameSlot);
  } catch (const std::runtime_error& failure) {
    // The peer joined and left already. The first call reports it, with its final message if that
    // has arrived.
    peer(rank).failure = plain(failure.what());
  }
}

// Ends once all sent data is delivered to the system.
void Group::end() {
  if (failed() || !connections_) return;
  flush(timeout_ms(), true);
  std::lock_guard<std::mutex> lock(mutex_);
  say(End::Left, ErrorText());
}

Group::~Group() {
  end();
  if (connections_) flush(kGraceMs, false);
  disconnect();
}

Status Group::run(const CollectiveCall& call) { return end_call(dispatch(call)); }

Status Group::end_call(Status status) {
  // Buffers without a waiter would keep gloo's thread busy.
  if (!status.ok() && failed()) {
    flush(kGraceMs, false);
    disconnect();
  }
  return status;
}

Status Group::dispatch(const CollectiveCall& call) {
  switch (call.kind) {
    case Collective::AllReduce:
      return all_reduce(call);
    case Collective::Broadcast:
      return broadcast(call);
    case Collective::AllGather:
      return gather(call, true);
    case Collective::ReduceScatter:
      return reduce_scatter(call);
    case Collective::AllToAll:
      return all_to_all(call);
    case Collective::Reduce:
      return reduce(call);
    case Collective::Gather:
      return gather(call, false);
    case Collective::Scatter:
      return scatter(call);
    case Collective::Barrier:
      return barrier(call);
    case Collective::Send:
      return send(call);
    case Collective::Receive:
      return receive(call);
  }
  return fail(call.error, Code::Invalid, "%s: no such collective", call.name);
}

// The connections close with the last buffer.
void Group::disconnect() {
  std::unique_ptr<Connections> connections;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    connections = std::move(connections_);
    for (Peer& other : peers_) {
      other.parcels.clear();
      for (std::unique_ptr<Buffer>* buffer : {&other.incoming[0], &other.incoming[1],
                                              &other.outgoing, &other.final_in, &other.final_out})
        buffer->reset();
    }
  }
}

}  // namespace shardwise::gloo_engine
