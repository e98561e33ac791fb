// Failure of a group: the region keeps the first cause, and every call of every rank gets it.
#include <thread>

#include "host_group.h"
#include "messages.h"

namespace shardwise::comm {

void Region::fail_group(Code code, const ErrorText& why) {
  Header& shared = header();
  uint32_t none = 0;
  if (!shared.failed.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) return;
  shared.failure_code = static_cast<int32_t>(code);
  shared.failure = why;
  with_id(shared.failure);
  shared.failed.store(2, std::memory_order_seq_cst);
  wake_all();
}

Status Region::cause(ErrorText* error) {
  Header& shared = header();
  // The rank that writes the failure may be stopped or killed.
  for (const int64_t until = now_ns() + 100'000'000;
       shared.failed.load(std::memory_order_acquire) != 2;) {
    if (now_ns() > until)
      return fail(error, Code::Device, "the group has failed in a rank that could not say why");
    std::this_thread::yield();
  }
  return fail_with(error, static_cast<Code>(shared.failure_code), shared.failure);
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

Status HostGroup::fail_group(Code code, const ErrorText& why, ErrorText* error) {
  region_->fail_group(code, why);
  return failure(error);
}

Status HostGroup::failure(ErrorText* error) {
  ErrorText cause;
  const Status status = region_->cause(&cause);
  if (error == nullptr) return status;
  Text text(*error);
  // The rank that aborts does not know the calls of the others.
  if (status.code == Code::Closed) {
    describe_heading(text, group_info(), record_);
    text.add(": ");
  }
  text.add_cause(cause);
  if (status.code == Code::Closed) DetailsWriter(group_info(), record_, rank_).add_to(text);
  return status;
}

Status HostGroup::refuse(const CallRecord& record, ErrorText* error) {
  ErrorText cause;
  Status status = refused_;
  if (status.ok())
    status = region_->cause(&cause);
  else
    cause = refused_text_;
  if (error == nullptr) return status;
  Text text(*error);
  describe_refused(text, group_info(), record, rank_, cause);
  return status;
}

Status HostGroup::refuse_mismatch(ErrorText& seen_here, ErrorText& for_all, ErrorText* error) {
  region_->fail_group(Code::Invalid, with_id(for_all));
  // Another rank may have found the mismatch first.
  ErrorText first;
  region_->cause(&first);
  seen_here.details.id = first.details.id;
  refused_ = fail_with(&refused_text_, Code::Invalid, seen_here);
  return fail_with(error, Code::Invalid, seen_here);
}

void HostGroup::abort(const ErrorText& reason) { region_->fail_group(Code::Closed, reason); }

}  // namespace shardwise::comm
