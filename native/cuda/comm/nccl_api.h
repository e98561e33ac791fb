// The part of NCCL's binary interface that is called, and the library, opened at run time. Needs no
// header of NCCL.
#pragma once
#include <cuda_runtime.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "../../include/status.h"

namespace shardwise::cuda::nccl {

struct CommObject;
using Comm = CommObject*;

struct UniqueId {
  char bytes[128];
};

enum Result : int32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum Type : int32_t {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};

enum Op : int32_t { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAvg = 4 };

constexpr int32_t kNoColor = -1;
constexpr int32_t kUnset = INT_MIN;
constexpr int32_t kOldestVersion = 21800;

// As in NCCL 2.18. `size` and `version` let newer versions, whose struct is longer, use defaults
// for the rest.
struct Config {
  size_t size = sizeof(Config);
  uint32_t magic = 0xcafebeef;
  uint32_t version = kOldestVersion;
  int32_t blocking = kUnset;
  int32_t cluster_size = kUnset;
  int32_t min_ctas = kUnset, max_ctas = kUnset;
  const char* net_name = nullptr;
  int32_t split_share = kUnset;
  int32_t padding = kUnset;
};
static_assert(sizeof(Config) == 48 && offsetof(Config, net_name) == 32, "ncclConfig_t of 2.18");

struct Api {
  Result (*version)(int*);
  const char* (*error_string)(Result);
  const char* (*last_error)(Comm);
  Result (*unique_id)(UniqueId*);
  Result (*init)(Comm*, int size, UniqueId, int rank, Config*);
  Result (*split)(Comm, int color, int key, Comm*, Config*);
  Result (*count)(Comm, int*);
  Result (*user_rank)(Comm, int*);
  Result (*async_error)(Comm, Result*);
  Result (*destroy)(Comm);
  Result (*abort)(Comm);
  Result (*group_start)();
  Result (*group_end)();
  Result (*all_reduce)(const void* in, void* out, size_t count, Type, Op, Comm, cudaStream_t);
  Result (*reduce)(const void* in, void* out, size_t count, Type, Op, int root, Comm, cudaStream_t);
  Result (*broadcast)(const void* in, void* out, size_t count, Type, int root, Comm, cudaStream_t);
  Result (*all_gather)(const void* in, void* out, size_t count_of_each, Type, Comm, cudaStream_t);
  Result (*reduce_scatter)(const void* in, void* out, size_t count_of_each, Type, Op, Comm,
                           cudaStream_t);
  Result (*send)(const void* in, size_t count, Type, int to, Comm, cudaStream_t);
  Result (*receive)(void* out, size_t count, Type, int from, Comm, cudaStream_t);
};

struct Library {
  bool ready = false;
  // the path and version found, or one line per candidate with the reason why it was refused
  std::string report;
  Api api = {};
};

// Opened on the first call; later calls return the kept answer.
const Library& library();

// The library's functions, or an error that says what to install.
Status need(const Api** out, ErrorText* error);

}  // namespace shardwise::cuda::nccl
