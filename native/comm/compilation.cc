#include "compilation.h"

#include <algorithm>

namespace shardwise::comm {
namespace {

int64_t elapsed_ms(const Compilation& compilation) {
  return std::max<int64_t>(0, now_ns() - compilation.since_ns) / 1'000'000;
}

}  // namespace

Compilation begin_compilation(const char* what, bool is_own, int64_t limit_ms) {
  Compilation begun = {};
  begun.since_ns = now_ns();
  begun.limit_ms = limit_ms;
  begun.is_own = is_own ? 1 : 0;
  Text(begun.what, sizeof begun.what).add("%s", what);
  return begun;
}

void describe_compilation(Text& has, const Compilation& compilation, int64_t elapsed_ms) {
  const double seconds = static_cast<double>(elapsed_ms) / 1000;
  if (compilation.is_own != 0)
    has.add("has been compiling %s for %.1f s", compilation.what, seconds);
  else
    has.add("has waited %.1f s for a rank of its process, which compiles %s", seconds,
            compilation.what);
}

bool Compilations::delay(uint64_t ranks) {
  bool delays = false;
  int32_t awaited = -1;
  for (int32_t rank = 0; rank < size_; rank++) {
    if ((ranks >> rank & 1) == 0) continue;
    const int32_t at = place(rank);
    const uint32_t version = memory_.rank(at).compilation.version();
    // It may have compiled several functions, each shorter than the time between two checks.
    delays |= (known_ >> at & 1) != 0 && versions_[at] != version;
    versions_[at] = version;
    known_ |= uint64_t{1} << at;
    if (awaited < 0) awaited = compiles(at) ? at : awaited_by(at);
  }
  publish(awaited);
  return delays || awaited >= 0;
}

bool Compilations::describe(int32_t rank, Text& has) const {
  const int32_t at = place(rank), awaited = awaited_by(at);
  Compilation compilation;
  if (!memory_.rank(awaited < 0 ? at : awaited).compilation.read(&compilation) ||
      compilation.since_ns == 0)
    return false;
  if (awaited >= 0)
    has.add("has not come, as it waits for rank %d, which ",
            in_world_ ? awaited : group_.rank_at(awaited));
  describe_compilation(has, compilation, elapsed_ms(compilation));
  return true;
}

bool Compilations::compiles(int32_t place) const {
  Compilation compilation;
  return memory_.rank(place).compilation.read(&compilation) && compilation.since_ns != 0 &&
         elapsed_ms(compilation) < compilation.limit_ms;
}

int32_t Compilations::awaited_by(int32_t place) const {
  const int32_t awaited =
      memory_.rank(place).awaits_compilation.load(std::memory_order_acquire) - 1;
  return awaited >= 0 && awaited < memory_.size() && compiles(awaited) ? awaited : -1;
}

// Other threads of this rank may wait too; each publishes again at its next check.
void Compilations::publish(int32_t place) {
  if (place < 0 && published_ < 0) return;
  published_ = place;
  memory_.rank(own_).awaits_compilation.store(place + 1, std::memory_order_release);
}

}  // namespace shardwise::comm
