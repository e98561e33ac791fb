// Names, shapes and lists of configurations (matmul_config.h). No kernels.
#include <cstdlib>
#include <cstring>

#include "../../cublaslt.h"
#include "matmul_config.h"
#include "sm90/matmul_sm90.h"

namespace shardwise::cuda {
namespace {

constexpr const char* kKernelNames[] = {"none",  "library",     "few-rows", "stream", "cluster",
                                        "wgmma", "tensor-core", "simt",     "tf32x3"};

// Whether all rows of 16-byte vectors are aligned, from the first element and along the other dims.
bool aligned(const MatrixView& v, int64_t step, int64_t size, int64_t batch, int64_t item) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && (size == 1 || step * item % 16 == 0) &&
         (batch == 1 || v.batch_stride * item % 16 == 0);
}

bool positive(const char* text, const char** end, int64_t* out) {
  char* stop = nullptr;
  *out = std::strtoll(text, &stop, 10);
  *end = stop;
  return stop != text && *out > 0 && *out < (int64_t(1) << 40);
}

// Reads a word of the list at the front of `text`; -1 if there is none.
template <size_t N>
int word_of(const char* text, const char* const (&list)[N], const char** rest) {
  const size_t length = std::strcspn(text, " :,\n");
  for (size_t i = 0; i < N; i++)
    if (std::strlen(list[i]) == length && std::strncmp(list[i], text, length) == 0) {
      *rest = text + length;
      return static_cast<int>(i);
    }
  return -1;
}

bool parse_number(const char* text, const char* name, uint8_t* out, const char** rest) {
  const size_t length = std::strlen(name);
  int64_t value = 0;
  if (std::strncmp(text, name, length) != 0 || !positive(text + length, rest, &value) || value > 64)
    return false;
  *out = static_cast<uint8_t>(value);
  return true;
}

// Reads the text after the colon.
bool parse_tile(const char* text, MatmulConfig* out, const char** rest) {
  const size_t length = std::strcspn(text, ", \n");
  const auto is = [&](const char* word) {
    return std::strlen(word) == length && std::strncmp(word, text, length) == 0;
  };
  if (out->kernel == MatmulKernel::Library)
    return parse_number(text, "", &out->tile, rest) && out->tile < lt::kSuggestions;
  *rest = text + length;
  if (out->kernel == MatmulKernel::Simt) {
    out->tile = 1;
    return is("128");
  }
  if (out->kernel == MatmulKernel::Cluster) {
    for (int i = 0; i < kNumClusterWidths; i++)
      if (std::atoi(text) == kClusterWidths[i]) out->tile = static_cast<uint8_t>(i);
    return out->tile < kNumClusterWidths;
  }
  for (int i = 0; i < kNumSm90Tiles && out->kernel == MatmulKernel::Wgmma; i++)
    if (is(kSm90Tiles[i].name)) out->tile = static_cast<uint8_t>(i);
  return out->tile < kNumSm90Tiles;
}

struct List {
  MatmulConfig (&out)[kMaxConfigs];
  int count = 0;

  void add(MatmulKernel kernel, int tile = MatmulConfig::kByRule, int64_t split = 1,
           int group = 8) {
    if (count == kMaxConfigs) return;
    MatmulConfig& config = out[count++];
    config.kernel = kernel;
    config.tile = static_cast<uint8_t>(tile);
    config.split = static_cast<uint8_t>(split);
    config.group = static_cast<uint8_t>(group);
  }
};

void add_sm90(const MatmulShape& shape, int tile, int32_t num_sms, List* list) {
  const Sm90Shape& t = kSm90Tiles[tile];
  if (t.sharers > 1 && shape.m <= t.m) return;
  const int64_t count = t.count(shape.batch, shape.m, shape.n), slots = num_sms / t.sharers,
                steps = ceil_div(shape.k, 64);
  list->add(MatmulKernel::Wgmma, tile);
  if (count > 2 * slots && shape.m > 16 * t.m)
    for (const int group : {4, 16}) list->add(MatmulKernel::Wgmma, tile, 1, group);
  if (t.ping_pong) return;
  int64_t most = slots / count < steps / 4 ? slots / count : steps / 4;
  if (most > 16) most = 16;
  for (const int64_t split : {most, most - 1, most / 2})
    if (split > 1 && (split == most || split < most)) list->add(MatmulKernel::Wgmma, tile, split);
}

// Adds the widths that keep at least half of the SMs busy, and the widest.
void add_clusters(const MatmulShape& shape, int32_t num_sms, List* list) {
  for (int width = 0; width < kNumClusterWidths; width++)
    for (const int splits : {1, 2, 4, 8}) {
      const int64_t blocks = ceil_div(shape.n, kClusterWidths[width]) * shape.batch * splits;
      const bool widest = width == kNumClusterWidths - 1, deep = shape.k >= 128 * splits;
      if (deep && (blocks * 2 >= num_sms || (widest && splits == 8)) &&
          (blocks <= num_sms || (widest && splits == 1)))
        list->add(MatmulKernel::Cluster, width, splits);
    }
}

// The product in the orientation in which y has contiguous rows. False if y has them in neither, or
// if a or b has unit stride along no dim.
struct Oriented {
  MatmulProblem p;
  bool a_along_k = false, b_along_k = false;

  bool orient(const MatmulProblem& problem) {
    const bool rows = problem.y.column_stride == 1 || problem.n == 1,
               columns = problem.y.row_stride == 1 || problem.m == 1;
    if (!rows && !columns) return false;
    // One column is reported as one row.
    p = !rows || (columns && problem.n == 1) ? problem.transposed() : problem;
    a_along_k = p.a.column_stride == 1 || p.k == 1, b_along_k = p.b.row_stride == 1 || p.k == 1;
    return (a_along_k || p.a.row_stride == 1 || p.m <= 1) &&
           (b_along_k || p.b.column_stride == 1 || p.n <= 1);
  }

  void report(MatmulShape* out) const {
    out->layout = a_along_k ? (b_along_k ? 0 : 1) : (b_along_k ? 3 : 2);
    out->batch = p.batch, out->m = p.m, out->n = p.n, out->k = p.k;
  }
};

}  // namespace

bool layout_of(const MatmulProblem& problem, MatmulShape* out) {
  Oriented o;
  if (!o.orient(problem)) return false;
  o.report(out);
  return true;
}

bool shape_of(const MatmulProblem& problem, MatmulShape* out) {
  const bool sixteen = problem.dtype == DType::Float16 || problem.dtype == DType::BFloat16;
  if (!sixteen &&
      (problem.dtype != DType::Float32 || problem.precision != Float32Precision::Highest))
    return false;
  Oriented o;
  if (!o.orient(problem)) return false;
  const MatmulProblem& p = o.p;
  const int64_t item = item_size(p.dtype);
  if (!aligned(p.a, o.a_along_k ? p.a.row_stride : p.a.column_stride, o.a_along_k ? p.m : p.k,
               p.batch, item) ||
      !aligned(p.b, o.b_along_k ? p.b.column_stride : p.b.row_stride, o.b_along_k ? p.n : p.k,
               p.batch, item))
    return false;
  out->bits = sixteen ? 16 : 32;
  o.report(out);
  return true;
}

bool parse_shape(const char* text, MatmulShape* out, const char** rest) {
  constexpr const char* kDtypes[] = {"float16", "bfloat16", "float32"};
  const int dtype = word_of(text, kDtypes, &text);
  if (dtype < 0 || *text++ != ' ') return false;
  out->bits = dtype == 2 ? 32 : 16;
  out->layout = word_of(text, kMatmulLayouts, &text);
  if (out->layout < 0) return false;
  for (int64_t* size : {&out->batch, &out->m, &out->n, &out->k})
    if (*text != ' ' || !positive(text, &text, size)) return false;
  *rest = text;
  return true;
}

void name_of(const MatmulConfig& config, char (&out)[kConfigNameBytes]) {
  const bool wgmma = config.kernel == MatmulKernel::Wgmma && config.tile < kNumSm90Tiles;
  const bool cluster = config.kernel == MatmulKernel::Cluster && config.tile < kNumClusterWidths;
  char split[16] = "", group[16] = "", number[16] = "";
  if (config.kernel == MatmulKernel::Library && config.tile > 0)
    snprintf(number, sizeof number, "%d", config.tile);
  if (cluster) snprintf(number, sizeof number, "%d", kClusterWidths[config.tile]);
  const char* tile = wgmma ? kSm90Tiles[config.tile].name
                     : config.kernel == MatmulKernel::Simt && config.tile == 1 ? "128"
                                                                               : number;
  if ((wgmma || cluster) && config.split > 1)
    snprintf(split, sizeof split, ",split=%d", config.split);
  if (wgmma && config.group != 8) snprintf(group, sizeof group, ",group=%d", config.group);
  snprintf(out, sizeof out, "%s%s%s%s%s", kKernelNames[static_cast<int>(config.kernel)],
           *tile ? ":" : "", tile, split, group);
}

bool parse_config(const char* name, MatmulConfig* out) {
  MatmulConfig config;
  const int kernel = word_of(name, kKernelNames, &name);
  if (kernel <= 0) return false;
  config.kernel = static_cast<MatmulKernel>(kernel);
  if (config.kernel == MatmulKernel::Simt || config.kernel == MatmulKernel::Library)
    config.tile = 0;
  if (*name == ':' && !parse_tile(name + 1, &config, &name)) return false;
  const bool wgmma = config.kernel == MatmulKernel::Wgmma,
             cluster = config.kernel == MatmulKernel::Cluster;
  if ((wgmma && config.tile >= kNumSm90Tiles) || (cluster && config.tile >= kNumClusterWidths))
    return false;
  if (*name == ',' && std::strncmp(name, ",split=", 7) == 0 &&
      !parse_number(name, ",split=", &config.split, &name))
    return false;
  if (*name == ',' && !parse_number(name, ",group=", &config.group, &name)) return false;
  if (*name && *name != ' ' && *name != '\n') return false;
  if ((!wgmma && config.group != 8) || (!wgmma && !cluster && config.split != 1)) return false;
  if (cluster && (config.split > 8 || (config.split & (config.split - 1)) != 0)) return false;
  *out = config;
  return true;
}

int64_t waves_of(const MatmulConfig& config, const MatmulShape& shape, int32_t num_sms) {
  if (config.kernel == MatmulKernel::Cluster && config.tile < kNumClusterWidths)
    return ceil_div(ceil_div(shape.n, kClusterWidths[config.tile]) * shape.batch * config.split,
                    num_sms);
  if (config.kernel != MatmulKernel::Wgmma || config.tile >= kNumSm90Tiles) return 0;
  const Sm90Shape& t = kSm90Tiles[config.tile];
  return ceil_div(t.count(shape.batch, shape.m, shape.n) * config.split, num_sms / t.sharers);
}

int configs_for(const MatmulShape& shape, const DeviceFacts& facts,
                MatmulConfig (&out)[kMaxConfigs]) {
  List list{out};
  const int64_t few = shape.m < shape.n ? shape.m : shape.n;
  for (int i = 0; i < lt::kSuggestions; i++) list.add(MatmulKernel::Library, i);
  if (few <= 8) list.add(MatmulKernel::FewRows);
  if (shape.bits == 16 && is_sm90(facts)) {
    if (few <= 32) list.add(MatmulKernel::Stream);
    if (few > 8 && shape.m <= 128 && shape.layout == 0) add_clusters(shape, facts.num_sms, &list);
    if (few > 16)
      for (int tile = 0; tile < kNumSm90Tiles; tile++) add_sm90(shape, tile, facts.num_sms, &list);
  } else if (shape.bits == 16) {
    list.add(MatmulKernel::TensorCore);
  } else if (few > 8) {
    for (const int tile : {0, 1}) list.add(MatmulKernel::Simt, tile);
  }
  return list.count;
}

}  // namespace shardwise::cuda
