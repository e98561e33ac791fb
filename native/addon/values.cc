#include "values.h"

#include <cmath>
#include <cstring>

namespace shardwise {

napi_value fail_call(napi_env env, Code code, const char* message) {
  constexpr const char* names[] = {"SW_OK",     "SW_INVALID", "SW_OUT_OF_MEMORY",
                                   "SW_INDEX",  "SW_DEVICE",  "SW_UNSUPPORTED",
                                   "SW_CLOSED", "SW_LOST",    "SW_PEER"};
  CallFailure& failure = call_failure(env);
  failure.noted = true;
  failure.text.assign(names[static_cast<int>(code)]).append(1, kFieldMark).append(message);
  return nullptr;
}

napi_value take_failure(napi_env env) {
  CallFailure& failure = call_failure(env);
  failure.noted = false;
  napi_value text = nullptr;
  napi_create_string_utf8(env, failure.text.data(), failure.text.size(), &text);
  failure.text.clear();
  return text;
}

napi_value answer(napi_env env, CallFailure& failure, napi_value result) {
  if (!failure.noted) return result;
  failure.noted = false;
  napi_value null_value = nullptr;
  napi_get_null(env, &null_value);
  return null_value;
}

bool is_string(napi_env env, napi_value value) {
  napi_valuetype type;
  return value != nullptr && napi_typeof(env, value, &type) == napi_ok && type == napi_string;
}

bool read_integers(napi_env env, napi_callback_info info, int count, int64_t* out, napi_value* raw,
                   uint32_t objects) {
  napi_value args[12] = {};
  size_t given = 12;
  napi_get_cb_info(env, info, &given, args, nullptr, nullptr);  // what is missing is undefined
  for (int i = 0; i < count; i++) {
    double value = NAN;
    bool flag = false;
    if (raw) raw[i] = args[i];
    if (objects >> i & 1) continue;
    if (napi_get_value_double(env, args[i], &value) != napi_ok &&
        napi_get_value_bool(env, args[i], &flag) == napi_ok)
      value = flag;
    out[i] = to_integer(value);
    if (out[i] == INT64_MIN) {
      fail_call(env, Code::Invalid, "expected an integer argument");
      return false;
    }
  }
  return true;
}

std::string string_argument(napi_env env, napi_value value) {
  size_t length = 0;
  if (napi_get_value_string_utf8(env, value, nullptr, 0, &length) != napi_ok) return {};
  std::string out(length, '\0');
  napi_get_value_string_utf8(env, value, out.data(), length + 1, &length);
  return out;
}

bool is_function(napi_env env, napi_value value) {
  napi_valuetype type;
  return napi_typeof(env, value, &type) == napi_ok && type == napi_function;
}

napi_value number_value(napi_env env, double value) {
  napi_value result = nullptr;
  napi_create_double(env, value, &result);
  return result;
}

napi_value boolean_value(napi_env env, bool value) {
  napi_value result = nullptr;
  napi_get_boolean(env, value, &result);
  return result;
}

napi_value text_value(napi_env env, const char* value) {
  napi_value result = nullptr;
  napi_create_string_utf8(env, value, NAPI_AUTO_LENGTH, &result);
  return result;
}

void set_property(napi_env env, napi_value object, const char* name, napi_value value) {
  const napi_property_descriptor property{
      name, nullptr, nullptr, nullptr, nullptr, value, napi_default_jsproperty, nullptr};
  napi_define_properties(env, object, 1, &property);
}

void export_callback(napi_env env, napi_value exports, const char* name, napi_callback callback,
                     void* data) {
  napi_value fn = nullptr;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &fn);
  set_property(env, exports, name, fn);
}

}  // namespace shardwise
