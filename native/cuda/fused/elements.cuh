// What generated kernels consist of: element types, their loads, stores and roundings, and what
// keeps the arithmetic of a step apart from that of others. Compiled at run time only, behind
// math.cuh (source.cc), so it includes nothing.
//
// The conversions are those of primitives/dtype.cuh, which needs CUDA's headers for 16-bit floats;
// a rounding to bfloat16 that stays in registers takes one instruction here.
#pragma once

namespace shardwise::cuda::fused {

#define SW_INLINE __device__ __forceinline__

SW_INLINE void begin_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- steps -------------------------------------------------------------------------------------
// A step gives what the kernel of its op gives. The compiler fuses a product and a sum into one
// operation within an expression, and decides by how often the product is used, so it must see
// neither the step before nor the same operand in another step.

// The same value, unrelated to `x` for the first half of the compiler.
template <int Id>
SW_INLINE float apart(float x) {
  asm("// %1" : "+f"(x) : "n"(Id));
  return x;
}
template <int Id>
SW_INLINE double apart(double x) {
  asm("// %1" : "+d"(x) : "n"(Id));
  return x;
}
template <int Id>
SW_INLINE int64_t apart(int64_t x) {
  return x;
}

// The same value, unrelated to `x` for both halves, since they do not know that `zero` is 0.
SW_INLINE float sealed(float x, uint32_t zero) {
  return __uint_as_float(__float_as_uint(x) ^ zero);
}
SW_INLINE double sealed(double x, uint32_t zero) {
  return __hiloint2double(__double2hiint(x), __double2loint(x) ^ static_cast<int32_t>(zero));
}

// ---- element types ------------------------------------------------------------------------------
// Value is what an element is between steps, exactly. `get` and `put` access element j of packed
// words, which are 0 before the first `put`. `round` makes a Value of a result.

struct float32 {
  using Value = float;
  static constexpr int bytes = 4;
  static SW_INLINE float get(const uint32_t* words, int j) { return __uint_as_float(words[j]); }
  static SW_INLINE void put(uint32_t* words, int j, float v) { words[j] = __float_as_uint(v); }
  template <class C>
  static SW_INLINE float round(C v) {
    return static_cast<float>(v);
  }
};

struct float64 {
  using Value = double;
  static constexpr int bytes = 8;
  static SW_INLINE double get(const uint32_t* words, int j) {
    return __hiloint2double(static_cast<int32_t>(words[2 * j + 1]),
                            static_cast<int32_t>(words[2 * j]));
  }
  static SW_INLINE void put(uint32_t* words, int j, double v) {
    words[2 * j] = static_cast<uint32_t>(__double2loint(v));
    words[2 * j + 1] = static_cast<uint32_t>(__double2hiint(v));
  }
  template <class C>
  static SW_INLINE double round(C v) {
    return static_cast<double>(v);
  }
};

SW_INLINE uint32_t half_of(const uint32_t* words, int j) { return words[j / 2] >> (j % 2 * 16); }
SW_INLINE void put_half(uint32_t* words, int j, uint32_t bits) {
  words[j / 2] |= bits << (j % 2 * 16);
}

struct bfloat16 {
  using Value = float;
  static constexpr int bytes = 2;
  static SW_INLINE float get(const uint32_t* words, int j) {
    return __uint_as_float(j % 2 == 0 ? words[j / 2] << 16 : words[j / 2] & 0xffff0000u);
  }
  static SW_INLINE void put(uint32_t* words, int j, float v) {
    put_half(words, j, __float_as_uint(v) >> 16);
  }
  static SW_INLINE uint32_t pair(float low, float high) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  static SW_INLINE float round(float v) { return __uint_as_float(pair(0.0f, v)); }
  static SW_INLINE float round(double v) {
#if __CUDA_ARCH__ >= 900
    uint16_t bits;
    asm("cvt.rn.bf16.f64 %0, %1;" : "=h"(bits) : "d"(v));
    return __uint_as_float(static_cast<uint32_t>(bits) << 16);
#else  // as cuda_bf16.hpp does: toward zero, with the last bit set if that is not exact
    const float near = static_cast<float>(v);
    const double exact = near;
    uint32_t bits = __float_as_uint(near);
    if ((v > 0.0 && exact > v) || (v < 0.0 && exact < v)) bits--;
    if (exact != v && v == v) bits |= 1u;
    return round(__uint_as_float(bits));
#endif
  }
  static SW_INLINE float round(int64_t v) { return round(static_cast<double>(v)); }
};

struct float16 {
  using Value = float;
  static constexpr int bytes = 2;
  static SW_INLINE float widen(uint32_t bits) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(static_cast<uint16_t>(bits)));
    return v;
  }
  static SW_INLINE float get(const uint32_t* words, int j) { return widen(half_of(words, j)); }
  static SW_INLINE void put(uint32_t* words, int j, float v) {
    put_half(words, j, pair(v, 0.0f) & 0xffffu);
  }
  static SW_INLINE uint32_t pair(float low, float high) {
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
  }
  static SW_INLINE float round(float v) { return widen(pair(v, 0.0f)); }
  static SW_INLINE float round(double v) {
    uint16_t bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(v));
    return widen(bits);
  }
  static SW_INLINE float round(int64_t v) { return round(static_cast<double>(v)); }
};

// A float becomes an integer through int64.
template <class Element>
struct Integer {
  using Value = int64_t;
  static constexpr int bytes = sizeof(Element);
  static SW_INLINE int64_t get(const uint32_t* words, int j) {
    if constexpr (bytes == 8)
      return static_cast<int64_t>(static_cast<uint64_t>(words[2 * j + 1]) << 32 | words[2 * j]);
    else
      return static_cast<Element>(words[j * bytes / 4] >> (j * bytes % 4 * 8));
  }
  static SW_INLINE void put(uint32_t* words, int j, int64_t v) {
    if constexpr (bytes == 8) {
      words[2 * j] = static_cast<uint32_t>(v);
      words[2 * j + 1] = static_cast<uint32_t>(static_cast<uint64_t>(v) >> 32);
    } else {
      constexpr uint32_t mask = bytes == 4 ? 0xffffffffu : (1u << (bytes % 4 * 8)) - 1;
      words[j * bytes / 4] |= (static_cast<uint32_t>(v) & mask) << (j * bytes % 4 * 8);
    }
  }
  template <class C>
  static SW_INLINE int64_t round(C v) {
    return static_cast<Element>(static_cast<int64_t>(v));
  }
};
using int64 = Integer<int64_t>;
using int32 = Integer<int32_t>;
using int16 = Integer<int16_t>;
using int8 = Integer<int8_t>;
using uint8 = Integer<uint8_t>;

// Any byte but 0 is true.
struct boolean {
  using Value = bool;
  static constexpr int bytes = 1;
  static SW_INLINE bool get(const uint32_t* words, int j) {
    return (words[j / 4] >> (j % 4 * 8) & 0xffu) != 0;
  }
  static SW_INLINE void put(uint32_t* words, int j, bool v) {
    words[j / 4] |= static_cast<uint32_t>(v) << (j % 4 * 8);
  }
  template <class C>
  static SW_INLINE bool round(C v) {
    return v != C(0);
  }
};

// W results as elements of type T, rounded. Two 16-bit floats take one instruction.
template <class T, class C, int W, int N>
SW_INLINE void pack(const C (&results)[W], uint32_t (&words)[N]) {
  constexpr bool is_half = T::bytes == 2 && sizeof(typename T::Value) == 4;
  if constexpr (is_half && sizeof(C) == 4 && W % 2 == 0) {
#pragma unroll
    for (int j = 0; j < W; j += 2) words[j / 2] = T::pair(results[j], results[j + 1]);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) words[i] = 0;
#pragma unroll
    for (int j = 0; j < W; j++) T::put(words, j, T::round(results[j]));
  }
}

// ---- memory ------------------------------------------------------------------------------------
// All loads are volatile, so that they stay in order behind begin_grid(), before the first use.

__device__ constexpr int words_of(int bytes) { return (bytes + 3) / 4; }

template <int Bytes>
SW_INLINE void load(uint32_t* words, const char* from) {
  if constexpr (Bytes >= 16) {
#pragma unroll
    for (int i = 0; i < Bytes / 16; i++)
      asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[4 * i]), "=r"(words[4 * i + 1]), "=r"(words[4 * i + 2]),
                     "=r"(words[4 * i + 3])
                   : "l"(from + 16 * i));
  } else if constexpr (Bytes == 8) {
    asm volatile("ld.global.v2.b32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from));
  } else if constexpr (Bytes == 4) {
    asm volatile("ld.global.b32 %0, [%1];" : "=r"(words[0]) : "l"(from));
  } else if constexpr (Bytes == 2) {
    uint16_t half;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(half) : "l"(from));
    words[0] = half;
  } else {
    asm volatile("ld.global.u8 %0, [%1];" : "=r"(words[0]) : "l"(from));
  }
}

template <int Bytes>
SW_INLINE void store(char* to, const uint32_t* words) {
  if constexpr (Bytes >= 16) {
#pragma unroll
    for (int i = 0; i < Bytes / 16; i++)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to + 16 * i), "r"(words[4 * i]),
                   "r"(words[4 * i + 1]), "r"(words[4 * i + 2]), "r"(words[4 * i + 3])
                   : "memory");
  } else if constexpr (Bytes == 8) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1])
                 : "memory");
  } else if constexpr (Bytes == 4) {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
  } else if constexpr (Bytes == 2) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(to), "h"(static_cast<uint16_t>(words[0]))
                 : "memory");
  } else {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(to), "r"(words[0]) : "memory");
  }
}

// The first `count` of W elements, the others 0.
template <class T, int W>
SW_INLINE void load_some(uint32_t* words, const char* from, int64_t count) {
  constexpr int n = words_of(T::bytes);
#pragma unroll
  for (int i = 0; i < words_of(T::bytes * W); i++) words[i] = 0;
#pragma unroll
  for (int j = 0; j < W; j++) {
    uint32_t element[n] = {};
    if (j < count) load<T::bytes>(element, from + j * T::bytes);
#pragma unroll
    for (int i = 0; i < n; i++) words[j * T::bytes / 4 + i] |= element[i] << (j * T::bytes % 4 * 8);
  }
}

template <class T, int W>
SW_INLINE void store_some(char* to, const uint32_t* words, int64_t count) {
  constexpr int n = words_of(T::bytes);
#pragma unroll
  for (int j = 0; j < W; j++) {
    uint32_t element[n];
#pragma unroll
    for (int i = 0; i < n; i++) element[i] = words[j * T::bytes / 4 + i] >> (j * T::bytes % 4 * 8);
    if (j < count) store<T::bytes>(to + j * T::bytes, element);
  }
}

// A division of n < 2^31 (FastDivide of primitives/offsets.cuh); leaves the quotient in n and
// returns the remainder.
struct Divide {
  uint32_t divisor, magic, shift, unused;
  SW_INLINE uint32_t remainder(uint32_t& n) const {
    const uint32_t quotient = (__umulhi(n, magic) + n) >> shift;
    const uint32_t left = n - quotient * divisor;
    n = quotient;
    return left;
  }
};

#undef SW_INLINE

}  // namespace shardwise::cuda::fused
