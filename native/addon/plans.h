// Plans: the commands of a graph, decoded and checked once (plan_reader.cc), and run by one call with
// the memory of that time.
#pragma once
#include <memory>
#include <unordered_map>

#include "../runtime/stream.h"
#include "devices.h"
#include "plan.h"

namespace shardwise {

class Plans {
 public:
  explicit Plans(Environment& state) : state_(state) {}

  void close() { plans_.clear(); }

  // Called by JavaScript. `create` takes a Float64Array, writes the plan's id to the shared words,
  // and returns a token, with which the plan lives.
  Status create(Napi::Value words, DeviceCode device, Napi::Value* token, ErrorText* error);
  // Returns the tokens of the outputs, if they are wanted; false, before anything has run, if the
  // storages in the shared words do not fit. Fails with the index of the command in the first word,
  // or -1 if none has run, and in the second whether the run can go on, for which its memory is kept.
  Status run(double id, double stream, bool with_tokens, bool goes_on, Napi::Value* tokens,
             ErrorText* error);

 private:
  static void on_collected(node_api_basic_env, void* data, void* hint);
  Status fail_run(Plan& plan, Status status, bool goes_on);
  Napi::Value finish_run(Plan& plan, bool with_tokens);

  Environment& state_;
  std::unordered_map<int64_t, std::unique_ptr<Plan>> plans_;
  int64_t next_ = 1;
};

}  // namespace shardwise
