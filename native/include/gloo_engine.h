// The seam of gloo-engine.so, an optional library: collectives on host memory between machines.
#pragma once
#include "collective.h"

namespace shardwise {

constexpr uint32_t kGlooAbi = 7;
constexpr int32_t kGlooAddressBytes = 200;

struct GlooGroup {
  const char* name;      // unique among the groups
  const char* label;     // its name in errors
  const int32_t* ranks;  // ranks of the world
  int32_t rank, size;    // this rank's place in `ranks`
  int64_t timeout_ms;
  // Polled while waiting: true gives up.
  bool (*is_aborted)(void* context);
  void* context;
};

// All functions report errors by their Status; none throws. A function that waits does so for at
// most `timeout_ms`.
struct GlooEngine {
  uint32_t abi;
  int32_t version;  // version of gloo at build time: 10000 major + 100 minor + patch
  // Collectives of a member, as defined in collective.h.
  const CommEngine* comm;

  // The connections of a rank of the world; its groups use them. `listen` writes `size` addresses
  // of kGlooAddressBytes: rank i connects to the i-th. `host` is the address of this machine that
  // the others reach.
  Status (*listen)(const char* host, int32_t rank, int32_t size, int64_t timeout_ms, void** world,
                   char* addresses, ErrorText* error);
  // Connects to all ranks: rank i listens at the i-th of `addresses`. Waits for all.
  Status (*connect)(void* world, const char* addresses, ErrorText* error);
  void (*leave)(void* world);
  // Joins a group and waits for all of its ranks.
  Status (*join)(void* world, const GlooGroup& group, void** member, ErrorText* error);
  // Tells ranks that wait in `join` that this rank will not join: the rank at `place` gave up for
  // this reason, or "" if it left. Does not wait.
  void (*decline)(void* world, const GlooGroup& group, int32_t place, const char* reason);

  // Compares a call that the group's devices run. Called on the thread of the group's collectives.
  // Waits until all ranks report the same call under this number; fails as a collective would, and
  // moves no data.
  Status (*compare)(void* member, const CollectiveCall& call, uint64_t number);
  // Fails if another rank has given up. Describes ranks that cannot be reached in `dead`, which is
  // empty otherwise. Waits only if the group has failed: at most half a second, to inform all
  // ranks. Called once after a failed `compare`.
  Status (*poll)(void* member, ErrorText* dead, ErrorText* error);
  // Informs the others that this rank has left: after its last call, and well before `destroy` if
  // that has to wait.
  void (*end)(void* member);
  // As `abort`, from any thread, but all ranks get the cause unchanged.
  void (*fail)(void* member, Code code, const ErrorText& cause);
  // Informs the other ranks of the world that this rank compiles `what`, for at most `limit_ms`;
  // null: it is done. `is_own`: as in comm::Compilation. On one thread at a time; does not wait.
  void (*compiles)(void* world, const char* what, bool is_own, int64_t limit_ms);
  // Whether the present call of a member waits for a rank that compiles. From any thread.
  bool (*is_delayed)(void* member);
};

}  // namespace shardwise

// The only symbol that gloo-engine.so exports.
extern "C" const shardwise::GlooEngine* shardwise_gloo_v1();
