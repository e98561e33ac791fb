// cuBLASLt at run time: finds the library, and caches one plan (descriptors, algorithm, workspace
// size) per kind of product. The declarations below follow the library's binary interface, the same
// in versions 12 and 13.
#include "cublaslt.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace shardwise::cuda::lt {
namespace {

// ---- the binary interface ----------------------------------------------------------------------

using Handle = void*;
using Layout = void*;
using Desc = void*;
using Preference = void*;
struct Algo {
  uint64_t data[8];
};
struct Heuristic {
  Algo algo;
  size_t workspace;
  int32_t status;
  float waves;
  int32_t reserved[4];
};
static_assert(sizeof(Heuristic) == 96, "cublasLtMatmulHeuristicResult_t");

enum : int32_t {
  kSuccess = 0,
  kNotSupported = 15,
  kTypeFloat32 = 0,
  kTypeFloat64 = 1,
  kTypeFloat16 = 2,
  kTypeBFloat16 = 14,
  kCompute32 = 68,
  kCompute64 = 70,
  kComputeTf32 = 77,
  kDescTransposeA = 3,
  kDescTransposeB = 4,
  kDescEpilogue = 7,
  kDescBiasPointer = 8,
  kEpilogueBias = 4,
  kLayoutBatchCount = 5,
  kLayoutBatchStride = 6,
  kPreferenceWorkspace = 1,
  kPreferenceReductionSchemes = 3,
  kPreferenceAlignmentA = 5,  // B, C, D follow
  kReductionInComputeType = 2,
};

struct Api {
  size_t (*version)();
  const char* (*status_string)(int32_t);
  int32_t (*create)(Handle*);
  int32_t (*desc_create)(Desc*, int32_t compute, int32_t scale);
  int32_t (*desc_destroy)(Desc);
  int32_t (*desc_set)(Desc, int32_t attribute, const void*, size_t);
  int32_t (*layout_create)(Layout*, int32_t type, uint64_t rows, uint64_t columns, int64_t leading);
  int32_t (*layout_destroy)(Layout);
  int32_t (*layout_set)(Layout, int32_t attribute, const void*, size_t);
  int32_t (*preference_create)(Preference*);
  int32_t (*preference_destroy)(Preference);
  int32_t (*preference_set)(Preference, int32_t attribute, const void*, size_t);
  int32_t (*heuristic)(Handle, Desc, Layout a, Layout b, Layout c, Layout d, Preference,
                       int32_t wanted, Heuristic*, int32_t* got);
  int32_t (*matmul)(Handle, Desc, const void* alpha, const void* a, Layout, const void* b, Layout,
                    const void* beta, const void* c, Layout, void* d, Layout, const Algo*,
                    void* workspace, size_t bytes, cudaStream_t);
};

// ---- search for the library -------------------------------------------------------------------

constexpr int kMaxDevices = 64;

struct Library {
  State state = State::Absent;
  std::string report;
  Api api = {};
  std::mutex mutex;
  Handle handles[kMaxDevices] = {};
};

std::atomic<bool> allowed{true};

// Opens `path`. If a library that it needs is in the same folder but not on the loader's path, that
// one is opened first.
void* open_with_siblings(const std::string& path, std::string* reason) {
  for (int attempt = 0; attempt < 4; attempt++) {
    if (void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
    const char* text = dlerror();
    *reason = text ? text : "unknown reason";
    const size_t end = reason->find(": cannot open shared object file"), slash = path.rfind('/');
    if (end == std::string::npos || slash == std::string::npos) return nullptr;
    const std::string sibling = path.substr(0, slash + 1) + reason->substr(0, end);
    struct stat info;
    if (sibling == path || stat(sibling.c_str(), &info) != 0 ||
        !dlopen(sibling.c_str(), RTLD_NOW | RTLD_LOCAL))
      return nullptr;
  }
  return nullptr;
}

template <class F>
bool bind(void* library, const char* name, F* out, std::string* reason) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  if (!*out) *reason = std::string("it has no ") + name;
  return *out != nullptr;
}

bool bind_all(void* l, Api* api, std::string* reason) {
  return bind(l, "cublasLtGetVersion", &api->version, reason) &&
         bind(l, "cublasLtGetStatusString", &api->status_string, reason) &&
         bind(l, "cublasLtCreate", &api->create, reason) &&
         bind(l, "cublasLtMatmulDescCreate", &api->desc_create, reason) &&
         bind(l, "cublasLtMatmulDescDestroy", &api->desc_destroy, reason) &&
         bind(l, "cublasLtMatmulDescSetAttribute", &api->desc_set, reason) &&
         bind(l, "cublasLtMatrixLayoutCreate", &api->layout_create, reason) &&
         bind(l, "cublasLtMatrixLayoutDestroy", &api->layout_destroy, reason) &&
         bind(l, "cublasLtMatrixLayoutSetAttribute", &api->layout_set, reason) &&
         bind(l, "cublasLtMatmulPreferenceCreate", &api->preference_create, reason) &&
         bind(l, "cublasLtMatmulPreferenceDestroy", &api->preference_destroy, reason) &&
         bind(l, "cublasLtMatmulPreferenceSetAttribute", &api->preference_set, reason) &&
         bind(l, "cublasLtMatmulAlgoGetHeuristic", &api->heuristic, reason) &&
         bind(l, "cublasLtMatmul", &api->matmul, reason);
}

// Takes an opened library if its version has the interface declared here.
bool accept(Library* out, void* opened, const std::string& name) {
  std::string reason;
  if (!bind_all(opened, &out->api, &reason)) {
    out->report += name + ": " + reason + "\n";
    return false;
  }
  const size_t version = out->api.version();
  const size_t major = version / 10000;
  if (major < 12 || major > 13) {
    out->report += name + ": version " + std::to_string(version) + ", but 12 or 13 is needed\n";
    return false;
  }
  struct link_map* map = nullptr;
  const bool known =
      dlinfo(opened, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0];
  out->report =
      std::string(known ? map->l_name : name.c_str()) + ", version " + std::to_string(version);
  out->state = State::Ready;
  return true;
}

bool try_open(Library* out, const std::string& path) {
  std::string reason;
  void* opened = open_with_siblings(path, &reason);
  if (opened) return accept(out, opened, path);
  // The loader's own text begins with the path.
  out->report += (reason.rfind(path, 0) == 0 ? reason : path + ": " + reason) + "\n";
  return false;
}

// The candidates from the addon; else the loader's own search.
std::string& candidates() {
  static auto* list = new std::string("libcublasLt.so.13\nlibcublasLt.so.12");
  return *list;
}

void find_library(Library* out) {
  const char* chosen = std::getenv("SHARDWISE_CUBLASLT_PATH");
  if (chosen && std::strcmp(chosen, "off") == 0) {
    out->report = "switched off by SHARDWISE_CUBLASLT_PATH";
    return;
  }
  const std::string& list = candidates();
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find('\n', at), list.size());
    if (try_open(out, list.substr(at, end - at))) return;
    at = end + 1;
  }
  if (chosen && *chosen) out->state = State::Misconfigured;
  if (!out->report.empty())
    out->report.pop_back();
  else
    out->report = "there is no libcublasLt.so.13 or .12";
}

Library& library() {
  static Library* kept = [] {
    // never destroyed: native threads may still run at exit
    Library* created = new Library;
    find_library(created);
    return created;
  }();
  return *kept;
}

Handle handle_of(Library& lib, int32_t device, int32_t* status) {
  *status = kSuccess;
  if (device < 0 || device >= kMaxDevices) return nullptr;
  std::lock_guard<std::mutex> lock(lib.mutex);
  if (!lib.handles[device]) *status = lib.api.create(&lib.handles[device]);
  return lib.handles[device];
}

// ---- plans -------------------------------------------------------------------------------------

struct Key {
  int64_t words[16];
  bool operator==(const Key& other) const {
    return std::memcmp(words, other.words, sizeof words) == 0;
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t h = 0x9e3779b97f4a7c15u;
    for (const int64_t word : key.words) {
      h = (h ^ static_cast<uint64_t>(word)) * 0xff51afd7ed558ccdu;
      h ^= h >> 32;
    }
    return h;
  }
};

struct Plan {
  bool usable = false;
  Desc desc = nullptr;
  Layout a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  Algo algo = {};
  size_t workspace = 0;
};

// One per thread, which is the native thread of a stream: needs no lock, and setting a bias pointer
// does not affect other threads.
struct PlanCache {
  std::unordered_map<Key, Plan, KeyHash> plans;
  static constexpr size_t kLimit = 4096;

  ~PlanCache() { clear(); }
  void clear() {
    const Api& api = library().api;
    for (auto& entry : plans) {
      Plan& plan = entry.second;
      if (plan.desc) api.desc_destroy(plan.desc);
      for (Layout layout : {plan.a, plan.b, plan.c, plan.d})
        if (layout) api.layout_destroy(layout);
    }
    plans.clear();
  }
};

thread_local PlanCache cache;

int32_t type_of(DType dtype) {
  switch (dtype) {
    case DType::Float64:
      return kTypeFloat64;
    case DType::Float16:
      return kTypeFloat16;
    case DType::BFloat16:
      return kTypeBFloat16;
    default:
      return kTypeFloat32;
  }
}

// The largest power of two up to 256 that divides the address and the batch step.
uint32_t alignment_of(const Product::Matrix& m, int64_t batch, int64_t item) {
  uint64_t bits = reinterpret_cast<uint64_t>(m.data) | 256;
  if (batch > 1) bits |= static_cast<uint64_t>(m.batch_stride * item);
  return static_cast<uint32_t>(bits & (~bits + 1));
}

// Of c and d.
DType result_dtype(const Product& p) { return p.wide ? DType::Float32 : p.dtype; }

Layout layout_of(const Api& api, const Product& p, DType dtype, const Product::Matrix& m,
                 uint64_t rows, uint64_t columns) {
  Layout layout = nullptr;
  if (m.transposed) std::swap(rows, columns);
  if (api.layout_create(&layout, type_of(dtype), rows, columns, m.leading) != kSuccess)
    return nullptr;
  if (p.batch > 1) {
    const int32_t count = static_cast<int32_t>(p.batch);
    api.layout_set(layout, kLayoutBatchCount, &count, sizeof count);
    api.layout_set(layout, kLayoutBatchStride, &m.batch_stride, sizeof m.batch_stride);
  }
  return layout;
}

Plan make_plan(const Api& api, Handle handle, const Product& p, const uint32_t (&alignment)[4]) {
  Plan plan;
  const bool is_double = p.dtype == DType::Float64;
  if (api.desc_create(&plan.desc,
                      is_double ? kCompute64
                      : p.tf32  ? kComputeTf32
                                : kCompute32,
                      is_double ? kTypeFloat64 : kTypeFloat32) != kSuccess)
    return plan;
  const int32_t ta = p.a.transposed, tb = p.b.transposed, epilogue = kEpilogueBias;
  api.desc_set(plan.desc, kDescTransposeA, &ta, sizeof ta);
  api.desc_set(plan.desc, kDescTransposeB, &tb, sizeof tb);
  if (p.bias) {
    api.desc_set(plan.desc, kDescEpilogue, &epilogue, sizeof epilogue);
    api.desc_set(plan.desc, kDescBiasPointer, &p.bias, sizeof p.bias);
  }
  plan.a = layout_of(api, p, p.dtype, p.a, p.rows, p.inner);
  plan.b = layout_of(api, p, p.dtype, p.b, p.inner, p.columns);
  plan.c = layout_of(api, p, result_dtype(p), p.c.data ? p.c : p.d, p.rows, p.columns);
  plan.d = layout_of(api, p, result_dtype(p), p.d, p.rows, p.columns);
  Preference preference = nullptr;
  if (!plan.a || !plan.b || !plan.c || !plan.d || api.preference_create(&preference) != kSuccess)
    return plan;
  const size_t limit = kScratchBytes;
  api.preference_set(preference, kPreferenceWorkspace, &limit, sizeof limit);
  // Partial products of a split along k are summed in the compute type; by default they may be
  // rounded to 16 bits first.
  const uint32_t reductions = kReductionInComputeType;
  api.preference_set(preference, kPreferenceReductionSchemes, &reductions, sizeof reductions);
  for (int i = 0; i < 4; i++)
    api.preference_set(preference, kPreferenceAlignmentA + i, &alignment[i], sizeof alignment[i]);
  Heuristic results[kSuggestions];
  int32_t got = 0, usable = 0;
  if (api.heuristic(handle, plan.desc, plan.a, plan.b, plan.c, plan.d, preference, kSuggestions,
                    results, &got) == kSuccess)
    for (int32_t i = 0; i < got && !plan.usable; i++) {
      if (results[i].status != kSuccess || results[i].workspace > limit || usable++ != p.suggestion)
        continue;
      plan.algo = results[i].algo;
      plan.workspace = results[i].workspace;
      plan.usable = true;
    }
  api.preference_destroy(preference);
  return plan;
}

}  // namespace

void look_at(const char* list) { candidates() = list; }
State state() { return library().state; }
int64_t version() {
  return library().state == State::Ready ? static_cast<int64_t>(library().api.version()) : 0;
}
const char* report() { return library().report.c_str(); }
void allow(bool on) { allowed = on; }

Outcome product(const Product& p, Stream& stream, const KernelCall& call, Status* status) {
  if (!allowed || library().state != State::Ready) return Outcome::Declined;
  constexpr int64_t kMaxSize = (int64_t(1) << 31) - 1;
  if (p.rows > kMaxSize || p.columns > kMaxSize || p.inner > kMaxSize || p.batch > kMaxSize)
    return Outcome::Declined;
  Library& lib = library();
  const Api& api = lib.api;
  int32_t code = kSuccess;
  const Handle handle = handle_of(lib, stream.device, &code);
  if (!handle) {
    if (code == kSuccess) return Outcome::Declined;
    *status = fail(call.error, Code::Device, "cublasLtCreate: %s", api.status_string(code));
    return Outcome::Failed;
  }

  const int64_t item = item_size(p.dtype), result = item_size(result_dtype(p));
  const Product::Matrix& c = p.c.data ? p.c : p.d;
  const uint32_t alignment[4] = {alignment_of(p.a, p.batch, item), alignment_of(p.b, p.batch, item),
                                 alignment_of(c, p.batch, result),
                                 alignment_of(p.d, p.batch, result)};
  int64_t flags = static_cast<int64_t>(p.dtype) | p.a.transposed << 4 | p.b.transposed << 5 |
                  (p.bias != nullptr) << 6 | (p.c.data == p.d.data) << 7 | (p.beta != 0) << 8 |
                  int64_t(stream.device) << 9;
  for (int i = 0; i < 4; i++) flags = flags << 9 | alignment[i];
  const Key key{{flags, p.rows, p.columns, p.inner, p.batch, p.a.leading, p.b.leading, c.leading,
                 p.d.leading, p.a.batch_stride, p.b.batch_stride, c.batch_stride, p.d.batch_stride,
                 p.bias ? int64_t(reinterpret_cast<uintptr_t>(p.bias) & 15) : 0, p.suggestion,
                 p.tf32 | p.wide << 1}};
  auto found = cache.plans.find(key);
  if (found == cache.plans.end()) {
    if (cache.plans.size() >= PlanCache::kLimit) cache.clear();
    found = cache.plans.emplace(key, make_plan(api, handle, p, alignment)).first;
  }
  Plan& plan = found->second;
  if (!plan.usable) return Outcome::Declined;
  void* workspace = nullptr;
  if (plan.workspace > 0) {
    workspace = p.scratch ? p.scratch : stream.workspace(kScratchBytes, call);
    if (!workspace) {
      *status = Status{Code::OutOfMemory};
      return Outcome::Failed;
    }
  }
  if (p.bias) api.desc_set(plan.desc, kDescBiasPointer, &p.bias, sizeof p.bias);
  const float alpha32 = static_cast<float>(p.alpha), beta32 = static_cast<float>(p.beta);
  const bool is_double = p.dtype == DType::Float64;
  code = api.matmul(handle, plan.desc, is_double ? static_cast<const void*>(&p.alpha) : &alpha32,
                    p.a.data, plan.a, p.b.data, plan.b,
                    is_double ? static_cast<const void*>(&p.beta) : &beta32, c.data, plan.c,
                    const_cast<void*>(p.d.data), plan.d, &plan.algo, workspace,
                    workspace ? kScratchBytes : 0, stream.handle);
  if (code == kSuccess) return Outcome::Done;
  if (code == kNotSupported) {
    plan.usable = false;
    return Outcome::Declined;
  }
  *status = fail(call.error, Code::Device, "cublasLtMatmul: %s", api.status_string(code));
  return Outcome::Failed;
}

}  // namespace shardwise::cuda::lt
