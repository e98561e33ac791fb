// Shared by sort and topk: the operands, and the map from elements to unsigned keys in the wanted
// order.
#pragma once
#include "../../primitives/dtype.cuh"
#include "../../primitives/offsets.cuh"
#include "../../primitives/scan.cuh"
#include "../../stream.h"
#include "radix_sort.cuh"

namespace shardwise::cuda::sorting {

struct SortArgs {
  const void* x;
  void* values;
  int64_t* indices;
  DType dtype;
  bool flip;           // largest first
  int64_t rows, n, k;  // the first k entries of the sorted row are written
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

// The key of an element from its bits.
template <class Key>
__device__ __forceinline__ Key key_of(Key bits, DType dtype, bool flip) {
  if constexpr (sizeof(Key) == 8) {
    const uint64_t key = dtype == DType::Float64 ? double_key(bits) : bits ^ (uint64_t(1) << 63);
    return flip ? ~key : key;
  } else {
    switch (dtype) {
      case DType::Float32: {
        const uint32_t key = float_key(bits, 0x80000000u, 0x7f800000u);
        return flip ? ~key : key;
      }
      case DType::Int32: {
        const uint32_t key = bits ^ 0x80000000u;
        return flip ? ~key : key;
      }
      case DType::Float16:
      case DType::BFloat16: {
        const uint32_t infinity = dtype == DType::Float16 ? 0x7c00u : 0x7f80u;
        const uint32_t key = float_key(bits, 0x8000u, infinity);
        return flip ? key ^ 0xffffu : key;
      }
      case DType::Int16: {
        const uint32_t key = bits ^ 0x8000u;
        return flip ? key ^ 0xffffu : key;
      }
      default: {
        uint32_t key = bits;
        if (dtype == DType::Int8) key ^= 0x80u;
        if (dtype == DType::Bool) key = key != 0;
        return flip ? key ^ 0xffu : key;
      }
    }
  }
}

// The bits of the element with this key; false if several have it (zeros, NaNs, bools of any byte).
template <class Key>
__device__ __forceinline__ bool bits_of(Key key, DType dtype, bool flip, Key& bits) {
  const Key sign = Key(1) << (item_size(dtype) * 8 - 1), all = sign | (sign - 1);
  if (flip) key ^= all;
  if (is_floating(dtype)) {
    bits = key & sign ? key ^ sign : key ^ all;
    return key != sign && key != all;
  }
  bits = dtype == DType::UInt8 ? key : key ^ sign;
  return dtype != DType::Bool;
}

// Keys of several elements; all loads are in flight before the first conversion.
template <class Key, int N>
__device__ __forceinline__ void keys_at(const SortArgs& args, const int64_t (&at)[N],
                                        Key (&keys)[N]) {
  const auto load = [&](auto tag) {
#pragma unroll
    for (int u = 0; u < N; u++) keys[u] = static_cast<const tag_t<decltype(tag)>*>(args.x)[at[u]];
  };
  if constexpr (sizeof(Key) == 8) {
    load(TypeTag<uint64_t>{});
  } else {
    switch (item_size(args.dtype)) {
      case 4:
        load(TypeTag<uint32_t>{});
        break;
      case 2:
        load(TypeTag<uint16_t>{});
        break;
      default:
        load(TypeTag<uint8_t>{});
        break;
    }
  }
#pragma unroll
  for (int u = 0; u < N; u++) keys[u] = key_of<Key>(keys[u], args.dtype, args.flip);
}

template <class Key>
__device__ __forceinline__ Key key_at(const SortArgs& args, int64_t at) {
  const int64_t places[1] = {at};
  Key keys[1];
  keys_at(args, places, keys);
  return keys[0];
}

// Writes entries first, first + step, ... of a sorted row: copies the elements at these positions,
// with their bits.
template <class Word, class Position>
__device__ __forceinline__ void write_words(const SortArgs& args, const Offsets<3>& row,
                                            int64_t first, int64_t step,
                                            const Position* positions) {
  constexpr int kInFlight = 4;
  const Word* const x = static_cast<const Word*>(args.x) + row[0];
  Word* const values = static_cast<Word*>(args.values) + row[1];
  int64_t* const indices = args.indices + row[2];
  for (int64_t i = first; i < args.k; i += kInFlight * step) {
    Word words[kInFlight];
    int64_t from[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; u++)
      from[u] = positions[i + u * step < args.k ? i + u * step : i];
#pragma unroll
    for (int u = 0; u < kInFlight; u++) words[u] = x[from[u] * args.x_step];
#pragma unroll
    for (int u = 0; u < kInFlight; u++) {
      if (i + u * step >= args.k) break;
      values[(i + u * step) * args.values_step] = words[u];
      indices[(i + u * step) * args.indices_step] = from[u];
    }
  }
}

template <class Position>
__device__ __forceinline__ void write_entries(const SortArgs& args, const Offsets<3>& row,
                                              int64_t first, int64_t step,
                                              const Position* positions) {
  switch (item_size(args.dtype)) {
    case 8:
      return write_words<uint64_t>(args, row, first, step, positions);
    case 4:
      return write_words<uint32_t>(args, row, first, step, positions);
    case 2:
      return write_words<uint16_t>(args, row, first, step, positions);
    default:
      return write_words<uint8_t>(args, row, first, step, positions);
  }
}

// Fills the arguments from the operands x -> values, indices.
SortArgs make_args(const KernelCall& call, int64_t k, bool flip);

// Returns false, and launches nothing, for rows that no block can hold (sort_block.cu).
bool sort_rows_in_blocks(const SortArgs& args, const Stream& stream);

// Sorts whole rows and writes the first args.k entries (sort.cu).
Status sort_rows(const KernelCall& call, const SortArgs& args);

}  // namespace shardwise::cuda::sorting
