// Publishes the fingerprint of each call and compares it with those of the other ranks.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "host_group.h"
#include "messages.h"

namespace shardwise::comm {

Status HostGroup::begin(const CallRecord& record, ErrorText* error) {
  if (failed()) return refuse(record, error);
  record_ = record;
  own().record.write(record);
  own().in_call.store(1, std::memory_order_release);
  return kOk;
}

Status HostGroup::begin_collective(const Call& call, const CallSite& site, ErrorText* error) {
  CallRecord record;
  Status status = record_collective(call, site, size(), calls_ + 1, &record, error);
  if (!status.ok()) return status;
  calls_++;  // one that is refused has its number too
  status = begin(record, error);
  if (!status.ok()) return status;
  own().prints[calls_ % 2] = record.print;
  return kOk;
}

Status HostGroup::begin_message(Kind kind, int64_t bytes, int32_t peer, const CallSite& site,
                                ErrorText* error) {
  CallRecord record;
  const Status status = record_message(kind, bytes, peer, site, rank_, size(), &record, error);
  return status.ok() ? begin(record, error) : status;
}

// The records do not change meanwhile: a rank that sees a mismatch begins no other call, and all
// ranks see it.
Status HostGroup::agree(ErrorText* error) {
  const auto same = [this](int32_t a, int32_t b) {
    const auto print_of = [this](int32_t rank) -> const Fingerprint& {
      return region_->rank(rank).prints[calls_ % 2];
    };
    return memcmp(&print_of(a), &print_of(b), sizeof(Fingerprint)) == 0;
  };
  bool agreed = true;
  for (int32_t rank = 0; agreed && rank < size(); rank++) agreed = same(rank, rank_);
  if (agreed) return kOk;
  std::vector<int32_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const Mismatch found = find_mismatch(ranks, size(), rank_, same);
  CallRecord other = {};
  region_->rank(found.first).record.read(&other);
  ErrorText seen_here, for_all;
  Text here(seen_here), all(for_all);
  describe_mismatch(here, group_info(), record_, rank_, found, other, Reader::This);
  describe_mismatch(all, group_info(), record_, rank_, found, other, Reader::All);
  return refuse_mismatch(seen_here, for_all, error);
}

Status HostGroup::agree_on_exchange(const int64_t* sends, const int64_t* receives, int64_t* longest,
                                    ErrorText* error) {
  const size_t bytes = static_cast<size_t>(size()) * sizeof(int64_t);
  memcpy(own().sends, sends, bytes);
  memcpy(own().receives, receives, bytes);
  Status status = rendezvous(error);
  if (status.ok()) status = agree(error);
  if (!status.ok()) return status;
  *longest = 0;
  for (int32_t from = 0; from < size(); from++) {
    for (int32_t to = 0; to < size(); to++) {
      const int64_t sent = region_->rank(from).sends[to],
                    expected = region_->rank(to).receives[from];
      *longest = std::max(*longest, sent);
      if (sent == expected) continue;
      ErrorText message;
      Text text(message);
      CallRecord sender = {}, receiver = {};
      const bool known =
          region_->rank(from).record.read(&sender) && region_->rank(to).record.read(&receiver);
      describe_unexpected(text, group_info(), record_, rank_, from, sent, known ? &sender : nullptr,
                          to, expected, known ? &receiver : nullptr);
      return refuse_mismatch(message, message, error);
    }
  }
  return kOk;
}

}  // namespace shardwise::comm
