#include "nccl_api.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "nccl.h"

namespace shardwise::cuda::nccl {
namespace {

constexpr const char* kSoname = "libnccl.so.2";
constexpr const char* kVariable = "SHARDWISE_NCCL_PATH";

// The candidates from the addon.
std::string& candidates() {
  static auto* list = new std::string;
  return *list;
}

// Else the file or folder in SHARDWISE_NCCL_PATH, else the loader's own search.
std::string own_candidates() {
  const char* chosen = std::getenv(kVariable);
  if (!chosen || !*chosen) return kSoname;
  struct stat info;
  const bool folder = stat(chosen, &info) == 0 && S_ISDIR(info.st_mode);
  return folder ? std::string(chosen) + "/" + kSoname : chosen;
}

template <class F>
bool bind(void* opened, const char* name, F* out, std::string* reason) {
  *out = reinterpret_cast<F>(dlsym(opened, name));
  if (!*out && reason->empty()) *reason = std::string("it has no ") + name;
  return *out != nullptr;
}

bool bind_all(void* o, Api* api, std::string* reason) {
  return bind(o, "ncclGetErrorString", &api->error_string, reason) &&
         bind(o, "ncclGetLastError", &api->last_error, reason) &&
         bind(o, "ncclGetUniqueId", &api->unique_id, reason) &&
         bind(o, "ncclCommInitRankConfig", &api->init, reason) &&
         bind(o, "ncclCommSplit", &api->split, reason) &&
         bind(o, "ncclCommCount", &api->count, reason) &&
         bind(o, "ncclCommUserRank", &api->user_rank, reason) &&
         bind(o, "ncclCommGetAsyncError", &api->async_error, reason) &&
         bind(o, "ncclCommDestroy", &api->destroy, reason) &&
         bind(o, "ncclCommAbort", &api->abort, reason) &&
         bind(o, "ncclGroupStart", &api->group_start, reason) &&
         bind(o, "ncclGroupEnd", &api->group_end, reason) &&
         bind(o, "ncclAllReduce", &api->all_reduce, reason) &&
         bind(o, "ncclReduce", &api->reduce, reason) &&
         bind(o, "ncclBroadcast", &api->broadcast, reason) &&
         bind(o, "ncclAllGather", &api->all_gather, reason) &&
         bind(o, "ncclReduceScatter", &api->reduce_scatter, reason) &&
         bind(o, "ncclSend", &api->send, reason) && bind(o, "ncclRecv", &api->receive, reason);
}

std::string words_of(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

// Null if the library can be used.
std::string reason_against(void* opened, Api* api, int* version) {
  std::string reason;
  if (!bind(opened, "ncclGetVersion", &api->version, &reason)) return reason;
  if (api->version(version) != kSuccess) return "it does not tell its version";
  // Before 2.9 the version numbers had another form, and were smaller.
  if (*version < kOldestVersion || *version >= 30000)
    return "version " + words_of(*version) + ", but 2.18 or a newer 2.x is needed";
  bind_all(opened, api, &reason);
  return reason;
}

bool try_open(Library* out, const std::string& path) {
  void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* text = opened ? nullptr : dlerror();
  int version = 0;
  const std::string reason = opened ? reason_against(opened, &out->api, &version)
                             : text ? text
                                    : "unknown reason";
  out->ready = reason.empty();
  if (!out->ready) {
    // The loader's own text begins with the path.
    out->report += (reason.rfind(path, 0) == 0 ? reason : path + ": " + reason) + "\n";
    return false;
  }
  struct link_map* map = nullptr;
  const bool known =
      dlinfo(opened, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0];
  out->report = std::string(known ? map->l_name : path.c_str()) + ", version " + words_of(version);
  return true;
}

void find_library(Library* out) {
  const char* chosen = std::getenv(kVariable);
  if (chosen && std::strcmp(chosen, "off") == 0) {
    out->report = std::string("switched off by ") + kVariable;
    return;
  }
  const std::string list = candidates().empty() ? own_candidates() : candidates();
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find('\n', at), list.size());
    if (try_open(out, list.substr(at, end - at))) return;
    at = end + 1;
  }
  if (!out->report.empty()) out->report.pop_back();
}

}  // namespace

void look_at(const char* list) { candidates() = list; }

const Library& library() {
  static const Library* kept = [] {
    // never destroyed: native threads may still run at exit
    auto* created = new Library;
    find_library(created);
    return created;
  }();
  return *kept;
}

const char* report() { return library().report.c_str(); }

Status need(const Api** out, ErrorText* error) {
  const Library& found = library();
  *out = &found.api;
  if (found.ready) return kOk;
  return fail(error, Code::Unsupported,
              "collectives between GPUs need NCCL 2.18 or newer, which could not be opened: "
              "install libnccl2 (a package of the system) or "
              "nvidia-nccl-cu13 (a Python wheel), or set %s to a libnccl.so.2. Tried: %s",
              kVariable, found.report.c_str());
}

}  // namespace shardwise::cuda::nccl
