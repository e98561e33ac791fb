// Completions: what native threads have done, and the JavaScript thread finishes.
#include <cstring>

#include "../runtime/staging.h"
#include "environment.h"

namespace shardwise {

namespace {

// Of an environment that has ended, and the references of the completion with it.
void discard(Completion* completion) {
  if (completion->staging) give_staging(completion->staging, completion->bytes);
  delete completion;
}

}  // namespace

void Gate::post(Completion* completion) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!alive) return discard(completion);
  finished.push_back(completion);
  if (scheduled) return;
  scheduled = true;
  napi_call_threadsafe_function(function, nullptr, napi_tsfn_nonblocking);
}

namespace {

void finish(Environment& state, Completion* completion) {
  napi_env env = state.env;
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  if (completion->staging) {
    if (completion->code == Code::Ok && completion->bytes > 0)
      std::memcpy(completion->destination, completion->staging, completion->bytes);
    give_staging(completion->staging, completion->bytes);
  }
  napi_value callback = nullptr, receiver = nullptr, argument = nullptr;
  napi_get_reference_value(env, completion->callback, &callback);
  napi_get_global(env, &receiver);
  Stream* stream = state.stream(completion->stream);
  ErrorText known;
  // After the failure is taken the stream runs new work, which may wait for JavaScript.
  if (completion->code == Code::Ok)
    stream->verify(completion->sequence);
  else if (stream->failed() || stream->backend()->asynchronous)
    state.synchronize(*stream, &known);
  // The device reports no id; the stream assigned one as it took the failure.
  Failure taken;
  if (completion->code != Code::Ok && completion->error.details.id == 0 &&
      stream->failure_of(completion->sequence, &taken))
    completion->error.details.id = taken.text.details.id;
  if (completion->code == Code::Ok && stream->backend()->asynchronous)
    completion->code = state.check_others(*stream, &completion->error).code;
  if (completion->code == Code::Ok) {
    napi_get_null(env, &argument);
  } else {
    fail_call(env, completion->code, completion->error);
    argument = take_failure(env);
  }
  napi_delete_reference(env, completion->callback);
  if (completion->keep_alive) napi_delete_reference(env, completion->keep_alive);
  delete completion;
  napi_value ignored = nullptr, thrown = nullptr;
  // An exception of the callback is an uncaught exception. Left pending, it would stop the
  // completions behind it. V8 has created its message by then, and no collection runs before it is
  // taken.
  if (napi_call_function(env, receiver, callback, 1, &argument, &ignored) ==
          napi_pending_exception &&
      napi_get_and_clear_last_exception(env, &thrown) == napi_ok)
    napi_fatal_exception(env, thrown);
  napi_close_handle_scope(env, scope);
}

void on_completions(napi_env env, napi_value, void*, void*) {
  if (!env) return;
  Environment& state = state_of(env);
  std::vector<Completion*> done;
  {
    std::lock_guard<std::mutex> lock(state.gate->mutex);
    done.swap(state.gate->finished);
    state.gate->scheduled = false;
  }
  state.pending_completions -= static_cast<int>(done.size());
  if (state.pending_completions == 0) napi_unref_threadsafe_function(env, state.gate->function);
  for (Completion* each : done) finish(state, each);
}

}  // namespace

void Gate::open(napi_env env) {
  napi_value name = nullptr;
  napi_create_string_utf8(env, "shardwise", NAPI_AUTO_LENGTH, &name);
  napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, nullptr, nullptr,
                                  on_completions, &function);
  napi_unref_threadsafe_function(env, function);
}

void Gate::close() {
  std::lock_guard<std::mutex> lock(mutex);
  alive = false;
  for (Completion* each : finished) discard(each);
  finished.clear();
  if (function) napi_release_threadsafe_function(function, napi_tsfn_abort);
}

void Environment::expect_completion() {
  if (pending_completions++ == 0) napi_ref_threadsafe_function(env, gate->function);
}

}  // namespace shardwise
