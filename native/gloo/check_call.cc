// Frames: each rank sends its call record to every other rank, with the tables of an all-to-all and
// with small data.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "../comm/messages.h"
#include "group.h"
#include "slots.h"

namespace shardwise::gloo_engine {
namespace {

comm::CallRecord& record_in(char* frame) { return *reinterpret_cast<comm::CallRecord*>(frame); }
int64_t* tables_in(char* frame) {
  return reinterpret_cast<int64_t*>(frame + sizeof(comm::CallRecord));
}
bool is_inline(int64_t bytes) { return bytes > 0 && bytes <= kInlineBytes; }

}  // namespace

// A call record; the sizes that the rank sends to and expects from each rank; small data.
int64_t Group::frame_bytes() const {
  return static_cast<int64_t>(sizeof(comm::CallRecord)) + 16 * int64_t{size_} + kInlineBytes;
}

Status Group::begin(const comm::CallRecord& record, ErrorText* error) {
  observe_peers();
  is_delayed_.store(false, std::memory_order_relaxed);
  if (failed()) return refuse(record, error);
  std::lock_guard<std::mutex> lock(mutex_);
  record_ = record;
  has_called_ = true;
  return kOk;
}

Status Group::begin_collective(const CollectiveCall& call, const comm::Call& described) {
  comm::CallRecord record;
  Status status = comm::record_collective(described, comm::site_of(call), size_, calls_ + 1,
                                          &record, call.error);
  if (!status.ok()) return status;
  calls_++;  // a refused call counts too
  return begin(record, call.error);
}

Status Group::begin_message(comm::Kind kind, const CollectiveCall& call, int64_t bytes) {
  comm::CallRecord record;
  const Status status = comm::record_message(kind, bytes, call.root, comm::site_of(call), rank_,
                                             size_, &record, call.error);
  return status.ok() ? begin(record, call.error) : status;
}

// Returns at the first failure; the next poll does the rest.
Status Group::compare(const CollectiveCall& call, uint64_t number) {
  const Status status = begin(comm::record_of(call, size_, number), call.error);
  if (!status.ok()) return status;
  calls_++;
  // The calls with which the ranks find each other are not calls of the program.
  if (number == 1)
    for_peers([this](int32_t other) {
      peer(other).has_called = peer(other).is_observed && peer(other).has_called;
    });
  if (call.kind != Collective::AllToAll) return exchange_frames(Step(size_), call.error);
  std::vector<int64_t> sends(call.send_counts, call.send_counts + size_),
      receives(call.counts, call.counts + size_);
  for (std::vector<int64_t>* bytes : {&sends, &receives})
    for (int64_t& count : *bytes) count *= item_size(call.dtype);
  return exchange_frames(Step(size_), call.error, sends.data(), receives.data());
}

Status Group::exchange_frames(const Step& step, ErrorText* error, const int64_t* sends,
                              const int64_t* receives) {
  Status status;
  for_peers([&](int32_t other) {
    if (!status.ok()) return;
    char* next = peer(other).frames[(calls_ + 1) % 2].get();
    record_in(next).print.call = 0;
    status = post(*peer(other).incoming[(calls_ + 1) % 2], Direction::Receive, other, kFrameSlot, 0,
                  frame_bytes(), error);
    if (status.ok()) status = send_frame(other, step, sends, receives, error);
  });
  if (status.ok()) status = await_frames(error);
  if (status.ok()) status = agree(error);
  if (status.ok() && sends != nullptr) status = agree_on_exchange(error);
  if (!status.ok()) return status;
  for_peers([&](int32_t other) {
    const Step::Span& span = step.received[other];
    if (is_inline(span.bytes))
      memcpy(span.data, tables_in(frame(other)) + 2 * size_, static_cast<size_t>(span.bytes));
  });
  return transfer(step, kInlineBytes, error);
}

Status Group::send_frame(int32_t to, const Step& step, const int64_t* sends,
                         const int64_t* receives, ErrorText* error) {
  Peer& other = peer(to);
  if (other.is_frame_in_flight) {
    const Status status = wait(*other.outgoing, Direction::Send, to, error);
    if (!status.ok()) return status;
  }
  char* out = other.own_frame.get();
  record_in(out) = record_;
  const size_t table = static_cast<size_t>(size_) * sizeof(int64_t);
  if (sends != nullptr) memcpy(tables_in(out), sends, table);
  if (sends != nullptr) memcpy(tables_in(out) + size_, receives, table);
  const Step::Span& span = step.sent[to];
  int64_t bytes = frame_bytes() - kInlineBytes;
  if (is_inline(span.bytes)) {
    memcpy(out + bytes, span.data, static_cast<size_t>(span.bytes));
    bytes += span.bytes;
  }
  const Status status = post(*other.outgoing, Direction::Send, to, kFrameSlot, 0, bytes, error);
  other.is_frame_in_flight = status.ok();
  return status;
}

Status Group::await_frames(ErrorText* error) {
  comm::Deadline deadline(timeout_ms());
  std::string why;
  for (int32_t from = 0; from < size_;) {
    if (from == rank_) {
      from++;
      continue;
    }
    const Waited waited = wait_a_moment(*peer(from).incoming[calls_ % 2], Direction::Receive, &why);
    if (waited == Waited::Done) {
      peer(from).last = record_in(frame(from));
      peer(from).has_called = true;
      from++;
      continue;
    }
    std::vector<int32_t> missing;
    for (int32_t other = from; other < size_; other++) {
      if (other != rank_ && record_in(frame(other)).print.call == 0) missing.push_back(other);
    }
    if (missing.empty()) missing.push_back(from);
    for (const int32_t other : missing) {
      // A rank that left may have made this call before: its frame arrives before its final
      // message.
      if (waited == Waited::Interrupted && !failed() && is_gone(other, &why) &&
          record_in(frame(other)).print.call != 0)
        continue;
      const Status status = check_peer(other, error);
      if (!status.ok()) return what_differs(status, error);
    }
    const Status status = go_on_waiting(missing, deadline, error);
    if (!status.ok()) return status;
  }
  return kOk;
}

// A rank sends its frame before it reports a failure; this rank reports a mismatch with that frame
// from its own side.
Status Group::what_differs(Status observed, ErrorText* error) {
  std::vector<int32_t> known{rank_};
  for_peers([&](int32_t other) {
    if (peer(other).is_observed && record_in(frame(other)).print.call != 0) known.push_back(other);
  });
  std::sort(known.begin(), known.end());
  const Status seen = compare_frames(known, error);
  return seen.ok() ? observed : seen;
}

// All ranks have all frames, so all see a mismatch.
Status Group::agree(ErrorText* error) {
  std::vector<int32_t> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return compare_frames(all, error);
}

Status Group::compare_frames(const std::vector<int32_t>& known, ErrorText* error) {
  const auto print_of = [this](int32_t rank) -> const comm::Fingerprint& {
    return (rank == rank_ ? record_ : record_in(frame(rank))).print;
  };
  const auto same = [&](int32_t a, int32_t b) {
    return memcmp(&print_of(a), &print_of(b), sizeof(comm::Fingerprint)) == 0;
  };
  if (std::all_of(known.begin(), known.end(), [&](int32_t rank) { return same(rank, rank_); }))
    return kOk;
  const comm::Mismatch found = comm::find_mismatch(known, size_, rank_, same);
  const comm::CallRecord& theirs = record_in(frame(found.first));
  ErrorText seen_here, for_all;
  Text here(seen_here), all(for_all);
  comm::describe_mismatch(here, group_info_, record_, rank_, found, theirs, comm::Reader::This);
  comm::describe_mismatch(all, group_info_, record_, rank_, found, theirs, comm::Reader::All);
  return refuse_mismatch(seen_here, for_all, error);
}

Status Group::agree_on_exchange(ErrorText* error) {
  const auto table = [this](int32_t rank) {
    return tables_in(rank == rank_ ? peer((rank_ + 1) % size_).own_frame.get() : frame(rank));
  };
  for (int32_t from = 0; size_ > 1 && from < size_; from++) {
    for (int32_t to = 0; to < size_; to++) {
      const int64_t sent = table(from)[to], expected = table(to)[size_ + from];
      if (sent == expected) continue;
      ErrorText message;
      Text text(message);
      const auto record_of = [this](int32_t rank) {
        return rank == rank_ ? &record_ : &record_in(frame(rank));
      };
      comm::describe_unexpected(text, group_info_, record_, rank_, from, sent, record_of(from), to,
                                expected, record_of(to));
      return refuse_mismatch(message, message, error);
    }
  }
  return kOk;
}

}  // namespace shardwise::gloo_engine
