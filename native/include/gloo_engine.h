// What gloo-engine.so, an optional library beside the addon, gives: collectives of host memory between machines.
#pragma once
#include "collective.h"

namespace shardwise {

constexpr uint32_t kGlooAbi = 1;
constexpr int32_t kGlooAddressBytes = 200;

// All functions report errors by their Status; none throws. Those that wait do so for `timeout_ms` at most.
struct GlooEngine {
  uint32_t abi;
  int32_t version;  // of gloo when this was built: 10000 major + 100 minor + patch
  // One rank's place in a group: collectives as they are said in collective.h.
  const CommEngine* comm;

  // The connections of a rank of the world, over which its groups are made. `listen` writes `size` addresses of kGlooAddressBytes: the
  // i-th is where rank i finds this one. `interface` or, if that is empty, `host` (a name or address of this machine) says where.
  Status (*listen)(const char* interface, const char* host, int32_t rank, int32_t size, int64_t timeout_ms, void** world, char* addresses,
                   ErrorText* error);
  // The i-th of `addresses` is where rank i waits for this one. Waits for all.
  Status (*connect)(void* world, const char* addresses, ErrorText* error);
  void (*leave)(void* world);
  // A group of the world's `ranks`, in their order; `rank` is the own place in it. Waits for all of them.
  Status (*join)(void* world, const char* name, const int32_t* ranks, int32_t rank, int32_t size, int64_t timeout_ms, void** member,
                 ErrorText* error);
};

}  // namespace shardwise

// The one symbol that gloo-engine.so exports.
extern "C" const shardwise::GlooEngine* shardwise_gloo_v1();
