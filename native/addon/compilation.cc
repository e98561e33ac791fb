// Informs other ranks that JavaScript compiles, and so calls nothing: comm/compilation.h.
#include "../comm/compilation.h"

#include "environment.h"

namespace shardwise {

// Writes to the memory of each group of the ranks of this environment.
template <class Write>
void Groups::write_to_groups(Write write) {
  for (auto& [id, member] : members_) {
    Member& host = member->devices ? *member->devices->rendezvous : *member;
    if (const auto region = host.shared())
      write(region->rank(host.rank).compilation, *member->stream);
  }
}

void Groups::compiling(const std::string& what, int64_t limit_ms, int64_t rank_runtime) {
  const auto begin = [&](bool is_own) {
    return comm::begin_compilation(what.c_str(), is_own, limit_ms);
  };
  write_to_groups([&](auto& compilation, const Stream& stream) {
    compilation.write(begin(stream.rank_runtime() == rank_runtime));
  });
  state_.worlds.compiles(what.c_str(), limit_ms, rank_runtime);
}

void Groups::compiled() {
  write_to_groups([](auto& compilation, const Stream&) { compilation.write({}); });
  state_.worlds.compiles(nullptr, 0, 0);
}

}  // namespace shardwise
