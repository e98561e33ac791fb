// Finds the ranks whose call differs from that of the majority.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace shardwise::comm {

// Ranks of the group.
struct Mismatch {
  int32_t first = -1;            // a rank that differs from this one; -1: none
  std::vector<int32_t> callers;  // the ranks that made the same call as `first`
  // all ranks that differ from a majority of the group; without a majority, the callers
  std::vector<int32_t> blamed;
};

// Compares the ranks whose calls are known, `own` among them. `same(a, b)` says whether two of them
// made the same call.
template <class Same>
Mismatch find_mismatch(const std::vector<int32_t>& known, int32_t size, int32_t own, Same same) {
  const auto alike = [&](int32_t place) {
    std::vector<int32_t> found;
    std::copy_if(known.begin(), known.end(), std::back_inserter(found),
                 [&](int32_t other) { return same(place, other); });
    return found;
  };
  std::vector<int32_t> most;
  for (size_t i = 0; i < known.size() && 2 * most.size() <= static_cast<size_t>(size); i++)
    most = alike(known[i]);
  if (2 * most.size() <= static_cast<size_t>(size)) most.clear();
  const auto in_most = [&](int32_t place) {
    return std::find(most.begin(), most.end(), place) != most.end();
  };

  Mismatch found;
  // A rank outside the majority gets a call of the majority; the others get a call that differs.
  const std::vector<int32_t>& shown = most.empty() || in_most(own) ? known : most;
  for (size_t i = 0; i < shown.size() && found.first < 0; i++)
    if (!same(shown[i], own)) found.first = shown[i];
  if (found.first < 0) return found;
  found.callers = found.blamed = alike(found.first);
  if (most.empty()) return found;
  found.blamed.clear();
  std::copy_if(known.begin(), known.end(), std::back_inserter(found.blamed),
               [&](int32_t place) { return !in_most(place); });
  return found;
}

}  // namespace shardwise::comm
