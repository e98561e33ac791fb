// The connections of a rank to the other ranks of a world on several machines.
#pragma once
#include "../include/gloo_engine.h"

namespace shardwise {

struct GlooWorld {
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

}  // namespace shardwise
