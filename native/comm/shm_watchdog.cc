#include "shm_watchdog.h"

#include "call_record.h"
#include "messages.h"

namespace shardwise::comm {
namespace {

constexpr int kHashBits = 40;
constexpr uint32_t kPollsToProc = 4;  // reads /proc at every fourth poll

// The number of the call above a hash of what must agree. A number repeats after 16 million calls,
// its place after 1024.
uint64_t stamp_of(const Fingerprint& print) {
  uint64_t words[sizeof print / 8], value = 0;
  memcpy(words, &print, sizeof print);
  for (uint64_t word : words) {
    value = (value ^ word) * 0x9e3779b97f4a7c15u;
    value ^= value >> 32;
  }
  return print.call << kHashBits | value >> (64 - kHashBits);
}

bool same_number(uint64_t a, uint64_t b) { return (a ^ b) >> kHashBits == 0; }
bool contains(uint64_t ranks, int32_t rank) { return (ranks >> rank & 1) != 0; }

}  // namespace

ShmWatchdog::ShmWatchdog(std::shared_ptr<Region> region, std::shared_ptr<Region> world,
                         int32_t rank)
    : region_(std::move(region)),
      world_(std::move(world)),
      rank_(rank),
      compilations_(*region_, world_.get(), region_->group_info(), region_->size(), rank) {}

Status ShmWatchdog::begin(const CollectiveCall& call, ErrorText* error) {
  const bool message = is_message(call.kind);
  const CallRecord record = record_of(call, size(), calls_ + 1);
  if (!message) calls_++;
  if (failed()) return refuse(record, error);
  WatchdogBlock& block = own();
  block.last.write(record);
  if (message) return kOk;
  const uint64_t number = calls_, place = number % kKeptStamps, mine = stamp_of(record.print);
  block.records[number % kKeptRecords].write(record);
  if (call.kind == Collective::AllToAll) publish_exchange(call, number);
  // Each rank stores its stamp before it reads the others', in one order: of two ranks that differ,
  // the later one sees the other.
  block.stamps[place].store(mine, std::memory_order_seq_cst);
  block.calls.store(number, std::memory_order_release);
  for (int32_t rank = 0; rank < size(); rank++) {
    const uint64_t theirs = region_->watchdog(rank).stamps[place].load(std::memory_order_seq_cst);
    if (theirs != mine && same_number(theirs, mine)) return report_mismatch(record, rank, error);
    if (theirs != mine || call.kind != Collective::AllToAll) continue;
    const Status same = compare_exchange(record, call, rank, error);
    if (!same.ok()) return same;
  }
  return kOk;
}

void ShmWatchdog::publish_exchange(const CollectiveCall& call, uint64_t number) {
  WatchdogBlock::Exchange& own_exchange = own().exchanges[number % kKeptExchanges];
  const int64_t item = item_size(call.dtype);
  own_exchange.number.store(0, std::memory_order_relaxed);
  // Each release keeps the 0 before the value, each acquire below the value before the second look.
  for (int32_t rank = 0; rank < size(); rank++) {
    own_exchange.sends[rank].store(call.send_counts[rank] * item, std::memory_order_release);
    own_exchange.receives[rank].store(call.counts[rank] * item, std::memory_order_release);
  }
  own_exchange.number.store(number, std::memory_order_release);
}

Status ShmWatchdog::compare_exchange(const CallRecord& mine, const CollectiveCall& call,
                                     int32_t rank, ErrorText* error) {
  const WatchdogBlock::Exchange& theirs =
      region_->watchdog(rank).exchanges[mine.print.call % kKeptExchanges];
  if (theirs.number.load(std::memory_order_acquire) != mine.print.call) return kOk;  // it is ahead
  const int64_t sent = theirs.sends[rank_].load(std::memory_order_acquire),
                expected = theirs.receives[rank_].load(std::memory_order_acquire);
  if (theirs.number.load(std::memory_order_relaxed) != mine.print.call) return kOk;
  const int64_t item = item_size(call.dtype), own_sent = call.send_counts[rank] * item,
                own_expected = call.counts[rank] * item;
  if (sent == own_expected && expected == own_sent) return kOk;
  const bool gives = expected != own_sent;
  ErrorText message;
  Text text(message);
  CallRecord kept;
  const CallRecord* other = find_record(rank, mine.print.call, &kept) ? &kept : nullptr;
  if (gives)
    describe_unexpected(text, group_info(), mine, rank_, rank_, own_sent, &mine, rank, expected,
                        other);
  else
    describe_unexpected(text, group_info(), mine, rank_, rank, sent, other, rank_, own_expected,
                        &mine);
  fail_group(Code::Invalid, with_id(message));
  return fail_with(error, Code::Invalid, message);
}

// The call of the rank under that number, unless the rank is many calls ahead.
bool ShmWatchdog::find_record(int32_t rank, uint64_t call, CallRecord* out) {
  return region_->watchdog(rank).records[call % kKeptRecords].read(out) && out->print.call == call;
}

Status ShmWatchdog::report_mismatch(const CallRecord& mine, int32_t rank, ErrorText* error) {
  ErrorText seen_here, for_all;
  Text here(seen_here), all(for_all);
  CallRecord other;
  const auto stamp_at = [&](int32_t place) {
    return region_->watchdog(place).stamps[mine.print.call % kKeptStamps].load(
        std::memory_order_acquire);
  };
  std::vector<int32_t> come;
  for (int32_t place = 0; place < size(); place++)
    if (same_number(stamp_at(place), stamp_of(mine.print))) come.push_back(place);
  const Mismatch found = find_mismatch(
      come, size(), rank_, [&](int32_t a, int32_t b) { return stamp_at(a) == stamp_at(b); });
  if (found.first >= 0 && find_record(found.first, mine.print.call, &other)) {
    describe_mismatch(here, group_info(), mine, rank_, found, other, Reader::This);
    describe_mismatch(all, group_info(), mine, rank_, found, other, Reader::All);
  } else {
    for (Text* text : {&here, &all}) {
      describe_heading(*text, group_info(), mine);
      text->add(": rank %d, which is many calls ahead, called something else under this number; it",
                group_info().rank_at(rank));
      describe_last_call(*text, group_info(), region_->watchdog(rank).last, false);
      DetailsWriter details(group_info(), mine, rank_);
      details.blame(rank, region_->watchdog(rank).last);
      details.add_to(*text);
    }
  }
  fail_group(Code::Invalid, with_id(for_all));
  ErrorText first;  // another rank may have found the mismatch first
  cause(&first);
  seen_here.details.id = first.details.id;
  return fail_with(error, Code::Invalid, seen_here);
}

bool ShmWatchdog::has_dead_peer() {
  if (polls_++ % kPollsToProc == 0) dead_ = find_dead();
  gone_ = find_left() | dead_;
  return gone_ != 0;
}

bool ShmWatchdog::is_delayed(uint64_t call, int32_t peer) {
  return compilations_.delay(peer >= 0 ? uint64_t{1} << peer : find_missing(call));
}

bool ShmWatchdog::describe_missing(Text& text, uint64_t call, int32_t peer) {
  const uint64_t missing = peer >= 0 ? uint64_t{1} << peer : find_missing(call);
  describe_ranks(text, missing);
  return missing != 0;
}

uint64_t ShmWatchdog::find_left() {
  uint64_t ranks = 0;
  const uint64_t calls = own().calls.load(std::memory_order_acquire);
  for (int32_t rank = 0; rank < size(); rank++) {
    WatchdogBlock& block = region_->watchdog(rank);
    const bool left = rank != rank_ && block.left.load(std::memory_order_acquire) != 0;
    if (left && block.calls.load(std::memory_order_acquire) < calls) ranks |= uint64_t{1} << rank;
  }
  return ranks;
}

uint64_t ShmWatchdog::find_dead() {
  uint64_t ranks = 0;
  for (int32_t rank = 0; rank < size() && region_->shared(); rank++) {
    RankBlock& block = region_->rank(rank);
    const bool joined = block.presence.load(std::memory_order_acquire) != Presence::Absent;
    if (rank != rank_ && joined &&
        region_->watchdog(rank).left.load(std::memory_order_acquire) == 0 &&
        !platform::is_alive(block.process))
      ranks |= uint64_t{1} << rank;
  }
  return ranks;
}

uint64_t ShmWatchdog::find_missing(uint64_t call) {
  uint64_t ranks = 0;
  for (int32_t rank = 0; rank < size(); rank++) {
    if (region_->watchdog(rank).calls.load(std::memory_order_acquire) < call)
      ranks |= uint64_t{1} << rank;
  }
  return ranks;
}

void ShmWatchdog::describe_ranks(Text& text, uint64_t ranks) {
  described_ = {};
  const uint64_t dead = find_dead();
  for (int32_t rank = 0; rank < size(); rank++) {
    if (!contains(ranks, rank)) continue;
    WatchdogBlock& block = region_->watchdog(rank);
    ErrorText has;
    if (contains(dead, rank))
      Text(has).add("has died (process %d)", region_->rank(rank).process.pid);
    else if (block.left.load(std::memory_order_acquire) != 0)
      Text(has).add("has left the group");
    else if (Text compiles(has); !compilations_.describe(rank, compiles))
      compiles.add("has not come");
    described_.add(rank, has.text, block.last, false);
  }
  if (described_.empty()) return;
  text.add(": ");
  described_.describe(text, group_info());
}

void ShmWatchdog::blame(DetailsWriter& details) { described_.blame(details); }

}  // namespace shardwise::comm
