// Worlds of ranks on several machines, through gloo-engine.so. Addresses pass through JavaScript once,
// when a world begins.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "../include/gloo_engine.h"
#include "../runtime/stream.h"
#include "parameter.h"

namespace shardwise {

// The connections of a rank to the other ranks.
struct GlooWorld {
  int64_t id = 0;  // for JavaScript
  const GlooEngine* engine;
  int32_t rank, size;
  void* handle = nullptr;
  int64_t rank_runtime = 0;  // of its streams

  GlooWorld(const GlooEngine* made_by, int32_t own, int32_t ranks)
      : engine(made_by), rank(own), size(ranks) {}
  GlooWorld(const GlooWorld&) = delete;
  ~GlooWorld() {
    if (handle) engine->leave(handle);
  }
};

using SharedWorld = std::shared_ptr<GlooWorld>;

class Worlds {
 public:
  explicit Worlds(Environment& state) : state_(state) {}

  // Null if the rank has left.
  SharedWorld find(int64_t id) const { return find_in(worlds_, id); }
  // Informs the other ranks that a rank compiles `what`, or no more if it is null.
  void compiles(const char* what, int64_t limit_ms, int64_t rank_runtime);
  void close() { worlds_.clear(); }

  // Called by JavaScript. Returns nothing, or why gloo cannot be used.
  Napi::Value open_gloo(const std::string& path);
  // Returns an address for each other rank; writes the id of the world to words[0].
  Status listen(int64_t rank, int64_t size, int64_t timeout_ms, const std::string& host,
                Napi::Value* addresses, ErrorText* error);
  // Runs on the stream's thread, because it waits for the other ranks.
  Status connect(SharedWorld world, Stream& stream, Napi::Value addresses, ErrorText* error);
  // Creates a group of the ranks in words[0 .. size). `name` is unique among the groups, `label` is
  // its name in errors; `first`, `where`: the call for which the group is created.
  Status join(SharedWorld world, int64_t rank, int64_t size, int64_t stream, int64_t timeout_ms,
              const std::string& name, const std::string& label, const std::string& first,
              const std::string& where, int64_t join_timeout_ms, int64_t* id, ErrorText* error);
  // Informs ranks that wait there that this rank, at `place`, will not join.
  Status decline(SharedWorld world, int64_t rank, int64_t size, int64_t stream, int64_t timeout_ms,
                 const std::string& name, const std::string& label, const std::string& first,
                 const std::string& where, int64_t place, const std::string& reason,
                 ErrorText* error);
  // Runs after groups that are being created.
  void leave(SharedWorld world, int64_t stream);

 private:
  Environment& state_;
  std::unordered_map<int64_t, SharedWorld> worlds_;
  int64_t next_ = 1;
};

Status find_named(Environment& state, int64_t id, SharedWorld* world);
template <>
struct Parameter<SharedWorld> : Named<SharedWorld> {};

}  // namespace shardwise
