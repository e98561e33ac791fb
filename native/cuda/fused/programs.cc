#include "programs.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "code_files.h"
#include "nvrtc.h"
#include "source.h"

namespace shardwise::cuda::fused {
namespace {

std::atomic<bool> is_allowed{true};

// Of the device itself: SHARDWISE_CUDA_CAPABILITY lowers only what facts say.
int32_t architecture_of(int32_t device) {
  static std::atomic<int32_t> known[64];
  if (device < 0 || device >= 64) return 0;
  if (const int32_t kept = known[device].load(std::memory_order_relaxed)) return kept;
  int major = 0, minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  known[device].store(major * 10 + minor, std::memory_order_relaxed);
  return major * 10 + minor;
}

struct Program {
  std::vector<uint64_t> key;
  std::mutex compiling;
  std::atomic<cudaKernel_t> kernel{nullptr};
};

// Program, layout and architecture as words; on the stack of a thread, since each launch needs it.
const std::vector<uint64_t>& key_of(const KernelCall& call, const Layout& layout,
                                    int32_t architecture) {
  static thread_local std::vector<uint64_t> key;
  const auto params = static_cast<size_t>(call.num_params);
  constexpr size_t kLayoutWords = (sizeof(Layout) + 7) / 8, kDtypeWords = kMaxFusedOperands / 8;
  key.assign(params + kLayoutWords + kDtypeWords + 1, 0);
  uint64_t* to = key.data();
  memcpy(to, call.params, params * sizeof(double));
  memcpy(to += params, &layout, sizeof layout);
  auto* dtypes = reinterpret_cast<uint8_t*>(to += kLayoutWords);
  for (int32_t i = 0; i < layout.num_operands; i++)
    dtypes[i] = static_cast<uint8_t>(call.tensors[i].dtype);
  to[kDtypeWords] =
      static_cast<uint64_t>(architecture) << 32 | static_cast<uint32_t>(call.num_inputs);
  return key;
}

// Never removed: a kernel may be running.
Program& program_of(const std::vector<uint64_t>& key) {
  static auto* programs = new std::unordered_multimap<uint64_t, std::unique_ptr<Program>>;
  static std::mutex mutex;
  const uint64_t hash = hash_of(key.data(), key.size() * sizeof(uint64_t), 0);
  std::lock_guard<std::mutex> lock(mutex);
  const auto [first, last] = programs->equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (at->second->key == key) return *at->second;
  auto program = std::make_unique<Program>();
  program->key = key;
  return *programs->emplace(hash, std::move(program))->second;
}

Status compile(const KernelCall& call, const FusedProgram& program, const Source& source,
               int32_t architecture, std::string* code) {
  if (!nvrtc::is_ready())
    return fail(call.error, Code::Unsupported,
                "fused_pointwise needs NVRTC to compile its kernels: %s", nvrtc::report());
  const std::string name = code_name(source.text, architecture, nvrtc::version());
  if (read_code(name, code)) return kOk;
  std::string log;
  if (nvrtc::compile(source.name, source.text, architecture, code, &log)) {
    write_code(name, *code);
    return kOk;
  }
  return fail(call.error, Code::Unsupported,
              "fused_pointwise: NVRTC (%s) does not compile a program for sm_%d: %.600s\n"
              "the program:\n%.600s",
              nvrtc::report(), architecture, log.c_str(), describe(program).c_str());
}

Status make_kernel(const KernelCall& call, const Layout& layout, int32_t architecture,
                   cudaKernel_t* out) {
  FusedProgram program;
  Status status = decode(call, program);
  if (!status.ok()) return status;
  if (!is_allowed.load())
    return fail(call.error, Code::Unsupported,
                "fused_pointwise cannot compile a kernel where ranks with GPUs share a process: "
                "run each rank in a process of its own, or compile with another backend");
  const Source source = write_source(program, layout);
  std::string code;
  status = compile(call, program, source, architecture, &code);
  if (!status.ok()) return status;
  cudaLibrary_t library = nullptr;
  SW_CUDA(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  SW_CUDA(cudaLibraryGetKernel(out, library, source.name.c_str()));
  return kOk;
}

}  // namespace

bool is_available(int32_t device) {
  const int32_t architecture = architecture_of(device);
  return is_allowed.load() && architecture >= 80 && nvrtc::is_ready() &&
         nvrtc::supports(architecture);
}

void allow(bool on) { is_allowed.store(on); }

Status find_kernel(const KernelCall& call, const Layout& layout, cudaKernel_t* out) {
  const int32_t architecture = architecture_of(call.device);
  Program& program = program_of(key_of(call, layout, architecture));
  *out = program.kernel.load(std::memory_order_acquire);
  if (*out) return kOk;
  std::lock_guard<std::mutex> lock(program.compiling);
  *out = program.kernel.load();
  if (*out) return kOk;
  const Status status = make_kernel(call, layout, architecture, out);
  if (status.ok()) program.kernel.store(*out, std::memory_order_release);
  return status;
}

}  // namespace shardwise::cuda::fused
