// The records of CUPTI that are read, as CUPTI 12 and 13 write them: each version appends fields.
// All are packed to 8 bytes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace shardwise::cupti {

enum Kind : int32_t {
  kMemcpy = 1,
  kMemset = 2,
  kDriverCall = 4,
  kRuntimeCall = 5,
  kConcurrentKernel = 10,
  kMemcpyBetweenDevices = 22,
  kExternalCorrelation = 39,
};
constexpr int32_t kCustomCorrelation = 3;

// CUpti_ActivityKernel4 to 10.
struct Kernel {
  int32_t kind;
  uint8_t cache_config, shared_memory_config;
  uint16_t registers;
  int32_t cache_requested, cache_executed;
  uint64_t start, end, completed;
  uint32_t device, context, stream;
  int32_t grid[3], block[3];
  int32_t static_shared_memory, dynamic_shared_memory;
  uint32_t local_memory_per_thread, local_memory;
  uint32_t correlation;
  int64_t grid_id;
  const char* name;
};
static_assert(offsetof(Kernel, start) == 16 && offsetof(Kernel, correlation) == 92 &&
              offsetof(Kernel, name) == 104);

// CUpti_ActivityMemcpy to Memcpy6.
struct Memcpy {
  int32_t kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};
static_assert(offsetof(Memcpy, bytes) == 8 && offsetof(Memcpy, correlation) == 44);

// CUpti_ActivityMemcpyPtoP to PtoP4.
struct MemcpyBetweenDevices {
  int32_t kind;
  uint8_t copy_kind, source_kind, destination_kind, flags;
  uint64_t bytes, start, end;
  uint32_t device, context, stream;
  uint32_t source_device, source_context, destination_device, destination_context;
  uint32_t correlation;
};
static_assert(offsetof(MemcpyBetweenDevices, correlation) == 60);

// CUpti_ActivityMemset to Memset4.
struct Memset {
  int32_t kind;
  uint32_t value;
  uint64_t bytes, start, end;
  uint32_t device, context, stream, correlation;
};
static_assert(offsetof(Memset, bytes) == 8 && offsetof(Memset, correlation) == 44);

// CUpti_ActivityExternalCorrelation.
struct ExternalCorrelation {
  int32_t kind, external_kind;
  uint64_t external;
  uint32_t correlation, reserved;
};
static_assert(offsetof(ExternalCorrelation, correlation) == 16);

}  // namespace shardwise::cupti
