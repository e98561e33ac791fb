// Waits for all ranks or for one, and names the ranks that do not come.
#include <algorithm>

#include "compilation.h"
#include "deadline.h"
#include "group_registry.h"
#include "host_group.h"
#include "messages.h"

namespace shardwise::comm {
namespace {

bool contains(uint64_t ranks, int32_t rank) { return (ranks >> rank & 1) != 0; }

}  // namespace

Status HostGroup::rendezvous(ErrorText* error) {
  Header& shared = header();
  // The generation counts the rendezvous that are complete.
  const uint32_t target = own().barriers.load(std::memory_order_relaxed) + 1;
  own().barriers.store(target, std::memory_order_release);
  if (shared.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(size())) {
    shared.arrived.store(0, std::memory_order_relaxed);
    advance(shared.generation, target, region_->shared());
    return kOk;
  }
  return wait(shared.generation, target, -1, error);
}

Status HostGroup::wait_for_all(ErrorText* error) {
  Counter& joined = header().joined;
  const uint32_t all = static_cast<uint32_t>(size());
  const uint64_t others = ~(uint64_t{1} << rank_);
  record_.peer = -1;
  snprintf(record_.site.name, sizeof record_.site.name, "join");
  Compilations compilations = compilations_of_ranks();
  for (Deadline deadline(region_->timeout_ms());;) {
    const uint32_t seen = joined.value.load(std::memory_order_seq_cst);
    if (seen == all) return kOk;
    if (failed()) return failure(error);
    if (origin_.has_given_up && origin_.has_given_up(error)) return Status{Code::Peer};
    const uint64_t dead = find_dead_peers(others);
    if (dead != 0 && joined.value.load(std::memory_order_seq_cst) != all)
      return report_dead_peers(dead, error);
    const bool delayed = compilations.delay(absent());
    const int64_t left = deadline.left(!delayed);
    if (left <= 0) return time_out(absent(), deadline.waited_ms(), error);
    sleep_on(joined, seen, delayed ? kWatchNs : std::min(left, kWatchNs), true);
  }
}

bool Origin::keeps_away(const GroupInfo& group, int32_t place, int32_t own, ErrorText* why) const {
  if (region == nullptr) return false;
  const int32_t rank = group.rank_at(place);
  if (created_differently(*region, rank, group.rank_at(own), group, why)) return true;
  RankBlock& block = region->rank(rank);
  switch (block.presence.load(std::memory_order_acquire)) {
    case Presence::Absent:
      return false;
    case Presence::Left:
      fail(why, Code::Peer, "has left group \"%s\" before it joined group \"%s\"",
           region->group_info().name.c_str(), group.name.c_str());
      return true;
    default:
      break;
  }
  if (!region->shared() || platform::is_alive(block.process)) return false;
  fail(why, Code::Peer, "has died (process %d) before it joined group \"%s\"", block.process.pid,
       group.name.c_str());
  return true;
}

Compilations HostGroup::compilations_of_ranks() {
  return {*region_, origin_.region.get(), group_info(), size(), rank_};
}

uint64_t HostGroup::absent() {
  uint64_t ranks = 0;
  for (int32_t rank = 0; rank < size(); rank++) {
    if (region_->rank(rank).presence.load(std::memory_order_acquire) == Presence::Absent)
      ranks |= uint64_t{1} << rank;
  }
  return ranks;
}

Status HostGroup::wait(Counter& counter, uint32_t target, int32_t peer, ErrorText* error) {
  if (spin_until(counter, target, header().failed, spin_ns_)) return kOk;
  Deadline deadline(timeout_ms_.load(std::memory_order_relaxed));
  Compilations compilations = compilations_of_ranks();
  for (;;) {
    // Read the failure first: a rank that fails reached its rendezvous before, and the others must
    // see the same there.
    const bool has_failed = failed();
    const uint32_t seen = counter.value.load(std::memory_order_seq_cst);
    if (reached(seen, target)) return kOk;
    if (has_failed) return failure(error);
    const bool delayed = compilations.delay(missing(peer));
    const int64_t left = deadline.left(!delayed);
    if (left <= 0) return time_out(missing(peer), deadline.waited_ms(), error);
    // A rank that left wakes no other rank.
    const uint64_t gone = find_left(missing(peer));
    if (gone == 0)
      sleep_on(counter, seen, delayed ? kWatchNs : std::min(left, kWatchNs), region_->shared());
    if (reached(counter.value.load(std::memory_order_acquire), target)) return kOk;
    const uint64_t dead = gone != 0 ? gone : find_dead_peers(missing(peer));
    // A rank may leave after it completed the call.
    if (dead != 0 && !reached(counter.value.load(std::memory_order_acquire), target))
      return report_dead_peers(dead, error);
  }
}

uint64_t HostGroup::missing(int32_t peer) {
  if (peer >= 0) return uint64_t{1} << peer;
  const uint32_t target = own().barriers.load(std::memory_order_relaxed);
  uint64_t ranks = 0;
  for (int32_t rank = 0; rank < size(); rank++) {
    if (!reached(region_->rank(rank).barriers.load(std::memory_order_acquire), target))
      ranks |= uint64_t{1} << rank;
  }
  // All ranks came, but the last one died before it advanced the generation.
  return ranks != 0 ? ranks : ~(uint64_t{1} << rank_);
}

uint64_t HostGroup::find_left(uint64_t ranks) {
  uint64_t left = 0;
  for (int32_t rank = 0; rank < size(); rank++) {
    if (!contains(ranks, rank)) continue;
    const Presence presence = region_->rank(rank).presence.load(std::memory_order_acquire);
    if (presence == Presence::Left ||
        (presence == Presence::Absent && origin_.keeps_away(group_info(), rank, rank_, nullptr)))
      left |= uint64_t{1} << rank;
  }
  return left;
}

uint64_t HostGroup::find_dead_peers(uint64_t ranks) {
  uint64_t dead = find_left(ranks);
  for (int32_t rank = 0; rank < size() && region_->shared(); rank++) {
    RankBlock& block = region_->rank(rank);
    const bool joined =
        contains(ranks, rank) && block.presence.load(std::memory_order_acquire) == Presence::Joined;
    if (joined && !platform::is_alive(block.process)) dead |= uint64_t{1} << rank;
  }
  return dead;
}

Status HostGroup::report_dead_peers(uint64_t ranks, ErrorText* error) {
  Missing missing;
  for (int32_t rank = 0; rank < size(); rank++) {
    if (!contains(ranks, rank)) continue;
    RankBlock& block = region_->rank(rank);
    const Presence presence = block.presence.load(std::memory_order_acquire);
    ErrorText has;
    if (presence == Presence::Absent && origin_.keeps_away(group_info(), rank, rank_, &has)) {
      missing.add(rank, has.text);
      continue;
    }
    if (presence == Presence::Left)
      Text(has).add("has left the group");
    else
      Text(has).add("has died (process %d)", block.process.pid);
    missing.add(rank, has.text, block.record, block.in_call.load(std::memory_order_acquire) != 0);
  }
  return fail_for(missing, "", error);
}

Status HostGroup::time_out(uint64_t ranks, int64_t waited_ms, ErrorText* error) {
  Missing missing;
  ErrorText not_joined;
  const char* name = group_info().name.c_str();
  const Compilations compilations = compilations_of_ranks();
  Text(not_joined)
      .add(name[0] != 0 ? "has not joined group \"%s\"" : "has not joined the group", name);
  for (int32_t rank = 0; rank < size(); rank++) {
    if (!contains(ranks, rank)) continue;
    RankBlock& block = region_->rank(rank);
    const bool joined = block.presence.load(std::memory_order_acquire) != Presence::Absent;
    ErrorText compiles;
    Text has(compiles);
    const bool delays = compilations.describe(rank, has);
    if (joined)
      missing.add(rank, delays ? compiles.text : "has not come", block.record,
                  block.in_call.load(std::memory_order_acquire) != 0);
    else
      missing.add(rank, delays ? compiles.text : not_joined.text);
  }
  ErrorText limit;
  Text(limit).add(" (timeout after %lld ms)", static_cast<long long>(waited_ms));
  return fail_for(missing, limit.text, error);
}

Status HostGroup::fail_for(const Missing& missing, const char* limit, ErrorText* error) {
  ErrorText message;
  Text text(message);
  describe_waiting(text, group_info(), record_, rank_);
  text.add(": ");
  missing.describe(text, group_info(), limit);
  DetailsWriter details(group_info(), record_, rank_);
  missing.blame(details);
  details.add_to(text);
  return fail_group(Code::Device, message, error);
}

}  // namespace shardwise::comm
