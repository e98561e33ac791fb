// What goes between JavaScript and native code: arguments, results, errors, functions.
#pragma once
#include <node_api.h>

#include <string>

#include "../include/status.h"

namespace shardwise {

// Throws a JavaScript error with the code's name; returns null for the caller to return. What follows kFactsMark in the message
// becomes the property `facts` of the error.
napi_value throw_error(napi_env env, Code code, const char* message);

bool is_string(napi_env env, napi_value value);

// Reads `count` arguments as integers; throws and returns false where one is missing or no integer. Arguments whose bit is set in
// `objects` may be anything: they are only put into raw.
bool read_integers(napi_env env, napi_callback_info info, int count, int64_t* out, napi_value* raw = nullptr, uint32_t objects = 0);
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

void export_function(napi_env env, napi_value exports, const char* name, napi_callback callback);

}  // namespace shardwise
