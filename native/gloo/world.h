// The world of a rank: connections to every other rank, over which members of a new group exchange
// their addresses. So groups form on native threads alone, independent of JavaScript and of
// failures of other groups.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "../comm/deadline.h"
#include "../comm/group_info.h"
#include "connections.h"
#include "waits.h"

namespace shardwise::gloo_engine {

// The group's name and ranks for errors.
inline comm::GroupInfo group_info_of(const GlooGroup& plan) {
  return {plan.label, {plan.ranks, plan.ranks + plan.size}};
}

class World {
 public:
  // May throw.
  World(const char* host, int32_t rank, int32_t size, int64_t timeout_ms)
      : host_(host), timeout_ms_(timeout_ms), connections_(host, rank, size) {}

  const char* host() const { return host_.c_str(); }
  ~World() {
    if (waits_) waits_->close();
  }
  const std::shared_ptr<Waits>& waits() const { return waits_; }
  // From any thread.
  void compiles(const comm::Compilation* begun) {
    if (is_connected_.load(std::memory_order_acquire)) waits_->compiles(begun);
  }
  void addresses(char* out) const { connections_.addresses(out); }
  Status connect(const char* addresses, ErrorText* error);

  // Sends each member its address of `own` and receives the member's address for this rank. Several
  // threads may call this for groups of different names.
  Status exchange(const GlooGroup& plan, const char* own, char* theirs, ErrorText* error);
  // Informs the members that this rank will not join, because the rank at `place` gave up with this
  // reason.
  void decline(const GlooGroup& plan, int32_t place, const char* reason);

 private:
  // An address in flight. It stays until the operation ends, even if no one waits for it.
  struct Letter {
    char address[kGlooAddressBytes];
    std::unique_ptr<Buffer> buffer;
  };
  Letter& letter();
  void send(const char* address, int32_t rank, uint64_t slot);
  void say(const char* letter, const GlooGroup& plan);
  template <class LetterFor>
  Status pass_round(const GlooGroup& plan, bool may_give_up, LetterFor letter_for, char* theirs,
                    ErrorText* error);
  Status receive(Letter& from, int32_t member, const GlooGroup& plan, bool may_give_up,
                 comm::Deadline& deadline, ErrorText* error);

  const std::string host_;
  const int64_t timeout_ms_;
  Connections connections_;
  std::shared_ptr<Waits> waits_;  // null until all ranks are connected
  std::atomic<bool> is_connected_{false};
  std::mutex mutex_;
  // declared after the connections, so destroyed before them
  std::vector<std::unique_ptr<Letter>> letters_;
};

}  // namespace shardwise::gloo_engine
