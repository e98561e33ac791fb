// Configurations of matmul: the ways to compute one product, and their names in tables.
//
//   library, library:2                  cuBLASLt, the first or the third of the algorithms that it proposes
//   few-rows                            matmul_few_rows.cu
//   stream                              matmul_stream.cu
//   cluster:160,split=4                 matmul_cluster.cu, 160 columns by each cluster of 4 blocks, which cut k into as many parts
//   wgmma:128x192-turns,group=4         matmul_sm90.cu, its tile; visited in groups of 4 tile rows instead of 8
//   wgmma:128x256,split=3               with k cut into 3 parts
//   tensor-core                         matmul_sm80.cu
//   simt, simt:128                      matmul_simt.cu, its small and its large tile
//   tf32x3                              matmul_tf32x3.cu; in no table
#pragma once
#include "matmul.h"

namespace shardwise::cuda {

// A change of what a name means, or of how fast its kernel is against the others, makes tables
// measured before it void.
constexpr int32_t kMatmulConfigVersion = 1;

constexpr int32_t kClusterWidths[] = {64, 96, 128, 160, 224};
constexpr int kNumClusterWidths = 5;

enum class MatmulKernel : uint8_t {
  None,
  Library,
  FewRows,
  Stream,
  Cluster,
  Wgmma,
  TensorCore,
  Simt,
  Tf32x3
};

struct MatmulConfig {
  static constexpr uint8_t kByRule = 255;

  MatmulKernel kernel = MatmulKernel::None;
  // of wgmma, cluster: an index of kSm90Tiles, kClusterWidths; of simt: 1 for the large one; of
  // the library: its how manieth
  uint8_t tile = kByRule;
  uint8_t split = 1, group = 8;

  bool operator==(const MatmulConfig& other) const {
    return kernel == other.kernel && tile == other.tile && split == other.split &&
           group == other.group;
  }
};

// What a table knows a product by, in the orientation in which y has contiguous rows.
struct MatmulShape {
  int32_t bits = 0;    // of an element, all of them floating
  int32_t layout = 0;  // of kMatmulLayouts
  int64_t batch = 1, m = 0, n = 0, k = 0;

  bool operator==(const MatmulShape& other) const {
    return bits == other.bits && layout == other.layout && batch == other.batch && m == other.m &&
           n == other.n && k == other.k;
  }
};
// The first letter is of a: contiguous along k (n) or m (t); the second of b: along n (n) or k (t).
constexpr const char* kMatmulLayouts[] = {"nt", "nn", "tn", "tt"};

// The layout and sizes of a product of any dtype, wherever its operands begin. False where one of
// them, or y, has unit stride along no dim.
bool layout_of(const MatmulProblem& p, MatmulShape* out);

// False for what no table speaks of: other dtypes, float32 in TF32, strides that no fast kernel
// takes, operands that begin anywhere.
bool shape_of(const MatmulProblem& p, MatmulShape* out);

// A product's "bfloat16 nt 1 4096 4096 4096": dtype, layout, batch, m, n, k. `rest` points behind
// it. False if it is none.
bool parse_shape(const char* text, MatmulShape* out, const char** rest);

constexpr int kConfigNameBytes = 48;
void name_of(const MatmulConfig& config, char (&out)[kConfigNameBytes]);
bool parse_config(const char* name, MatmulConfig* out);

// Pairs of blocks (of the tile) that an SM gets one after the other; 0 for other kernels.
int64_t waves_of(const MatmulConfig& config, const MatmulShape& shape, int32_t num_sms);

// Those worth measuring for a product. Returns how many.
constexpr int kMaxConfigs = 64;
int configs_for(const MatmulShape& shape, const DeviceFacts& facts,
                MatmulConfig (&out)[kMaxConfigs]);

}  // namespace shardwise::cuda
