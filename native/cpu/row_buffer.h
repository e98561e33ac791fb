// Uninitialised working memory of one row: on the stack if it is short, so that a small kernel does
// not allocate.
#pragma once
#include <cstdint>
#include <memory>

namespace shardwise::cpu {

template <class T>
class RowBuffer {
 public:
  explicit RowBuffer(int64_t count)
      : heap_(count > kInline ? new T[static_cast<size_t>(count)] : nullptr) {}
  T* data() { return heap_ ? heap_.get() : inline_; }
  T& operator[](int64_t i) { return data()[i]; }

 private:
  static constexpr int64_t kInline = 256;
  T inline_[kInline];
  std::unique_ptr<T[]> heap_;
};

}  // namespace shardwise::cpu
