// Configurations of matmul: the kernels that can compute one product, and their names in tables.
// Tables and bench results contain the names, so "wgmma" stays the name of matmul_sm90.cu.
//
//   library, library:2           cuBLASLt, the first or the third of its proposed algorithms
//   few-rows                     matmul_few_rows.cu
//   stream                       matmul_stream.cu
//   cluster:160,split=4          matmul_cluster.cu, 160 columns by each cluster of 4 blocks, each
//                                with a quarter of k
//   wgmma:128x192-turns,group=4  matmul_sm90.cu, its tile, in groups of 4 tile rows instead of 8
//   wgmma:128x256,split=3        with k split in 3
//   tensor-core                  matmul_sm80.cu
//   simt, simt:128               matmul_simt.cu, its small and its large tile
//   tf32x3                       matmul_tf32x3.cu; in no table
#pragma once
#include "matmul.h"

namespace shardwise::cuda {

// Raise it when a name changes its meaning, or a kernel its relative speed: that invalidates
// earlier tables.
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
  // wgmma, cluster: an index of kSm90Tiles, kClusterWidths; simt: 1 for the large tile; library:
  // the index of the algorithm
  uint8_t tile = kByRule;
  uint8_t split = 1, group = 8;

  bool operator==(const MatmulConfig& other) const {
    return kernel == other.kernel && tile == other.tile && split == other.split &&
           group == other.group;
  }
};

// The key of a product in a table, in the orientation in which y has contiguous rows.
struct MatmulShape {
  int32_t bits = 0;    // bits of an element, a floating dtype
  int32_t layout = 0;  // index of kMatmulLayouts
  int64_t batch = 1, m = 0, n = 0, k = 0;

  bool operator==(const MatmulShape& other) const {
    return bits == other.bits && layout == other.layout && batch == other.batch && m == other.m &&
           n == other.n && k == other.k;
  }
};
// The first letter is of a: contiguous along k (n) or m (t); the second of b: along n (n) or k (t).
constexpr const char* kMatmulLayouts[] = {"nt", "nn", "tn", "tt"};

// The layout and sizes of a product of any dtype and alignment. False if an operand or y has unit
// stride along no dim.
bool layout_of(const MatmulProblem& p, MatmulShape* out);

// False for products that tables do not cover: other dtypes, float32 in TF32, strides that no fast
// kernel takes, unaligned operands.
bool shape_of(const MatmulProblem& p, MatmulShape* out);

// Reads "bfloat16 nt 1 4096 4096 4096": dtype, layout, batch, m, n, k. `rest` points to the text
// after it. False if the text is not a product.
bool parse_shape(const char* text, MatmulShape* out, const char** rest);

constexpr int kConfigNameBytes = 48;
void name_of(const MatmulConfig& config, char (&out)[kConfigNameBytes]);
bool parse_config(const char* name, MatmulConfig* out);

// Pairs of blocks (of the tile) that an SM computes one after the other; 0 for other kernels.
int64_t waves_of(const MatmulConfig& config, const MatmulShape& shape, int32_t num_sms);

// The configurations worth measuring for a product. Returns their number.
constexpr int kMaxConfigs = 64;
int configs_for(const MatmulShape& shape, const DeviceFacts& facts,
                MatmulConfig (&out)[kMaxConfigs]);

}  // namespace shardwise::cuda
