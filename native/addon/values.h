// Values of JavaScript. Where an operation fails, node-addon-api throws, and native code must not
// (failure.h). So only this file sets and reads properties and elements, and parameter.h converts
// arguments; the other operations of node-addon-api that the addon uses do not fail.
#pragma once
#include <napi.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardwise {

template <class T>
Napi::Value to_value(Napi::Env env, const T& value) {
  if constexpr (std::is_same_v<T, bool>)
    return Napi::Boolean::New(env, value);
  else if constexpr (std::is_arithmetic_v<T>)
    return Napi::Number::New(env, static_cast<double>(value));
  else if constexpr (std::is_convertible_v<T, Napi::Value>)
    return value;
  else
    return Napi::String::New(env, value);
}

// Defines an own property. Setters of a prototype are JavaScript, which may throw.
void set(Napi::Object object, const char* name, Napi::Value value);

using Field = std::pair<const char*, Napi::Value>;
Napi::Object object_of(Napi::Env env, std::initializer_list<Field> fields);
// A list of `size` elements; `at` returns each by its index.
template <class At>
Napi::Array list_of(Napi::Env env, size_t size, At at) {
  Napi::Array list = Napi::Array::New(env, size);
  for (uint32_t i = 0; i < size; i++) list.Set(i, to_value(env, at(i)));
  return list;
}
// An ArrayBuffer with a copy of the numbers; empty in a worker that is being stopped.
Napi::Value buffer_of(Napi::Env env, const std::vector<double>& numbers);

// An element of an array of the library; undefined if it has none.
Napi::Value element(Napi::Value array, uint32_t index);

// The functions below convert arguments. The status of one call says whether a value has that type;
// to ask first would be another call for each argument.

std::string text_of(Napi::Value value);  // empty if it is not a string

inline double to_number(Napi::Value value) {  // NaN if it is not a number
  double number = NAN;
  napi_get_value_double(value.Env(), value, &number);
  return number;
}

// INT64_MIN if the value is not an integer that a double holds exactly.
inline int64_t to_integer(double value) {
  constexpr double limit = 9007199254740992.0;
  if (!(value >= -limit && value <= limit)) return INT64_MIN;
  const auto integer = static_cast<int64_t>(value);
  return static_cast<double>(integer) == value ? integer : INT64_MIN;
}
// The same of a number of JavaScript, or 0 or 1 of a boolean.
inline int64_t to_integer(Napi::Value value) {
  double number = 0;
  bool flag = false;
  if (napi_get_value_double(value.Env(), value, &number) == napi_ok) return to_integer(number);
  return napi_get_value_bool(value.Env(), value, &flag) == napi_ok ? flag : INT64_MIN;
}

}  // namespace shardwise
