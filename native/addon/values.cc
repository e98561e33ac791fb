#include "values.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace shardwise {

napi_value fail_call(napi_env env, Code code, const ErrorText& error) {
  CallFailure& failure = call_failure(env);
  failure.recorded = true;
  failure.code = code;
  failure.error = error;
  return nullptr;
}

napi_value fail_call(napi_env env, Code code, const char* message) {
  CallFailure& failure = call_failure(env);
  failure.recorded = true;
  failure.code = code;
  fail(&failure.error, code, "%s", message);
  return nullptr;
}

namespace {

napi_value memory_value(napi_env env, const MemoryDetails& memory) {
  napi_value object = nullptr;
  napi_create_object(env, &object);
  const std::pair<const char*, int64_t> numbers[] = {{"requestedBytes", memory.requested},
                                                     {"allocatedBytes", memory.allocated},
                                                     {"reservedBytes", memory.reserved},
                                                     {"freeBytes", memory.free},
                                                     {"totalBytes", memory.total}};
  for (const auto& [name, bytes] : numbers)
    set_property(env, object, name, number_value(env, static_cast<double>(bytes)));
  return object;
}

template <int32_t kMost, class Visit>
void for_ranks(const RankRanges<kMost>& ranks, Visit visit) {
  for (int32_t i = 0; i < ranks.count; i++)
    for (int32_t rank = ranks.ranges[i].first; rank <= ranks.ranges[i].last; rank++) visit(rank);
}

napi_value collective_value(napi_env env, const CollectiveDetails& details) {
  napi_value object = nullptr, blamed = nullptr, calls = nullptr;
  napi_create_object(env, &object);
  napi_create_array(env, &blamed);
  napi_create_array(env, &calls);
  uint32_t at = 0;
  for_ranks(details.blamed,
            [&](int32_t rank) { napi_set_element(env, blamed, at++, number_value(env, rank)); });
  at = 0;
  for (int32_t i = 0; i < details.num_calls; i++) {
    const CallOfRanks& call = details.calls[i];
    for_ranks(call.ranks, [&](int32_t rank) {
      napi_value each = nullptr;
      napi_create_object(env, &each);
      set_property(env, each, "rank", number_value(env, rank));
      set_property(env, each, "op", text_value(env, call.op));
      set_property(env, each, "where", text_value(env, call.where));
      napi_set_element(env, calls, at++, each);
    });
  }
  set_property(env, object, "op", text_value(env, details.op));
  set_property(env, object, "group", text_value(env, details.group));
  set_property(env, object, "sequence", number_value(env, static_cast<double>(details.sequence)));
  set_property(env, object, "ranks", blamed);
  set_property(env, object, "calls", calls);
  return object;
}

}  // namespace

napi_value take_failure(napi_env env) {
  constexpr const char* names[] = {"SW_OK",     "SW_INVALID",  "SW_OUT_OF_MEMORY",
                                   "SW_INDEX",  "SW_DEVICE",   "SW_UNSUPPORTED",
                                   "SW_CLOSED", "SW_NO_VALUE", "SW_PEER"};
  CallFailure& failure = call_failure(env);
  failure.recorded = false;
  const FailureDetails& details = failure.error.details;
  napi_value object = nullptr;
  napi_create_object(env, &object);
  set_property(env, object, "code", text_value(env, names[static_cast<int>(failure.code)]));
  set_property(env, object, "message", text_value(env, failure.error.text));
  set_property(env, object, "id", number_value(env, static_cast<double>(details.id)));
  set_property(env, object, "namesCreations", boolean_value(env, details.names_creations != 0));
  if (details.kind == DetailsKind::Memory)
    set_property(env, object, "memory", memory_value(env, details.memory));
  if (details.kind == DetailsKind::Collective)
    set_property(env, object, "collective", collective_value(env, details.collective));
  return object;
}

napi_value answer(napi_env env, CallFailure& failure, napi_value result) {
  if (!failure.recorded) return result;
  failure.recorded = false;
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
  napi_get_cb_info(env, info, &given, args, nullptr, nullptr);  // missing arguments are undefined
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

napi_value element(napi_env env, napi_value array, uint32_t index) {
  napi_value result = nullptr, ignored = nullptr;
  if (napi_get_element(env, array, index, &result) == napi_ok) return result;
  napi_get_and_clear_last_exception(env, &ignored);
  napi_get_undefined(env, &result);
  return result;
}

void export_callback(napi_env env, napi_value exports, const char* name, napi_callback callback,
                     void* data) {
  napi_value fn = nullptr;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &fn);
  set_property(env, exports, name, fn);
}

}  // namespace shardwise
