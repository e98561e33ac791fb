// What goes between JavaScript and native code: arguments, results, errors, functions.
#pragma once
#include <node_api.h>

#include <string>

#include "../include/status.h"

namespace shardwise {

// Why the call at work fails, or the last one that failed did: its code's name, kFieldMark, and the
// message.
struct CallFailure {
  bool noted = false;
  std::string text;
};
CallFailure& call_failure(napi_env env);

// Notes why the call fails, and returns null for the caller to return; JavaScript then gets null,
// asks `takeFailure`, and throws. Nothing is thrown in native code: Node holds such an exception
// while V8 collects garbage to make its message, takes it for one of the finalizers that run in
// there (they do at NAPI_EXPERIMENTAL), and ends the process. What follows kFactsMark in the
// message is for programs.
napi_value fail_call(napi_env env, Code code, const char* message);
// The text of the last failure, once.
napi_value take_failure(napi_env env);
// What JavaScript gets of a call: null where a failure was noted.
napi_value answer(napi_env env, CallFailure& failure, napi_value result);

bool is_string(napi_env env, napi_value value);

// Reads `count` arguments as integers; notes and returns false where one is missing or no integer.
// Arguments whose bit is set in `objects` may be anything: they are only put into raw.
bool read_integers(napi_env env, napi_callback_info info, int count, int64_t* out,
                   napi_value* raw = nullptr, uint32_t objects = 0);
bool is_function(napi_env env, napi_value value);
std::string string_argument(napi_env env, napi_value value);  // empty for what is no string

// INT64_MIN for what is no integer, and for what no double holds exactly.
inline int64_t to_integer(double value) {
  constexpr double limit = 9007199254740992.0;
  if (!(value >= -limit && value <= limit)) return INT64_MIN;
  const auto integer = static_cast<int64_t>(value);
  return static_cast<double>(integer) == value ? integer : INT64_MIN;
}

napi_value number_value(napi_env env, double value);
napi_value boolean_value(napi_env env, bool value);
napi_value text_value(napi_env env, const char* value);

// An own property, whatever setters a prototype has: those are JavaScript, which may throw.
void set_property(napi_env env, napi_value object, const char* name, napi_value value);

void export_callback(napi_env env, napi_value exports, const char* name, napi_callback callback,
                     void* data = nullptr);

template <napi_callback callback>
void export_function(napi_env env, napi_value exports, const char* name) {
  const napi_callback answered = [](napi_env e, napi_callback_info info) {
    return answer(e, call_failure(e), callback(e, info));
  };
  export_callback(env, exports, name, answered);
}

}  // namespace shardwise
