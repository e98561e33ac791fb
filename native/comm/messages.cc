#include "messages.h"

#include <algorithm>
#include <cstring>

#include "../include/dtype.h"
#include "reduce_kernels.h"

namespace shardwise::comm {
namespace {

// So much of a text that says why are a report's facts, so that those of the first cause and of
// what came of it fit with their words.
constexpr size_t kFactsBytes = 512, kRanksBytes = 192;
// So many fates of ranks are told, and so many runs of ranks.
constexpr size_t kToldFates = 4, kToldRuns = 8;

struct Run {
  int32_t first, last;
};

std::vector<Run> runs_of(std::vector<int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<Run> runs;
  for (const int32_t rank : ranks) {
    if (!runs.empty() && rank <= runs.back().last + 1)
      runs.back().last = rank;
    else
      runs.push_back({rank, rank});
  }
  return runs;
}

// `2 float32`, or `8 bytes`
std::string words_of(int64_t bytes, int64_t dtype) {
  if (dtype < 0) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  const auto type = static_cast<DType>(dtype);
  return std::to_string(bytes / item_size(type)) + " " + dtype_name(type);
}

// `1-15,20`
std::string list_of_ranks(const std::vector<int32_t>& ranks) {
  std::string list;
  for (const auto& [first, last] : runs_of(ranks)) {
    std::string run = (list.empty() ? "" : ",") + std::to_string(first) +
                      (first == last ? "" : "-" + std::to_string(last));
    if (list.size() + run.size() <= kRanksBytes) list += run;
  }
  return list;
}

void describe_last_call(Text& text, const Roster& group, const Note* last, bool inside, bool many) {
  if (last == nullptr) {
    text.add(many ? ", they have called nothing yet" : ", it has called nothing yet");
    return;
  }
  if (inside)
    text.add(many ? ", they are in " : ", it is in ");
  else
    text.add(many ? ", their last call was " : ", its last call was ");
  describe(text, group, *last);
  if (last->peer < 0) text.add(" (call %llu)", static_cast<unsigned long long>(last->print.call));
}

bool is_same(const Site& a, const Site& b) {
  return strcmp(a.name, b.name) == 0 && strcmp(a.where, b.where) == 0;
}

// Behind the end of their texts notes hold anything.
bool is_same(const Note& a, const Note& b) {
  return memcmp(&a.print, &b.print, sizeof a.print) == 0 && a.amount == b.amount &&
         a.peer == b.peer && is_same(a.site, b.site) && strcmp(a.about, b.about) == 0;
}

}  // namespace

void describe_place(Text& text, const Site& site) {
  if (site.where[0] != 0) text.add(" at %s", site.where);
}

void describe(Text& text, const Roster& group, const Note& note) {
  const Fingerprint& print = note.print;
  text.add("%s", note.site.name);
  if (print.reduce >= 0)
    text.add(" of %lld %s", static_cast<long long>(note.amount),
             dtype_name(static_cast<DType>(print.dtype)));
  else if (print.kind != Kind::Barrier)
    text.add(" of %s", words_of(note.amount, print.dtype).c_str());
  if (print.reduce >= 0) text.add(" (%s)", reduce_name(static_cast<Reduce>(print.reduce)));
  const bool from_root = print.kind == Kind::Broadcast || print.kind == Kind::Scatter;
  if (print.root >= 0)
    text.add(" %s rank %d", from_root ? "from" : "to", group.rank_at(print.root));
  if (note.peer >= 0)
    text.add(" %s rank %d", print.kind == Kind::Receive ? "from" : "to", group.rank_at(note.peer));
  describe_place(text, note.site);
  if (note.about[0] != 0) text.add(" %s", note.about);
}

void describe_title(Text& text, const Roster& group, const Note& note) {
  text.add("%s", note.site.name);
  const bool named = !group.name.empty();
  if (note.peer >= 0) {
    text.add(" %s rank %d", note.print.kind == Kind::Receive ? "from" : "to",
             group.rank_at(note.peer));
    if (named) text.add(" (group \"%s\")", group.name.c_str());
  } else if (note.print.kind != Kind::None) {
    text.add(" (call %llu of ", static_cast<unsigned long long>(note.print.call));
    named ? text.add("group \"%s\")", group.name.c_str()) : text.add("the group)");
  }
}

void describe_heading(Text& text, const Roster& group, const Note& note) {
  describe_title(text, group, note);
  describe_place(text, note.site);
}

void describe_waiting(Text& text, const Roster& group, const Note& mine, int32_t own) {
  if (mine.peer >= 0) text.add("on rank %d: ", group.rank_at(own));
  describe_heading(text, group, mine);
}

void describe_last_call(Text& text, const Roster& group, const SharedNote& last, bool inside) {
  Note note;
  const bool called = last.read(&note);
  describe_last_call(text, group, called ? &note : nullptr, inside, false);
}

void describe_abort(Text& text, const Roster& group, int32_t rank, const char* reason) {
  text.add("rank %d aborted the group: ", group.rank_at(rank)).add_text(reason);
  Facts facts(group);
  facts.blame(rank, nullptr);
  facts.add_to(text);
}

void describe_refused(Text& text, const Roster& group, const Note& mine, int32_t own,
                      const ErrorText& cause) {
  describe_heading(text, group, mine);
  text.add(": the group has failed before: ").add_text(cause.text);
  Facts(group, mine, own).add_to(text);
}

void describe_difference(Text& text, const Roster& group, const Note& mine, int32_t own,
                         const Difference& found, const Note& other, Reader reader) {
  describe_title(text, group, mine);
  text.add(": %s called ", words_of_ranks(group.ranks_at(found.callers)).c_str());
  describe(text, group, other);
  reader == Reader::This ? text.add(", this rank ") : text.add(", rank %d ", group.rank_at(own));
  describe(text, group, mine);
  if (mine.print.sizes != other.print.sizes && mine.print.amount == other.print.amount &&
      mine.print.kind == other.print.kind) {
    text.add(" with other sizes per rank");
  }
  const char* advice = mine.advice[0] != 0 ? mine.advice : other.advice;
  if (mine.print.about != other.print.about && advice[0] != 0) text.add(". %s", advice);
  Facts facts(group, mine, own);
  facts.knows(found.first, other.site);
  for (const int32_t rank : found.blamed) facts.blame(rank, nullptr);
  facts.add_to(text);
}

void describe_unexpected(Text& text, const Roster& group, const Note& mine, int32_t own,
                         int32_t from, int64_t sent, const Note* sender, int32_t to,
                         int64_t expected, const Note* receiver) {
  const struct {
    int32_t rank;
    const Note* note;
  } ends[] = {{from, sender}, {to, receiver}};
  describe_heading(text, group, mine);
  text.add(": rank %d sends %lld bytes to rank %d, which expects %lld", group.rank_at(from),
           static_cast<long long>(sent), group.rank_at(to), static_cast<long long>(expected));
  Facts facts(group, mine, own);
  for (const auto& [rank, note] : ends) {
    const bool elsewhere = note != nullptr && !is_same(note->site, mine.site);
    if (elsewhere) text.add("; rank %d called %s", group.rank_at(rank), note->site.name);
    if (elsewhere) describe_place(text, note->site);
    facts.blame(rank, note == nullptr ? nullptr : &note->site);
  }
  facts.add_to(text);
}

void describe_misfit(Text& text, const Roster& group, int32_t from, const Load& sent,
                     const Site& sender, int32_t to, const Load& expected, const Site& receiver) {
  text.add("rank %d sent %s to rank %d", group.rank_at(from),
           words_of(sent.bytes, sent.dtype).c_str(), group.rank_at(to));
  describe_place(text, sender);
  text.add(", which receives %s", words_of(expected.bytes, expected.dtype).c_str());
  describe_place(text, receiver);
  Facts facts(group);
  facts.blame(from, &sender);
  facts.blame(to, &receiver);
  facts.add_to(text);
}

std::string words_of_ranks(const std::vector<int32_t>& ranks) {
  std::vector<Run> runs;
  for (const auto& [first, last] : runs_of(ranks)) {
    if (last == first + 1)
      runs.insert(runs.end(), {{first, first}, {last, last}});
    else
      runs.push_back({first, last});
  }
  std::string words = ranks.size() == 1 ? "rank " : "ranks ";
  size_t told = 0;
  for (size_t i = 0; i < runs.size() && i < kToldRuns; i++) {
    const auto& [first, last] = runs[i];
    if (i > 0) words += i + 1 == runs.size() ? " and " : ", ";
    words += std::to_string(first);
    if (last > first) words += " to " + std::to_string(last);
    told += static_cast<size_t>(last - first + 1);
  }
  if (told < ranks.size()) words += " and " + std::to_string(ranks.size() - told) + " more";
  return words;
}

Facts::Facts(const Roster& group, const Note& mine, int32_t own)
    : group_(group), op_(mine.site.name), call_(mine.print.call) {
  knows(own, mine.site);
}

void Facts::knows(int32_t rank, const Site& called) {
  if (called.name[0] == 0) return;
  for (Called& known : calls_) {
    if (is_same(known.site, called)) return known.ranks.push_back(rank);
  }
  calls_.push_back({{rank}, called});
}

void Facts::blame(int32_t rank, const Site* called) {
  blamed_.push_back(rank);
  if (called != nullptr) knows(rank, *called);
}

void Facts::blame(int32_t rank, const SharedNote& last) {
  Note note;
  blame(rank, last.read(&note) ? &note.site : nullptr);
}

void Facts::add_to(Text& text) const {
  const auto field = [](const std::string& value) { return kFieldMark + value; };
  const std::string blamed = list_of_ranks(instead_.empty() ? group_.ranks_at(blamed_) : instead_);
  const std::string head = kFactsMark + group_.name.substr(0, 80) + field(std::to_string(call_)) +
                           field(op_) + field(blamed);
  std::string all = head;
  for (const Called& known : calls_) {
    const std::string call = field(list_of_ranks(group_.ranks_at(known.ranks))) +
                             field(known.site.name) + field(known.site.where);
    if (all.size() + call.size() <= kFactsBytes) all += call;
  }
  if (!text.add_facts(all.c_str())) text.add_facts(head.c_str());
}

void Missing::add(Fate fate, int32_t rank) {
  const auto is_alike = [&](const Fate& other) {
    return other.has == fate.has && other.is_known == fate.is_known &&
           other.inside == fate.inside && other.has_called == fate.has_called &&
           is_same(other.called, fate.called);
  };
  auto found = std::find_if(fates_.begin(), fates_.end(), is_alike);
  if (found == fates_.end()) found = fates_.insert(fates_.end(), std::move(fate));
  found->ranks.push_back(rank);
}

void Missing::add(int32_t rank, const char* has, const Note* called, bool inside) {
  add({has, true, inside, called != nullptr, called != nullptr ? *called : Note{}, {}}, rank);
}

void Missing::add(int32_t rank, const char* has, const SharedNote& called, bool inside) {
  Note note;
  add(rank, has, called.read(&note) ? &note : nullptr, inside);
}

void Missing::add(int32_t rank, const char* has) { add({has, false, false, false, {}, {}}, rank); }

void Missing::describe(Text& text, const Roster& group, const char* aside) const {
  std::vector<int32_t> others;
  for (size_t i = 0; i < fates_.size(); i++) {
    const Fate& fate = fates_[i];
    if (i >= kToldFates) {
      others.insert(others.end(), fate.ranks.begin(), fate.ranks.end());
      continue;
    }
    const bool many = fate.ranks.size() > 1;
    text.add("%s%s %s%s", i > 0 ? "; " : "", words_of_ranks(group.ranks_at(fate.ranks)).c_str(),
             many ? "have" : "has", fate.has.c_str() + strlen("has"));
    if (fate.is_known)
      describe_last_call(text, group, fate.has_called ? &fate.called : nullptr, fate.inside, many);
    if (i == 0) text.add("%s", aside);
  }
  if (!others.empty()) text.add("; and %s", words_of_ranks(group.ranks_at(others)).c_str());
}

void Missing::blame(Facts& facts) const {
  for (const Fate& fate : fates_) {
    for (const int32_t rank : fate.ranks)
      facts.blame(rank, fate.has_called ? &fate.called.site : nullptr);
  }
}

}  // namespace shardwise::comm
