#include "messages.h"

#include <algorithm>
#include <cstring>

#include "../include/dtype.h"
#include "reduce_kernels.h"

namespace shardwise::comm {
namespace {

// At most so many reasons and runs of ranks are shown.
constexpr size_t kShownAbsences = 4, kShownRuns = 8;

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
std::string format_amount(int64_t bytes, int64_t dtype) {
  if (dtype < 0) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  const auto type = static_cast<DType>(dtype);
  return std::to_string(bytes / item_size(type)) + " " + dtype_name(type);
}

template <int32_t kMost>
void write_ranks(const std::vector<int32_t>& ranks, RankRanges<kMost>* out) {
  out->count = 0;
  for (const auto& [first, last] : runs_of(ranks)) {
    if (out->count == kMost) return;
    out->ranges[out->count++] = {first, last};
  }
}

template <int32_t kMost>
std::vector<int32_t> read_ranks(const RankRanges<kMost>& from) {
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < from.count; i++)
    for (int32_t rank = from.ranges[i].first; rank <= from.ranges[i].last; rank++)
      ranks.push_back(rank);
  return ranks;
}

template <size_t kBytes>
void write_name(const char* name, char (&out)[kBytes]) {
  snprintf(out, sizeof out, "%s", name);
}

// The calls of `ranks` become this one.
void set_call(CollectiveDetails* details, const std::vector<int32_t>& ranks, const Site& site) {
  for (int32_t i = 0; i < details->num_calls; i++) {
    CallOfRanks& known = details->calls[i];
    std::vector<int32_t> others = read_ranks(known.ranks);
    others.erase(std::remove_if(others.begin(), others.end(),
                                [&](int32_t rank) {
                                  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
                                }),
                 others.end());
    write_ranks(others, &known.ranks);
  }
  CallOfRanks* end = std::remove_if(details->calls, details->calls + details->num_calls,
                                    [](const CallOfRanks& call) { return call.ranks.count == 0; });
  details->num_calls = static_cast<int32_t>(end - details->calls);
  if (details->num_calls == static_cast<int32_t>(std::size(details->calls))) return;
  CallOfRanks& added = details->calls[details->num_calls++];
  write_ranks(ranks, &added.ranks);
  write_name(site.name, added.op);
  write_name(site.where, added.where);
}

void describe_last_call(Text& text, const GroupInfo& group, const CallRecord* last, bool inside,
                        bool many) {
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

// The bytes after the end of a text are undefined.
bool is_same(const CallRecord& a, const CallRecord& b) {
  return memcmp(&a.print, &b.print, sizeof a.print) == 0 && a.amount == b.amount &&
         a.peer == b.peer && is_same(a.site, b.site) && strcmp(a.about, b.about) == 0;
}

}  // namespace

void describe_place(Text& text, const Site& site) {
  if (site.where[0] != 0) text.add(" at %s", site.where);
}

void describe(Text& text, const GroupInfo& group, const CallRecord& record) {
  const Fingerprint& print = record.print;
  text.add("%s", record.site.name);
  if (print.reduce >= 0)
    text.add(" of %lld %s", static_cast<long long>(record.amount),
             dtype_name(static_cast<DType>(print.dtype)));
  else if (print.kind != Kind::Barrier)
    text.add(" of %s", format_amount(record.amount, print.dtype).c_str());
  if (print.reduce >= 0) text.add(" (%s)", reduce_name(static_cast<Reduce>(print.reduce)));
  const bool from_root = print.kind == Kind::Broadcast || print.kind == Kind::Scatter;
  if (print.root >= 0)
    text.add(" %s rank %d", from_root ? "from" : "to", group.rank_at(print.root));
  if (record.peer >= 0)
    text.add(" %s rank %d", print.kind == Kind::Receive ? "from" : "to",
             group.rank_at(record.peer));
  describe_place(text, record.site);
  if (record.about[0] != 0) text.add(" %s", record.about);
}

void describe_title(Text& text, const GroupInfo& group, const CallRecord& record) {
  text.add("%s", record.site.name);
  const bool named = !group.name.empty();
  if (record.peer >= 0) {
    text.add(" %s rank %d", record.print.kind == Kind::Receive ? "from" : "to",
             group.rank_at(record.peer));
    if (named) text.add(" (group \"%s\")", group.name.c_str());
  } else if (record.print.kind != Kind::None) {
    text.add(" (call %llu of ", static_cast<unsigned long long>(record.print.call));
    named ? text.add("group \"%s\")", group.name.c_str()) : text.add("the group)");
  }
}

void describe_heading(Text& text, const GroupInfo& group, const CallRecord& record) {
  describe_title(text, group, record);
  describe_place(text, record.site);
}

void describe_waiting(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own) {
  if (mine.peer >= 0) text.add("on rank %d: ", group.rank_at(own));
  describe_heading(text, group, mine);
}

void describe_last_call(Text& text, const GroupInfo& group, const LastCall& last, bool inside) {
  CallRecord record;
  const bool called = last.read(&record);
  describe_last_call(text, group, called ? &record : nullptr, inside, false);
}

void describe_abort(Text& text, const GroupInfo& group, int32_t rank, const ErrorText& reason) {
  text.add("rank %d aborted the group: ", group.rank_at(rank)).add_cause(reason);
  DetailsWriter details(group);
  details.blame(rank, nullptr);
  details.add_to(text);
}

void describe_refused(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own,
                      const ErrorText& cause) {
  describe_heading(text, group, mine);
  text.add(": the group has failed before: ").add_cause(cause);
  DetailsWriter(group, mine, own).add_to(text);
}

void describe_mismatch(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own,
                       const Mismatch& found, const CallRecord& other, Reader reader) {
  describe_title(text, group, mine);
  text.add(": %s called ", format_ranks(group.ranks_at(found.callers)).c_str());
  describe(text, group, other);
  reader == Reader::This ? text.add(", this rank ") : text.add(", rank %d ", group.rank_at(own));
  describe(text, group, mine);
  if (mine.print.sizes != other.print.sizes && mine.print.amount == other.print.amount &&
      mine.print.kind == other.print.kind) {
    text.add(" with other sizes per rank");
  }
  const char* advice = mine.advice[0] != 0 ? mine.advice : other.advice;
  if (mine.print.about != other.print.about && advice[0] != 0) text.add(". %s", advice);
  DetailsWriter details(group, mine, own);
  details.knows(found.first, other.site);
  for (const int32_t rank : found.blamed) details.blame(rank, nullptr);
  details.add_to(text);
}

void describe_unexpected(Text& text, const GroupInfo& group, const CallRecord& mine, int32_t own,
                         int32_t from, int64_t sent, const CallRecord* sender, int32_t to,
                         int64_t expected, const CallRecord* receiver) {
  const struct {
    int32_t rank;
    const CallRecord* record;
  } ends[] = {{from, sender}, {to, receiver}};
  describe_heading(text, group, mine);
  text.add(": rank %d sends %lld bytes to rank %d, which expects %lld", group.rank_at(from),
           static_cast<long long>(sent), group.rank_at(to), static_cast<long long>(expected));
  DetailsWriter details(group, mine, own);
  for (const auto& [rank, record] : ends) {
    const bool elsewhere = record != nullptr && !is_same(record->site, mine.site);
    if (elsewhere) text.add("; rank %d called %s", group.rank_at(rank), record->site.name);
    if (elsewhere) describe_place(text, record->site);
    details.blame(rank, record == nullptr ? nullptr : &record->site);
  }
  details.add_to(text);
}

void describe_misfit(Text& text, const GroupInfo& group, int32_t from, const Load& sent,
                     const Site& sender, int32_t to, const Load& expected, const Site& receiver) {
  text.add("rank %d sent %s to rank %d", group.rank_at(from),
           format_amount(sent.bytes, sent.dtype).c_str(), group.rank_at(to));
  describe_place(text, sender);
  text.add(", which receives %s", format_amount(expected.bytes, expected.dtype).c_str());
  describe_place(text, receiver);
  DetailsWriter details(group);
  details.blame(from, &sender);
  details.blame(to, &receiver);
  details.add_to(text);
}

std::string format_ranks(const std::vector<int32_t>& ranks) {
  std::vector<Run> runs;
  for (const auto& [first, last] : runs_of(ranks)) {
    if (last == first + 1)
      runs.insert(runs.end(), {{first, first}, {last, last}});
    else
      runs.push_back({first, last});
  }
  std::string words = ranks.size() == 1 ? "rank " : "ranks ";
  size_t shown = 0;
  for (size_t i = 0; i < runs.size() && i < kShownRuns; i++) {
    const auto& [first, last] = runs[i];
    if (i > 0) words += i + 1 == runs.size() ? " and " : ", ";
    words += std::to_string(first);
    if (last > first) words += " to " + std::to_string(last);
    shown += static_cast<size_t>(last - first + 1);
  }
  if (shown < ranks.size()) words += " and " + std::to_string(ranks.size() - shown) + " more";
  return words;
}

DetailsWriter::DetailsWriter(const GroupInfo& group, const CallRecord& mine, int32_t own)
    : group_(group), op_(mine.site.name), call_(mine.print.call) {
  knows(own, mine.site);
}

void DetailsWriter::knows(int32_t rank, const Site& called) {
  if (called.name[0] == 0) return;
  for (Called& known : calls_) {
    if (is_same(known.site, called)) return known.ranks.push_back(rank);
  }
  calls_.push_back({{rank}, called});
}

void DetailsWriter::blame(int32_t rank, const Site* called) {
  blamed_.push_back(rank);
  if (called != nullptr) knows(rank, *called);
}

void DetailsWriter::blame(int32_t rank, const LastCall& last) {
  CallRecord record;
  blame(rank, last.read(&record) ? &record.site : nullptr);
}

void DetailsWriter::add_to(Text& text) const {
  FailureDetails* all = text.details();
  if (all == nullptr) return;
  CollectiveDetails& out = all->collective;
  if (all->kind != DetailsKind::Collective) out = {};
  all->kind = DetailsKind::Collective;
  const bool of_other_group = out.group[0] != 0 && !group_.name.empty() && group_.name != out.group;
  if (of_other_group) {
    out.op[0] = 0;
    out.sequence = 0;
    out.num_calls = 0;
  }
  if (!group_.name.empty()) write_name(group_.name.c_str(), out.group);
  if (!op_.empty()) write_name(op_.c_str(), out.op);
  out.sequence = std::max(out.sequence, call_);
  if (out.blamed.count == 0)
    write_ranks(instead_.empty() ? group_.ranks_at(blamed_) : instead_, &out.blamed);
  for (const Called& known : calls_) set_call(&out, group_.ranks_at(known.ranks), known.site);
}

void Missing::add(Absence absence, int32_t rank) {
  const auto is_alike = [&](const Absence& other) {
    return other.has == absence.has && other.is_known == absence.is_known &&
           other.inside == absence.inside && other.has_called == absence.has_called &&
           is_same(other.called, absence.called);
  };
  auto found = std::find_if(absences_.begin(), absences_.end(), is_alike);
  if (found == absences_.end()) found = absences_.insert(absences_.end(), std::move(absence));
  found->ranks.push_back(rank);
}

void Missing::add(int32_t rank, const char* has, const CallRecord* called, bool inside) {
  add({has, true, inside, called != nullptr, called != nullptr ? *called : CallRecord{}, {}}, rank);
}

void Missing::add(int32_t rank, const char* has, const LastCall& called, bool inside) {
  CallRecord record;
  add(rank, has, called.read(&record) ? &record : nullptr, inside);
}

void Missing::add(int32_t rank, const char* has) { add({has, false, false, false, {}, {}}, rank); }

void Missing::describe(Text& text, const GroupInfo& group, const char* aside) const {
  std::vector<int32_t> others;
  for (size_t i = 0; i < absences_.size(); i++) {
    const Absence& absence = absences_[i];
    if (i >= kShownAbsences) {
      others.insert(others.end(), absence.ranks.begin(), absence.ranks.end());
      continue;
    }
    const bool many = absence.ranks.size() > 1;
    text.add("%s%s %s%s", i > 0 ? "; " : "", format_ranks(group.ranks_at(absence.ranks)).c_str(),
             many ? "have" : "has", absence.has.c_str() + strlen("has"));
    if (absence.is_known)
      describe_last_call(text, group, absence.has_called ? &absence.called : nullptr,
                         absence.inside, many);
    if (i == 0) text.add("%s", aside);
  }
  if (!others.empty()) text.add("; and %s", format_ranks(group.ranks_at(others)).c_str());
}

void Missing::blame(DetailsWriter& details) const {
  for (const Absence& absence : absences_) {
    for (const int32_t rank : absence.ranks)
      details.blame(rank, absence.has_called ? &absence.called.site : nullptr);
  }
}

}  // namespace shardwise::comm
