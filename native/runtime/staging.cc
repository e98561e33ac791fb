#include "staging.h"

#include <mutex>
#include <vector>

namespace shardwise {

namespace {

struct Kept {
  std::mutex mutex;
  std::vector<void*> small_ones, large_ones;
  std::vector<void*>& of(int64_t bytes) { return bytes <= kSmallStaging ? small_ones : large_ones; }
};

Kept& kept() {
  // never destroyed: a backend's thread may still give one back while the process ends
  static Kept* instance = new Kept;
  return *instance;
}

}  // namespace

Status take_staging(const Backend* backend, int64_t bytes, void** out, ErrorText* error) {
  {
    std::lock_guard<std::mutex> lock(kept().mutex);
    std::vector<void*>& free_ones = kept().of(bytes);
    if (!free_ones.empty()) {
      *out = free_ones.back();
      free_ones.pop_back();
      return kOk;
    }
  }
  return backend->host_allocate(bytes <= kSmallStaging ? kSmallStaging : kLargeStaging, out, error);
}

void give_staging(void* buffer, int64_t bytes) {
  std::lock_guard<std::mutex> lock(kept().mutex);
  kept().of(bytes).push_back(buffer);
}

}  // namespace shardwise
