// Puts the text of an error together, cut where the buffer ends.
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
  explicit Text(ErrorText& error) : Text(error.text, sizeof error.text) {}
  __attribute__((format(printf, 2, 3))) Text& add(const char* format, ...) {
    va_list args;
    va_start(args, format);
    const int written = vsnprintf(text_ + used_, size_ - used_, format, args);
    va_end(args);
    used_ = std::min(size_ - 1, used_ + static_cast<size_t>(written > 0 ? written : 0));
    return *this;
  }
  // Behind all words: what programs read, from a mark on (see kFactsMark). It stays whole, and
  // where both do not fit, words are left out at their end. False: that would leave hardly any.
  bool add_facts(const char* facts) {
    constexpr size_t least = 256;
    constexpr char cut[] = "…";
    const size_t length = strlen(facts), words = strcspn(text_, kMarks),
                 over = used_ + length + sizeof cut - size_;
    if (used_ + length >= size_) {
      if (words < least + over) return false;
      size_t kept = words - over;
      while ((text_[kept] & 0xc0) == 0x80) kept--;  // no half of a character
      memmove(text_ + kept + sizeof cut - 1, text_ + words, used_ - words);
      memcpy(text_ + kept, cut, sizeof cut - 1);
      used_ -= words - kept - (sizeof cut - 1);
    }
    memcpy(text_ + used_, facts, length + 1);
    used_ += length;
    return true;
  }
  // Another text with its facts.
  Text& add_text(const char* other) {
    const size_t words = strcspn(other, kMarks);
    add("%.*s", static_cast<int>(words), other);
    add_facts(other + words);
    return *this;
  }

 private:
  static constexpr char kMarks[] = {kFactsMark, 0};

  char* text_;
  size_t size_, used_ = 0;
};

}  // namespace shardwise
