#include "describe.h"

#include <cstring>

#include "../include/dtype.h"
#include "reduce_kernels.h"

namespace shardwise::comm {
namespace {

void start_facts(Text& text, const char* group, uint64_t call) {
  text.add("%c%s%c%llu", kFactsMark, group, kFieldMark, static_cast<unsigned long long>(call));
}

}  // namespace

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
  const auto length = static_cast<int>(strcspn(note.about, "\n"));
  if (length > 0) text.add(" %.*s", length, note.about);
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

void describe_abort(Text& text, const char* group, int32_t rank, const char* reason) {
  text.add("rank %d aborted the group: %s", rank, reason);
  start_facts(text, group, 0);
  describe_rank_facts(text, rank, true, nullptr);
}

void describe_difference(Text& text, const char* group, const Note& mine, int32_t own, int32_t rank, const Note& other, Reader reader) {
  describe_title(text, mine, group);
  text.add(": rank %d called ", rank);
  describe(text, other);
  reader == Reader::This ? text.add(", this rank ") : text.add(", rank %d ", own);
  describe(text, mine);
  if (mine.print.sizes != other.print.sizes && mine.print.amount == other.print.amount && mine.print.kind == other.print.kind) {
    text.add(" with other sizes per rank");
  }
  const char* advice = strchr(mine.about[0] != 0 ? mine.about : other.about, '\n');
  if (mine.print.about != other.print.about && advice != nullptr) text.add(". %s", advice + 1);
  describe_facts(text, group, mine, own);
  describe_rank_facts(text, rank, true, &other.site);
}

void describe_unexpected(Text& text, const char* group, const Note& mine, int32_t own, int32_t from, int64_t sent, int32_t to,
                         int64_t expected) {
  describe_title(text, mine, group);
  describe_place(text, mine.site);
  text.add(": rank %d sends %lld bytes to rank %d, which expects %lld", from, static_cast<long long>(sent), to,
           static_cast<long long>(expected));
  describe_facts(text, group, mine, own);
  for (const int32_t rank : {from, to}) describe_rank_facts(text, rank, true, nullptr);
}

void describe_misfit(Text& text, const char* group, int32_t from, int64_t sent, const Site& sender, int32_t to, int64_t expected,
                     const Site& receiver) {
  text.add("rank %d sent %lld bytes to rank %d", from, static_cast<long long>(sent), to);
  describe_place(text, sender);
  text.add(", which receives %lld", static_cast<long long>(expected));
  describe_place(text, receiver);
  start_facts(text, group, 0);
  describe_rank_facts(text, from, true, &sender);
  describe_rank_facts(text, to, true, &receiver);
}

void describe_facts(Text& text, const char* group, const Note& mine, int32_t own) {
  start_facts(text, group, mine.print.call);
  describe_rank_facts(text, own, false, &mine.site);
}

void describe_rank_facts(Text& text, int32_t rank, bool blamed, const Site* called) {
  text.add("%c%d%c%d%c%s%c%s", kFieldMark, rank, kFieldMark, blamed ? 1 : 0, kFieldMark, called == nullptr ? "" : called->name, kFieldMark,
           called == nullptr ? "" : called->where);
}

void describe_rank_facts(Text& text, int32_t rank, bool blamed, const SharedNote& last) {
  Note note;
  describe_rank_facts(text, rank, blamed, last.read(&note) ? &note.site : nullptr);
}

}  // namespace shardwise::comm
