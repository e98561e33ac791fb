// Where a block of attention's backward pass stands, on whichever tensor cores.
#pragma once
#include <cstdint>

namespace shardwise::cuda {

// The rows that a block owns, and the rounds in which tiles of the other side pass by: over the
// steps of one head after the other.
struct BackwardPlace {
  int32_t row0, batch, own_head, kv_head, first_head, first_step, steps, rounds;

  // C::kByKeys: owns kOwned rows of keys and values, of head `owner` of all key heads, and queries
  // pass by in tiles of kPassing; else the other way round. `p` has heads, kv_heads, queries, keys
  // and causal.
  template <class C, class Problem>
  __device__ __forceinline__ static BackwardPlace of(const Problem& p, int32_t tile,
                                                     int32_t owner) {
    const int32_t heads = static_cast<int32_t>(p.heads),
                  kv_heads = static_cast<int32_t>(p.kv_heads);
    const int32_t own_heads = C::kByKeys ? kv_heads : heads, group_size = heads / kv_heads;
    const int32_t queries = static_cast<int32_t>(p.queries), keys = static_cast<int32_t>(p.keys);
    BackwardPlace place;
    place.batch = owner / own_heads;
    place.own_head = owner % own_heads;
    place.kv_head = C::kByKeys ? place.own_head : place.own_head / group_size;
    place.first_head = C::kByKeys ? place.own_head * group_size : place.own_head;
    place.row0 = tile * C::kOwned;
    // Of what passes by, the rows that can see, or be seen by, the owned ones.
    const int32_t rows = C::kByKeys ? queries : keys, end = place.row0 + C::kOwned;
    const int32_t last_seen = end < queries ? end : queries;
    const int32_t passing = !C::kByKeys && p.causal && last_seen < rows ? last_seen : rows;
    place.first_step = C::kByKeys && p.causal ? place.row0 / C::kPassing : 0;
    place.steps = (passing + C::kPassing - 1) / C::kPassing - place.first_step;
    if (place.steps < 0) place.steps = 0;
    place.rounds = place.steps * (C::kByKeys ? group_size : 1);
    return place;
  }
};

}  // namespace shardwise::cuda
