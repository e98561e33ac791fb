// How a group fails: the first cause is kept in the region and given to every call of every rank.
#include <sched.h>

#include "host_group.h"
#include "text.h"

namespace shardwise::comm {

Status HostGroup::fail_group(Code code, const char* text, ErrorText* error) {
  Header& shared = header();
  uint32_t none = 0;
  if (shared.failed.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) {
    shared.failure_code = static_cast<int32_t>(code);
    snprintf(shared.failure_text, sizeof shared.failure_text, "%s", text);
    shared.failed.store(2, std::memory_order_seq_cst);
    wake_all();
  }
  return failure(error);
}

Status HostGroup::failure(ErrorText* error) {
  Header& shared = header();
  // Who writes the text may be stopped or killed just then.
  for (const int64_t until = now_ns() + 100'000'000; shared.failed.load(std::memory_order_acquire) != 2;) {
    if (now_ns() > until) return fail(error, Code::Device, "the group has failed in a rank that could not say why");
    sched_yield();
  }
  return fail(error, static_cast<Code>(shared.failure_code), "%s", shared.failure_text);
}

Status HostGroup::refuse(const Site& site, ErrorText* error) {
  ErrorText cause;
  Status status = refused_;
  if (status.ok())
    status = failure(&cause);
  else
    cause = refused_text_;
  return fail(error, status.code, "%s: the group has failed before: %s", site.name, cause.text);
}

Status HostGroup::refuse_difference(const ErrorText& seen_here, const ErrorText& for_all, ErrorText* error) {
  refused_ = fail(&refused_text_, Code::Invalid, "%s", seen_here.text);
  fail_group(Code::Invalid, for_all.text, nullptr);
  return fail(error, Code::Invalid, "%s", seen_here.text);
}

void HostGroup::abort(const char* reason) {
  ErrorText text;
  Text(text).add("rank %d aborted the group: %s", rank_, reason);
  fail_group(Code::Closed, text.text, nullptr);
}

void HostGroup::wake_all() {
  const bool shared = region_->shared();
  wake(header().joined, shared);
  wake(header().generation, shared);
  for (int32_t from = 0; from < size(); from++) {
    for (int32_t to = 0; to < size(); to++) {
      Channel& channel = region_->channel(from, to);
      for (Counter* counter : {&channel.written, &channel.taken}) {
        if (counter->sleepers.load(std::memory_order_seq_cst) != 0) wake(*counter, shared);
      }
    }
  }
}

}  // namespace shardwise::comm
