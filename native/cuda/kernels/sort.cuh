// What sort and topk share: the operands, and the map from elements to unsigned keys whose order is the order wanted.
#pragma once
#include "../primitives/dtype.cuh"
#include "../primitives/offsets.cuh"
#include "../primitives/scan.cuh"
#include "../stream.h"
#include "radix_sort.cuh"

namespace shardwise::cuda::sorting {

struct SortArgs {
  const void* x;
  void* values;
  int64_t* indices;
  DType dtype;
  bool flip;           // largest first
  int64_t rows, n, k;  // the first k of the sorted row are written
  int64_t x_step, values_step, indices_step;
  OffsetCalculator<3> row_offsets;  // x, values, indices
};

// Bits of a key of this dtype; more than 32 means 64-bit keys.
inline int key_bits(DType dtype) { return static_cast<int>(item_size(dtype) * 8); }

// Ascending keys: NaN last, -0 equal to 0. Only the low key_bits are used.
__device__ __forceinline__ uint32_t float_key(uint32_t bits, uint32_t sign, uint32_t infinity) {
  const uint32_t all = sign | (sign - 1), magnitude = bits & (sign - 1);
  if (magnitude > infinity) return all;
  if (magnitude == 0) bits = 0;
  return (bits & sign) ? bits ^ all : bits | sign;
}

__device__ __forceinline__ uint64_t double_key(uint64_t bits) {
  const uint64_t sign = uint64_t(1) << 63, magnitude = bits & (sign - 1);
  if (magnitude > 0x7ff0000000000000ull) return ~uint64_t(0);
  if (magnitude == 0) bits = 0;
  return (bits & sign) ? ~bits : bits | sign;
}

template <class Key>
__device__ __forceinline__ Key key_at(const void* x, int64_t at, DType dtype, bool flip) {
  if constexpr (sizeof(Key) == 8) {
    const uint64_t bits = static_cast<const uint64_t*>(x)[at];
    const uint64_t key = dtype == DType::Float64 ? double_key(bits) : bits ^ (uint64_t(1) << 63);
    return flip ? ~key : key;
  } else {
    switch (dtype) {
      case DType::Float32: {
        const uint32_t key = float_key(static_cast<const uint32_t*>(x)[at], 0x80000000u, 0x7f800000u);
        return flip ? ~key : key;
      }
      case DType::Int32: {
        const uint32_t key = static_cast<const uint32_t*>(x)[at] ^ 0x80000000u;
        return flip ? ~key : key;
      }
      case DType::Float16:
      case DType::BFloat16: {
        const uint32_t infinity = dtype == DType::Float16 ? 0x7c00u : 0x7f80u;
        const uint32_t key = float_key(static_cast<const uint16_t*>(x)[at], 0x8000u, infinity);
        return flip ? key ^ 0xffffu : key;
      }
      case DType::Int16: {
        const uint32_t key = static_cast<const uint16_t*>(x)[at] ^ 0x8000u;
        return flip ? key ^ 0xffffu : key;
      }
      default: {
        uint32_t key = static_cast<const uint8_t*>(x)[at];
        if (dtype == DType::Int8) key ^= 0x80u;
        if (dtype == DType::Bool) key = key != 0;
        return flip ? key ^ 0xffu : key;
      }
    }
  }
}

// Writes entry i of the sorted row: the element itself is copied, bits and all.
__device__ __forceinline__ void write_entry(const SortArgs& args, const Offsets<3>& row, int64_t i, int64_t position) {
  const int64_t from = row[0] + position * args.x_step, to = row[1] + i * args.values_step;
  switch (item_size(args.dtype)) {
    case 8: static_cast<uint64_t*>(args.values)[to] = static_cast<const uint64_t*>(args.x)[from]; break;
    case 4: static_cast<uint32_t*>(args.values)[to] = static_cast<const uint32_t*>(args.x)[from]; break;
    case 2: static_cast<uint16_t*>(args.values)[to] = static_cast<const uint16_t*>(args.x)[from]; break;
    default: static_cast<uint8_t*>(args.values)[to] = static_cast<const uint8_t*>(args.x)[from]; break;
  }
  args.indices[row[2] + i * args.indices_step] = position;
}

// Fills the arguments from the operands x -> values, indices.
SortArgs make_args(const KernelCall& call, int64_t k, bool flip);

// The whole-row sort, writing the first args.k entries (sort.cu).
Status sort_rows(const KernelCall& call, const SortArgs& args);

}  // namespace shardwise::cuda::sorting
