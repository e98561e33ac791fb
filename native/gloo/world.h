// The world of a rank: connections to every other rank, over which the members of a group tell each
// other where they listen. So a group is made on native threads alone, whatever JavaScript does
// meanwhile, and outlives the failure of any other group.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "../comm/deadline.h"
#include "../comm/group_info.h"
#include "connections.h"
#include "waits.h"

namespace shardwise::across {

// As errors call the group and its members.
inline comm::Roster roster_of(const GlooGroup& plan) {
  return {plan.label, {plan.ranks, plan.ranks + plan.size}};
}

class World {
 public:
  // Throws.
  World(const char* host, int32_t rank, int32_t size, int64_t timeout_ms)
      : host_(host), timeout_ms_(timeout_ms), connections_(host, rank, size) {}

  const char* host() const { return host_.c_str(); }
  ~World() {
    if (waits_) waits_->close();
  }
  const std::shared_ptr<Waits>& waits() const { return waits_; }
  void addresses(char* out) const { connections_.addresses(out); }
  Status connect(const char* addresses, ErrorText* error);

  // Gives each member its address of `own` and takes what it has for this one. From several threads
  // for groups of other names.
  Status exchange(const GlooGroup& plan, const char* own, char* theirs, ErrorText* error);
  // Tells the members that this rank will not join; where a rank gave up, the one at `place`, with
  // its reason.
  void decline(const GlooGroup& plan, int32_t place, const char* reason);

 private:
  // An address on its way in or out. What was begun must stay, also where nobody waits for it any
  // more.
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
                 comm::Patience& patience, ErrorText* error);

  const std::string host_;
  const int64_t timeout_ms_;
  Connections connections_;
  std::shared_ptr<Waits> waits_;  // once they are connected
  std::mutex mutex_;
  std::vector<std::unique_ptr<Letter>> letters_;  // after the connections, to go before them
};

}  // namespace shardwise::across
