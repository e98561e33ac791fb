// Passes arguments, results, errors and functions between JavaScript and native code.
#pragma once
#include <node_api.h>

#include <string>

#include "../include/status.h"

namespace shardwise {

// The failure of the present call, or of the last one that failed.
struct CallFailure {
  bool recorded = false;
  Code code = Code::Ok;
  ErrorText error;
};
CallFailure& call_failure(napi_env env);

// Records why the call fails, and returns null for the caller to return; lib/native/guard.ts then
// calls `takeFailure` and throws. Native code throws nothing: Node holds an exception of native
// code while V8 collects garbage to create its message, mistakes it for an exception of a finalizer
// that runs meanwhile (at NAPI_EXPERIMENTAL), and ends the process.
napi_value fail_call(napi_env env, Code code, const ErrorText& error);
napi_value fail_call(napi_env env, Code code, const char* message);
// The last failure as a NativeFailure of lib/native/failure.ts.
napi_value take_failure(napi_env env);
// The result of a call for JavaScript: null if a failure was recorded.
napi_value answer(napi_env env, CallFailure& failure, napi_value result);

bool is_string(napi_env env, napi_value value);

// Reads `count` arguments as integers. Records a failure and returns false if one is missing or not
// an integer. Arguments whose bit is set in `objects` are only stored in raw.
bool read_integers(napi_env env, napi_callback_info info, int count, int64_t* out,
                   napi_value* raw = nullptr, uint32_t objects = 0);
bool is_function(napi_env env, napi_value value);
std::string string_argument(napi_env env, napi_value value);  // empty if it is not a string

// INT64_MIN if the value is not an integer that a double holds exactly.
inline int64_t to_integer(double value) {
  constexpr double limit = 9007199254740992.0;
  if (!(value >= -limit && value <= limit)) return INT64_MIN;
  const auto integer = static_cast<int64_t>(value);
  return static_cast<double>(integer) == value ? integer : INT64_MIN;
}

napi_value number_value(napi_env env, double value);
napi_value boolean_value(napi_env env, bool value);
napi_value text_value(napi_env env, const char* value);

// Defines an own property. Setters of a prototype are JavaScript, which may throw.
void set_property(napi_env env, napi_value object, const char* name, napi_value value);

// An element of an array of the library; undefined if it has none.
napi_value element(napi_env env, napi_value array, uint32_t index);

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
