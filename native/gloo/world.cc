#include "world.h"

#include <array>
#include <cstring>

#include "../comm/messages.h"

namespace shardwise::gloo_engine {
namespace {

// FNV-1a: messages of two groups must not share a slot.
uint64_t slot_of(const char* name) {
  uint64_t value = 14695981039346656037u;
  for (; *name; name++) value = (value ^ static_cast<uint8_t>(*name)) * 1099511628211u;
  return value;
}

// Sent in place of an address, which begins with its length: this rank will not join. It may say
// why, and which rank of the group gave up.
enum class Ends : char { Left, CouldNotJoin };
struct Refusal {
  char no_length = 0;
  Ends how = Ends::Left;
  int16_t reserved = 0;
  int32_t place = 0;
  char why[kGlooAddressBytes - 8] = {};
};
static_assert(sizeof(Refusal) == kGlooAddressBytes);
// Sent after the addresses.
constexpr std::array<char, kGlooAddressBytes> kReady = {1};

const char* letter_of(const Refusal& refusal) { return reinterpret_cast<const char*>(&refusal); }

Status report_missing(const GlooGroup& plan, int32_t member, const std::string& what,
                      std::vector<int32_t> culprits, ErrorText* error) {
  ErrorText message;
  Text text(message);
  const comm::GroupInfo group_info = group_info_of(plan);
  text.add("call 1 of group \"%s\": rank %d %s", plan.label, group_info.rank_at(member),
           what.c_str());
  comm::DetailsWriter details(group_info);
  details.blame(member, nullptr);
  details.blame_instead(std::move(culprits));
  details.add_to(text);
  return fail_with(error, Code::Peer, message);
}

Status report_refusal(const GlooGroup& plan, int32_t member, const Refusal& said,
                      ErrorText* error) {
  const bool left = said.how == Ends::Left;
  if (said.why[0] == 0)
    return report_missing(
        plan, member, left ? "has left the group, it has called nothing yet" : "could not join it",
        {}, error);
  ErrorText message;
  Text text(message);
  text.add("group \"%s\": ", plan.label);
  comm::describe_abort(text, group_info_of(plan), said.place, error_text(said.why));
  return fail_with(error, Code::Peer, message);
}

}  // namespace

Status World::connect(const char* addresses, ErrorText* error) {
  constexpr char hint[] =
      ". Does SHARDWISE_SOCKET_IFNAME name the interface by which the machines reach each other?";
  const Status status = connections_.connect(addresses, timeout_ms_, {"world", {}}, hint, error);
  if (status.ok()) waits_ = std::make_shared<Waits>(&connections_);
  is_connected_.store(status.ok(), std::memory_order_release);
  return status;
}

World::Letter& World::letter() {
  std::lock_guard<std::mutex> lock(mutex_);
  letters_.push_back(std::make_unique<Letter>());
  Letter& made = *letters_.back();
  made.buffer = connections_.buffer(made.address, kGlooAddressBytes);
  return made;
}

void World::send(const char* address, int32_t rank, uint64_t slot) {
  Letter& out = letter();
  memcpy(out.address, address, kGlooAddressBytes);
  out.buffer->send(rank, slot);
}

void World::decline(const GlooGroup& plan, int32_t place, const char* reason) {
  Refusal refusal;
  refusal.place = place;
  size_t length = strnlen(reason, sizeof refusal.why);
  if (length == sizeof refusal.why)
    for (length--; (reason[length] & 0xc0) == 0x80;) length--;  // no half of a character
  memcpy(refusal.why, reason, length);
  say(letter_of(refusal), plan);
}

void World::say(const char* letter, const GlooGroup& plan) {
  for (int32_t member = 0; member < plan.size; member++) {
    if (member == plan.rank) continue;
    try {
      send(letter, plan.ranks[member], slot_of(plan.name));
    } catch (const std::exception&) {
      // The peer is gone.
    }
  }
}

// Two rounds: the addresses, then a confirmation that all arrived. A rank that gives up says so
// before the second round, so that no rank connects to it.
Status World::exchange(const GlooGroup& plan, const char* own, char* theirs, ErrorText* error) {
  Status status = pass_round(
      plan, true, [own](int32_t member) { return own + int64_t{member} * kGlooAddressBytes; },
      theirs, error);
  if (!status.ok()) {
    Refusal refusal;
    refusal.how = Ends::CouldNotJoin;
    say(letter_of(refusal), plan);
    return status;
  }
  std::vector<char> ignored(static_cast<size_t>(plan.size) * kGlooAddressBytes);
  return pass_round(
      plan, false, [](int32_t) { return kReady.data(); }, ignored.data(), error);
}

template <class LetterFor>
Status World::pass_round(const GlooGroup& plan, bool may_give_up, LetterFor letter_for,
                         char* theirs, ErrorText* error) {
  if (may_give_up && plan.is_aborted(plan.context))
    return fail(error, Code::Closed, "group \"%s\": joining it was given up", plan.label);
  const uint64_t slot = slot_of(plan.name);
  std::vector<Letter*> in(static_cast<size_t>(plan.size));
  for (int32_t member = 0; member < plan.size; member++) {
    if (member == plan.rank) continue;
    try {
      in[member] = &letter();
      in[member]->buffer->recv(plan.ranks[member], slot);
      send(letter_for(member), plan.ranks[member], slot);
    } catch (const std::exception& failure) {
      return report_missing(plan, member,
                            "has ended or cannot be reached (" + plain(failure.what()) + ")", {},
                            error);
    }
  }
  comm::Deadline deadline(plan.timeout_ms);
  for (int32_t member = 0; member < plan.size; member++) {
    if (member == plan.rank) continue;
    const Status status = receive(*in[member], member, plan, may_give_up, deadline, error);
    if (!status.ok()) return status;
    memcpy(theirs + int64_t{member} * kGlooAddressBytes, in[member]->address, kGlooAddressBytes);
  }
  return kOk;
}

Status World::receive(Letter& from, int32_t member, const GlooGroup& plan, bool may_give_up,
                      comm::Deadline& deadline, ErrorText* error) {
  std::string why;
  for (;;) {
    const Waited waited = wait_a_moment(*from.buffer, Direction::Receive, &why);
    if (waited == Waited::Done) {
      if (from.address[0] != 0) return kOk;
      Refusal said;
      memcpy(&said, from.address, sizeof said);
      said.why[sizeof said.why - 1] = 0;
      return report_refusal(plan, member, said, error);
    }
    if (waited == Waited::Broken)
      return report_missing(plan, member, "has ended or cannot be reached (" + why + ")", {},
                            error);
    if (may_give_up && plan.is_aborted(plan.context))
      return fail(error, Code::Closed, "group \"%s\": joining it was given up", plan.label);
    const int32_t rank = plan.ranks[member];
    const bool delayed = waits_->is_delayed({rank}, plan.timeout_ms);
    const bool has_time = deadline.left(!delayed) > 0;
    waits_->publish({rank}, deadline.waited_ms(), plan.timeout_ms, delayed);
    if (has_time) continue;
    const std::string limit = " (timeout after " + std::to_string(deadline.waited_ms()) + " ms)";
    const std::string has = waits_->describe_absence("has not joined it", rank, plan.timeout_ms);
    return report_missing(plan, member, has + limit, waits_->culprits({rank}, plan.timeout_ms),
                          error);
  }
}

}  // namespace shardwise::gloo_engine
