// Profiles: JavaScript opens the log of its environment, and takes what was recorded as numbers.
#pragma once
#include <string>

#include "../runtime/span_log.h"
#include "parameter.h"

namespace shardwise {

class Profile {
 public:
  explicit Profile(Environment& state) : state_(state) {}

  SpanLog log;
  // Ends it with the environment.
  void end();

  // Called by JavaScript. A profile is of a rank runtime. `start` returns the reason why CUPTI is
  // not used, or ''.
  Status start(int64_t rank_runtime, Napi::Value words, bool host_commands, int64_t device_timer,
               const std::string& candidates, std::string* why_no_cupti, ErrorText* error);
  // No more of its commands get a number.
  void stop(int64_t rank_runtime) { log.close(rank_runtime); }
  // Whether all of its commands that are recorded have run.
  bool done(int64_t rank_runtime);
  Napi::Value take();
  // The time now.
  static double clock();

 private:
  bool devices_done(int64_t rank_runtime);

  Environment& state_;
  std::string why_no_cupti_;                  // of the profile that is open
  Napi::Reference<Napi::ArrayBuffer> words_;  // of all profiles
};

}  // namespace shardwise
