#include "describe.h"

#include "../include/dtype.h"
#include "reduce_kernels.h"

namespace shardwise::comm {

void describe_place(Text& text, const Site& site) {
  if (site.where[0] != 0) text.add(" at %s", site.where);
}

void describe(Text& text, const Note& note) {
  const Fingerprint& print = note.print;
  const long long amount = note.amount;
  text.add("%s", note.site.name);
  if (print.dtype >= 0)
    text.add(" of %lld %s", amount, dtype_name(static_cast<DType>(print.dtype)));
  else if (print.kind != Kind::Barrier)
    text.add(" of %lld byte%s", amount, amount == 1 ? "" : "s");
  if (print.reduce >= 0) text.add(" (%s)", reduce_name(static_cast<Reduce>(print.reduce)));
  const bool from_root = print.kind == Kind::Broadcast || print.kind == Kind::Scatter;
  if (print.root >= 0) text.add(" %s rank %d", from_root ? "from" : "to", print.root);
  if (note.peer >= 0) text.add(" %s rank %d", print.kind == Kind::Receive ? "from" : "to", note.peer);
  describe_place(text, note.site);
}

void describe_title(Text& text, const Note& note) {
  text.add("%s", note.site.name);
  if (note.peer >= 0) {
    text.add(" %s rank %d", note.print.kind == Kind::Receive ? "from" : "to", note.peer);
  } else if (note.print.kind != Kind::None) {
    text.add(" (call %llu of the group)", static_cast<unsigned long long>(note.print.call));
  }
}

}  // namespace shardwise::comm
