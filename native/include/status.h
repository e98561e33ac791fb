// Error reporting across the backend seam: a code, a message in the caller's buffer, and what the
// error says to programs. No C++ exception crosses the seam.
#pragma once
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "failure_details.h"

namespace shardwise {

enum class Code : int32_t {
  Ok = 0,
  Invalid = 1,  // bad operand: a bug above, or user input that only the kernel can see
  OutOfMemory = 2,
  Index = 3,        // an index value read from a tensor is out of range
  Device = 4,       // the device or its driver reported a fault
  Unsupported = 5,  // no kernel for this dtype or device
  Closed = 6,       // freed storage, destroyed stream
  NoValue = 7,      // an operand that an earlier failure left without a value
  Peer = 8,         // another rank: it differs, is gone, or does not come
};

constexpr int32_t kErrorBytes = 1536;

struct ErrorText {
  ErrorText() {  // does not clear the whole buffer: every command has one
    text[0] = 0;
    details.clear();
  }
  ErrorText(const ErrorText& other) { *this = other; }
  // Copies what is in use.
  ErrorText& operator=(const ErrorText& other) {
    if (this == &other) return *this;
    const size_t length = strnlen(other.text, sizeof text - 1);
    memcpy(text, other.text, length);
    text[length] = 0;
    details.set(other.details);
    return *this;
  }

  char text[kErrorBytes];
  FailureDetails details;
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
    error->details.clear();
  }
  return Status{code};
}

inline ErrorText error_text(const char* text) {
  ErrorText error;
  fail(&error, Code::Ok, "%s", text);
  return error;
}

// The same failure again, with its details.
inline Status fail_with(ErrorText* error, Code code, const ErrorText& cause) {
  if (error) *error = cause;
  return Status{code};
}

// Every error that is copied from this one reports the same failure.
inline ErrorText& with_id(ErrorText& error) {
  if (error.details.id == 0) error.details.id = new_failure_id();
  return error;
}

}  // namespace shardwise
