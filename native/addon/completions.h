// Completions: what native threads have done, and the JavaScript thread finishes.
#pragma once
#include <napi.h>

#include <memory>
#include <mutex>
#include <vector>

#include "../runtime/stream.h"

namespace shardwise {

struct Environment;

// Work to be finished on the JavaScript thread: a promise to settle, staging memory to copy out.
// Its references end with the environment, if that is before it is finished: no destructor ends
// them, which may run on any thread.
struct Completion {
  uint32_t stream = 0;
  uint64_t sequence = 0;  // of the command on the stream
  Napi::FunctionReference callback;
  Napi::Reference<Napi::ArrayBuffer> keep_alive;  // the destination's ArrayBuffer
  void* staging = nullptr;
  void* destination = nullptr;
  int64_t bytes = 0;
  Code code = Code::Ok;
  ErrorText error;
  void fail(const Failed& failed) {
    code = failed.status.code;
    error = failed.text;
  }
};

// Native threads post completions here. The gate outlives the environment, which closes it when it
// ends.
class Gate {
 public:
  void open(Environment& state);
  void close();
  void post(Completion* completion);
  std::vector<Completion*> take();
  // Whether the event loop goes on as long as a completion may come.
  void keep_loop(Napi::Env env, bool keeps);

 private:
  static void on_completions(Napi::Env env, Napi::Function, Environment* state, void*);

  std::mutex mutex_;
  bool alive_ = true;
  bool scheduled_ = false;
  std::vector<Completion*> finished_;
  Napi::TypedThreadSafeFunction<Environment, void, on_completions> function_;
};
using SharedGate = std::shared_ptr<Gate>;

class Completions {
 public:
  explicit Completions(Environment& state) : state_(state) {}

  void open() { gate_->open(state_); }
  void close() { gate_->close(); }
  const SharedGate& gate() const { return gate_; }
  // Of the next command of the stream.
  Completion* create(const Stream& stream, Napi::Function callback);
  void finish_all();

 private:
  void finish(Completion* completion);
  void settle(Completion& completion);

  Environment& state_;
  SharedGate gate_ = std::make_shared<Gate>();
  int pending_ = 0;
};

}  // namespace shardwise
