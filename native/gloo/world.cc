#include "world.h"

#include <cstring>

namespace shardwise::across {
namespace {

// FNV-1a: messages of two groups must not meet.
uint64_t slot_of(const char* name) {
  uint64_t value = 14695981039346656037u;
  for (; *name; name++) value = (value ^ static_cast<uint8_t>(*name)) * 1099511628211u;
  return value;
}

}  // namespace

Status World::connect(const char* addresses, ErrorText* error) {
  const int64_t begin = comm::now_ns();
  for (int32_t other = 0; other < connections_.size(); other++) {
    if (other == connections_.rank()) continue;
    try {
      connections_.connect(other, addresses + int64_t{other} * kGlooAddressBytes);
    } catch (const std::exception& failure) {
      return fail(error, Code::Peer, "gloo: rank %d and rank %d cannot connect (%s, after %lld ms). Does SHARDWISE_SOCKET_IFNAME name the interface by which the machines reach each other?",
                  connections_.rank(), other, plain(failure.what()).c_str(), static_cast<long long>((comm::now_ns() - begin) / 1'000'000));
    }
  }
  return kOk;
}

World::Letter& World::letter() {
  std::lock_guard<std::mutex> lock(mutex_);
  letters_.push_back(std::make_unique<Letter>());
  Letter& made = *letters_.back();
  made.buffer = connections_.buffer(made.address, kGlooAddressBytes);
  return made;
}

Status World::exchange(const GlooGroup& plan, const char* own, char* theirs, ErrorText* error) {
  const uint64_t slot = slot_of(plan.name);
  std::vector<Letter*> in(static_cast<size_t>(plan.size));
  for (int32_t member = 0; member < plan.size; member++) {
    if (member == plan.rank) continue;
    try {
      in[member] = &letter();
      in[member]->buffer->recv(plan.ranks[member], slot);
      Letter& out = letter();
      memcpy(out.address, own + int64_t{member} * kGlooAddressBytes, kGlooAddressBytes);
      out.buffer->send(plan.ranks[member], slot);
    } catch (const std::exception& failure) {
      return fail(error, Code::Peer, "group \"%s\": rank %d has ended or cannot be reached (%s)", plan.name, member, plain(failure.what()).c_str());
    }
  }
  comm::Patience patience(plan.timeout_ms);
  for (int32_t member = 0; member < plan.size; member++) {
    if (member == plan.rank) continue;
    const Status status = receive(*in[member], member, plan, patience, error);
    if (!status.ok()) return status;
    memcpy(theirs + int64_t{member} * kGlooAddressBytes, in[member]->address, kGlooAddressBytes);
  }
  return kOk;
}

Status World::receive(Letter& from, int32_t member, const GlooGroup& plan, comm::Patience& patience, ErrorText* error) {
  std::string why;
  for (;;) {
    const Waited waited = wait_a_moment(*from.buffer, Way::Receive, &why);
    if (waited == Waited::Done) return kOk;
    if (waited == Waited::Broken) return fail(error, Code::Peer, "group \"%s\": rank %d has ended or cannot be reached (%s)", plan.name, member, why.c_str());
    if (plan.is_aborted(plan.context)) return fail(error, Code::Closed, "group \"%s\": joining it was given up", plan.name);
    if (patience.left() > 0) continue;
    return fail(error, Code::Peer, "group \"%s\": rank %d has not joined it (timeout after %lld ms)", plan.name, member, static_cast<long long>(patience.waited_ms()));
  }
}

}  // namespace shardwise::across
