// Calls in words, for the texts of errors.
#pragma once
#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

#include "../include/collective.h"
#include "nccl_api.h"

namespace shardwise::cuda::nccl {

// Puts the text of an error together, cut where the buffer ends.
class Text {
 public:
  explicit Text(ErrorText& error) : text_(error.text), size_(sizeof error.text) { text_[0] = 0; }
  __attribute__((format(printf, 2, 3))) Text& add(const char* format, ...) {
    va_list args;
    va_start(args, format);
    const int written = vsnprintf(text_ + used_, size_ - used_, format, args);
    va_end(args);
    used_ = std::min(size_ - 1, used_ + static_cast<size_t>(written > 0 ? written : 0));
    return *this;
  }

 private:
  char* text_;
  size_t size_, used_ = 0;
};

CommRecord record_of(const CollectiveCall& call, int32_t rank, int32_t size);

// `all_reduce (call 7 of the group) of 12 float32 (sum) at a.ts:9`
void describe(Text& text, const CommRecord& record);

// `: NCCL says "…" (its last error)`, and what can be done about it.
void describe_result(Text& text, const Api& api, Result result);

}  // namespace shardwise::cuda::nccl
