// Texts that JavaScript says again and again, such as where a call is, by numbers that it gives
// them.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace shardwise {

// Who holds a text keeps it, from any thread, when its number gets another one.
using SharedText = std::shared_ptr<const std::string>;

class TextTable {
 public:
  // As many at a time; lib/native/text-numbers.ts has the same number.
  static constexpr int64_t kMost = 4096;

  // False for a number that there is not. 0 stays the empty text.
  bool set(int64_t number, std::string text) {
    if (number <= 0 || number >= kMost) return false;
    if (number >= size()) texts_.resize(static_cast<size_t>(number) + 1);
    texts_[number] = std::make_shared<const std::string>(std::move(text));
    return true;
  }
  // Null for a number that was given to none.
  SharedText find(int64_t number) const {
    return number >= 0 && number < size() ? texts_[number] : nullptr;
  }

 private:
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  std::vector<SharedText> texts_{std::make_shared<const std::string>()};
};

}  // namespace shardwise
