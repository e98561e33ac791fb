#include "host_group.h"

namespace shardwise::comm {

Status HostGroup::join(std::shared_ptr<Region> region, int32_t rank,
                       std::unique_ptr<HostGroup>* out, ErrorText* error, Origin origin) {
  if (rank < 0 || rank >= region->size())
    return fail(error, Code::Invalid, "rank %d is not of a group of %d", rank, region->size());
  RankBlock& block = region->rank(rank);
  // Only the first claim may write here; a second claim leaves it unchanged.
  if (block.claimed.exchange(1, std::memory_order_acq_rel) != 0) {
    return fail(error, Code::Invalid,
                "group \"%s\": its rank %d is there already. All ranks make their groups of the "
                "same ranks, in one order, also those that they are not in",
                region->group_info().name.c_str(), region->group_info().rank_at(rank));
  }
  block.process = platform::this_process();
  block.presence.store(Presence::Joined, std::memory_order_release);
  region->count_joined();
  out->reset(new HostGroup(std::move(region), rank, std::move(origin)));
  if (!(*out)->region_->shared()) return kOk;
  const Status complete = (*out)->wait_for_all(error);
  (*out)->origin_.has_given_up = nullptr;
  if (!complete.ok()) out->reset();
  return complete;
}

// Ranks that share processors must not spin: they would keep each other from arriving.
HostGroup::HostGroup(std::shared_ptr<Region> region, int32_t rank, Origin origin)
    : region_(std::move(region)),
      rank_(rank),
      origin_(std::move(origin)),
      spin_ns_(region_->size() <= platform::allowed_processors() ? 20'000 : 0) {}

HostGroup::~HostGroup() {
  own().presence.store(Presence::Left, std::memory_order_release);
  region_->wake_all();
}

}  // namespace shardwise::comm
