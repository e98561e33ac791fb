// Builds the text of an error piece by piece and shortens it where the buffer ends.
#pragma once
#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "status.h"

namespace shardwise {

class Text {
 public:
  Text(char* text, size_t size) : text_(text), size_(size) { text_[0] = 0; }
  explicit Text(ErrorText& error) : Text(error.text, sizeof error.text) {
    details_ = &error.details;
    details_->clear();
  }
  __attribute__((format(printf, 2, 3))) Text& add(const char* format, ...) {
    va_list args;
    va_start(args, format);
    const int written = vsnprintf(text_ + used_, size_ - used_, format, args);
    va_end(args);
    used_ += static_cast<size_t>(std::max(written, 0));
    if (used_ >= size_) shorten();
    return *this;
  }
  // The text of the failure that caused this one. Its details become those of this text.
  Text& add_cause(const ErrorText& cause) {
    if (details_) details_->set(cause.details);
    return add("%s", cause.text);
  }
  // Null for a plain buffer.
  FailureDetails* details() { return details_; }

 private:
  void shorten() {
    constexpr char ellipsis[] = "…";
    used_ = size_ - 1;
    if (size_ <= sizeof ellipsis) return;
    size_t kept = size_ - sizeof ellipsis;
    while (kept > 0 && (text_[kept] & 0xc0) == 0x80) kept--;  // no half of a character
    memcpy(text_ + kept, ellipsis, sizeof ellipsis);
    used_ = kept + sizeof ellipsis - 1;
  }

  char* text_;
  size_t size_, used_ = 0;
  FailureDetails* details_ = nullptr;
};

}  // namespace shardwise
