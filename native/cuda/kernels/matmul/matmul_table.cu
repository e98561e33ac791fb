// Tables of measured configurations, the choice by them, and its report. No kernels.
//
// A product in the table uses its measured configuration. Another uses that of the nearest measured
// product, if it is near: the same dtype, layout and class of few rows, all sizes together within
// kNear, and for our large tiles the same number of waves, because one more wave for a few blocks
// changes the best tile. All others use the rule.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "../../cublaslt.h"
#include "../../devices.h"
#include "matmul_table.h"

namespace shardwise::cuda {
namespace {

constexpr double kNear = 0.25;  // the sum of the logarithms (base 2) of the ratios of sizes

struct Entry {
  MatmulShape shape;
  MatmulConfig best, own;
};
struct Table {
  std::vector<Entry> entries;
  int64_t library = 0;  // the version of cuBLASLt that was measured
};

struct Tables {
  std::mutex mutex;
  std::shared_ptr<const Table> of_device[kMaxDevices];
  std::atomic<uint32_t> generation{1};  // changes with each table
  std::atomic<uint64_t> last[kMaxDevices] = {};
};

Tables& tables() {
  static auto* kept = new Tables;  // never destroyed: native threads may still run at exit
  return *kept;
}

// ---- look-up ----------------------------------------------------------------------------------

int row_class(int64_t rows) {
  return rows <= 8 ? 0 : rows <= 16 ? 1 : rows <= 32 ? 2 : rows <= 128 ? 3 : 4;
}

double distance(const MatmulShape& a, const MatmulShape& b) {
  const auto apart = [](int64_t x, int64_t y) {
    return std::fabs(std::log2(double(x) / double(y)));
  };
  return apart(a.m, b.m) + apart(a.n, b.n) + apart(a.k, b.k) + apart(a.batch, b.batch);
}

bool comparable(const MatmulShape& a, const Entry& entry, int32_t num_sms) {
  const MatmulShape& b = entry.shape;
  return a.bits == b.bits && a.layout == b.layout && (a.batch > 1) == (b.batch > 1) &&
         row_class(a.m) == row_class(b.m) && row_class(a.n) == row_class(b.n) &&
         waves_of(entry.best, a, num_sms) == waves_of(entry.best, b, num_sms) &&
         waves_of(entry.own, a, num_sms) == waves_of(entry.own, b, num_sms);
}

const Entry* find(const Table& table, const MatmulShape& shape, int32_t num_sms,
                  MatmulSource* source) {
  const Entry* found = nullptr;
  double nearest = kNear;
  *source = MatmulSource::Near;
  for (const Entry& entry : table.entries) {
    if (entry.shape == shape) {
      *source = MatmulSource::Table;
      return &entry;
    }
    if (!comparable(shape, entry, num_sms)) continue;
    const double apart = distance(shape, entry.shape);
    if (apart < nearest) nearest = apart, found = &entry;
  }
  return found;
}

MatmulChoice look_up(const Table& table, const MatmulShape& shape, int32_t num_sms) {
  MatmulChoice choice;
  const Entry* found = find(table, shape, num_sms, &choice.source);
  if (!found) return {};
  choice.best = found->best;
  choice.own = found->own;
  // The library orders its algorithms by version and product: for another one the index means
  // another algorithm.
  const bool same = choice.source == MatmulSource::Table && table.library == lt::version();
  if (choice.best.kernel == MatmulKernel::Library && !same) choice.best.tile = 0;
  return choice;
}

// Recent choices of a stream's thread: direct-mapped, so a product with the same slot replaces an
// entry.
struct Cache {
  static constexpr uint32_t kSlots = 256;
  struct Slot {
    MatmulShape shape;
    MatmulChoice choice;
  };
  uint32_t generation = 0;
  int32_t device = -1;
  std::shared_ptr<const Table> table;
  std::unique_ptr<Slot[]> slots;

  void renew(uint32_t now, int32_t of_device) {
    std::lock_guard<std::mutex> lock(tables().mutex);
    table = of_device < kMaxDevices ? tables().of_device[of_device] : nullptr;
    generation = now;
    device = of_device;
    slots = table ? std::make_unique<Slot[]>(kSlots) : nullptr;
  }
  static uint32_t slot_of(const MatmulShape& s) {
    uint64_t h = static_cast<uint64_t>(s.bits + s.layout * 7);
    for (const int64_t size : {s.batch, s.m, s.n, s.k})
      h = (h ^ static_cast<uint64_t>(size)) * 0xff51afd7ed558ccdu;
    return static_cast<uint32_t>(h >> 56) % kSlots;
  }
};

// ---- reports ----------------------------------------------------------------------------------

const char* source_name(MatmulSource source) {
  return source == MatmulSource::Table ? "table" : source == MatmulSource::Near ? "near" : "rule";
}

// SHARDWISE_DEBUG is a list of words; lib/cuda/variables.ts warns about unknown ones.
bool wants_reports() {
  const char* asked = std::getenv("SHARDWISE_DEBUG");
  for (const char* at = asked; at && *at; at += std::strcspn(at, ","), at += *at == ',')
    if (std::strncmp(at, "matmul", 6) == 0 && std::strcspn(at, ",") == 6) return true;
  return false;
}

bool is_reporting() {
  static const bool asked = wants_reports();
  return asked;
}

// `kernel` may have more text than the name.
void report(const MatmulProblem& p, const char* kernel, MatmulSource source) {
  static auto* reported = new std::unordered_set<std::string>;
  static std::mutex mutex;
  MatmulShape s{0, 0, p.batch, p.m, p.n, p.k};
  const char* const layout = layout_of(p, &s) ? kMatmulLayouts[s.layout] : "strided";
  char line[256];
  snprintf(line, sizeof line, "shardwise: matmul %s %s %lldx%lldx%lldx%lld by %s (%s)\n",
           dtype_name(p.dtype), layout, static_cast<long long>(s.batch),
           static_cast<long long>(s.m), static_cast<long long>(s.n), static_cast<long long>(s.k),
           kernel, source_name(source));
  std::lock_guard<std::mutex> lock(mutex);
  if (reported->insert(line).second) fputs(line, stderr);
}

uint64_t packed(const MatmulConfig& c, MatmulSource source) {
  return uint64_t(c.kernel) | uint64_t(c.tile) << 8 | uint64_t(c.split) << 16 |
         uint64_t(c.group) << 24 | uint64_t(source) << 32;
}

}  // namespace

MatmulChoice choose_matmul(const MatmulShape& shape, const Stream& stream) {
  thread_local Cache cache;
  const uint32_t now = tables().generation.load(std::memory_order_acquire);
  if (cache.generation != now || cache.device != stream.device) cache.renew(now, stream.device);
  if (!cache.table) return {};
  Cache::Slot& slot = cache.slots[Cache::slot_of(shape)];
  if (!(slot.shape == shape)) slot = {shape, look_up(*cache.table, shape, stream.facts->num_sms)};
  return slot.choice;
}

Status load_matmul_table(int32_t device, const char* text, ErrorText* error) {
  if (device < 0 || device >= kMaxDevices)
    return fail(error, Code::Device, "there is no device %d", device);
  auto table = std::make_shared<Table>();
  int line = 1, used = 0;
  long long version = 0;
  if (sscanf(text, "library %lld\n%n", &version, &used) == 1)
    table->library = version, text += used, line++;
  for (; *text; line++) {
    Entry entry;
    const char* rest = nullptr;
    const size_t length = std::strcspn(text, "\n");
    const char* const own = parse_shape(text, &entry.shape, &rest) && *rest == ' '
                                ? std::strchr(rest + 1, ' ')
                                : nullptr;
    if (!own || own > text + length || !parse_config(rest + 1, &entry.best) ||
        !parse_config(own + 1, &entry.own))
      return fail(error, Code::Invalid, "line %d, \"%.*s\", is not a shape and two configurations",
                  line, static_cast<int>(std::min<size_t>(length, 120)), text);
    table->entries.push_back(entry);
    text += length + (text[length] == '\n');
  }
  Tables& all = tables();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.of_device[device] = table->entries.empty() ? nullptr : table;
  all.last[device].store(0, std::memory_order_relaxed);
  all.generation.fetch_add(1, std::memory_order_release);
  return kOk;
}

void record_matmul(const MatmulProblem& p, const MatmulConfig& config, MatmulSource source,
                   int32_t device) {
  if (device < kMaxDevices)
    tables().last[device].store(packed(config, source), std::memory_order_relaxed);
  if (!is_reporting()) return;
  char name[kConfigNameBytes], kernel[kConfigNameBytes + 8];
  name_of(config, name);
  // Our kernels compute float32 in full precision, whatever is allowed; those of tf32x3 have that
  // name.
  const bool tf32 = config.kernel == MatmulKernel::Library && p.dtype == DType::Float32 &&
                    p.precision == Float32Precision::Tf32;
  snprintf(kernel, sizeof kernel, "%s%s", name, tf32 ? " in tf32" : "");
  report(p, kernel, source);
}

void record_matmul(const MatmulProblem& p, const char* kernel) {
  if (is_reporting()) report(p, kernel, MatmulSource::Rule);
}

int32_t matmul_configs(int32_t device, const char* problem, char* out, int32_t bytes) {
  MatmulShape shape;
  const char* rest = nullptr;
  out[0] = 0;
  if (!parse_shape(problem, &shape, &rest) || *rest) return 0;
  MatmulConfig configs[kMaxConfigs];
  const int count = configs_for(shape, *device_facts(device), configs);
  int at = 0;
  for (int i = 0; i < count && at + kConfigNameBytes < bytes; i++) {
    char name[kConfigNameBytes];
    name_of(configs[i], name);
    at += snprintf(out + at, static_cast<size_t>(bytes - at), "%s%s", i ? "\n" : "", name);
  }
  return count;
}

void last_matmul(int32_t device, char* out, int32_t bytes) {
  const uint64_t word = device >= 0 && device < kMaxDevices
                            ? tables().last[device].load(std::memory_order_relaxed)
                            : 0;
  out[0] = 0;
  if (word == 0) return;
  MatmulConfig config;
  config.kernel = static_cast<MatmulKernel>(word & 255);
  config.tile = static_cast<uint8_t>(word >> 8);
  config.split = static_cast<uint8_t>(word >> 16);
  config.group = static_cast<uint8_t>(word >> 24);
  char name[kConfigNameBytes];
  name_of(config, name);
  snprintf(out, static_cast<size_t>(bytes), "%s %s", name,
           source_name(static_cast<MatmulSource>(word >> 32)));
}

}  // namespace shardwise::cuda
