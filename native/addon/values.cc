#include "values.h"

#include <cstring>

namespace shardwise {

void set(Napi::Object object, const char* name, Napi::Value value) {
  object.DefineProperty(Napi::PropertyDescriptor::Value(name, value, napi_default_jsproperty));
}

Napi::Object object_of(Napi::Env env, std::initializer_list<Field> fields) {
  Napi::Object object = Napi::Object::New(env);
  for (const auto& [name, value] : fields) set(object, name, value);
  return object;
}

Napi::Value buffer_of(Napi::Env env, const std::vector<double>& numbers) {
  const size_t bytes = numbers.size() * sizeof(double);
  auto buffer = Napi::ArrayBuffer::New(env, bytes);
  if (!buffer.IsEmpty() && bytes > 0) std::memcpy(buffer.Data(), numbers.data(), bytes);
  return buffer;
}

// An array of the library has no getters. What else is given may: their exceptions are dropped.
Napi::Value element(Napi::Value array, uint32_t index) {
  const Napi::Env env = array.Env();
  napi_value result = nullptr, ignored = nullptr;
  if (napi_get_element(env, array, index, &result) == napi_ok) return {env, result};
  napi_get_and_clear_last_exception(env, &ignored);
  return env.Undefined();
}

std::string text_of(Napi::Value value) {
  size_t length = 0;
  if (napi_get_value_string_utf8(value.Env(), value, nullptr, 0, &length) != napi_ok) return {};
  std::string text(length, '\0');
  napi_get_value_string_utf8(value.Env(), value, text.data(), length + 1, nullptr);
  return text;
}

}  // namespace shardwise
