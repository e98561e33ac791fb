// wgmma (sm_90a): products of 64 x N x 16 by the four warps of a warpgroup, float16 or bfloat16 in,
// float32 out. Operands are in shared memory in rows of 128 bytes, swizzled as the copy engine
// writes them (CU_TENSOR_MAP_SWIZZLE_128B), and addressed by descriptors; a may also be in
// registers:
//   K-major    row = one row of the operand, 64 elements along k; 8 rows are 1024 bytes;
//              16 elements along k are 32 bytes
//   MN-major   row = one k, 64 elements along m (n); 8 of k are 1024 bytes; 16 along k are 2048
//              bytes; the next 64 of m (n) begin `kGroupBytes` further (or as the descriptor says)
//   registers  the fragments of mma.cuh, 16 rows a warp: neighbouring accumulators, rounded and
//              packed, are fragments along k
// Accumulators: of warp w (0 to 3) and lane l, element 4 j + e is at row 16 w + l / 4 + 8 (e / 2),
// column 8 j + 2 (l % 4) + e % 2.
#pragma once
#include "dtype.cuh"
#include "hopper.cuh"

#if SW_SM90A
namespace shardwise::cuda {

// k is 64 deep in shared memory, so 64 columns of an MN-major operand take 64 x 128 bytes.
constexpr uint32_t kGroupBytes = 64 * 128;

// `address` is a multiple of 1024 plus the step along k.
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t address, bool mn_major,
                                                      uint32_t group_bytes = kGroupBytes) {
  const uint64_t leading = mn_major ? group_bytes >> 4 : 1, eight_rows = 1024 >> 4, swizzle_128 = 1;
  return uint64_t((address & 0x3ffff) >> 4) | leading << 16 | eight_rows << 32 | swizzle_128 << 62;
}

// Orders the registers of the accumulators before the next wgmma.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// A compiler fence for operands in registers: it must not touch them before this point, although it
// sees them written where the product starts.
template <int N>
__device__ __forceinline__ void wgmma_fence_operand(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
__device__ __forceinline__ void wgmma_fence_operand(uint32_t (&a)[N][4]) {
#pragma unroll
  for (int i = 0; i < N * 4; i++) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

// Registers in groups of sixteen: the text of their numbers and the operands.
#define SW_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SW_R1 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SW_R2 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SW_R3 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SW_R4 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define SW_R5 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SW_R6 \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define SW_R7 \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SW_H5 "%80, %81, %82, %83, %84, %85, %86, %87"
#define SW_H6 "%96, %97, %98, %99, %100, %101, %102, %103"
#define SW_D8(u)                                                                      \
  "+f"(d[16 * u + 0]), "+f"(d[16 * u + 1]), "+f"(d[16 * u + 2]), "+f"(d[16 * u + 3]), \
      "+f"(d[16 * u + 4]), "+f"(d[16 * u + 5]), "+f"(d[16 * u + 6]), "+f"(d[16 * u + 7])
#define SW_D(u)                                                                             \
  "+f"(d[16 * u + 0]), "+f"(d[16 * u + 1]), "+f"(d[16 * u + 2]), "+f"(d[16 * u + 3]),       \
      "+f"(d[16 * u + 4]), "+f"(d[16 * u + 5]), "+f"(d[16 * u + 6]), "+f"(d[16 * u + 7]),   \
      "+f"(d[16 * u + 8]), "+f"(d[16 * u + 9]), "+f"(d[16 * u + 10]), "+f"(d[16 * u + 11]), \
      "+f"(d[16 * u + 12]), "+f"(d[16 * u + 13]), "+f"(d[16 * u + 14]), "+f"(d[16 * u + 15])
#define SW_WGMMA(N, TYPE, NUMBERS, A, B, P, TA, TB, ...)                                          \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " P                                            \
               ", 0;\n wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" NUMBERS \
               "}, " A ", " B ", p, 1, 1, " TA ", " TB ";\n}"                                     \
               : __VA_ARGS__                                                                      \
               : "l"(a), "l"(b), "r"(accumulate), "n"(int(MajorA)), "n"(int(MajorB)))
#define SW_WGMMA_OF(N, ...)                         \
  if constexpr (std::is_same<T, bfloat16_t>::value) \
    SW_WGMMA(N, "bf16", __VA_ARGS__);               \
  else                                              \
    SW_WGMMA(N, "f16", __VA_ARGS__)

// d = a b, or d += a b if `accumulate` is not 0. MajorA, MajorB: the operand is MN-major.
template <class T, int N, bool MajorA, bool MajorB>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b,
                                      int32_t accumulate) {
  static_assert((N % 32 == 0 && N >= 32 && N <= 256) || N == 176 || N == 208,
                "the sizes spelled out below");
  if constexpr (N == 32) {
    SW_WGMMA_OF("32", SW_R0, "%16", "%17", "%18", "%19", "%20", SW_D(0));
  } else if constexpr (N == 64) {
    SW_WGMMA_OF("64", SW_R0 ", " SW_R1, "%32", "%33", "%34", "%35", "%36", SW_D(0), SW_D(1));
  } else if constexpr (N == 96) {
    SW_WGMMA_OF("96", SW_R0 ", " SW_R1 ", " SW_R2, "%48", "%49", "%50", "%51", "%52", SW_D(0),
                SW_D(1), SW_D(2));
  } else if constexpr (N == 128) {
    SW_WGMMA_OF("128", SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3, "%64", "%65", "%66", "%67", "%68",
                SW_D(0), SW_D(1), SW_D(2), SW_D(3));
  } else if constexpr (N == 160) {
    SW_WGMMA_OF("160", SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3 ", " SW_R4, "%80", "%81", "%82",
                "%83", "%84", SW_D(0), SW_D(1), SW_D(2), SW_D(3), SW_D(4));
  } else if constexpr (N == 176) {
    SW_WGMMA_OF("176", SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3 ", " SW_R4 ", " SW_H5, "%88", "%89",
                "%90", "%91", "%92", SW_D(0), SW_D(1), SW_D(2), SW_D(3), SW_D(4), SW_D8(5));
  } else if constexpr (N == 192) {
    SW_WGMMA_OF("192", SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3 ", " SW_R4 ", " SW_R5, "%96", "%97",
                "%98", "%99", "%100", SW_D(0), SW_D(1), SW_D(2), SW_D(3), SW_D(4), SW_D(5));
  } else if constexpr (N == 208) {
    SW_WGMMA_OF("208", SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3 ", " SW_R4 ", " SW_R5 ", " SW_H6,
                "%104", "%105", "%106", "%107", "%108", SW_D(0), SW_D(1), SW_D(2), SW_D(3), SW_D(4),
                SW_D(5), SW_D8(6));
  } else if constexpr (N == 224) {
    SW_WGMMA_OF("224", SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3 ", " SW_R4 ", " SW_R5 ", " SW_R6,
                "%112", "%113", "%114", "%115", "%116", SW_D(0), SW_D(1), SW_D(2), SW_D(3), SW_D(4),
                SW_D(5), SW_D(6));
  } else if constexpr (N == 256) {
    SW_WGMMA_OF("256",
                SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3 ", " SW_R4 ", " SW_R5 ", " SW_R6 ", " SW_R7,
                "%128", "%129", "%130", "%131", "%132", SW_D(0), SW_D(1), SW_D(2), SW_D(3), SW_D(4),
                SW_D(5), SW_D(6), SW_D(7));
  }
}

#define SW_WGMMA_REGISTERS(N, TYPE, NUMBERS, A, B, P, TB, ...)                             \
  asm volatile(                                                                            \
      "{\n .reg .pred p;\n setp.ne.b32 p, " P ", 0;\n wgmma.mma_async.sync.aligned.m64n" N \
      "k16.f32." TYPE "." TYPE " {" NUMBERS "}, {" A "}, " B ", p, 1, 1, " TB ";\n}"       \
      : __VA_ARGS__                                                                        \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(int(MajorB)))
#define SW_WGMMA_REGISTERS_OF(N, ...)               \
  if constexpr (std::is_same<T, bfloat16_t>::value) \
    SW_WGMMA_REGISTERS(N, "bf16", __VA_ARGS__);     \
  else                                              \
    SW_WGMMA_REGISTERS(N, "f16", __VA_ARGS__)

// The same with a, 64 x 16, in registers. They must not change before the product is complete.
template <class T, int N, bool MajorB>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b,
                                      int32_t accumulate) {
  static_assert(N == 64 || N == 128, "the sizes spelled out below");
  if constexpr (N == 64) {
    SW_WGMMA_REGISTERS_OF("64", SW_R0 ", " SW_R1, "%32, %33, %34, %35", "%36", "%37", "%38",
                          SW_D(0), SW_D(1));
  } else {
    SW_WGMMA_REGISTERS_OF("128", SW_R0 ", " SW_R1 ", " SW_R2 ", " SW_R3, "%64, %65, %66, %67",
                          "%68", "%69", "%70", SW_D(0), SW_D(1), SW_D(2), SW_D(3));
  }
}

#undef SW_WGMMA_REGISTERS_OF
#undef SW_WGMMA_REGISTERS
#undef SW_WGMMA_OF
#undef SW_WGMMA
#undef SW_D
#undef SW_D8
#undef SW_H5
#undef SW_H6
#undef SW_R0
#undef SW_R1
#undef SW_R2
#undef SW_R3
#undef SW_R4
#undef SW_R5
#undef SW_R6
#undef SW_R7

}  // namespace shardwise::cuda
#endif
