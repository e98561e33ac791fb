// Collective calls of JavaScript: decodes the words, checks the operands, and puts the call into the
// ring of the group's stream.
#pragma once
#include "parameter.h"
#include "texts.h"

namespace shardwise {

class Collectives {
 public:
  explicit Collectives(Environment& state) : state_(state) {}

  // Called by JavaScript. The words of a call name texts by numbers.
  Status set_text(int64_t number, Napi::Value text, ErrorText* error);
  Status call(int64_t words, ErrorText* error);

 private:
  Environment& state_;
  TextTable texts_;
};

}  // namespace shardwise
