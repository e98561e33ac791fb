// Which of the ranks that call different things are the odd ones.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace shardwise::comm {

// Ranks by their places in the group.
struct Difference {
  int32_t first = -1;            // one that differs from this rank; -1: none does
  std::vector<int32_t> callers;  // who called what that one did
  // all that differ from more than half of the group; where no call is of so many, the callers
  std::vector<int32_t> blamed;
};

// Among the ranks whose calls are known at this moment, `own` among them; `same(a, b)` says whether
// two of them called the same.
template <class Same>
Difference find_difference(const std::vector<int32_t>& known, int32_t size, int32_t own,
                           Same same) {
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

  Difference found;
  // The odd one is told of the majority, the others of an odd one.
  const std::vector<int32_t>& told = most.empty() || in_most(own) ? known : most;
  for (size_t i = 0; i < told.size() && found.first < 0; i++)
    if (!same(told[i], own)) found.first = told[i];
  if (found.first < 0) return found;
  found.callers = found.blamed = alike(found.first);
  if (most.empty()) return found;
  found.blamed.clear();
  std::copy_if(known.begin(), known.end(), std::back_inserter(found.blamed),
               [&](int32_t place) { return !in_most(place); });
  return found;
}

}  // namespace shardwise::comm
