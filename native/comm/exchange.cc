#include "exchange.h"

#include <cstring>
#include <thread>

namespace shardwise::comm {

// Below this size a copy through the slots costs less than the second rendezvous of direct access.
constexpr int64_t kDirectBytes = 32 << 10;

Exchange::Exchange(HostGroup& group, const void* in, void* out, int32_t runs, int64_t longest,
                   int64_t total)
    : group_(group),
      in_(static_cast<const char*>(in)),
      runs_(runs),
      direct_(!group.region_->shared() && total >= kDirectBytes),
      chunk_bytes_(direct_ ? longest : group.region_->slot_bytes() / runs / kAlign * kAlign),
      chunks_(direct_ ? 1 : std::max<int64_t>(1, (longest + chunk_bytes_ - 1) / chunk_bytes_)) {
  std::fill_n(bytes_, runs, 0);
  if (direct_) {
    group.own().in = in;
    group.own().out = out;
  }
}

// A failed call returns its memory to the caller only when no other rank uses it. Ranks check the
// failure before they enter.
Exchange::~Exchange() {
  if (!direct_) return;
  leave();
  if (!opened_) return;
  for (int32_t rank = 0; rank < group_.size(); rank++) {
    while (group_.region_->rank(rank).inside.load(std::memory_order_seq_cst) != 0)
      std::this_thread::yield();
  }
}

Status Exchange::open(int64_t chunk, bool agreed, ErrorText* error) {
  begin_ = chunk * chunk_bytes_;
  opened_ = true;
  if (!direct_) {
    parity_ = group_.staged_++;
    char* to = slot(group_.rank_);
    for (int32_t run = 0; run < runs_; run++) {
      const int64_t bytes = length(bytes_[run]);
      if (bytes > 0)
        memcpy(to + run * chunk_bytes_, in_ + offset_[run] + begin_, static_cast<size_t>(bytes));
    }
  }
  Status status = group_.rendezvous(error);
  if (status.ok() && chunk == 0 && !agreed) status = group_.agree(error);
  if (!status.ok() || !direct_) return status;
  group_.own().inside.store(1, std::memory_order_seq_cst);
  return group_.header().failed.load(std::memory_order_seq_cst) == 0 ? kOk : group_.failure(error);
}

const char* Exchange::view(int32_t rank, int32_t run, int64_t offset) const {
  if (direct_) return static_cast<const char*>(group_.region_->rank(rank).in) + offset;
  return group_.region_->slot(rank, parity_) + run * chunk_bytes_;
}

void Exchange::copy_to(char* out, int32_t rank, int32_t run, int64_t offset, int64_t bytes) const {
  const int64_t share = length(bytes);
  if (share > 0) memcpy(out + begin_, view(rank, run, offset), static_cast<size_t>(share));
}

Status Exchange::close(ErrorText* error) {
  if (!direct_) return kOk;
  leave();
  const Status status = group_.rendezvous(error);
  if (status.ok()) opened_ = false;
  return status;
}

}  // namespace shardwise::comm
