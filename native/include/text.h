// Puts the text of an error together, cut where the buffer ends.
#pragma once
#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

#include "status.h"

namespace shardwise {

class Text {
 public:
  Text(char* text, size_t size) : text_(text), size_(size) { text_[0] = 0; }
  explicit Text(ErrorText& error) : Text(error.text, sizeof error.text) {}
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

}  // namespace shardwise
