// How a group fails: the first cause is kept, told to all ranks, and given to every later call.
#include <cstring>

#include "../comm/messages.h"
#include "group.h"
#include "slots.h"

namespace shardwise::across {

// Takes the last words that have come.
void Group::hear() {
  if (!connections_ || failed()) return;
  std::string why;
  for_peers([&](int32_t rank) {
    Peer& other = peer(rank);
    // Gloo's thread writes it; what is seen here only says that it is worth waiting for the rest.
    if (other.is_heard || *static_cast<volatile const End*>(&other.words.end) == End::None) return;
    Waited waited = Waited::Interrupted;
    while (waited == Waited::Interrupted)
      waited = wait_a_moment(*other.words_in, Way::Receive, &why);
    if (waited == Waited::Broken) return;
    other.is_heard = true;
    other.has_called = other.words.has_called != 0;
    other.last = other.words.last;
    if (other.words.end != End::Failed) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed()) return;
    // Passed on: who fails may not live to tell all.
    keep_cause(other.words.code == Code::Closed ? Code::Closed : Code::Peer, other.words.text);
  });
}

// It has left, or the connection is lost.
bool Group::is_gone(int32_t rank, std::string* why) {
  hear();
  Peer& other = peer(rank);
  if (other.is_heard) return other.words.end == End::Left;
  if (!other.lost.empty()) {
    *why = other.lost;
    return true;
  }
  return is_broken(*other.words_in, why);
}

// What has become of a rank that is waited for.
Status Group::look(int32_t awaited, ErrorText* error) {
  std::string why;
  const bool gone = !failed() && is_gone(awaited, &why);
  if (failed()) return failure(error);
  return gone ? report_gone(awaited, why, error) : kOk;
}

void Group::miss(comm::Missing& missing, int32_t rank, const char* has) {
  Peer& other = peer(rank);
  // Of a rank that has said nothing it is not known what it called.
  if (other.has_called || other.is_heard)
    missing.add(rank, has, other.has_called ? &other.last : nullptr, false);
  else
    missing.add(rank, has);
}

Status Group::report_gone(int32_t rank, const std::string& why, ErrorText* error) {
  comm::Missing missing;
  miss(missing, rank,
       peer(rank).is_heard ? "has left the group"
                           : ("has died or cannot be reached (" + why + ")").c_str());
  return fail_for(missing, "", {}, error);
}

Status Group::go_on_waiting(const std::vector<int32_t>& ranks, comm::Patience& patience,
                            ErrorText* error) {
  const bool has_time = patience.left() > 0;
  waits_->tell(roster_.ranks_at(ranks), patience.waited_ms(), timeout_ms());
  return has_time ? kOk : time_out(ranks, patience.waited_ms(), error);
}

Status Group::time_out(const std::vector<int32_t>& ranks, int64_t waited_ms, ErrorText* error) {
  comm::Missing missing;
  for (const int32_t rank : ranks)
    miss(missing, rank,
         waiting_words("has not come", waits_->awaited_by(roster_.rank_at(rank), timeout_ms()))
             .c_str());
  return fail_for(missing, " (timeout after " + std::to_string(waited_ms) + " ms)",
                  waits_->culprits(roster_.ranks_at(ranks), timeout_ms()), error);
}

Status Group::fail_for(const comm::Missing& missing, const std::string& limit,
                       std::vector<int32_t> culprits, ErrorText* error) {
  ErrorText message;
  Text text(message);
  comm::describe_waiting(text, roster_, note_, rank_);
  text.add(": ");
  missing.describe(text, roster_, limit.c_str());
  comm::Facts facts(roster_, note_, rank_);
  missing.blame(facts);
  facts.blame_instead(std::move(culprits));
  facts.add_to(text);
  return fail_group(Code::Peer, message.text, error);
}

Status Group::fail_group(Code code, const char* text, ErrorText* error) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed()) keep_cause(code, text);
  }
  return failure(error);
}

// Under the mutex.
void Group::keep_cause(Code code, const char* text) {
  code_ = code;
  snprintf(text_.text, sizeof text_.text, "%s", text);
  say(End::Failed, text);
  failed_.store(true, std::memory_order_release);
}

Status Group::cause(ErrorText* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  return fail(error, code_, "%s", text_.text);
}

// The cause, and for an abort, which does not say it, what this rank was in.
Status Group::failure(ErrorText* error) {
  ErrorText first;
  const Status status = cause(&first);
  if (error == nullptr) return status;
  Text text(*error);
  if (status.code == Code::Closed) {
    comm::describe_heading(text, roster_, note_);
    text.add(": ");
  }
  text.add_text(first.text);
  if (status.code == Code::Closed) comm::Facts(roster_, note_, rank_).add_to(text);
  return status;
}

Status Group::refuse(const comm::Note& note, ErrorText* error) {
  ErrorText first = refused_text_;
  Status status = refused_;
  if (status.ok()) status = cause(&first);
  if (error == nullptr) return status;
  Text text(*error);
  comm::describe_refused(text, roster_, note, rank_, first);
  return status;
}

Status Group::refuse_difference(const ErrorText& seen_here, const ErrorText& for_all,
                                ErrorText* error) {
  refused_ = fail(&refused_text_, Code::Peer, "%s", seen_here.text);
  fail_group(Code::Peer, for_all.text, nullptr);
  return fail(error, Code::Peer, "%s", seen_here.text);
}

void Group::give_up(const char* reason) {
  ErrorText message;
  Text text(message);
  comm::describe_abort(text, roster_, rank_, reason);
  fail_all(Code::Closed, message.text);
}

void Group::fail_all(Code code, const char* reason) {
  fail_group(code, reason, nullptr);
  interrupt_waits();
}

Status Group::look_around(ErrorText* lost, ErrorText* error) {
  std::string why;
  comm::Missing missing;
  hear();
  for_peers([&](int32_t rank) {
    if (failed() || peer(rank).is_heard || !is_gone(rank, &why)) return;
    hear();  // its last words may have come just before the connection went
    if (!peer(rank).is_heard)
      miss(missing, rank, ("has died or cannot be reached (" + why + ")").c_str());
  });
  Text text(*lost);
  if (!missing.empty()) {
    missing.describe(text, roster_);
    comm::Facts facts(roster_, note_, rank_);
    missing.blame(facts);
    facts.add_to(text);
  }
  return failed() ? end_call(cause(error)) : kOk;
}

// Under the mutex. Does not wait; once.
void Group::say(End end, const char* text) {
  if (!connections_ || own_words_.end != End::None) return;
  own_words_.last = note_;
  own_words_.has_called = has_called_ ? 1 : 0;
  own_words_.code = code_;
  snprintf(own_words_.text, sizeof own_words_.text, "%s", text);
  own_words_.end = end;
  for_peers([&](int32_t rank) {
    try {
      peer(rank).words_out->send(rank, kWordsSlot);
      peer(rank).is_told = true;
    } catch (const std::exception&) {
      // It is gone: there is nobody to tell.
    }
  });
}

// Waits until what was sent from memory of the group is with the system.
void Group::flush(int64_t limit_ms, bool parcels) {
  if (!connections_) return;
  comm::Patience patience(limit_ms);
  std::string why;
  const auto until_gone = [&](Buffer& buffer, int32_t rank) {
    for (;;) {
      const Waited waited = wait_a_moment(buffer, Way::Send, &why);
      if (waited != Waited::Interrupted) return;
      if (patience.left() <= 0 || (parcels && is_gone(rank, &why)) || (parcels && failed())) return;
    }
  };
  for_peers([&](int32_t rank) {
    Peer& other = peer(rank);
    for (; parcels && !other.parcels.empty(); other.parcels.pop_front())
      until_gone(*other.parcels.front().buffer, rank);
    if (other.has_frame_under_way) until_gone(*other.outgoing, rank);
    other.has_frame_under_way = false;
    if (other.is_told) until_gone(*other.words_out, rank);
    other.is_told = false;
  });
}

}  // namespace shardwise::across
