// Values that nothing can be drawn by, and the messages for them on all devices.
#pragma once
#include "status.h"

namespace shardwise {

struct DrawFault {
  enum Kind : int64_t {
    Probability,  // not in [0, 1]
    Weight,       // negative, infinite or NaN
    NoWeight,     // a row whose weights are all 0
    FewWeights,   // a row with fewer weights above 0 than `least`
  };
  Kind kind;
  double given;      // the value; of a row, the number of weights above 0
  int64_t position;  // of the value, or the row
  int64_t least;
};

inline Status fail_draw(ErrorText* error, const char* prefix, const DrawFault& fault) {
  const auto at = static_cast<long long>(fault.position);
  switch (fault.kind) {
    case DrawFault::Probability:
      return fail(error, Code::Invalid,
                  "%sexpected probabilities between 0 and 1, got %g at position %lld", prefix,
                  fault.given, at);
    case DrawFault::Weight:
      return fail(error, Code::Invalid,
                  "%sexpected finite weights of 0 or more, got %g at position %lld", prefix,
                  fault.given, at);
    case DrawFault::NoWeight:
      return fail(error, Code::Invalid, "%sexpected a positive sum of weights in row %lld", prefix,
                  at);
    default:
      return fail(error, Code::Invalid,
                  "%sexpected %lld weights above 0 or replacement, got %g in row %lld", prefix,
                  static_cast<long long>(fault.least), fault.given, at);
  }
}

}  // namespace shardwise
