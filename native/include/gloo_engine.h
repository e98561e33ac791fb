// What gloo-engine.so, an optional library beside the addon, gives: collectives of host memory
// between machines.
#pragma once
#include "collective.h"

namespace shardwise {

constexpr uint32_t kGlooAbi = 5;
constexpr int32_t kGlooAddressBytes = 200;

struct GlooGroup {
  const char* name;      // differs from those of the other groups
  const char* label;     // what errors call it
  const int32_t* ranks;  // of the world
  int32_t rank, size;    // the own place in them
  int64_t timeout_ms;
  // Whether to give up waiting for the others; asked now and then.
  bool (*is_aborted)(void* context);
  void* context;
};

// All functions report errors by their Status; none throws. Those that wait do so for `timeout_ms`
// at most.
struct GlooEngine {
  uint32_t abi;
  int32_t version;  // of gloo when this was built: 10000 major + 100 minor + patch
  // One rank's place in a group: collectives as they are said in collective.h.
  const CommEngine* comm;

  // The connections of a rank of the world, over which its groups are made. `listen` writes `size`
  // addresses of kGlooAddressBytes: the i-th is where rank i finds this one. `host` is the address
  // of this machine that the others reach.
  Status (*listen)(const char* host, int32_t rank, int32_t size, int64_t timeout_ms, void** world,
                   char* addresses, ErrorText* error);
  // The i-th of `addresses` is where rank i waits for this one. Waits for all.
  Status (*connect)(void* world, const char* addresses, ErrorText* error);
  void (*leave)(void* world);
  // A group, which waits for all of its ranks.
  Status (*join)(void* world, const GlooGroup& group, void** member, ErrorText* error);
  // Those who wait for this rank in a group need not: it will not join, because the rank at `place`
  // gave up for a reason; or "": it has left. Does not wait.
  void (*decline)(void* world, const GlooGroup& group, int32_t place, const char* reason);

  // For calls that are carried out elsewhere, on devices of the group's ranks. On the thread of the
  // group's collectives, or instead of it. Waits until all ranks say that they make the call under
  // this number; fails as a collective would, and moves nothing.
  Status (*compare)(void* member, const CollectiveCall& call, uint64_t number);
  // Fails where another rank has given up. Those that cannot be reached any more are described in
  // `lost`, which is empty otherwise. Waits only in a group that has failed, for half a second at
  // most, that all are told: after a failed `compare` it is called once.
  Status (*look)(void* member, ErrorText* lost, ErrorText* error);
  // Tells the others that this rank has left: after its last call, well before `destroy` where that
  // has to wait for something else.
  void (*end)(void* member);
  // From any thread, as `abort`, but the cause is told to all ranks as it stands.
  void (*fail)(void* member, Code code, const char* text);
};

}  // namespace shardwise

// The one symbol that gloo-engine.so exports.
extern "C" const shardwise::GlooEngine* shardwise_gloo_v1();
