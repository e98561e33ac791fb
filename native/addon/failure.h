// Failures of calls. A call that fails keeps its failure and returns null; lib/native/guard.ts then
// calls `takeFailure` and throws. Native code throws nothing: Node holds an exception of native code
// while V8 collects garbage to create its message, mistakes it for an exception of a finalizer that
// runs meanwhile (at NAPI_EXPERIMENTAL), and ends the process.
#pragma once
#include <napi.h>

#include "../include/status.h"

namespace shardwise {

// The failure of the last call that failed.
struct CallFailure {
  Code code = Code::Ok;
  ErrorText error;
};

// A failure as a NativeFailure of lib/native/failure.ts.
Napi::Object failure_value(Napi::Env env, Code code, const ErrorText& error);

}  // namespace shardwise
