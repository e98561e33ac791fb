// How a group fails: the first cause is kept in the region and given to every call of every rank.
#include <sched.h>

#include "host_group.h"
#include "messages.h"

namespace shardwise::comm {

void Region::fail_group(Code code, const char* text) {
  Header& shared = header();
  uint32_t none = 0;
  if (!shared.failed.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) return;
  shared.failure_code = static_cast<int32_t>(code);
  snprintf(shared.failure_text, sizeof shared.failure_text, "%s", text);
  shared.failed.store(2, std::memory_order_seq_cst);
  wake_all();
}

Status Region::cause(ErrorText* error) {
  Header& shared = header();
  // Who writes the text may be stopped or killed just then.
  for (const int64_t until = now_ns() + 100'000'000;
       shared.failed.load(std::memory_order_acquire) != 2;) {
    if (now_ns() > until)
      return fail(error, Code::Device, "the group has failed in a rank that could not say why");
    sched_yield();
  }
  return fail(error, static_cast<Code>(shared.failure_code), "%s", shared.failure_text);
}

void Region::wake_all() {
  wake(header().joined, shared_);
  wake(header().generation, shared_);
  for (int32_t from = 0; from < size_; from++) {
    for (int32_t to = 0; to < size_; to++) {
      for (Counter* counter : {&channel(from, to).written, &channel(from, to).taken}) {
        if (counter->sleepers.load(std::memory_order_seq_cst) != 0) wake(*counter, shared_);
      }
    }
  }
}

Status HostGroup::fail_group(Code code, const char* text, ErrorText* error) {
  region_->fail_group(code, text);
  return failure(error);
}

Status HostGroup::failure(ErrorText* error) {
  ErrorText cause;
  const Status status = region_->cause(&cause);
  if (error == nullptr) return status;
  Text text(*error);
  // Who aborts does not say in what the others were.
  if (status.code == Code::Closed) {
    describe_heading(text, roster(), note_);
    text.add(": ");
  }
  text.add_text(cause.text);
  if (status.code == Code::Closed) Facts(roster(), note_, rank_).add_to(text);
  return status;
}

Status HostGroup::refuse(const Note& note, ErrorText* error) {
  ErrorText cause;
  Status status = refused_;
  if (status.ok())
    status = region_->cause(&cause);
  else
    cause = refused_text_;
  if (error == nullptr) return status;
  Text text(*error);
  describe_refused(text, roster(), note, rank_, cause);
  return status;
}

Status HostGroup::refuse_difference(const ErrorText& seen_here, const ErrorText& for_all,
                                    ErrorText* error) {
  refused_ = fail(&refused_text_, Code::Invalid, "%s", seen_here.text);
  region_->fail_group(Code::Invalid, for_all.text);
  return fail(error, Code::Invalid, "%s", seen_here.text);
}

void HostGroup::abort(const char* reason) { region_->fail_group(Code::Closed, reason); }

}  // namespace shardwise::comm
