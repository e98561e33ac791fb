// The types that gloo's public headers take from gloo/common/memory.h, which packages leave out:
// their layout, unchanged since 2019, and what those headers call. The library has the code.
#pragma once
#include <memory>

namespace gloo {

template <typename T>
class WeakNonOwningPtr;

template <typename T>
class NonOwningPtr final {
  std::shared_ptr<T> ptr_;
};

template <typename T>
class ShareableNonOwningPtr final {
 protected:
  std::shared_ptr<T> ptr_;
  friend class WeakNonOwningPtr<T>;
};

template <typename T>
class WeakNonOwningPtr final {
 public:
  WeakNonOwningPtr() = default;
  explicit WeakNonOwningPtr(const ShareableNonOwningPtr<T>& ref) : ptr_(ref.ptr_) {}

 protected:
  std::weak_ptr<T> ptr_;
};

}  // namespace gloo
