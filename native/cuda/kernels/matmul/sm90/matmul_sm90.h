// The tiles of matmul_sm90.cuh among which matmul_sm90.cu chooses. CMakeLists.txt generates a file
// for each layout.
#pragma once
#include "../matmul.h"

namespace shardwise::cuda {

struct Sm90Shape {
  const char* name;  // in a configuration (matmul_config.h)
  int32_t m, n;      // of the tile of a block
  int32_t sharers;   // blocks along m that share tiles of b
  bool ping_pong;    // the two consumers take turns with whole tiles

  // Tiles of a product; pairs of blocks if two share b.
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
  int32_t group = 8;  // tile rows computed together, for L2
  // steps along k by which the second consumer of a tile lags, so that one stores while the other
  // multiplies
  int32_t lag = 1;
  int32_t split = 1;  // splits of k on different blocks
};

struct Sm90Entry {
  bool (*launch)(const MatmulProblem&, const Sm90Use&, Stream&, float4* partial);
  int64_t (*partial_bytes)(const MatmulProblem&, int32_t split);
};

// For tests: tile >= 0 forces this tile, split >= 1 forces this split, where they fit; with at
// least `waves` tiles per cluster, clusters take tiles from a counter.
struct Sm90Forced {
  int tile = -1, split = 0, waves = -1;
  int taken = 0, joined = 0;  // products computed so far, and those of them with a split
};
Sm90Forced& sm90_forced();

// The entry of a tile by layout: a contiguous along k (along m for t), b contiguous along k (along
// n for n).
Sm90Entry matmul_sm90_nt(bool bfloat16, int tile);  // x W^T
Sm90Entry matmul_sm90_nn(bool bfloat16, int tile);  // the gradient of x
Sm90Entry matmul_sm90_tn(bool bfloat16, int tile);  // the gradient of W
Sm90Entry matmul_sm90_tt(bool bfloat16, int tile);

}  // namespace shardwise::cuda
