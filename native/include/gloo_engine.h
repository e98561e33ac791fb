// What gloo-engine.so, an optional library beside the addon, gives: collectives of host memory between machines.
#pragma once
#include "collective.h"

namespace shardwise {

constexpr uint32_t kGlooAbi = 2;
constexpr int32_t kGlooAddressBytes = 200;

struct GlooGroup {
  const char* name;   // differs from those of the other groups
  const char* label;  // what errors call it
  const int32_t* ranks;  // of the world
  int32_t rank, size;    // the own place in them
  int64_t timeout_ms;
  // Whether to give up waiting for the others; asked now and then.
  bool (*is_aborted)(void* context);
  void* context;
};

// All functions report errors by their Status; none throws. Those that wait do so for `timeout_ms` at most.
struct GlooEngine {
  uint32_t abi;
  int32_t version;  // of gloo when this was built: 10000 major + 100 minor + patch
  // One rank's place in a group: collectives as they are said in collective.h.
  const CommEngine* comm;

  // The connections of a rank of the world, over which its groups are made. `listen` writes `size` addresses of kGlooAddressBytes: the
  // i-th is where rank i finds this one. `host` is the address of this machine that the others reach.
  Status (*listen)(const char* host, int32_t rank, int32_t size, int64_t timeout_ms, void** world, char* addresses, ErrorText* error);
  // The i-th of `addresses` is where rank i waits for this one. Waits for all.
  Status (*connect)(void* world, const char* addresses, ErrorText* error);
  void (*leave)(void* world);
  // A group, which waits for all of its ranks.
  Status (*join)(void* world, const GlooGroup& group, void** member, ErrorText* error);
  // Those who wait for this rank in a group need not: it will not join. Does not wait.
  void (*decline)(void* world, const GlooGroup& group);
};

}  // namespace shardwise

// The one symbol that gloo-engine.so exports.
extern "C" const shardwise::GlooEngine* shardwise_gloo_v1();
