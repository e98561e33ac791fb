// Shared by the files of the NCCL self-test: ranks as threads with a GPU each, device memory,
// values of every dtype, checks that print the values they compare. It calls the CUDA backend only
// through its table of functions.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../../include/backend.h"
#include "scratch.h"

namespace selftest {

using namespace shardwise;

struct Rank {
  const Backend& backend;
  int32_t rank, size;
  int64_t timeout_ms;
  void* stream = nullptr;
  void* group = nullptr;
  Scratch scratch;

  Status run(CollectiveCall call, ErrorText* error) const { return run_in(group, call, error); }
  Status run_in(void* member, CollectiveCall call, ErrorText* error) const;
  void synchronize() const;
};

// Runs `body` on `size` threads that have joined one group, and destroys it. False if a rank could
// not join.
using Body = std::function<void(Rank& rank)>;
bool run_ranks(const Backend& backend, int32_t size, int64_t timeout_ms, const Body& body);

// Prints the text of a failed check, once for each rank and test.
__attribute__((format(printf, 3, 4))) bool check(bool condition, int32_t rank, const char* format,
                                                 ...);
// Prints PASS or FAIL for all checks since the last call.
void end_test(const char* name);
bool all_passed();

double seconds();
bool contains(const ErrorText& error, const char* part);

// Elements that differ by rank and index, small enough for exact sums in every dtype.
double value_of(DType dtype, Reduce reduce, int32_t rank, int64_t index);
void encode(DType dtype, double value, char* out);
double decode(DType dtype, const char* in);
double wrapped(DType dtype, double value);  // the value modulo the range of an integer dtype
double tolerance(DType dtype);

// Device memory followed by a guard that nothing may write.
class Buffer {
 public:
  Buffer(const Rank& rank, DType dtype, int64_t count);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  void write(const std::function<double(int64_t)>& value);
  // Compares all elements, and the guard.
  void expect(const std::string& label, const std::function<double(int64_t)>& value,
              double slack = 0);
  void* at(int64_t index) const { return data_ + index * item_size(dtype_); }
  int64_t count() const { return count_; }

 private:
  static constexpr int64_t kBorder = 64;
  int64_t bytes() const { return count_ * item_size(dtype_); }
  const Rank& rank_;
  DType dtype_;
  int64_t count_;
  char* data_ = nullptr;
};

CollectiveCall call_of(Collective kind, DType dtype, const void* in, void* out, const char* name);

void test_values(const Backend& backend, int32_t size);
void test_sums(const Backend& backend, int32_t size);
void test_splits(const Backend& backend, int32_t size);
void test_faults(const Backend& backend, int32_t size);
void test_absence(const Backend& backend);
void leave_without_destroy(const Backend& backend, int32_t size);
void time_all(const Backend& backend, int32_t size);

}  // namespace selftest
