// The name of a group and the numbers of its ranks in the world, for error messages. All other code
// uses ranks of the group.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::comm {

struct GroupInfo {
  std::string name;  // the program's name for the group; "" if it has no name
  // ranks of the world in group order; empty if the group is its own world
  std::vector<int32_t> ranks;

  // The rank of the world for a rank of the group.
  int32_t rank_at(int32_t place) const {
    return place >= 0 && place < static_cast<int32_t>(ranks.size())
               ? ranks[static_cast<size_t>(place)]
               : place;
  }
  std::vector<int32_t> ranks_at(std::vector<int32_t> places) const {
    for (int32_t& place : places) place = rank_at(place);
    return places;
  }
};

}  // namespace shardwise::comm
