// Commands: what submit.cc, which decodes one for one run, and plan.cc, which decodes many for all
// their runs, have in common.
#pragma once
#include <vector>

#include "../include/kernel_call.h"
#include "../runtime/storage_table.h"
#include "parameter.h"

namespace shardwise {

constexpr int64_t kImmediate = -1, kAllocate = -2, kIndexView = -3;  // instead of a handle
constexpr int64_t kMaxOperands = 4096;

class WordReader {
 public:
  WordReader(const double* words, int64_t count) : words_(words), count_(count) {}
  bool next(int64_t* out) {
    if (at_ >= count_) return false;
    *out = to_integer(words_[at_++]);
    return *out != INT64_MIN;
  }
  bool number(double* out) {
    if (at_ >= count_) return false;
    *out = words_[at_++];
    return true;
  }
  int64_t at() const { return at_; }
  int64_t left() const { return count_ - at_; }

 private:
  const double* words_;
  int64_t count_, at_ = 0;
};

// A command that was decoded for one run.
struct Decoded {
  KernelCall call{};
  Stream* stream = nullptr;
  int64_t flags = 0, cost = 0;
  bool borrowed = false;  // an operand is in an ArrayBuffer
  std::vector<TensorView> views;
  std::vector<int64_t> dims;
  std::vector<double> params;
  struct Operand {
    int64_t handle;       // 0 for none
    StorageEntry* entry;  // null for none
  };
  std::vector<Operand> operands;
  struct Slot {
    int64_t word;     // of the word with kAllocate
    int64_t operand;  // its index
  };
  std::vector<Slot> slots;
  void clear() {
    call = KernelCall{};
    borrowed = false;
    views.clear();
    dims.clear();
    operands.clear();
    slots.clear();
  }
};

class Commands {
 public:
  explicit Commands(Environment& state) : state_(state) {}

  // Called by JavaScript: runs the command in the shared words, and writes the handles of outputs
  // that it allocates there. Returns their tokens if the command asks for them.
  Status submit(double words, Napi::Value* tokens, ErrorText* error);

 private:
  Napi::Value tokens();

  Environment& state_;
  Decoded command_;  // the present one; its memory is reused
};

// Reads ndim, sizes and strides, and appends the latter two to `dims`; returns the number of
// elements that the view spans, or -1 for an invalid word.
int64_t read_layout(WordReader& in, TensorView& view, std::vector<int64_t>& dims);

// The cost that a command states: an estimate of its work; 0 if it states none.
inline int64_t stated_cost(double cost) {
  return cost > 0 && cost < 9e18 ? static_cast<int64_t>(cost) : 0;
}

// Whether a command of that cost runs at once on the caller's thread, by run_inline.
bool runs_inline(const Stream& stream, int64_t cost);
Status run_inline(Stream& stream, KernelCall& call, ErrorText* error);

}  // namespace shardwise
