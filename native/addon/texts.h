// Texts that JavaScript passes repeatedly, such as call sites, by numbers that it assigns to them.
#pragma once
#include <memory>
#include <string>
#include <vector>

namespace shardwise {

// A holder keeps its text, on any thread, when the number gets another one.
using SharedText = std::shared_ptr<const std::string>;

class TextTable {
 public:
  // lib/native/text-numbers.ts has the same limit.
  static constexpr int64_t kMost = 4096;

  // False for an invalid number. 0 is always the empty text.
  bool set(int64_t number, std::string text) {
    if (number <= 0 || number >= kMost) return false;
    if (number >= size()) texts_.resize(static_cast<size_t>(number) + 1);
    texts_[number] = std::make_shared<const std::string>(std::move(text));
    return true;
  }
  // Null for a number without a text.
  SharedText find(int64_t number) const {
    return number >= 0 && number < size() ? texts_[number] : nullptr;
  }

 private:
  int64_t size() const { return static_cast<int64_t>(texts_.size()); }
  std::vector<SharedText> texts_{std::make_shared<const std::string>()};
};

}  // namespace shardwise
