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

void describe_title(Text& text, const Note& note, const char* group) {
  text.add("%s", note.site.name);
  const bool named = group[0] != 0;
  if (note.peer >= 0) {
    text.add(" %s rank %d", note.print.kind == Kind::Receive ? "from" : "to", note.peer);
    if (named) text.add(" (group \"%s\")", group);
  } else if (note.print.kind != Kind::None) {
    text.add(" (call %llu of ", static_cast<unsigned long long>(note.print.call));
    named ? text.add("group \"%s\")", group) : text.add("the group)");
  }
}

void describe_last_call(Text& text, const Note* last, bool inside) {
  if (last == nullptr) {
    text.add(", it has called nothing yet");
    return;
  }
  text.add(inside ? ", it is in " : ", its last call was ");
  describe(text, *last);
  if (last->peer < 0) text.add(" (call %llu)", static_cast<unsigned long long>(last->print.call));
}

void describe_last_call(Text& text, const SharedNote& last, bool inside) {
  Note note;
  const bool called = last.read(&note);
  describe_last_call(text, called ? &note : nullptr, inside);
}

void describe_difference(Text& text, const char* group, const Note& mine, const char* who, int32_t rank, const Note& other) {
  describe_title(text, mine, group);
  text.add(": rank %d called ", rank);
  describe(text, other);
  text.add(", %s ", who);
  describe(text, mine);
  if (mine.print.sizes != other.print.sizes && mine.print.amount == other.print.amount && mine.print.kind == other.print.kind) {
    text.add(" with other sizes per rank");
  }
}

void describe_unexpected(Text& text, const char* group, const Note& mine, int32_t from, int64_t sent, int32_t to, int64_t expected) {
  describe_title(text, mine, group);
  describe_place(text, mine.site);
  text.add(": rank %d sends %lld bytes to rank %d, which expects %lld", from, static_cast<long long>(sent), to,
           static_cast<long long>(expected));
}

void describe_misfit(Text& text, int32_t from, int64_t sent, const Site& sender, int32_t to, int64_t expected, const Site& receiver) {
  text.add("rank %d sent %lld bytes to rank %d", from, static_cast<long long>(sent), to);
  describe_place(text, sender);
  text.add(", which receives %lld", static_cast<long long>(expected));
  describe_place(text, receiver);
}

}  // namespace shardwise::comm
