// Error reporting across the backend seam: a code, and a message written into the caller's buffer.
// No C++ exception crosses the seam.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>

namespace shardwise {

enum class Code : int32_t {
  Ok = 0,
  Invalid = 1,  // bad operand: a bug above, or user input that only the kernel can see
  OutOfMemory = 2,
  Index = 3,        // an index value read from a tensor is out of range
  Device = 4,       // the device or its driver reported a fault
  Unsupported = 5,  // no kernel for this dtype or device
  Closed = 6,       // freed storage, destroyed stream
  Lost = 7,         // an operand that an earlier failure left without a value
  Peer = 8,         // another rank: it differs, is gone, or does not come
};

constexpr int32_t kErrorBytes = 1536;
// What follows this mark in the text is for programs, not for readers: see describe_facts in
// native/comm.
constexpr char kFactsMark = '\x1e', kFieldMark = '\x1f';

struct ErrorText {
  ErrorText() { text[0] = 0; }  // not the whole buffer: one is made for every command
  char text[kErrorBytes];
};

// Returned by value; the message lives in the ErrorText that was passed down.
struct Status {
  Code code = Code::Ok;
  constexpr bool ok() const { return code == Code::Ok; }
};

constexpr Status kOk{Code::Ok};

__attribute__((format(printf, 3, 4))) inline Status fail(ErrorText* error, Code code,
                                                         const char* format, ...) {
  if (error) {
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
  }
  return Status{code};
}

}  // namespace shardwise
