#include "completions.h"

#include <cstring>
#include <utility>

#include "../runtime/staging.h"
#include "environment.h"

namespace shardwise {

namespace {

// Of an environment that has ended.
void discard(Completion* completion) {
  if (completion->staging) give_staging(completion->staging, completion->bytes);
  delete completion;
}

}  // namespace

void Gate::open(Environment& state) {
  function_ = decltype(function_)::New(state.env, "shardwise", 0, 1, &state);
  keep_loop(state.env, false);
}

void Gate::close() {
  std::lock_guard<std::mutex> lock(mutex_);
  alive_ = false;
  for (Completion* each : std::exchange(finished_, {})) discard(each);
  if (function_) function_.Abort();
}

void Gate::post(Completion* completion) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!alive_) return discard(completion);
  finished_.push_back(completion);
  if (!std::exchange(scheduled_, true)) function_.NonBlockingCall();
}

std::vector<Completion*> Gate::take() {
  std::lock_guard<std::mutex> lock(mutex_);
  scheduled_ = false;
  return std::exchange(finished_, {});
}

void Gate::keep_loop(Napi::Env env, bool keeps) {
  if (keeps)
    function_.Ref(env);
  else
    function_.Unref(env);
}

void Gate::on_completions(Napi::Env env, Napi::Function, Environment* state, void*) {
  if (env) state->completions.finish_all();
}

Completion* Completions::create(const Stream& stream, Napi::Function callback) {
  auto* completion = new Completion;
  completion->stream = stream.id();
  completion->sequence = stream.submitted() + 1;
  completion->callback = Napi::Persistent(callback);
  completion->callback.SuppressDestruct();
  if (pending_++ == 0) gate_->keep_loop(state_.env, true);
  return completion;
}

void Completions::finish_all() {
  const std::vector<Completion*> done = gate_->take();
  pending_ -= static_cast<int>(done.size());
  if (pending_ == 0) gate_->keep_loop(state_.env, false);
  for (Completion* each : done) finish(each);
}

// Copies out what was read, and finds whether the stream or the device has failed.
void Completions::settle(Completion& completion) {
  if (completion.staging) {
    if (completion.code == Code::Ok && completion.bytes > 0)
      std::memcpy(completion.destination, completion.staging, completion.bytes);
    give_staging(completion.staging, completion.bytes);
  }
  Stream* stream = state_.streams.find(completion.stream);
  ErrorText known;
  // After the failure is taken the stream runs new work, which may wait for JavaScript.
  if (completion.code == Code::Ok)
    stream->verify(completion.sequence);
  else if (stream->failed() || stream->backend()->asynchronous)
    state_.streams.synchronize(*stream, &known);
  // The device reports no id; the stream assigned one as it took the failure.
  Failure taken;
  if (completion.code != Code::Ok && completion.error.details.id == 0 &&
      stream->failure_of(completion.sequence, &taken))
    completion.error.details.id = taken.text.details.id;
  if (completion.code == Code::Ok && stream->backend()->asynchronous)
    completion.code = state_.streams.check_others(*stream, &completion.error).code;
}

void Completions::finish(Completion* completion) {
  const Napi::Env env = state_.env;
  const Napi::HandleScope scope(env);
  settle(*completion);
  const napi_value callback = completion->callback.Value();
  const napi_value argument = completion->code == Code::Ok
                                  ? env.Null()
                                  : failure_value(env, completion->code, completion->error);
  completion->callback.Reset();
  completion->keep_alive.Reset();
  delete completion;
  // An exception of the callback is an uncaught exception. Left pending, it would stop the
  // completions behind it. V8 has created its message by then, and no collection runs before it is
  // taken: Napi::Function would throw it again.
  napi_value ignored = nullptr, thrown = nullptr;
  if (napi_call_function(env, env.Global(), callback, 1, &argument, &ignored) ==
          napi_pending_exception &&
      napi_get_and_clear_last_exception(env, &thrown) == napi_ok)
    napi_fatal_exception(env, thrown);
}

}  // namespace shardwise
