// How a group fails: the first cause is kept, told to all ranks, and given to every later call.
#include <cstring>

#include "../comm/describe.h"
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
    while (waited == Waited::Interrupted) waited = wait_a_moment(*other.words_in, Way::Receive, &why);
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
  return is_broken(*other.words_in, why);
}

// What has become of a rank that is waited for.
Status Group::look(int32_t awaited, ErrorText* error) {
  std::string why;
  const bool gone = !failed() && is_gone(awaited, &why);
  if (failed()) return failure(error);
  return gone ? report_gone(awaited, why, error) : kOk;
}

void Group::describe_missing(Text& text, int32_t rank, const char* what) {
  Peer& other = peer(rank);
  text.add("rank %d %s", rank, what);
  // Of a rank that has said nothing it is not known what it called.
  if (other.has_called || other.is_heard) comm::describe_last_call(text, other.has_called ? &other.last : nullptr, false);
}

void Group::describe_missing_facts(Text& text, int32_t rank) {
  comm::describe_rank_facts(text, rank, true, peer(rank).has_called ? &peer(rank).last.site : nullptr);
}

Status Group::report_gone(int32_t rank, const std::string& why, ErrorText* error) {
  ErrorText message;
  Text text(message);
  comm::describe_title(text, note_, name_.c_str());
  comm::describe_place(text, note_.site);
  text.add(": ");
  const bool left = peer(rank).is_heard;
  const std::string lost = "has died or cannot be reached (" + why + ")";
  describe_missing(text, rank, left ? "has left the group" : lost.c_str());
  comm::describe_facts(text, name_.c_str(), note_, rank_);
  describe_missing_facts(text, rank);
  return fail_group(Code::Peer, message.text, error);
}

Status Group::time_out(const std::vector<int32_t>& ranks, int64_t waited_ms, ErrorText* error) {
  ErrorText message;
  Text text(message);
  comm::describe_title(text, note_, name_.c_str());
  comm::describe_place(text, note_.site);
  const char* before = ": ";
  for (const int32_t rank : ranks) {
    text.add("%s", before);
    describe_missing(text, rank, "has not come");
    if (before[0] == ':') text.add(" (timeout after %lld ms)", static_cast<long long>(waited_ms));
    before = "; ";
  }
  comm::describe_facts(text, name_.c_str(), note_, rank_);
  for (const int32_t rank : ranks) describe_missing_facts(text, rank);
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
    comm::describe_title(text, note_, name_.c_str());
    comm::describe_place(text, note_.site);
    text.add(": ");
  }
  text.add("%s", first.text);
  if (status.code == Code::Closed) comm::describe_facts(text, name_.c_str(), note_, rank_);
  return status;
}

Status Group::refuse(const comm::Note& note, ErrorText* error) {
  ErrorText first = refused_text_;
  Status status = refused_;
  if (status.ok()) status = cause(&first);
  return fail(error, status.code, "%s: the group has failed before: %s", note.site.name, first.text);
}

Status Group::refuse_difference(const ErrorText& seen_here, const ErrorText& for_all, ErrorText* error) {
  refused_ = fail(&refused_text_, Code::Peer, "%s", seen_here.text);
  fail_group(Code::Peer, for_all.text, nullptr);
  return fail(error, Code::Peer, "%s", seen_here.text);
}

void Group::abort(const char* reason) {
  ErrorText message;
  Text text(message);
  comm::describe_abort(text, name_.c_str(), rank_, reason);
  fail_all(Code::Closed, message.text);
}

void Group::fail_all(Code code, const char* text) {
  fail_group(code, text, nullptr);
  interrupt_waits();
}

Status Group::look_around(ErrorText* lost, ErrorText* error) {
  std::string why;
  std::vector<int32_t> ranks;
  Text text(*lost);
  hear();
  for_peers([&](int32_t rank) {
    if (failed() || peer(rank).is_heard || !is_gone(rank, &why)) return;
    hear();  // its last words may have come just before the connection went
    if (peer(rank).is_heard) return;
    text.add("%s", lost->text[0] == 0 ? "" : "; ");
    describe_missing(text, rank, ("has died or cannot be reached (" + why + ")").c_str());
    ranks.push_back(rank);
  });
  if (!ranks.empty()) comm::describe_facts(text, name_.c_str(), note_, rank_);
  for (const int32_t rank : ranks) describe_missing_facts(text, rank);
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
    for (; parcels && !other.parcels.empty(); other.parcels.pop_front()) until_gone(*other.parcels.front().buffer, rank);
    if (other.has_frame_under_way) until_gone(*other.outgoing, rank);
    other.has_frame_under_way = false;
    if (other.is_told) until_gone(*other.words_out, rank);
    other.is_told = false;
  });
}

}  // namespace shardwise::across
