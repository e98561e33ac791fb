#include "nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace shardwise::cuda::nvrtc {
namespace {

// ---- the binary interface, the same in versions 12 and 13 ---------------------------------------

using Program = void*;
constexpr int32_t kSuccess = 0;
constexpr int32_t kMinimumVersion = 12000;

struct Api {
  int32_t (*version)(int32_t* major, int32_t* minor);
  const char* (*error_string)(int32_t);
  int32_t (*num_architectures)(int32_t*);
  int32_t (*architectures)(int32_t*);
  int32_t (*create)(Program*, const char* source, const char* name, int32_t num_headers,
                    const char* const* headers, const char* const* names);
  int32_t (*destroy)(Program*);
  int32_t (*compile)(Program, int32_t num_options, const char* const* options);
  int32_t (*log_size)(Program, size_t*);
  int32_t (*log)(Program, char*);
  int32_t (*code_size)(Program, size_t*);
  int32_t (*code)(Program, char*);
};

struct Library {
  bool is_ready = false;
  std::string report;
  int32_t version = 0;
  std::vector<int32_t> architectures;
  Api api = {};
};

// ---- search for the library -------------------------------------------------------------------

// The candidates from the addon; else the loader's own search.
std::string& candidates() {
  static auto* list = new std::string("libnvrtc.so.13\nlibnvrtc.so.12");
  return *list;
}

template <class F>
bool bind(void* library, const char* name, F* out, std::string* reason) {
  *out = reinterpret_cast<F>(dlsym(library, name));
  if (!*out) *reason = std::string("it has no ") + name;
  return *out != nullptr;
}

bool bind_all(void* l, Api* api, std::string* reason) {
  return bind(l, "nvrtcVersion", &api->version, reason) &&
         bind(l, "nvrtcGetErrorString", &api->error_string, reason) &&
         bind(l, "nvrtcGetNumSupportedArchs", &api->num_architectures, reason) &&
         bind(l, "nvrtcGetSupportedArchs", &api->architectures, reason) &&
         bind(l, "nvrtcCreateProgram", &api->create, reason) &&
         bind(l, "nvrtcDestroyProgram", &api->destroy, reason) &&
         bind(l, "nvrtcCompileProgram", &api->compile, reason) &&
         bind(l, "nvrtcGetProgramLogSize", &api->log_size, reason) &&
         bind(l, "nvrtcGetProgramLog", &api->log, reason) &&
         bind(l, "nvrtcGetCUBINSize", &api->code_size, reason) &&
         bind(l, "nvrtcGetCUBIN", &api->code, reason);
}

std::string version_text(int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string path_of(void* opened, const std::string& name) {
  struct link_map* map = nullptr;
  const bool known =
      dlinfo(opened, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0];
  return known ? map->l_name : name;
}

// NVRTC opens a second library by its name, and does not find the one beside it that Python's
// wheels have. If that one is open already, the name suffices.
void open_builtins(const std::string& path, int32_t version) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return;
  const std::string name = "libnvrtc-builtins.so." + version_text(version);
  dlopen((path.substr(0, slash + 1) + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string accept(Library* out, void* opened, const std::string& name) {
  std::string reason;
  if (!bind_all(opened, &out->api, &reason)) return reason;
  int32_t major = 0, minor = 0, count = 0;
  out->api.version(&major, &minor);
  out->version = major * 1000 + minor * 10;
  if (out->version < kMinimumVersion)
    return "version " + version_text(out->version) + ", but " + version_text(kMinimumVersion) +
           " or newer is needed";
  out->api.num_architectures(&count);
  out->architectures.resize(static_cast<size_t>(std::max(count, 0)));
  if (count > 0) out->api.architectures(out->architectures.data());
  const std::string path = path_of(opened, name);
  open_builtins(path, out->version);
  out->report = path + ", version " + version_text(out->version);
  out->is_ready = true;
  return "";
}

// Why a candidate cannot be used; "" if it is in use now.
std::string try_open(Library* out, const std::string& path) {
  if (void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    const std::string reason = accept(out, opened, path);
    return reason.empty() ? reason : path + ": " + reason;
  }
  const char* text = dlerror();
  const std::string reason = text ? text : "unknown reason";
  return reason.rfind(path, 0) == 0 ? reason : path + ": " + reason;
}

void find_library(Library* out) {
  const std::string& list = candidates();
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find('\n', at), list.size());
    const std::string reason = try_open(out, list.substr(at, end - at));
    if (reason.empty()) return;
    out->report += (out->report.empty() ? "" : "\n") + reason;
    at = end + 1;
  }
  if (out->report.empty()) out->report = "there is no libnvrtc.so.13 or .12";
}

const Library& library() {
  static const Library* kept = [] {
    // never destroyed: native threads may still run at exit
    Library* created = new Library;
    find_library(created);
    return created;
  }();
  return *kept;
}

using SizeOf = int32_t (*)(Program, size_t*);
using Read = int32_t (*)(Program, char*);

int32_t read(Program program, SizeOf size_of, Read read_into, std::string* out) {
  size_t size = 0;
  const int32_t code = size_of(program, &size);
  out->assign(code == kSuccess ? size : 0, '\0');
  return code == kSuccess && size > 0 ? read_into(program, out->data()) : code;
}

}  // namespace

void look_at(const char* list) { candidates() = list; }
bool is_ready() { return library().is_ready; }
const char* report() { return library().report.c_str(); }
int32_t version() { return library().version; }

bool supports(int32_t architecture) {
  const std::vector<int32_t>& known = library().architectures;
  return std::find(known.begin(), known.end(), architecture) != known.end();
}

bool compile(const std::string& name, const std::string& source, int32_t architecture,
             std::string* code, std::string* log) {
  const Api& api = library().api;
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  // As the kernels of this library are compiled: the same arithmetic. The headers define more
  // functions than a program calls, which is worth no warning.
  const char* options[] = {target.c_str(), "--std=c++17", "--extra-device-vectorization",
                           "--disable-warnings"};
  Program program = nullptr;
  int32_t result =
      api.create(&program, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
  if (result == kSuccess) {
    result = api.compile(program, std::size(options), options);
    read(program, api.log_size, api.log, log);
  }
  if (result == kSuccess) result = read(program, api.code_size, api.code, code);
  if (program) api.destroy(&program);
  if (result != kSuccess) *log = std::string(api.error_string(result)) + "\n" + *log;
  return result == kSuccess;
}

}  // namespace shardwise::cuda::nvrtc
