// Calls of JavaScript become calls of C++ functions, by their signatures (parameter.h). Arguments are
// read here in one raw call: Napi::CallbackInfo takes longer, for `this` and for six arguments.
#pragma once
#include <array>
#include <tuple>
#include <utility>

#include "environment.h"

namespace shardwise {

template <class Result, class... Parameters>
class Call {
 public:
  // `function(state)` returns what is called.
  template <class Function>
  static napi_value run(napi_env env, napi_callback_info info, Function function) {
    std::array<napi_value, (Parameter<Parameters>::kIsArgument + ... + 0)> arguments;
    size_t count = arguments.size();  // missing arguments are undefined
    void* state = nullptr;
    napi_get_cb_info(env, info, &count, arguments.data(), nullptr, &state);
    auto& environment = *static_cast<Environment*>(state);
    return run(environment, arguments.data(), function(environment),
               std::index_sequence_for<Parameters...>());
  }

 private:
  // Which argument a parameter takes: those before it that take none do not count.
  static constexpr size_t argument_of(size_t parameter) {
    [[maybe_unused]] size_t before = 0, argument = 0;
    ((argument += before++ < parameter && Parameter<Parameters>::kIsArgument), ...);
    return argument;
  }

  template <size_t at, class P>
  static Status read(Environment& state, const napi_value* arguments, P& parameter) {
    if constexpr (P::kIsArgument)
      return parameter.read(state, {state.env, arguments[argument_of(at)]});
    else
      return parameter.bind(state);
  }

  template <class Function, size_t... i>
  static napi_value run(Environment& state, [[maybe_unused]] const napi_value* arguments,
                        Function function, std::index_sequence<i...>) {
    std::tuple<Parameter<Parameters>...> parameters;
    Status status = kOk;
    (void)((status = read<i>(state, arguments, std::get<i>(parameters))).ok() && ...);
    if (!status.ok()) return state.failed(status);
    if constexpr (std::is_void_v<Result>) {
      function(std::get<i>(parameters).get()...);
      return nullptr;
    } else if constexpr (std::is_same_v<Result, Status>) {
      status = function(std::get<i>(parameters).get()...);
      if (!status.ok()) return state.failed(status);
      Napi::Value result;
      (std::get<i>(parameters).take_result(state.env, &result), ...);
      return result;
    } else {
      return to_value(state.env, function(std::get<i>(parameters).get()...));
    }
  }
};

// What the engine calls for a function, or for a method of a part of the environment.
template <auto function>
struct Callback;

template <class Result, class... Parameters, Result (*function)(Parameters...)>
struct Callback<function> {
  static napi_value call(napi_env env, napi_callback_info info) {
    return Call<Result, Parameters...>::run(env, info, [](Environment&) { return function; });
  }
};

template <class Part, class Result, class... Parameters, Result (Part::*method)(Parameters...)>
struct Callback<method> {
  static napi_value call(napi_env env, napi_callback_info info) {
    return Call<Result, Parameters...>::run(env, info, [](Environment& state) {
      return [&part = state.part<Part>()](Parameters... given) -> Result {
        return (part.*method)(std::forward<Parameters>(given)...);
      };
    });
  }
};

// A function of the addon by the name that JavaScript calls.
struct Export {
  const char* name;
  napi_callback call;
};

template <auto function>
constexpr Export exported(const char* name) {
  return {name, Callback<function>::call};
}

}  // namespace shardwise
