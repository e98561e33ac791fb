// Parameters of the functions that JavaScript calls. The type of each says what it is:
//
//   Status create(DeviceCode device, int64_t priority, int64_t rank_runtime, double* id,
//                 ErrorText* error)
//
// is streamCreate(device, priority, rankRuntime) for JavaScript, and returns the id. A pointer is
// the result, or the error of a function that may fail; a reference to the Environment is passed
// along; every other parameter takes the next argument. Files that own a type, such as streams.h,
// declare how an argument becomes one.
#pragma once
#include <string>

#include "../include/status.h"
#include "values.h"

namespace shardwise {

struct Environment;

// Where a call keeps the reason why it fails.
ErrorText* error_of(Environment& state);

// `read` converts the argument or fails, and `get` passes it on. What takes no argument has `bind`.
template <class T>
struct Parameter;

template <class T, bool is_argument = true>
struct Argument {
  static constexpr bool kIsArgument = is_argument;
  T value{};
  T get() { return std::move(value); }
  void take_result(Napi::Env, Napi::Value*) {}
};

template <>
struct Parameter<int64_t> : Argument<int64_t> {
  Status read(Environment& state, Napi::Value given) {
    value = to_integer(given);
    if (value != INT64_MIN) return kOk;
    return fail(error_of(state), Code::Invalid, "expected an integer argument");
  }
};

// A boolean, or an integer of which 0 is false.
template <>
struct Parameter<bool> : Argument<bool> {
  Status read(Environment& state, Napi::Value given) {
    if (napi_get_value_bool(given.Env(), given, &value) == napi_ok) return kOk;
    Parameter<int64_t> number;
    const Status status = number.read(state, given);
    value = number.value != 0;
    return status;
  }
};

// The value of an id; null for an id without one.
template <class Map>
typename Map::mapped_type find_in(const Map& map, int64_t id) {
  const auto found = map.find(id);
  return found == map.end() ? nullptr : found->second;
}

// What an integer names; `find_named` of that type fails if it names nothing.
template <class T>
struct Named : Argument<T> {
  Status read(Environment& state, Napi::Value given) {
    Parameter<int64_t> id;
    const Status status = id.read(state, given);
    return status.ok() ? find_named(state, id.value, &this->value) : status;
  }
};

// The remaining ones fail for no argument. NaN if it is not a number:
template <>
struct Parameter<double> : Argument<double> {
  Status read(Environment&, Napi::Value given) { return value = to_number(given), kOk; }
};

// Empty if it is not a string.
template <>
struct Parameter<const std::string&> : Argument<std::string> {
  Status read(Environment&, Napi::Value given) { return value = text_of(given), kOk; }
  const std::string& get() { return value; }
};

// The function checks it.
template <>
struct Parameter<Napi::Value> : Argument<Napi::Value> {
  Status read(Environment&, Napi::Value given) { return value = given, kOk; }
};

template <>
struct Parameter<Environment&> : Argument<Environment*, false> {
  Status bind(Environment& state) { return value = &state, kOk; }
  Environment& get() { return *value; }
};

template <>
struct Parameter<ErrorText*> : Argument<ErrorText*, false> {
  Status bind(Environment& state) { return value = error_of(state), kOk; }
};

// A result.
template <class T>
struct Parameter<T*> : Argument<T, false> {
  Status bind(Environment&) { return kOk; }
  T* get() { return &this->value; }
  void take_result(Napi::Env env, Napi::Value* result) { *result = to_value(env, this->value); }
};

}  // namespace shardwise
