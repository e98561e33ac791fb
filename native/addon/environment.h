// State of one JavaScript environment (the main thread or a worker), by subject. Devices and their
// allocators belong to the process.
#pragma once
#include <tuple>

#include "collectives.h"
#include "commands.h"
#include "completions.h"
#include "devices.h"
#include "events.h"
#include "failure.h"
#include "groups.h"
#include "plans.h"
#include "profile.h"
#include "storages.h"
#include "streams.h"
#include "tokens.h"
#include "worlds.h"

namespace shardwise {

constexpr int64_t kWordBytes = 2 << 20;
constexpr int64_t kMostWords = kWordBytes / 8;

struct Environment {
  explicit Environment(Napi::Env env);
  // Called when the environment ends. The object stays: the engine finalises tokens after this.
  void close();

  const Napi::Env env;
  // Commands, and results that are several numbers; null in a worker that is being stopped.
  double* words = nullptr;
  Napi::Reference<Napi::ArrayBuffer> words_buffer;
  bool blocking = false;
  CallFailure failure;

  Profile profile{*this};
  Streams streams{*this};
  Events events{*this};
  Tokens tokens{*this};
  Storages storages{*this};
  Commands commands{*this};
  Plans plans{*this};
  Groups groups{*this};
  Worlds worlds{*this};
  Collectives collectives{*this};
  Completions completions{*this};

  template <class Part>
  Part& part() {
    return std::get<Part&>(std::tie(profile, streams, events, tokens, storages, commands, plans,
                                    groups, worlds, collectives));
  }

  // Keeps the status of a call whose error is in `failure`; returns the null that it returns.
  Napi::Value failed(Status status) {
    failure.code = status.code;
    return env.Null();
  }
};

inline ErrorText* error_of(Environment& state) {
  *state.failure.error.text = 0;
  state.failure.error.details.clear();
  return &state.failure.error;
}

// Called by JavaScript.
Napi::Value take_failure(Environment& state);
void set_blocking(Environment& state, bool blocking);
// Waits for all work.
void shutdown(Environment& state);

}  // namespace shardwise
