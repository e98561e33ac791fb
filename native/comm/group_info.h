// What errors call a group and its ranks. Everything else knows a rank by its place in the group; a
// program by its number in the world.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace shardwise::comm {

struct Roster {
  std::string name;  // in the program; or "", as of a group that has none
  // of the world, by their places; empty: those of a group that is its own world
  std::vector<int32_t> ranks;

  // The number that is told of a place.
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
