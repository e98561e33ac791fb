// Random values and a plain reduction of them: one element at a time, in rank order, with the
// compiler's float16.
#include <cmath>
#include <cstring>

#include "selftest.h"

namespace shardwise::comm::selftest {
namespace {

struct Bf16 {
  uint16_t bits;
};

float widen(Bf16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  memcpy(&result, &bits, 4);
  return result;
}

Bf16 round_to_bf16(float value) {
  if (std::isnan(value)) return {0x7fc0};
  uint32_t bits;
  memcpy(&bits, &value, 4);
  const uint32_t below = bits & 0xffff, last = bits >> 16 & 1;
  bits >>= 16;
  if (below > 0x8000 || (below == 0x8000 && last == 1)) bits++;
  return {static_cast<uint16_t>(bits)};
}

template <class T, class A>
A load(const char* from, int64_t i) {
  T value;
  memcpy(&value, from + i * static_cast<int64_t>(sizeof(T)), sizeof value);
  if constexpr (std::is_same_v<T, Bf16>)
    return widen(value);
  else
    return static_cast<A>(value);
}

template <class A>
A combine(A a, A b, Reduce reduce) {
  constexpr bool integer = std::is_integral_v<A>;
  switch (reduce) {
    case Reduce::Product:
      if constexpr (integer)
        return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      else
        return a * b;
    case Reduce::Min:
      return std::isnan(static_cast<double>(a))   ? a
             : std::isnan(static_cast<double>(b)) ? b
             : b < a                              ? b
                                                  : a;
    case Reduce::Max:
      return std::isnan(static_cast<double>(a))   ? a
             : std::isnan(static_cast<double>(b)) ? b
             : b > a                              ? b
                                                  : a;
    default:
      if constexpr (integer)
        return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      else
        return a + b;
  }
}

// Integers are computed in int64 and truncated to their width, which is the same as wrapping at
// each step.
template <class T, class A>
void reduce_typed(const std::vector<std::vector<char>>& inputs, std::vector<char>& out,
                  Reduce reduce) {
  const int64_t count = static_cast<int64_t>(out.size() / sizeof(T));
  for (int64_t i = 0; i < count; i++) {
    A sum = load<T, A>(inputs[0].data(), i);
    for (size_t rank = 1; rank < inputs.size(); rank++)
      sum = combine(sum, load<T, A>(inputs[rank].data(), i), reduce);
    if (reduce == Reduce::Avg) sum /= static_cast<A>(inputs.size());
    T result;
    if constexpr (std::is_same_v<T, Bf16>)
      result = round_to_bf16(sum);
    else
      result = static_cast<T>(sum);
    memcpy(out.data() + i * static_cast<int64_t>(sizeof(T)), &result, sizeof result);
  }
}

void reduce_bool(const std::vector<std::vector<char>>& inputs, std::vector<char>& out,
                 Reduce reduce) {
  for (size_t i = 0; i < out.size(); i++) {
    bool any = false, all = true;
    for (const std::vector<char>& input : inputs) {
      any |= input[i] != 0;
      all &= input[i] != 0;
    }
    out[i] = reduce == Reduce::Sum || reduce == Reduce::Max ? any : all;
  }
}

template <class T>
void fill_floats(std::vector<char>& out, std::mt19937_64& random) {
  for (size_t i = 0; i < out.size() / sizeof(T); i++) {
    float value = static_cast<float>(static_cast<int64_t>(random() % 20001) - 10000) * 0.00131f;
    if (random() % 50 == 0) value = random() % 2 != 0 ? NAN : INFINITY;
    T result;
    if constexpr (std::is_same_v<T, Bf16>)
      result = round_to_bf16(value);
    else
      result = static_cast<T>(value);
    memcpy(out.data() + i * sizeof(T), &result, sizeof result);
  }
}

template <class T>
bool same_floats(const char* a, const char* b, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    const double x = load<T, float>(a, i), y = load<T, float>(b, i);
    const bool equal = std::isnan(x)
                           ? std::isnan(y)
                           : memcmp(a + i * static_cast<int64_t>(sizeof(T)),
                                    b + i * static_cast<int64_t>(sizeof(T)), sizeof(T)) == 0;
    if (!equal) return false;
  }
  return true;
}

}  // namespace

std::vector<char> random_bytes(int64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<char> out(static_cast<size_t>(bytes));
  for (char& byte : out) byte = static_cast<char>(random());
  return out;
}

std::vector<char> random_values(DType dtype, int64_t count, uint64_t seed) {
  std::vector<char> out(static_cast<size_t>(count * item_size(dtype)));
  std::mt19937_64 random(seed);
  switch (dtype) {
    case DType::Float32:
      fill_floats<float>(out, random);
      return out;
    case DType::Float64:
      fill_floats<double>(out, random);
      return out;
    case DType::Float16:
      fill_floats<_Float16>(out, random);
      return out;
    case DType::BFloat16:
      fill_floats<Bf16>(out, random);
      return out;
    case DType::Bool:
      for (char& value : out) value = random() % 3 != 0;
      return out;
    default:
      return random_bytes(static_cast<int64_t>(out.size()), seed);
  }
}

std::vector<char> reference_reduce(const std::vector<std::vector<char>>& inputs, DType dtype,
                                   Reduce reduce) {
  std::vector<char> out(inputs[0].size());
  switch (dtype) {
    case DType::Float32:
      reduce_typed<float, float>(inputs, out, reduce);
      break;
    case DType::Float64:
      reduce_typed<double, double>(inputs, out, reduce);
      break;
    case DType::Float16:
      reduce_typed<_Float16, float>(inputs, out, reduce);
      break;
    case DType::BFloat16:
      reduce_typed<Bf16, float>(inputs, out, reduce);
      break;
    case DType::Int64:
      reduce_typed<int64_t, int64_t>(inputs, out, reduce);
      break;
    case DType::Int32:
      reduce_typed<int32_t, int64_t>(inputs, out, reduce);
      break;
    case DType::Int16:
      reduce_typed<int16_t, int64_t>(inputs, out, reduce);
      break;
    case DType::Int8:
      reduce_typed<int8_t, int64_t>(inputs, out, reduce);
      break;
    case DType::UInt8:
      reduce_typed<uint8_t, int64_t>(inputs, out, reduce);
      break;
    case DType::Bool:
      reduce_bool(inputs, out, reduce);
      break;
  }
  return out;
}

bool same_values(const char* a, const char* b, DType dtype, int64_t count) {
  switch (dtype) {
    case DType::Float32:
      return same_floats<float>(a, b, count);
    case DType::Float64:
      return same_floats<double>(a, b, count);
    case DType::Float16:
      return same_floats<_Float16>(a, b, count);
    case DType::BFloat16:
      return same_floats<Bf16>(a, b, count);
    default:
      return count == 0 || memcmp(a, b, static_cast<size_t>(count * item_size(dtype))) == 0;
  }
}

}  // namespace shardwise::comm::selftest
