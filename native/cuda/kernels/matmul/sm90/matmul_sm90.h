// The tiles of matmul_sm90.cuh as matmul_sm90.cu chooses among them. Each layout is compiled in a
// file of its own.
#pragma once
#include "../matmul.h"

namespace shardwise::cuda {

struct Sm90Shape {
  const char* name;  // of a configuration (matmul_config.h)
  int32_t m, n;      // of a block
  int32_t sharers;   // blocks along m that share b
  bool ping_pong;    // the two consumers take turns with whole tiles

  // Pairs of blocks, or blocks, that a product takes.
  constexpr int64_t count(int64_t batch, int64_t rows, int64_t columns) const {
    return batch * ceil_div(rows, m * sharers) * ceil_div(columns, n);
  }
};
constexpr Sm90Shape kSm90Tiles[] = {
    {"128x256-pair", 128, 256, 2, false}, {"128x192-turns", 128, 192, 2, true},
    {"128x208-turns", 128, 208, 2, true}, {"128x128-turns", 128, 128, 2, true},
    {"128x192-pair", 128, 192, 2, false}, {"128x256", 128, 256, 1, false},
    {"128x128", 128, 128, 1, false}};
constexpr int kNumSm90Tiles = 7;

// How a tile is used.
struct Sm90Use {
  int32_t group = 8;  // tile rows that are visited together, for L2
  // steps along k that the second consumer of a tile keeps behind the first, so that one stores
  // while the
  int32_t lag = 1;
  // other multiplies
  int32_t split = 1;  // parts of k that different blocks sum
};

struct Sm90Entry {
  bool (*launch)(const MatmulProblem&, const Sm90Use&, Stream&, float4* partial);
  int64_t (*partial_bytes)(const MatmulProblem&, int32_t split);
};

// For tests: tile >= 0 computes everything that fits with this tile, and split >= 1 with this many
// parts where they fit; from `waves` pieces for each cluster on they are taken from a counter.
struct Sm90Forced {
  int tile = -1, split = 0, waves = -1;
  int taken = 0, joined = 0;  // products computed so far, and those of them in parts
};
Sm90Forced& sm90_forced();

// a contiguous along k (or along m: "mn"), b contiguous along k (or along n).
Sm90Entry matmul_sm90_nt(bool bfloat16, int tile);  // a along k, b along k: x W^T
Sm90Entry matmul_sm90_nn(bool bfloat16, int tile);  // a along k, b along n: the gradient of x
Sm90Entry matmul_sm90_tn(bool bfloat16, int tile);  // a along m, b along n: the gradient of W
Sm90Entry matmul_sm90_tt(bool bfloat16, int tile);  // a along m, b along k

}  // namespace shardwise::cuda
