// Frames: what each rank calls goes to every other one, with the tables of an exchange of all with
// all and with what is small.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "../comm/messages.h"
#include "group.h"
#include "slots.h"

namespace shardwise::across {
namespace {

comm::Note& note_in(char* frame) { return *reinterpret_cast<comm::Note*>(frame); }
int64_t* tables_in(char* frame) { return reinterpret_cast<int64_t*>(frame + sizeof(comm::Note)); }
bool is_inline(int64_t bytes) { return bytes > 0 && bytes <= kInlineBytes; }

}  // namespace

// A note; what the rank sends to each and expects of each; what is small.
int64_t Group::frame_bytes() const {
  return static_cast<int64_t>(sizeof(comm::Note)) + 16 * int64_t{size_} + kInlineBytes;
}

Status Group::begin(const comm::Note& note, ErrorText* error) {
  hear();
  if (failed()) return refuse(note, error);
  std::lock_guard<std::mutex> lock(mutex_);
  note_ = note;
  has_called_ = true;
  return kOk;
}

Status Group::begin_collective(const CollectiveCall& call, const comm::Call& described) {
  comm::Note note;
  Status status =
      comm::note_collective(described, comm::site_of(call), size_, calls_ + 1, &note, call.error);
  if (!status.ok()) return status;
  calls_++;  // one that is refused has its number too
  return begin(note, call.error);
}

Status Group::begin_message(comm::Kind kind, const CollectiveCall& call, int64_t bytes) {
  comm::Note note;
  const Status status = comm::note_message(kind, bytes, call.root, comm::site_of(call), rank_,
                                           size_, &note, call.error);
  return status.ok() ? begin(note, call.error) : status;
}

// Returns as soon as it knows: what is left to do after a failure is up to the next look around.
Status Group::compare(const CollectiveCall& call, uint64_t number) {
  const Status status = begin(comm::note_of(call, size_, number), call.error);
  if (!status.ok()) return status;
  calls_++;
  // What the ranks have called to find each other is none of the program's calls.
  if (number == 1)
    for_peers([this](int32_t other) {
      peer(other).has_called = peer(other).is_heard && peer(other).has_called;
    });
  if (call.kind != Collective::AllToAll) return meet(Step(size_), call.error);
  std::vector<int64_t> sends(call.send_counts, call.send_counts + size_),
      receives(call.counts, call.counts + size_);
  for (std::vector<int64_t>* bytes : {&sends, &receives})
    for (int64_t& count : *bytes) count *= item_size(call.dtype);
  return meet(Step(size_), call.error, sends.data(), receives.data());
}

Status Group::meet(const Step& step, ErrorText* error, const int64_t* sends,
                   const int64_t* receives) {
  Status status;
  for_peers([&](int32_t other) {
    if (!status.ok()) return;
    char* next = peer(other).frames[(calls_ + 1) % 2].get();
    note_in(next).print.call = 0;
    status = post(*peer(other).incoming[(calls_ + 1) % 2], Way::Receive, other, kFrameSlot, 0,
                  frame_bytes(), error);
    if (status.ok()) status = send_frame(other, step, sends, receives, error);
  });
  if (status.ok()) status = await_frames(error);
  if (status.ok()) status = agree(error);
  if (status.ok() && sends != nullptr) status = agree_on_exchange(error);
  if (!status.ok()) return status;
  for_peers([&](int32_t other) {
    const Step::Piece& piece = step.received[other];
    if (is_inline(piece.bytes))
      memcpy(piece.data, tables_in(frame(other)) + 2 * size_, static_cast<size_t>(piece.bytes));
  });
  return transfer(step, kInlineBytes, error);
}

Status Group::send_frame(int32_t to, const Step& step, const int64_t* sends,
                         const int64_t* receives, ErrorText* error) {
  Peer& other = peer(to);
  if (other.has_frame_under_way) {
    const Status status = wait(*other.outgoing, Way::Send, to, error);
    if (!status.ok()) return status;
  }
  char* out = other.own_frame.get();
  note_in(out) = note_;
  const size_t table = static_cast<size_t>(size_) * sizeof(int64_t);
  if (sends != nullptr) memcpy(tables_in(out), sends, table);
  if (sends != nullptr) memcpy(tables_in(out) + size_, receives, table);
  const Step::Piece& piece = step.sent[to];
  int64_t bytes = frame_bytes() - kInlineBytes;
  if (is_inline(piece.bytes)) {
    memcpy(out + bytes, piece.data, static_cast<size_t>(piece.bytes));
    bytes += piece.bytes;
  }
  const Status status = post(*other.outgoing, Way::Send, to, kFrameSlot, 0, bytes, error);
  other.has_frame_under_way = status.ok();
  return status;
}

Status Group::await_frames(ErrorText* error) {
  comm::Patience patience(timeout_ms());
  std::string why;
  for (int32_t from = 0; from < size_;) {
    if (from == rank_) {
      from++;
      continue;
    }
    const Waited waited = wait_a_moment(*peer(from).incoming[calls_ % 2], Way::Receive, &why);
    if (waited == Waited::Done) {
      peer(from).last = note_in(frame(from));
      peer(from).has_called = true;
      from++;
      continue;
    }
    std::vector<int32_t> missing;
    for (int32_t other = from; other < size_; other++) {
      if (other != rank_ && note_in(frame(other)).print.call == 0) missing.push_back(other);
    }
    if (missing.empty()) missing.push_back(from);
    for (const int32_t other : missing) {
      // Who has left may have come before: its frame is there when its last words are.
      if (waited == Waited::Interrupted && !failed() && is_gone(other, &why) &&
          note_in(frame(other)).print.call != 0)
        continue;
      const Status status = look(other, error);
      if (!status.ok()) return what_differs(status, error);
    }
    const Status status = go_on_waiting(missing, patience, error);
    if (!status.ok()) return status;
  }
  return kOk;
}

// Who tells of a failure has sent its frame before: a difference from it is told as this rank sees
// it.
Status Group::what_differs(Status heard, ErrorText* error) {
  std::vector<int32_t> known{rank_};
  for_peers([&](int32_t other) {
    if (peer(other).is_heard && note_in(frame(other)).print.call != 0) known.push_back(other);
  });
  std::sort(known.begin(), known.end());
  const Status seen = compare_frames(known, error);
  return seen.ok() ? heard : seen;
}

// All ranks have all frames, so all see a difference.
Status Group::agree(ErrorText* error) {
  std::vector<int32_t> all(static_cast<size_t>(size_));
  std::iota(all.begin(), all.end(), 0);
  return compare_frames(all, error);
}

Status Group::compare_frames(const std::vector<int32_t>& known, ErrorText* error) {
  const auto print_of = [this](int32_t rank) -> const comm::Fingerprint& {
    return (rank == rank_ ? note_ : note_in(frame(rank))).print;
  };
  const auto same = [&](int32_t a, int32_t b) {
    return memcmp(&print_of(a), &print_of(b), sizeof(comm::Fingerprint)) == 0;
  };
  if (std::all_of(known.begin(), known.end(), [&](int32_t rank) { return same(rank, rank_); }))
    return kOk;
  const comm::Difference found = comm::find_difference(known, size_, rank_, same);
  const comm::Note& theirs = note_in(frame(found.first));
  ErrorText seen_here, for_all;
  Text here(seen_here), all(for_all);
  comm::describe_difference(here, roster_, note_, rank_, found, theirs, comm::Reader::This);
  comm::describe_difference(all, roster_, note_, rank_, found, theirs, comm::Reader::All);
  return refuse_difference(seen_here, for_all, error);
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
      const auto note_of = [this](int32_t rank) {
        return rank == rank_ ? &note_ : &note_in(frame(rank));
      };
      comm::describe_unexpected(text, roster_, note_, rank_, from, sent, note_of(from), to,
                                expected, note_of(to));
      return refuse_difference(message, message, error);
    }
  }
  return kOk;
}

}  // namespace shardwise::across
