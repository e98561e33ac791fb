// Failure of a group: the first cause is kept, sent to all ranks, and returned by every later call.
#include <cstring>

#include "../comm/messages.h"
#include "group.h"
#include "slots.h"

namespace shardwise::gloo_engine {

// Takes the final messages that have arrived.
void Group::observe_peers() {
  if (!connections_ || failed()) return;
  std::string why;
  for_peers([&](int32_t rank) {
    Peer& other = peer(rank);
    // Gloo's thread writes `end`; a value here only means that the rest will soon arrive.
    if (other.is_observed ||
        *static_cast<volatile const End*>(&other.final_message.end) == End::None)
      return;
    Waited waited = Waited::Interrupted;
    while (waited == Waited::Interrupted)
      waited = wait_a_moment(*other.final_in, Direction::Receive, &why);
    if (waited == Waited::Broken) return;
    other.is_observed = true;
    other.has_called = other.final_message.has_called != 0;
    other.last = other.final_message.last;
    if (other.final_message.end != End::Failed) return;
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed()) return;
    // Passed on to all: the rank that failed may die before it informs everyone.
    keep_cause(other.final_message.code == Code::Closed ? Code::Closed : Code::Peer,
               other.final_message.cause);
  });
}

// True if the rank has left or the connection is closed.
bool Group::is_gone(int32_t rank, std::string* why) {
  observe_peers();
  Peer& other = peer(rank);
  if (other.is_observed) return other.final_message.end == End::Left;
  if (!other.failure.empty()) {
    *why = other.failure;
    return true;
  }
  return is_broken(*other.final_in, why);
}

// Fails if the awaited rank is gone.
Status Group::check_peer(int32_t awaited, ErrorText* error) {
  std::string why;
  const bool gone = !failed() && is_gone(awaited, &why);
  if (failed()) return failure(error);
  return gone ? report_gone(awaited, why, error) : kOk;
}

void Group::miss(comm::Missing& missing, int32_t rank, const char* has) {
  Peer& other = peer(rank);
  // The last call of a rank that sent nothing is unknown.
  if (other.has_called || other.is_observed)
    missing.add(rank, has, other.has_called ? &other.last : nullptr, false);
  else
    missing.add(rank, has);
}

Status Group::report_gone(int32_t rank, const std::string& why, ErrorText* error) {
  comm::Missing missing;
  miss(missing, rank,
       peer(rank).is_observed ? "has left the group"
                              : ("has died or cannot be reached (" + why + ")").c_str());
  return fail_for(missing, "", {}, error);
}

Status Group::go_on_waiting(const std::vector<int32_t>& ranks, comm::Deadline& deadline,
                            ErrorText* error) {
  const std::vector<int32_t> awaited = group_info_.ranks_at(ranks);
  const bool delayed = waits_->is_delayed(awaited, timeout_ms());
  is_delayed_.store(delayed, std::memory_order_relaxed);
  const bool has_time = deadline.left(!delayed) > 0;
  waits_->publish(awaited, deadline.waited_ms(), timeout_ms(), delayed);
  return has_time ? kOk : time_out(ranks, deadline.waited_ms(), error);
}

Status Group::time_out(const std::vector<int32_t>& ranks, int64_t waited_ms, ErrorText* error) {
  comm::Missing missing;
  for (const int32_t rank : ranks)
    miss(missing, rank,
         waits_->describe_absence("has not come", group_info_.rank_at(rank), timeout_ms()).c_str());
  return fail_for(missing, " (timeout after " + std::to_string(waited_ms) + " ms)",
                  waits_->culprits(group_info_.ranks_at(ranks), timeout_ms()), error);
}

Status Group::fail_for(const comm::Missing& missing, const std::string& limit,
                       std::vector<int32_t> culprits, ErrorText* error) {
  ErrorText message;
  Text text(message);
  comm::describe_waiting(text, group_info_, record_, rank_);
  text.add(": ");
  missing.describe(text, group_info_, limit.c_str());
  comm::DetailsWriter details(group_info_, record_, rank_);
  missing.blame(details);
  details.blame_instead(std::move(culprits));
  details.add_to(text);
  return fail_group(Code::Peer, message, error);
}

Status Group::fail_group(Code code, const ErrorText& why, ErrorText* error) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failed()) keep_cause(code, why);
  }
  return failure(error);
}

// Requires the mutex.
void Group::keep_cause(Code code, const ErrorText& why) {
  code_ = code;
  text_ = why;
  say(End::Failed, with_id(text_));
  failed_.store(true, std::memory_order_release);
}

Status Group::cause(ErrorText* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  return fail_with(error, code_, text_);
}

// The cause; for an abort, which does not name it, also the call of this rank.
Status Group::failure(ErrorText* error) {
  ErrorText first;
  const Status status = cause(&first);
  if (error == nullptr) return status;
  Text text(*error);
  if (status.code == Code::Closed) {
    comm::describe_heading(text, group_info_, record_);
    text.add(": ");
  }
  text.add_cause(first);
  if (status.code == Code::Closed) comm::DetailsWriter(group_info_, record_, rank_).add_to(text);
  return status;
}

Status Group::refuse(const comm::CallRecord& record, ErrorText* error) {
  ErrorText first = refused_text_;
  Status status = refused_;
  if (status.ok()) status = cause(&first);
  if (error == nullptr) return status;
  Text text(*error);
  comm::describe_refused(text, group_info_, record, rank_, first);
  return status;
}

Status Group::refuse_mismatch(ErrorText& seen_here, ErrorText& for_all, ErrorText* error) {
  fail_group(Code::Peer, with_id(for_all), nullptr);
  // Another rank may have found the mismatch first.
  ErrorText first;
  cause(&first);
  seen_here.details.id = first.details.id;
  refused_ = fail_with(&refused_text_, Code::Peer, seen_here);
  return fail_with(error, Code::Peer, seen_here);
}

void Group::give_up(const ErrorText& reason) {
  ErrorText message;
  Text text(message);
  comm::describe_abort(text, group_info_, rank_, reason);
  fail_all(Code::Closed, message);
}

void Group::fail_all(Code code, const ErrorText& reason) {
  fail_group(code, reason, nullptr);
  interrupt_waits();
}

Status Group::poll_peers(ErrorText* failure, ErrorText* error) {
  std::string why;
  comm::Missing missing;
  observe_peers();
  for_peers([&](int32_t rank) {
    if (failed() || peer(rank).is_observed || !is_gone(rank, &why)) return;
    observe_peers();  // its final message may have arrived just before the connection closed
    if (!peer(rank).is_observed)
      miss(missing, rank, ("has died or cannot be reached (" + why + ")").c_str());
  });
  Text text(*failure);
  if (!missing.empty()) {
    missing.describe(text, group_info_);
    comm::DetailsWriter details(group_info_, record_, rank_);
    missing.blame(details);
    details.add_to(text);
  }
  return failed() ? end_call(cause(error)) : kOk;
}

// Requires the mutex. Does not wait. Sends one final message only.
void Group::say(End end, const ErrorText& why) {
  if (!connections_ || own_final_.end != End::None) return;
  own_final_.last = record_;
  own_final_.has_called = has_called_ ? 1 : 0;
  own_final_.code = code_;
  own_final_.cause = why;
  own_final_.end = end;
  for_peers([&](int32_t rank) {
    try {
      peer(rank).final_out->send(rank, kFinalSlot);
      peer(rank).is_informed = true;
    } catch (const std::exception&) {
      // The peer is gone.
    }
  });
}

// Waits until the system has taken all data that was sent from memory of the group.
void Group::flush(int64_t limit_ms, bool parcels) {
  if (!connections_) return;
  comm::Deadline deadline(limit_ms);
  std::string why;
  const auto until_gone = [&](Buffer& buffer, int32_t rank) {
    for (;;) {
      const Waited waited = wait_a_moment(buffer, Direction::Send, &why);
      if (waited != Waited::Interrupted) return;
      if (deadline.left() <= 0 || (parcels && is_gone(rank, &why)) || (parcels && failed())) return;
    }
  };
  for_peers([&](int32_t rank) {
    Peer& other = peer(rank);
    for (; parcels && !other.parcels.empty(); other.parcels.pop_front())
      until_gone(*other.parcels.front().buffer, rank);
    if (other.is_frame_in_flight) until_gone(*other.outgoing, rank);
    other.is_frame_in_flight = false;
    if (other.is_informed) until_gone(*other.final_out, rank);
    other.is_informed = false;
  });
}

}  // namespace shardwise::gloo_engine
